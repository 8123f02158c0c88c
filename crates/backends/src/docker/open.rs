//! How a sandbox is opened: a container is made, attached to, and started, and its guest greeted.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use belljar_core::wire::{Bounds, Init, Plan, TRUST};
use belljar_core::{BUILD, BackendError, Doors, Isolation, Network, Spec};
use bollard::errors::Error;
use bollard::query_parameters::CreateContainerOptionsBuilder;

use super::container::{self, Wanted, Writable};
use super::engine::{ANSWER, WORK, explain, within};
use super::orphans::SANDBOX;
use super::place::Container;
use super::ready::Ready;
use super::stream::{self, Ends};
use super::{Docker, Fetch, Given, There, fresh_name};
use crate::layout::{self, Trust};
use crate::link::{Link, NotThere};
use crate::linked::Linked;
use crate::slots::Slots;
use crate::{network, setup, store, sys};

/// Past this a process has more than the guest's watch let it have.
const WATCH_SLACK_BYTES: u64 = 64 * 1024 * 1024;

/// The user inside, which a directory to build in has to be of.
const INSIDE_ID: u32 = 1000;

/// Why a sandbox could not be opened.
#[derive(Debug)]
pub(super) enum Failed {
    /// The engine, or the image in it, is not what it was: another try may find it.
    Stale(BackendError),
    Because(BackendError),
}

impl Failed {
    pub(super) fn into_error(self) -> BackendError {
        match self {
            Failed::Stale(error) | Failed::Because(error) => error,
        }
    }
}

impl From<BackendError> for Failed {
    fn from(error: BackendError) -> Failed {
        Failed::Because(error)
    }
}

impl Docker {
    pub(super) async fn open_in(&self, there: &Arc<There>, spec: &Spec) -> Result<Linked<Container>, Failed> {
        let given = &self.given;
        // One that hangs is told of at once, and not after all that it is given for its work.
        let answer = tokio::time::timeout(ANSWER, there.engine.client.ping()).await;
        match answer {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(Failed::Stale(explain("greeting it", error))),
            Err(_) => return Err(Failed::Because(there.engine.hangs())),
        }
        store::check(given.store.as_ref(), spec)?;
        let ports = network::ports(&spec.network)?;
        let fetch = if given.settings.pull { Fetch::Yes } else { Fetch::No };
        let image = spec.ground.image.as_deref().unwrap_or(&given.image);
        let ready = there.ready(image, fetch).await.map_err(|error| match error {
            // Whoever named the template can name another.
            BackendError::Unavailable { why, fix } if spec.ground.image.is_some() && !why.contains(WENT_AWAY) => {
                let instead = format!("use another template; for this one, its operator can do this: {fix}");
                Failed::Because(BackendError::Lacks { what: why, instead })
            }
            other => stale_if_gone(other),
        })?;
        let chosen = ready.survey.choose(&spec.ground.interpreters, &ready.reference)?;
        let limits = spec.limits;
        // Where the kernel counts nothing for the container alone, the guest watches.
        let is_held = there.engine.info.memory_limit != Some(false) && !there.ways.is_gvisor();
        let bounds = Bounds {
            // Not what the host's kernel counts for a user: all containers have the same one, and the engine holds each by
            // itself. gVisor's own kernel has no other user's to count, and the engine cannot see what it has.
            processes: if there.ways.is_gvisor() { limits.processes + 2 } else { u32::MAX },
            open_files: limits.open_files,
            data_bytes: (!is_held).then_some(limits.memory_bytes + limits.memory_bytes / 4 + WATCH_SLACK_BYTES),
        };
        let plan = Plan { disk_bytes: None, bounds, ports: ports.clone(), builds: spec.build.is_some() };
        let plan = plan.to_argument().map_err(|error| setup("writing a plan", &error))?;
        let wanted = (Arc::clone(there), Arc::clone(&ready), plan, spec.clone());
        // In a task of its own: a caller that goes away must not leave a container that nobody knows of.
        let making = tokio::spawn(make(Arc::clone(given), wanted));
        let (mut container, ends) = making.await.map_err(|error| setup("making a container", &error))??;
        let is_counted = container.find_counter().await?;
        let trust = if given.trust.is_some() && given.sandboxes.is_some() { Trust::Ours } else { Trust::Hosts };
        let init = Init {
            env: layout::environment(&chosen, &spec.network, trust, &spec.env),
            interpreters: chosen.programs,
            watch_memory_bytes: (!is_held || !is_counted).then_some(limits.memory_bytes),
            waiting: spec.waiting,
            copied: false,
            forked: None,
        };
        let greeting = Link::establish(ends.read, ends.write, init);
        let greeted = tokio::time::timeout(WORK, greeting).await;
        let link = greeted.map_err(|_| setup("waiting for the guest", &"it does not answer"))?.map_err(not_there)?;
        let doors = ports.is_some().then(|| link.relay()).flatten().map(Doors::Relayed);
        Ok(Linked {
            isolation: isolation(there, &ready, is_held, is_counted, &spec.network),
            cpus: limits.cpu_milli.div_ceil(1000),
            languages: ready.survey.languages(),
            doors: Mutex::new(doors),
            added: AtomicU32::new(0),
            place: container,
            link,
        })
    }
}

