//! How a server begins: an engine with all that is around it, and who may call.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_access::{Access, Oauth, TokenFile};
use belljar_backends::Preload;
use belljar_core::WallState;
use belljar_engine::{Engine, Settings};
use belljar_gateway::Gateway;
use belljar_server::{CodeMode, Surface};

use crate::complaint::Complaint;
use crate::config::Config;
use crate::watching::{Begun, Watching};
use crate::wiring;

/// An engine on this host; what it cannot do is told at once, and not only to the first caller.
pub(super) fn engine(
    preload: Preload,
    config: &Config,
    settings: Settings,
    watching: Watching,
) -> Result<(Engine, Option<Gateway>, Begun), Complaint> {
    let parts = wiring::watched_parts(preload, config, Some(&watching))?;
    let backend = &parts.backend;
    for wall in backend.probe().walls {
        if let WallState::Missing { why, fix } = wall.state {
            tracing::error!(wall = wall.name, why, fix, "no program can be run here");
        }
    }
    if backend.capabilities().languages.is_empty() {
        tracing::error!("no interpreter was found; belljar doctor says what to install");
    }
    if let Some(provisions) = &parts.provisions {
        let packages = provisions.packages.clone();
        // Nobody waits for it: what it removes is in nobody's way.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = packages.tidy() {
                tracing::warn!(%error, "the store of packages could not be tidied");
            }
        });
    }
    let gateway = parts.gateway.clone();
    let engine = wiring::engine(parts, settings);
    let begun = watching.begin(&engine);
    Ok((engine, gateway, begun))
}

pub(super) fn with_gateway(surface: Surface, gateway: Option<&Gateway>, begun: &Begun) -> Surface {
    let code_mode = gateway.map(|gateway| Arc::new(gateway.clone()) as Arc<dyn CodeMode>);
    Surface { code_mode, watch: begun.watch.clone(), ..surface }
}

pub(super) fn announce(address: SocketAddr) {
    // Whoever started us waits for this line; without a stderr nobody does.
    let _ = writeln!(std::io::stderr(), "belljar: serving MCP at http://{address}/mcp");
}

/// Who may call over HTTP: by tokens of this file, or of the usual one if there is one, and of the authorization server.
/// `None` when nobody said who.
pub(super) fn access(token_file: Option<&Path>, config: &Config) -> Result<Option<Arc<Access>>, Complaint> {
    let path = match token_file {
        Some(path) => Some(path.to_owned()),
        None => if_there(wiring::usual_tokens())?,
    };
    let file = match path {
        Some(path) => Some(TokenFile::open(&path).map_err(|error| {
            let hint = error.next_step();
            Complaint::new(error.to_string(), hint)
        })?),
        None => None,
    };
    let oauth = match config.oauth.settings() {
        Some(settings) => Some(Oauth::new(settings).map_err(|error| {
            Complaint::new(format!("in the configuration: [oauth]: {error}"), "docs/access.md shows an example")
        })?),
        None => None,
    };
    if file.is_none() && oauth.is_none() {
        return Ok(None);
    }
    let access = file.map(Access::from).unwrap_or_default();
    let access = match oauth {
        Some(oauth) => access.with_oauth(oauth),
        None => access,
    };
    access.set_requests_per_second(config.quota.requests_per_second.value);
    Ok(Some(Arc::new(access)))
}

/// A file that cannot be looked at may have tokens in it: to take it for none would let everybody in. So would a link whose
/// target is away for the moment.
fn if_there(usual: Option<PathBuf>) -> Result<Option<PathBuf>, Complaint> {
    let Some(path) = usual else { return Ok(None) };
    match std::fs::symlink_metadata(&path) {
        Ok(_) => Ok(Some(path)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => {
            let what = format!("whether there is a token file at {} cannot be told: {error}", path.display());
            let hint = "let this user look into its directory, or name another file with --token-file";
            Err(Complaint::new(what, hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_token_file_that_cannot_be_looked_at_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| if_there(Some(folder.path().join(name)));
        std::fs::write(folder.path().join("there"), "").unwrap();
        symlink("away", folder.path().join("link")).unwrap();
        // What root may not look through either.
        symlink("loop", folder.path().join("loop")).unwrap();
        assert!(at("there").unwrap().is_some() && at("link").unwrap().is_some());
        assert!(at("none").unwrap().is_none() && at("there/below").unwrap().is_none());
        assert!(if_there(None).unwrap().is_none());
        let complaint = at("loop/access.json").unwrap_err();
        assert!(
            complaint.what.contains("loop/access.json") && complaint.hint.contains("--token-file"),
            "{complaint:?}"
        );
    }
}
