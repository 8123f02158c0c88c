//! Images, and what is put into them: any image becomes one that a sandbox can begin with, once, by a layer of ours on top.

use std::collections::HashMap;
use std::io::Read;
use std::time::Duration;

use belljar_core::BackendError;
use bollard::errors::Error;
use bollard::models::{ContainerConfig, ContainerCreateBody, HostConfig, ImageInspect};
use bollard::query_parameters::{
    CommitContainerOptionsBuilder, ContainerArchiveInfoOptionsBuilder, CreateContainerOptionsBuilder,
    CreateImageOptionsBuilder, DownloadFromContainerOptionsBuilder, ListImagesOptionsBuilder,
    UploadToContainerOptionsBuilder,
};
use futures_util::StreamExt;

use super::engine::{ANSWER, Engine, Kind, WORK, cut, explain, is_absent, within};
use super::mark::Mark;
use super::{Fetch, place};
use crate::fittings::{self, Fitting};
use crate::setup;

/// The labels of an image that we made: of which fittings, from which image, and the mark that nobody else can put there.
pub(super) const FITTINGS: &str = "belljar.fittings";
const BASE: &str = "belljar.base";
const MARK: &str = "belljar.mark";

/// Changed with what [`archive`] puts beside the fittings.
const LAYOUT: u32 = 4;

const REPOSITORY: &str = "belljar-fitted";
const USERS: &str = "etc/passwd";
const AGENT: &str = "agent:x:1000:1000:agent:/home/agent:/bin/sh\n";
/// No list of users is longer.
const USERS_MAX: usize = 1024 * 1024;
/// An image that takes longer is fetched by hand.
const PULL: Duration = Duration::from_secs(1800);
/// Each is covered by a mount of ours: one that is not would be a directory of the engine's, of any size.
const VOLUMES_MAX: usize = 64;
/// Without a word from the registry for this long there comes none.
const PULL_SILENCE: Duration = Duration::from_secs(120);
const TOLD_EVERY: Duration = Duration::from_secs(5);

/// An image as the engine has it.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) id: String,
    /// Where its own programs are looked for.
    pub(super) path: Option<String>,
    pub(super) volumes: Vec<String>,
}

/// The image of that name, fetched if it is missing and may be.
pub(super) async fn find(engine: &Engine, reference: &str, fetching: Fetch) -> Result<Image, BackendError> {
    if reference.is_empty()
        || reference.len() > 512
        || reference.contains(|c: char| c.is_control() || c.is_whitespace())
    {
        return Err(BackendError::Unavailable {
            why: format!("{:?} is no name of an image", cut(reference)),
            fix: "name one as python:3.12-slim".to_owned(),
        });
    }
    if let Some(found) = look(engine, reference).await? {
        return image(reference, found);
    }
    if fetching == Fetch::No {
        return Err(BackendError::Unavailable {
            why: format!("the container engine has no image {reference}"),
            fix: format!("fetch it with `docker pull {reference}`, or set pull = true in [docker]"),
        });
    }
    fetch(engine, reference).await?;
    let found = look(engine, reference).await?;
    image(reference, found.ok_or_else(|| setup("fetching an image", &"the engine has it not, though it says so"))?)
}

async fn look(engine: &Engine, reference: &str) -> Result<Option<ImageInspect>, BackendError> {
    match tokio::time::timeout(ANSWER, engine.client.inspect_image(reference)).await {
        Ok(Err(error)) if is_absent(&error) => Ok(None),
        Ok(answer) => answer.map(Some).map_err(|error| explain("looking for an image", error)),
        Err(_) => within(ANSWER, "looking for an image", engine.client.inspect_image(reference)).await.map(Some),
    }
}

