//! Puts the rooms together: the host's facts, a backend, an engine, a runtime.

#![expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]

mod filter;
mod gateway;
mod log;
mod outside;
mod records;

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use belljar_backends::{Choice, Host, Preload, Strongest, WishedWall, choose, strongest};
use belljar_core::{Backend, HostCalls};
use belljar_engine::{Engine, Outside, Settings};
use belljar_gateway::Gateway;
use tokio::runtime::Runtime;

pub(crate) use self::filter::tell_only;
pub(crate) use self::gateway::{gateway, ledger, servers_written, upstreams};
pub(crate) use self::log::{LogFormat, log};
pub(crate) use self::outside::{Parts, parts, store, watched_parts};
pub(crate) use self::records::{complain as complain_of_history, history_file};
use crate::complaint::Complaint;
use crate::config::{Config, Sources};
use crate::install::{Os, Places};

/// What the configuration is read from: a file that was named, or else the usual one, and the variables.
pub(crate) fn sources(named: Option<PathBuf>) -> Sources {
    // What is not text is none of ours: no key has such a name, and no value could be read.
    let variables = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let variables = variables.filter(|(name, _)| name.starts_with("BELLJAR_"));
    let variables = variables.map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect();
    Sources { named, usual: usual_config(), variables }
}

/// Where people keep their configuration.
fn usual_config() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let base = env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|base| base.is_absolute()).or_else(home)?;
    Some(base.join("belljar"))
}

/// Where we keep what can be made again.
pub(crate) fn usual_cache() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|base| base.is_absolute()).or_else(home)?;
    Some(base.join("belljar"))
}

/// Where we keep what cannot be made again: skills, logins.
pub(crate) fn usual_data() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|base| base.is_absolute()).or_else(home)?;
    Some(base.join("belljar"))
}

/// Where `belljar token` keeps tokens.
pub(crate) fn usual_tokens() -> Option<PathBuf> {
    Some(usual_data()?.join("access.json"))
}

/// Where we keep figures that nobody would miss for long.
pub(crate) fn usual_state() -> Option<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|base| base.is_absolute()).or_else(home)?;
    Some(base.join("belljar"))
}

