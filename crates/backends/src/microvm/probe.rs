//! What of a machine's needs this host has, and how to get the rest.

use belljar_core::{BackendError, Language, Probe, Wall, WallState};

use super::Microvm;
use super::base::Base;

pub(super) fn probe(microvm: &Microvm) -> Probe {
    let machine = match found(microvm) {
        Ok(base) => match (&base.emulated, base.tried) {
            (None, tried) => WallState::Stands {
                detail: format!(
                    "{} {}, kernel {}{}",
                    base.vmm.name(),
                    base.vmm.version(),
                    base.kernel.release(),
                    tried
                        .map_or_else(String::new, |tried| format!("; a machine was up after {} ms", tried.as_millis()))
                ),
            },
            (Some(why), _) => WallState::Weaker {
                why: format!("emulated, no security boundary: {why}"),
                fix: "use a host on which KVM runs machines".to_owned(),
            },
        },
        Err(error) => missing(error),
    };
    let image = match &microvm.root {
        Ok(root) => WallState::Stands { detail: root.path.display().to_string() },
        Err(error) => missing(error.clone()),
    };
    let language = |language: Language| {
        let state = match &microvm.root {
            Ok(root) => match root
                .inside()
                .choose(&[])
                .ok()
                .and_then(|chosen| chosen.programs.into_iter().find(|(known, _)| *known == language))
            {
                Some((_, program)) => WallState::Stands { detail: format!("{program} in the image") },
                None => WallState::Missing {
                    why: "the image has none".to_owned(),
                    fix: format!("use an image that has {language}"),
                },
            },
            Err(error) => missing(error.clone()),
        };
        Wall { name: language.name(), state }
    };
    Probe {
        walls: vec![Wall { name: "machine", state: machine }, Wall { name: "image", state: image }],
        languages: Language::ALL.into_iter().map(language).collect(),
    }
}

fn missing(error: BackendError) -> WallState {
    match error {
        BackendError::Unavailable { why, fix } => WallState::Missing { why, fix },
        other => WallState::Missing { why: other.to_string(), fix: "see the server's log".to_owned() },
    }
}

/// As the first sandbox would find it. On a thread of its own: whoever asks may be in a runtime, or in none.
pub(super) fn found(microvm: &Microvm) -> Result<std::sync::Arc<Base>, BackendError> {
    if let Ok(base) = microvm.base.try_lock()
        && let Some(base) = &*base
    {
        return Ok(std::sync::Arc::clone(base));
    }
    let host = microvm.host.clone();
    let looking = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| crate::setup("looking for what machines need", &error))?;
        runtime.block_on(Base::new(host)).map(std::sync::Arc::new)
    });
    let hung = |_| Err(crate::setup("looking for what machines need", &"it failed"));
    looking.join().unwrap_or_else(hung)
}
