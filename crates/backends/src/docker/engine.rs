//! A container engine behind its socket: finding it, asking it within a deadline, and the words for what goes wrong.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_core::BackendError;
use bollard::errors::Error;
use bollard::models::SystemInfo;
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::settings::DockerSettings;
use crate::setup;

/// What an engine that works answers in.
pub(super) const ANSWER: Duration = Duration::from_secs(8);
/// Making and starting a container, on a machine that is busy.
pub(super) const WORK: Duration = Duration::from_secs(60);
/// The client's own deadline, which is never to come before ours.
const CLIENT_SECONDS: u64 = 3600;
/// No more of an engine's words is passed on.
const WORDS_MAX: usize = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Podman,
}

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) client: Docker,
    pub(super) kind: Kind,
    pub(super) version: String,
    /// What it says of itself.
    pub(super) info: SystemInfo,
    pub(super) socket: PathBuf,
}

/// Where an engine may be: the one that is named, or the usual places in their order.
fn sockets(settings: &DockerSettings) -> Result<Vec<PathBuf>, BackendError> {
    if let Some(named) = &settings.socket {
        let path = named.strip_prefix("unix://").unwrap_or(named);
        if !path.starts_with('/') {
            return Err(BackendError::Unavailable {
                why: format!("{named:?} is not the socket of an engine on this host"),
                fix: "set socket in [docker] to a path, such as unix:///var/run/docker.sock".to_owned(),
            });
        }
        return Ok(vec![PathBuf::from(path)]);
    }
    let of_user =
        settings.user_runtime.iter().flat_map(|own| [own.join("docker.sock"), own.join("podman/podman.sock")]);
    let first = [PathBuf::from("/var/run/docker.sock")];
    Ok(first.into_iter().chain(of_user).chain([PathBuf::from("/run/podman/podman.sock")]).collect())
}

impl Engine {
    /// The first engine that answers. Where none does, what is said is of the one that came nearest to it.
    pub(super) async fn connect(settings: &DockerSettings) -> Result<Engine, BackendError> {
        let mut nearest: Option<BackendError> = None;
        for socket in sockets(settings)? {
            match Engine::at(&socket).await {
                Ok(engine) => return Ok(engine),
                Err((Near::NoSocket, error)) => drop(nearest.get_or_insert(error)),
                Err((Near::Something, error)) if settings.socket.is_some() => return Err(error),
                Err((Near::Something, error)) => nearest = Some(error),
            }
        }
        Err(nearest.unwrap_or_else(|| setup("looking for an engine", &"there is no place to look")))
    }

    async fn at(socket: &Path) -> Result<Engine, (Near, BackendError)> {
        let shown = socket.display();
        let reached = tokio::time::timeout(ANSWER, tokio::net::UnixStream::connect(socket)).await;
        match reached {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(unreachable_at(socket, &error)),
            Err(_) => return Err((Near::Something, hangs(&shown))),
        }
        let something = |error: BackendError| (Near::Something, error);
        let client = Docker::connect_with_unix(&socket.to_string_lossy(), CLIENT_SECONDS, API_DEFAULT_VERSION)
            .map_err(|error| something(explain("connecting to the engine", error)))?;
        let asked = async {
            let client = client.negotiate_version().await?;
            let (version, info) = (client.version().await?, client.info().await?);
            Ok((client, version, info))
        };
        let answer = tokio::time::timeout(ANSWER, asked).await.map_err(|_| something(hangs(&shown)))?;
        let (client, version, info) =
            answer.map_err(|error: Error| something(explain("asking the engine for its version", error)))?;
        let components = version.components.unwrap_or_default();
        let is_podman = components.iter().any(|component| component.name.contains("Podman"));
        let kind = if is_podman { Kind::Podman } else { Kind::Docker };
        let version = cut(&version.version.unwrap_or_default());
        Ok(Engine { client, kind, version, info, socket: socket.to_owned() })
    }

    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Docker => "Docker",
            Kind::Podman => "Podman",
        }
    }

    /// What to say of it when it does not answer.
    pub(super) fn hangs(&self) -> BackendError {
        hangs(&self.socket.display())
    }

    /// How its containers' users relate to the host's, if by a user namespace.
    pub(super) fn user_namespace(&self) -> Option<&'static str> {
        let options = self.info.security_options.as_deref().unwrap_or_default();
        let has = |word: &str| options.iter().any(|option| option.contains(word));
        if has("name=rootless") {
            Some("rootless engine")
        } else if has("name=userns") {
            Some("userns-remap")
        } else {
            None
        }
    }

    pub(super) fn has_runtime(&self, name: &str) -> bool {
        // Podman names the one that it uses, and finds others by name or path when they are asked for.
        self.kind == Kind::Podman || self.info.runtimes.as_ref().is_some_and(|runtimes| runtimes.contains_key(name))
    }
}

/// How near an attempt came to an engine.
enum Near {
    NoSocket,
    Something,
}