fn image(reference: &str, found: ImageInspect) -> Result<Image, BackendError> {
    if found.os.as_deref().is_some_and(|os| !os.is_empty() && os != "linux") {
        return Err(BackendError::Unavailable {
            why: format!("the image {reference} is not for Linux"),
            fix: "use one that is".to_owned(),
        });
    }
    let config = found.config.unwrap_or_default();
    let path = config.env.iter().flatten().find_map(|variable| variable.strip_prefix("PATH=").map(str::to_owned));
    let volumes = config.volumes.unwrap_or_default();
    if volumes.len() > VOLUMES_MAX {
        return Err(BackendError::Unavailable {
            why: format!(
                "the image {reference} wants {} volumes, and no more than {VOLUMES_MAX} are kept from the disk",
                volumes.len()
            ),
            fix: "use one with fewer".to_owned(),
        });
    }
    let id = found.id.ok_or_else(|| setup("looking for an image", &"the engine tells no id"))?;
    Ok(Image { id, path, volumes })
}

/// Has the engine fetch an image. How far it has come is told every few seconds, to whoever reads what the server says.
async fn fetch(engine: &Engine, reference: &str) -> Result<(), BackendError> {
    let failed = |why: String| BackendError::Unavailable {
        why: format!("the image {reference} is missing, and fetching it failed: {why}"),
        fix: format!(
            "look at its name and the registry's login with `docker pull {reference}`, or bring it with `docker load`"
        ),
    };
    let tagged = if reference.contains('@') || reference.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        reference.to_owned()
    } else {
        // Without a tag an engine fetches all of them.
        format!("{reference}:latest")
    };
    let options = CreateImageOptionsBuilder::default().from_image(&tagged).build();
    let mut words = Box::pin(engine.client.create_image(Some(options), None, None));
    let (until, mut told) = (tokio::time::Instant::now() + PULL, tokio::time::Instant::now());
    let mut parts: HashMap<String, (u64, u64)> = HashMap::new();
    // Not a mere note: somebody waits for it.
    tracing::warn!(image = reference, "the engine has no such image; fetching it");
    loop {
        let silence = tokio::time::Instant::now() + PULL_SILENCE;
        let next = tokio::time::timeout_at(silence.min(until), words.next()).await;
        match next.map_err(|_| failed("it takes too long".to_owned()))? {
            None => break,
            Some(Err(error)) => {
                return Err(match explain("fetching an image", error) {
                    BackendError::Setup { why, .. } => failed(why),
                    other => other,
                });
            }
            Some(Ok(word)) => {
                if let (Some(id), Some(detail)) = (word.id, word.progress_detail)
                    && (parts.len() < 512 || parts.contains_key(&id))
                {
                    let size = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
                    parts.insert(id, (size(detail.current), size(detail.total)));
                }
            }
        }
        if told.elapsed() >= TOLD_EVERY {
            let sum = |of: fn(&(u64, u64)) -> u64| parts.values().map(of).fold(0, u64::saturating_add) >> 20;
            let (mib, of_mib) = (sum(|part| part.0), sum(|part| part.1));
            tracing::warn!(image = reference, "fetching an image: {mib} of {of_mib} MiB so far");
            told = tokio::time::Instant::now();
        }
    }
    Ok(())
}

/// What the label of an image that we made says, if it is of this build of ours.
pub(super) fn version() -> String {
    format!("{}-{LAYOUT}", fittings::digest())
}

/// The image with our fittings in it: the one that was made before, or a new one. Its id. Labels come with an image from
/// wherever that comes from; by its mark we know our own.
pub(super) async fn fit(engine: &Engine, base: &Image, mark: &Mark) -> Result<String, BackendError> {
    let fittings = version();
    let mark = mark.of(&[&fittings, &base.id]);
    let labels = [(FITTINGS, &fittings), (BASE, &base.id), (MARK, &mark)];
    let wanted: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
    let filters = HashMap::from([("label", wanted.clone())]);
    let options = ListImagesOptionsBuilder::default().filters(&filters).build();
    let known = within(ANSWER, "looking for a fitted image", engine.client.list_images(Some(options))).await?;
    // Not every engine takes several labels at once as all of them.
    let is_it = |labels_there: &HashMap<String, String>| {
        labels.iter().all(|(name, value)| labels_there.get(*name) == Some(*value))
    };
    if let Some(image) = known.into_iter().find(|image| is_it(&image.labels)) {
        return Ok(image.id);
    }
    let name = super::fresh_name()?;
    let fitted = fit_in(engine, base, &name, &wanted, &fittings).await;
    let removed = place::remove(engine, &name).await;
    fitted.and_then(|id| removed.map(|()| id))
}