type Making = (Arc<There>, Arc<Ready>, String, Spec);

async fn make(given: Arc<Given>, (there, ready, plan, spec): Making) -> Result<(Container, Ends), Failed> {
    let name = fresh_name()?;
    let own = given.store.as_ref().and(given.sandboxes.as_ref()).map(|sandboxes| sandboxes.join(&name));
    let mut container = Container::new(&there.engine, name.clone(), own.clone());
    let mut binds = Vec::new();
    if let (Some(store), Some(own)) = (given.store.as_ref().and_then(|store| store.path()), own) {
        let (store, layers) = (PathBuf::from(store), spec.layers.clone());
        let pythons: Vec<String> = ready.survey.python().into_iter().collect();
        let opening = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&own)?;
            Slots::open(&store, own.join("layers"), &pythons, &layers)
        });
        let opened = opening.await.map_err(|error| setup("making a place for layers", &error))?;
        let (slots, mounts) = opened.map_err(|error| setup("making a place for layers", &error))?;
        binds.extend(mounts.into_iter().map(|bind| (bind.host, bind.inside, Writable::No)));
        container = container.with_slots(slots);
    }
    binds.extend(own_files(&given)?);
    if let (Some(store), Some(build)) = (&given.store, &spec.build) {
        binds.push((building(store, build)?, BUILD.to_owned(), Writable::Yes));
    }
    let mut body = container::body(
        &there.ways,
        Wanted {
            image: &ready.image,
            arguments: vec![plan],
            limits: &spec.limits,
            binds,
            volumes: &ready.volumes,
            has_network: spec.network != Network::None,
        },
    );
    body.labels.get_or_insert_default().insert(SANDBOX.to_owned(), name.clone());
    let options = CreateContainerOptionsBuilder::default().name(&name).build();
    let client = &there.engine.client;
    let created = tokio::time::timeout(WORK, client.create_container(Some(options), body)).await;
    match created {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(stale(error, "making a container")),
        Err(_) => {
            return Err(within(WORK, "making a container", client.ping())
                .await
                .err()
                .map_or_else(too_slow, Failed::from));
        }
    }
    let ends = stream::attach(&there.engine, &name).await?;
    within(WORK, "starting a container", client.start_container(&name, None)).await?;
    Ok((container, ends))
}

/// Files that containers are shown in place of the image's and the engine's: what programs trust on their way out, which is
/// one server's and no part of an image; where names are asked for; and no names of the host's.
fn own_files(given: &Given) -> Result<Vec<(String, String, Writable)>, BackendError> {
    let Some(sandboxes) = &given.sandboxes else { return Ok(Vec::new()) };
    let etc = layout::OWN_ETC.into_iter().filter(|(path, _)| ENGINES.contains(path));
    let trust = given.trust.as_deref().map(|trust| (TRUST, trust));
    let files = etc.chain(trust).map(|(inside, content)| {
        let file = sandboxes.join(inside.rsplit('/').next().unwrap_or(inside));
        if !file.exists() {
            // Under another name until it is whole: two may open at once.
            let whole = sandboxes.join(fresh_name()?);
            std::fs::create_dir_all(sandboxes)
                .and_then(|()| std::fs::write(&whole, content))
                .and_then(|()| std::fs::set_permissions(&whole, std::fs::Permissions::from_mode(0o444)))
                .and_then(|()| std::fs::rename(&whole, &file))
                .map_err(|error| setup("writing a container's own files", &error))?;
        }
        Ok((file.to_string_lossy().into_owned(), inside.to_owned(), Writable::No))
    });
    files.collect()
}

