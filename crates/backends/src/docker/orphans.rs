//! What servers that are gone have left with an engine. Every container of ours says in its labels which server it is of, so
//! that the next one can tell.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use belljar_core::BackendError;
use bollard::models::ContainerSummaryStateEnum;
use bollard::query_parameters::{ListContainersOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder};

use super::engine::{ANSWER, Engine, within};
use super::image::FITTINGS;
use super::place;

/// The label that a server's containers have.
pub(super) const SERVER: &str = "belljar.server";
/// And each one's own.
pub(super) const SANDBOX: &str = "belljar.sandbox";

/// One that another machine, or another boot of it, has made and that does not run is left this long.
const STRANGER_SECONDS: i64 = 600;

/// This server, told so that another one of the same machine can see whether it is alive: boot, process namespace, process and
/// when that was started.
pub(super) fn server() -> String {
    let pid = std::process::id();
    format!("{}.{}.{pid}.{}", boot(), pid_namespace(), started(pid).unwrap_or_default())
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().replace('-', "")
}

fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
}

/// When a process was started, in ticks since the boot; `None` if there is no such process.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name, which may have anything in it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Alive,
    Dead,
    /// Of another machine, boot or process namespace: nothing here tells.
    Unknown,
}

fn owner(label: &str) -> Owner {
    let mut parts = label.split('.');
    let (Some(of_boot), Some(namespace), Some(pid), Some(since), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Owner::Unknown;
    };
    if of_boot != boot() || namespace != pid_namespace() {
        return Owner::Unknown;
    }
    let (Ok(pid), Ok(since)) = (pid.parse(), since.parse::<u64>()) else { return Owner::Unknown };
    if started(pid) == Some(since) { Owner::Alive } else { Owner::Dead }
}

/// Removes what is left of servers that are gone, and tells how many containers that were.
pub(super) async fn sweep(engine: &Engine) -> Result<usize, BackendError> {
    let filters = HashMap::from([("label", vec![SERVER])]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    let listing = engine.client.list_containers(Some(options));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut removed = 0;
    for container in within(ANSWER, "looking for what other servers have left", listing).await? {
        let label = container.labels.as_ref().and_then(|labels| labels.get(SERVER)).map_or("", String::as_str);
        let is_running = container.state == Some(ContainerSummaryStateEnum::RUNNING);
        let is_old = container.created.is_some_and(|created| now - created > STRANGER_SECONDS);
        let is_left = match owner(label) {
            Owner::Alive => false,
            Owner::Dead => true,
            Owner::Unknown => !is_running && is_old,
        };
        if let Some(id) = container.id.filter(|_| is_left) {
            place::remove(engine, &id).await?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes the directories of servers that are gone, which are named as their label.
pub(super) fn sweep_directories(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| owner(name) == Owner::Dead) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes images that other versions of ours were put into. One that is in use stays.
pub(super) async fn sweep_images(engine: &Engine, fittings: &str) -> Result<(), BackendError> {
    let filters = HashMap::from([("label", vec![FITTINGS])]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    for image in
        within(ANSWER, "looking for images of other versions", engine.client.list_images(Some(options))).await?
    {
        if image.labels.get(FITTINGS).is_some_and(|other| other != fittings) {
            let options = RemoveImageOptionsBuilder::default().build();
            let removing = engine.client.remove_image(&image.id, Some(options), None);
            // Another server of another version may be using it, and then the engine keeps it.
            let _ = tokio::time::timeout(ANSWER, removing).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_itself_and_the_dead() {
        assert_eq!(owner(&server()), Owner::Alive);
        let of_me = server();
        let (front, since) = of_me.rsplit_once('.').unwrap();
        assert_eq!(owner(&format!("{front}.{}", since.parse::<u64>().unwrap() + 1)), Owner::Dead);
        let parts: Vec<&str> = of_me.split('.').collect();
        assert_eq!(owner(&format!("{}.{}.{}.1", parts[0], parts[1], u32::MAX)), Owner::Dead);
        for other in ["", "x", &format!("other.{}.{}.{}", parts[1], parts[2], parts[3]), &format!("{of_me}.more")] {
            assert_eq!(owner(other), Owner::Unknown, "{other}");
        }
    }
}