async fn fit_in(
    engine: &Engine,
    base: &Image,
    name: &str,
    labels: &[String],
    fittings: &str,
) -> Result<String, BackendError> {
    let client = &engine.client;
    // It is never started: there is only something to write into.
    let body = ContainerCreateBody {
        image: Some(base.id.clone()),
        entrypoint: Some(vec!["/belljar/settle".to_owned()]),
        cmd: Some(Vec::new()),
        labels: Some(HashMap::from([(super::orphans::SERVER.to_owned(), super::orphans::server())])),
        host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    within(WORK, "making a container of an image", client.create_container(Some(options), body)).await?;
    let looking = ContainerArchiveInfoOptionsBuilder::default().path("/belljar").build();
    match tokio::time::timeout(ANSWER, client.get_container_archive_info(name, Some(looking))).await {
        Ok(Err(error)) if is_absent(&error) => {}
        Ok(Ok(_)) => {
            return Err(BackendError::Unavailable {
                why: "this image has a /belljar of its own, which is where ours goes".to_owned(),
                fix: "use an image without one".to_owned(),
            });
        }
        Ok(Err(error)) => return Err(explain("looking into an image", error)),
        Err(_) => return within(ANSWER, "looking into an image", client.ping()).await,
    }
    let users = users(engine, name).await?;
    let tar = archive(&users, engine.kind).map_err(|error| setup("packing the fittings", &error))?;
    let options = UploadToContainerOptionsBuilder::default().path("/").build();
    let body = bollard::body_full(tar.into());
    within(WORK, "putting the fittings into an image", client.upload_to_container(name, Some(options), body)).await?;
    let tag: String = base.id.trim_start_matches("sha256:").chars().take(12).collect();
    let options = CommitContainerOptionsBuilder::default()
        .container(name)
        .repo(REPOSITORY)
        .tag(&format!("{tag}-{fittings}"))
        .pause(false)
        .changes(&format!("LABEL {}", labels.join(" ")))
        .build();
    let committing = client.commit_container(options, ContainerConfig::default());
    let made = within(WORK, "keeping a fitted image", committing).await?;
    Ok(made.id)
}

/// The image's list of users, with ours added if nobody there has its number.
async fn users(engine: &Engine, name: &str) -> Result<String, BackendError> {
    let options = DownloadFromContainerOptionsBuilder::default().path(&format!("/{USERS}")).build();
    let mut pieces = Box::pin(engine.client.download_from_container(name, Some(options)));
    let reading = async {
        let mut tar = Vec::new();
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) if tar.len() + piece.len() <= USERS_MAX => tar.extend_from_slice(&piece),
                Ok(_) => return Ok(None),
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok::<_, Error>(Some(tar))
    };
    let tar = within(ANSWER, "reading an image's users", reading).await?;
    let mut known = tar.as_deref().and_then(first_file).unwrap_or_default();
    if !known.is_empty() && !known.ends_with('\n') {
        known.push('\n');
    }
    if !known.lines().any(|line| line.split(':').nth(2) == Some("1000")) {
        known.push_str(AGENT);
    }
    Ok(known)
}

fn first_file(tar: &[u8]) -> Option<String> {
    let mut archive = tar::Archive::new(tar);
    let mut entry = archive.entries().ok()?.next()?.ok()?;
    let mut text = String::new();
    entry.by_ref().take(USERS_MAX as u64).read_to_string(&mut text).ok()?;
    Some(text)
}