/// What engines write themselves, and Podman with names and addresses of the host's.
const ENGINES: [&str; 2] = ["/etc/hosts", "/etc/resolv.conf"];

/// The names of all of them in the server's directory.
pub(super) const OWN_FILES: [&str; 3] = ["ca.pem", "hosts", "resolv.conf"];

fn too_slow() -> Failed {
    Failed::Because(setup("making a container", &"the engine takes too long"))
}

/// The directory of the store that a sandbox may write, made its user's.
fn building(store: &store::Store, name: &str) -> Result<String, BackendError> {
    if sys::is_admin() {
        store.give(name, INSIDE_ID)?;
    } else if rustix::process::geteuid().as_raw() != INSIDE_ID {
        return Err(BackendError::Unavailable {
            why: "packages cannot be built in containers for this user: they run as uid 1000, and this user's files are not theirs"
                .to_owned(),
            fix: "run the server as root, or build packages with the native wall".to_owned(),
        });
    }
    let base = store.path().ok_or_else(|| setup("naming a directory to build in", &"its path is no text"))?;
    Ok(format!("{base}/{name}"))
}

/// Podman's ways of saying that there is no such image. The second is when it takes an id that it does not know for a name.
const GONE: [&str; 2] = ["image not known", "cannot specify 64-byte hexadecimal strings"];

fn stale(error: Error, step: &str) -> Failed {
    match &error {
        Error::DockerResponseServerError { status_code: 404, .. } => Failed::Stale(explain(step, error)),
        Error::DockerResponseServerError { message, .. } if GONE.iter().any(|words| message.contains(words)) => {
            Failed::Stale(explain(step, error))
        }
        _ => stale_if_gone(explain(step, error)),
    }
}

/// As the engine's own errors are told.
const WENT_AWAY: &str = "went away";

fn stale_if_gone(error: BackendError) -> Failed {
    match &error {
        BackendError::Unavailable { why, .. } if why.contains(WENT_AWAY) => Failed::Stale(error),
        _ => Failed::Because(error),
    }
}

fn not_there(why: NotThere) -> BackendError {
    match why {
        NotThere::Failed(error) => error,
        NotThere::Broken { step, errno } => {
            setup(&format!("settling into a container: {step}"), &std::io::Error::from_raw_os_error(errno))
        }
    }
}

fn isolation(there: &There, ready: &Ready, is_held: bool, is_counted: bool, wanted: &Network) -> Isolation {
    let (engine, ways) = (&there.engine, &there.ways);
    let kernel = if ways.is_gvisor() { "gVisor's kernel (runsc)" } else { "the host's kernel" };
    let watch = match (is_held, is_counted) {
        (true, true) => "memory pids cpu, by the engine",
        (true, false) => "memory pids cpu, by the engine; the guest watches memory too",
        (false, _) => "pids cpu, by the engine; memory by the guest's watch",
    };
    let user = match engine.user_namespace() {
        Some(how) => format!("uid 1000 of a user namespace ({how})"),
        None => "uid 1000 of the host's, shared by all containers of this engine".to_owned(),
    };
    Isolation {
        backend: "docker".to_owned(),
        namespaces: {
            let users = if engine.user_namespace().is_some() { "user " } else { "" };
            let (name, version, image) = (engine.name(), &engine.version, &ready.reference);
            format!("{users}pid mount net ipc uts cgroup, by {name} {version} on {image}; {kernel}")
        },
        seccomp: match &ways.seccomp {
            Some(_) => "allow-list, by the engine and inside".to_owned(),
            None => "the engine's own, and an allow-list inside".to_owned(),
        },
        landlock: if ways.is_gvisor() { "none: gVisor has none" } else { "inside, if the kernel has it" }.to_owned(),
        cgroup: watch.to_owned(),
        network: network::describe(wanted),
        user,
    }
}