fn user_runtime() -> Option<PathBuf> {
    env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Where we keep what goes with a process. Beside the cache where the system has no place for it: that is ours alone, too.
pub(crate) fn usual_runtime() -> Option<PathBuf> {
    user_runtime().map(|path| path.join("belljar")).or_else(|| Some(usual_cache()?.join("run")))
}

/// Shows an address to whoever sits here, if there is a way; the address was printed too.
pub(crate) fn open_browser(address: &str) {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let quiet = std::process::Stdio::null;
    let started =
        std::process::Command::new(program).arg(address).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    // Whether it worked shows in whether anybody comes back.
    drop(started);
}

/// For what others have set the rules of, such as OpenTelemetry.
pub(crate) fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

/// Where programs are looked for.
pub(crate) fn path() -> std::ffi::OsString {
    env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

pub(crate) fn host(config: &Config) -> Host {
    let user_runtime = user_runtime();
    let cache = usual_cache();
    let mut walls = config.walls.settings.clone();
    walls.docker.user_runtime.clone_from(&user_runtime);
    if walls.docker.socket.is_none() {
        walls.docker.socket = env::var("DOCKER_HOST").ok().filter(|socket| !socket.is_empty());
    }
    Host {
        path: path(),
        home: env::var_os("HOME").map(Into::into),
        images: cache.as_ref().map(|cache| cache.join("images")),
        runtime: usual_runtime(),
        cache,
        walls,
        ..Host::default()
    }
}

/// The wall that the operator asked for. Where the choice was left to us, he is told what it came to. Inside a runtime.
fn own_wall(config: &Config, host: &Host, preload: Preload) -> Result<Arc<dyn Backend>, Complaint> {
    let choice = match config.walls.backend.value {
        WishedWall::Named(choice) => return Ok(choose(choice, host, preload)),
        WishedWall::Auto => strongest(&config.walls.allow.value, host, preload),
    };
    let words = |passed: &[(Choice, String)]| {
        passed.iter().map(|(choice, why)| format!("{choice}: {why}")).collect::<Vec<_>>().join("; ")
    };
    match choice {
        Ok(Strongest { backend, passed_over }) => {
            let over = if passed_over.is_empty() { String::new() } else { format!(" (not {})", words(&passed_over)) };
            let _ = writeln!(std::io::stderr(), "belljar: the wall is {}{over}", backend.name());
            Ok(backend)
        }
        Err(passed_over) => Err(Complaint::new(
            format!("none of the allowed walls can be had here: {}", words(&passed_over)),
            "`belljar doctor` tells what each of them needs",
        )),
    }
}

/// Where MCP clients keep their files.
pub(crate) fn places() -> Result<Places, Complaint> {
    // A relative path would mean another place to the client than to us; most clients ignore those, too.
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let Some(home) = folder("HOME") else {
        return Err(Complaint::new("HOME does not name your home folder", "set it: HOME=/home/you belljar install"));
    };
    Ok(Places {
        os: if cfg!(target_os = "macos") { Os::Mac } else { Os::Linux },
        home,
        xdg_config: folder("XDG_CONFIG_HOME"),
        claude: folder("CLAUDE_CONFIG_DIR"),
        codex: folder("CODEX_HOME"),
        goose: folder("GOOSE_PATH_ROOT"),
    })
}

/// The absolute path of this program, as another program can start it.
pub(crate) fn this_program() -> Result<String, Complaint> {
    let again = "start belljar by its path, then try again";
    let path = env::current_exe()
        .map_err(|error| Complaint::new(format!("cannot tell where this program is: {error}"), again))?;
    if !path.is_file() {
        let what = format!("this program is no longer at {}", path.display());
        return Err(Complaint::new(what, again));
    }
    path.into_os_string().into_string().map_err(|path| {
        let what = format!("the path of this program is not UTF-8: {}", PathBuf::from(path).display());
        Complaint::new(what, "move it to a place with a plain name, then try again")
    })
}

/// Starts a backend alone, without a way out and without packages. Inside a runtime.
pub(crate) fn backend(choice: Choice, config: &Config) -> Arc<dyn Backend> {
    choose(choice, &host(config), Preload::No)
}

/// An engine with all that the configuration says of network and packages. Inside a runtime.
pub(crate) fn engine(parts: Parts, settings: Settings) -> Engine {
    let settings = Settings { network: parts.network, ..settings };
    let observers = parts.observers;
    let calls = parts.gateway.filter(Gateway::has_servers).map(|gateway| Arc::new(gateway) as Arc<dyn HostCalls>);
    Engine::with_outside(parts.backend, settings, Outside { provisions: parts.provisions, calls, observers })
}

/// What the engine may hand out on this host. Each sandbox takes a few descriptors of ours, so we take all that we may
/// have.
pub(crate) fn settings() -> Settings {
    let open_files = belljar_backends::raise_open_files();
    let mut settings = Settings::default();
    settings.ceiling.open_files = settings.ceiling.open_files.min(open_files.sandbox_max);
    settings.sandboxes_max = settings.sandboxes_max.min((open_files.server / 8) as usize);
    settings
}

/// How many files this process may have open.
fn open_files() -> usize {
    belljar_backends::raise_open_files().server as usize
}

/// How many connections of callers may be open. A thousand may come at once, each with one of its own; each takes a descriptor
/// and some kilobytes. Sandboxes, and connections of their programs, need descriptors as well.
pub(crate) fn connections_max() -> usize {
    (open_files() / 4).clamp(64, 2048)
}

/// One client at a time is served fastest by one thread: a hand-over between cores costs more than the work.
pub(crate) fn runtime_for_one() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")
}

pub(crate) fn runtime_for_many() -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}