/// All that is ours, as an archive of the root.
fn archive(users: &str, kind: Kind) -> std::io::Result<Vec<u8>> {
    // What Podman mounts at a place is root's, and has the mode of the directory that was there.
    let own = if kind == Kind::Podman { 0o1777 } else { 0o755 };
    let mut tar = tar::Builder::new(Vec::new());
    let mut made: Vec<String> = Vec::new();
    for (path, owner, mode) in [
        ("workspace", 1000, own),
        ("home", 0, 0o755),
        ("home/agent", 1000, own),
        ("tmp", 0, 0o1777),
        ("var", 0, 0o755),
        ("var/tmp", 0, 0o1777),
        ("belljar", 0, 0o755),
    ] {
        directory(&mut tar, path, owner, mode)?;
        made.push(path.to_owned());
    }
    for (path, fitting) in fittings::all() {
        let path = path.trim_start_matches('/');
        parents(&mut tar, path, &mut made)?;
        match fitting {
            Fitting::Directory => {
                if !made.iter().any(|known| known == path) {
                    directory(&mut tar, path, 0, 0o755)?;
                    made.push(path.to_owned());
                }
            }
            Fitting::Program(bytes) => file(&mut tar, path, bytes, 0o555)?,
            Fitting::Text(text) => file(&mut tar, path, text.as_bytes(), fittings::mode_of(text))?,
            Fitting::Link(target) => link(&mut tar, path, &target)?,
        }
    }
    for (path, target) in fittings::root_links() {
        link(&mut tar, path.trim_start_matches('/'), &target)?;
    }
    file(&mut tar, USERS, users.as_bytes(), 0o644)?;
    tar.into_inner()
}

type Tar = tar::Builder<Vec<u8>>;

fn parents(tar: &mut Tar, path: &str, made: &mut Vec<String>) -> std::io::Result<()> {
    for (end, _) in path.match_indices('/') {
        let parent = &path[..end];
        if !made.iter().any(|known| known == parent) {
            directory(tar, parent, 0, 0o755)?;
            made.push(parent.to_owned());
        }
    }
    Ok(())
}

fn header(kind: tar::EntryType, mode: u32, owner: u64, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_size(size);
    header.set_mtime(0);
    header
}

fn directory(tar: &mut Tar, path: &str, owner: u64, mode: u32) -> std::io::Result<()> {
    tar.append_data(&mut header(tar::EntryType::Directory, mode, owner, 0), format!("{path}/"), std::io::empty())
}

fn file(tar: &mut Tar, path: &str, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    tar.append_data(&mut header(tar::EntryType::Regular, mode, 0, bytes.len() as u64), path, bytes)
}

fn link(tar: &mut Tar, path: &str, target: &str) -> std::io::Result<()> {
    tar.append_link(&mut header(tar::EntryType::Symlink, 0o777, 0, 0), path, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_whose_volumes_cannot_all_be_covered_is_refused() {
        let of = |count: usize| {
            let volumes = (0..count).map(|number| format!("/v{number}")).collect();
            let config = bollard::models::ImageConfig { volumes: Some(volumes), ..Default::default() };
            let found = ImageInspect { id: Some("sha256:0".to_owned()), config: Some(config), ..Default::default() };
            image("some", found)
        };
        assert_eq!(of(VOLUMES_MAX).unwrap().volumes.len(), VOLUMES_MAX);
        assert!(matches!(of(VOLUMES_MAX + 1), Err(BackendError::Unavailable { .. })));
    }

    #[test]
    fn the_archive_has_every_fitting_once_and_parents_first() {
        let tar = archive("root:x:0:0::/:/bin/sh\n", Kind::Docker).unwrap();
        let mut archive = tar::Archive::new(tar.as_slice());
        let paths: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().to_string_lossy().trim_end_matches('/').to_owned())
            .collect();
        for (number, path) in paths.iter().enumerate() {
            assert_eq!(paths.iter().position(|other| other == path), Some(number), "{path} twice");
            if let Some((parent, _)) = path.rsplit_once('/').filter(|(parent, _)| *parent != "etc") {
                assert!(paths[..number].iter().any(|other| other == parent), "{path} comes before {parent}");
            }
        }
        for path in ["belljar/settle", "belljar/guest", "tools", "node_modules", "workspace", "etc/passwd"] {
            assert!(paths.iter().any(|other| other == path), "{path}");
        }
    }
}
