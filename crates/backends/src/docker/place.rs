//! One container as the host holds it: its name, what its kernel counts, and the directory of its layers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{BackendError, Later, Layer};
use bollard::errors::Error;
use bollard::query_parameters::{KillContainerOptionsBuilder, RemoveContainerOptionsBuilder};

use super::engine::{ANSWER, Engine, Kind, WORK, explain, is_absent, within};
use crate::linked::{self, MemoryKills, no_kills};
use crate::setup;
use crate::slots::Slots;

const TRIES: u32 = 5;
/// Between two tries, and two looks whether it is gone; longer each time.
const PAUSE: Duration = Duration::from_millis(50);
const LOOKS: u32 = 40;

/// Dropping it ends the container and removes what is left of it, in the background.
#[derive(Debug)]
pub(super) struct Container {
    remains: Option<Remains>,
}

#[derive(Debug)]
struct Remains {
    engine: Arc<Engine>,
    name: String,
    /// Where the kernel counts its kills for memory.
    counter: Option<PathBuf>,
    slots: Option<Arc<Slots>>,
    /// The sandbox's own directory on the host.
    directory: Option<PathBuf>,
}

impl Container {
    /// Holds the container of that name, which may not be there yet.
    pub(super) fn new(engine: &Arc<Engine>, name: String, directory: Option<PathBuf>) -> Container {
        let engine = Arc::clone(engine);
        Container { remains: Some(Remains { engine, name, counter: None, slots: None, directory }) }
    }

    pub(super) fn with_slots(mut self, slots: Slots) -> Container {
        if let Some(remains) = &mut self.remains {
            remains.slots = Some(Arc::new(slots));
        }
        self
    }

    /// Looks where its kills for memory are counted, which is where its first process is. Whether they are to be seen at all:
    /// not if the engine is in a machine of its own.
    pub(super) async fn find_counter(&mut self) -> Result<bool, BackendError> {
        let Some(remains) = &mut self.remains else { return Ok(false) };
        let looking = remains.engine.client.inspect_container(&remains.name, None);
        let container = within(ANSWER, "looking at a container", looking).await?;
        let pid = container.state.and_then(|state| state.pid).filter(|pid| *pid > 1);
        remains.counter = pid.zip(container.id).and_then(|(pid, id)| counter(pid, &id));
        Ok(remains.counter.is_some())
    }
}

/// The file that counts, if this process is in a cgroup of that container's.
fn counter(pid: i64, id: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let of_container = |line: &&str| id.len() >= 12 && line.contains(&id[..12]) && !line.contains("..");
    groups.lines().filter(of_container).find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let path = path.trim_start_matches('/');
        let file = match controllers {
            "" => Path::new("/sys/fs/cgroup").join(path).join("memory.events"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                Path::new("/sys/fs/cgroup/memory").join(path).join("memory.oom_control")
            }
            _ => return None,
        };
        kills(&file).map(|_| file)
    })
}

fn kills(file: &Path) -> Option<u64> {
    let counts = fs::read_to_string(file).ok()?;
    counts.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

impl linked::Place for Container {
    fn memory_kills(&self) -> MemoryKills {
        match self.remains.as_ref().and_then(|remains| remains.counter.clone()) {
            Some(file) => Box::new(move || kills(&file).unwrap_or(0)),
            None => no_kills(),
        }
    }

    fn add_layer(&self, layer: Layer) -> Later<'_, ()> {
        Box::pin(async move {
            let slots = self.remains.as_ref().and_then(|remains| remains.slots.clone());
            let Some(slots) = slots else {
                return Err(setup("adding packages", &"this sandbox has no place for them"));
            };
            let adding = tokio::task::spawn_blocking(move || slots.add(&layer)).await;
            adding.map_err(|error| setup("adding packages", &error))?.map_err(|error| setup("adding packages", &error))
        })
    }

    async fn destroy(mut self) -> Result<(), BackendError> {
        match self.remains.take() {
            Some(remains) => remains.clear().await,
            None => Ok(()),
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let Some(remains) = self.remains.take() else { return };
        // Without a runtime the server is ending: its stream goes with it, the guest ends, and the engine removes the rest.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = remains.clear().await {
                    tracing::warn!(%error, "a container may be left; the next start of a server removes it");
                }
            });
        }
    }
}

impl Remains {
    async fn clear(self) -> Result<(), BackendError> {
        let removed = remove(&self.engine, &self.name).await;
        if let Some(directory) = self.directory {
            let _ = tokio::task::spawn_blocking(move || fs::remove_dir_all(directory)).await;
        }
        removed
    }
}

/// Kills a container and removes it, and returns when the engine does not know it any more.
pub(super) async fn remove(engine: &Engine, name: &str) -> Result<(), BackendError> {
    // An engine that hangs is not waited for again and again: the guest's stream is gone, so that the container goes too when
    // the engine comes to itself.
    match tokio::time::timeout(ANSWER, engine.client.ping()).await {
        Ok(answer) => drop(answer.map_err(|error| explain("removing a container", error))?),
        Err(_) => return Err(engine.hangs()),
    }
    if engine.kind == Kind::Podman {
        // It asks a container to end first, waits ten seconds, and lets nobody else look at its containers meanwhile.
        let options = KillContainerOptionsBuilder::default().signal("SIGKILL").build();
        let _ = tokio::time::timeout(ANSWER, engine.client.kill_container(name, Some(options))).await;
    }
    let mut pause = PAUSE;
    for tried in 1..=TRIES {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let removing = engine.client.remove_container(name, Some(options));
        match tokio::time::timeout(WORK, removing).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if is_absent(&error) => return Ok(()),
            // The engine is at it already, since the guest has ended.
            Ok(Err(Error::DockerResponseServerError { status_code: 409, .. })) => {
                return wait_until_gone(engine, name).await;
            }
            Ok(Err(error)) if tried == TRIES => return Err(explain("removing a container", error)),
            Err(_) if tried == TRIES => {
                return within(ANSWER, "removing a container", engine.client.ping()).await.map(|_| ());
            }
            Ok(Err(Error::DockerResponseServerError { .. })) | Err(_) => {}
            // Nobody is there to be asked again.
            Ok(Err(error)) => return Err(explain("removing a container", error)),
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Ok(())
}

async fn wait_until_gone(engine: &Engine, name: &str) -> Result<(), BackendError> {
    for _ in 0..LOOKS {
        match tokio::time::timeout(ANSWER, engine.client.inspect_container(name, None)).await {
            Ok(Err(error)) if is_absent(&error) => return Ok(()),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
    Err(setup("removing a container", &"the engine says that it is at it, and does not come to an end"))
}