fn unreachable_at(socket: &Path, error: &io::Error) -> (Near, BackendError) {
    let shown = socket.display();
    let (near, why, fix) = match error.kind() {
        io::ErrorKind::NotFound => (
            Near::NoSocket,
            format!("there is no container engine at {shown}"),
            "install Docker or Podman and start it (`systemctl start docker`, or `systemctl --user start podman.socket`), \
             or name its socket in the configuration: [docker] socket = \"unix:///...\"",
        ),
        io::ErrorKind::PermissionDenied => (
            Near::Something,
            format!("this user may not talk to the engine at {shown}"),
            "add the user to the group docker (`usermod -aG docker USER`, then log in anew), or use a rootless engine. \
             Whoever may talk to an engine of root's is as good as root",
        ),
        io::ErrorKind::ConnectionRefused => (
            Near::Something,
            format!("the engine at {shown} is stopped: its socket is there, and nobody listens"),
            "start it (`systemctl start docker`, or `systemctl start podman.socket`)",
        ),
        _ => (
            Near::Something,
            format!("the engine at {shown} cannot be reached: {error}"),
            "look at it with `docker info` or `podman info`",
        ),
    };
    (near, BackendError::Unavailable { why, fix: fix.to_owned() })
}

fn hangs(which: &dyn Display) -> BackendError {
    BackendError::Unavailable {
        why: format!("the container engine at {which} does not answer: it is paused, hangs, or is very busy"),
        fix: "look at it with `docker info` or `podman info`; if that hangs too, start the engine anew".to_owned(),
    }
}

/// An engine's answer within a deadline, or why there is none.
pub(super) async fn within<T>(
    limit: Duration,
    step: &str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, BackendError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(|error| explain(step, error)),
        Err(_) => Err(BackendError::Unavailable {
            why: format!("the container engine did not answer within {} s while {step}", limit.as_secs()),
            fix: "it is paused, hangs, or is very busy: look at it with `docker info` or `podman info`".to_owned(),
        }),
    }
}

/// An error of the engine's in our words.
pub(super) fn explain(step: &str, error: Error) -> BackendError {
    match error {
        Error::DockerResponseServerError { message, .. } | Error::DockerStreamError { error: message } => {
            of_engine(step, &message)
        }
        // Not reached, or broken off in the middle.
        Error::HyperLegacyError { .. } | Error::HyperResponseError { .. } | Error::IOError { .. } => {
            BackendError::Unavailable {
                why: format!("the container engine went away while {step}: {}", cut(&with_sources(&error))),
                fix: "start it again (`systemctl start docker`, or `systemctl start podman.socket`)".to_owned(),
            }
        }
        other => setup(step, &cut(&other.to_string())),
    }
}

fn of_engine(step: &str, message: &str) -> BackendError {
    let lower = message.to_lowercase();
    if lower.contains("no space left") {
        return BackendError::Unavailable {
            why: format!("the container engine's disk is full ({step}: {})", cut(message)),
            fix:
                "free some of it: `docker system df` shows what takes it, `docker system prune` removes what is unused"
                    .to_owned(),
        };
    }
    if lower.contains("unknown runtime") || lower.contains("invalid runtime") {
        return BackendError::Unavailable {
            why: format!("the container engine has no such runtime: {}", cut(message)),
            fix: "tell it of the runtime (\"runtimes\" in /etc/docker/daemon.json), or take `runtime` out of [docker]"
                .to_owned(),
        };
    }
    setup(step, &cut(message))
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        words = format!("{words}: {deeper}");
        source = deeper.source();
    }
    words
}

/// Somebody else's words: few, and of one line.
pub(super) fn cut(words: &str) -> String {
    words.chars().map(|character| if character.is_control() { ' ' } else { character }).take(WORDS_MAX).collect()
}

pub(super) fn is_absent(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(error: BackendError) -> String {
        match error {
            BackendError::Unavailable { why, fix } => format!("{why} | {fix}"),
            other => panic!("{other:?}"),
        }
    }

    fn at(socket: &Path) -> DockerSettings {
        DockerSettings { socket: Some(format!("unix://{}", socket.display())), ..DockerSettings::default() }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_told_from_one_that_is_stopped() {
        let ground = tempfile::tempdir().unwrap();
        let socket = ground.path().join("engine.sock");
        let words = why(Engine::connect(&at(&socket)).await.unwrap_err());
        assert!(words.contains("there is no container engine") && words.contains("[docker] socket"), "{words}");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let words = why(Engine::connect(&at(&socket)).await.unwrap_err());
        assert!(words.contains("is stopped"), "{words}");
    }

    #[tokio::test]
    async fn one_that_hangs_is_told_within_a_deadline() {
        let ground = tempfile::tempdir().unwrap();
        let socket = ground.path().join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        // Takes whoever comes, and says nothing.
        let silent = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
            }
        });
        let words = why(Engine::connect(&at(&socket)).await.unwrap_err());
        assert!(words.contains("does not answer"), "{words}");
        silent.abort();
    }

    #[tokio::test]
    async fn an_address_that_is_no_socket_is_refused() {
        let settings = DockerSettings { socket: Some("tcp://127.0.0.1:2375".to_owned()), ..DockerSettings::default() };
        assert!(why(Engine::connect(&settings).await.unwrap_err()).contains("is not the socket"));
    }

    #[test]
    fn a_full_disk_and_a_runtime_that_is_not_there_have_words_of_their_own() {
        let full = |message: &str| Error::DockerResponseServerError { status_code: 500, message: message.to_owned() };
        let words = why(explain("pulling", full("write /var/lib/docker/tmp/x: no space left on device")));
        assert!(words.contains("disk is full") && words.contains("prune"), "{words}");
        assert!(why(explain("creating", full("Unknown runtime specified runsc"))).contains("daemon.json"));
        assert!(
            matches!(explain("creating", full("other\nthings")), BackendError::Setup { why, .. } if why == "other things")
        );
    }
}
