//! The configuration: as it is written ([`raw`]), and as the rest of the program uses it, with nothing left open. Each value
//! knows where it came from, for `belljar config show`.
//!
//! Order: what is built in, then the file, then variables, then the command line. Keys are the flags' own words.
//!
//! A key is added in four places, and `tests` says which was forgotten:
//!
//! 1. A field of a raw struct (`Option<T>`; `deny_unknown_fields`, `JsonSchema`), with a doc comment that is a full sentence:
//!    it becomes the schema's description. From the field alone come the schema, the variable (`max` in `[pool]` is
//!    `BELLJAR_POOL__MAX`), and the complaint about a key that is written almost so. Words of an enumeration are named by
//!    `#[schemars(extend("enum" = WORDS))]`, and what may be secret is kept from sight by `extend("writeOnly" = true)`.
//! 2. A [`Value`] of the resolved struct, made by `Value::of(built_in, raw.key)`; a flag comes in by `or_flag`.
//! 3. A line in `rows::effective`, which says what it is where nobody wrote it.
//! 4. A row of the table in docs/configuration.md; and if it can change while the server runs, a line in `reload`.

mod document;
mod environment;
#[cfg(test)]
mod fuzz;
mod images;
mod network;
mod oauth;
mod packages;
mod quota;
mod raw;
mod records;
mod reload;
mod rows;
mod schema;
mod sources;
mod suggest;
#[cfg(test)]
mod tests;
mod upstreams;
mod value;
mod walls;
mod watching;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use belljar_engine::{PoolSettings, Template};
use tracing_subscriber::EnvFilter;

pub(crate) use self::images::Images;
pub(crate) use self::network::{Hosts, Network, Secret, SecretSource};
pub(crate) use self::oauth::Oauth;
pub(crate) use self::packages::Packages;
pub(crate) use self::quota::Quotas;
pub(crate) use self::records::{Audit, History};
pub(crate) use self::reload::Changed;
pub(crate) use self::rows::Row;
pub(crate) use self::schema::schema;
pub(crate) use self::sources::Sources;
use self::sources::Written;
pub(crate) use self::upstreams::{Upstreams, approve, approve_word};
pub(crate) use self::value::{Value, Whence};
pub(crate) use self::walls::Walls;
pub(crate) use self::watching::SelfTest;
use crate::complaint::Complaint;

/// With what comes after it, less than the 10 s after which those who stop servers usually kill them.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(7);

/// The protocol library warns of every mistake of a client's, who is told anyway. Whoever asks for a new configuration waits
/// for a word on it.
pub(crate) const USUAL_LOG: &str = "warn,rmcp=error,belljar::cli::serve::reload=info";

#[derive(Clone, PartialEq)]
pub(crate) struct Config {
    /// The file that was read, if there was one.
    pub(crate) file: Option<PathBuf>,
    written: Written,
    pub(crate) idle_timeout: Value<Duration>,
    pub(crate) max_age: Value<Duration>,
    pub(crate) max_sandboxes: Value<Option<usize>>,
    pub(crate) yield_after: Value<Duration>,
    pub(crate) shutdown_timeout: Value<Duration>,
    /// What the log tells, as a tracing filter.
    pub(crate) log: Value<String>,
    pub(crate) profile: Value<Option<String>>,
    pub(crate) quota: Quotas,
    pub(crate) pool: Pool,
    pub(crate) network: Network,
    pub(crate) audit: Audit,
    pub(crate) history: History,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) packages: Packages,
    pub(crate) images: Images,
    pub(crate) upstreams: Upstreams,
    pub(crate) walls: Walls,
    pub(crate) oauth: Oauth,
    pub(crate) self_test: SelfTest,
    pub(crate) templates: Vec<Template>,
}

// Commands, variables of templates and servers' tokens are in it.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Sandboxes that are opened ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) enabled: Value<bool>,
    /// Without it, by the machine's memory.
    pub(crate) memory_mb: Value<Option<u32>>,
    pub(crate) max: Value<usize>,
}

impl Pool {
    /// What the engine is told.
    pub(crate) fn settings(&self) -> Option<PoolSettings> {
        let memory_bytes = self.memory_mb.value.map(|mb| u64::from(mb) << 20);
        self.enabled.value.then_some(PoolSettings { memory_bytes, max: self.max.value })
    }
}

impl Config {
    fn resolve(file: Option<PathBuf>, written: Written, raw: raw::Config) -> Result<Config, Complaint> {
        let seconds = |name: &str, value: Option<f64>| match value.map(Duration::try_from_secs_f64) {
            None => Ok(None),
            Some(Ok(duration)) if !duration.is_zero() => Ok(Some(duration)),
            Some(_) => {
                let what = format!("in the configuration: {name} is no time");
                Err(Complaint::new(what, format!("write seconds above 0, such as {name} = 60")))
            }
        };
        if raw.log.as_deref().is_some_and(|words| EnvFilter::try_new(words).is_err()) {
            let what = "in the configuration: log is no filter";
            return Err(Complaint::new(
                what,
                "write what is to be told, such as log = \"info\" or \"belljar_engine=debug\"",
            ));
        }
        let settings = belljar_engine::Settings::default();
        let surface = belljar_server::Surface::default();
        Ok(Config {
            file,
            written,
            idle_timeout: Value::of(settings.idle, seconds("idle_timeout", raw.idle_timeout)?),
            max_age: Value::of(settings.age_max, seconds("max_age", raw.max_age)?),
            max_sandboxes: Value::of(None, raw.max_sandboxes.map(Some)),
            yield_after: Value::of(surface.yield_after, seconds("yield_after", raw.yield_after)?),
            shutdown_timeout: Value::of(SHUTDOWN_TIMEOUT, seconds("shutdown_timeout", raw.shutdown_timeout)?),
            log: Value::of(USUAL_LOG.to_owned(), raw.log),
            profile: Value::of(None, raw.profile.map(Some)),
            quota: Quotas::resolve(&raw.quota)?,
            pool: Pool {
                enabled: Value::of(true, raw.pool.enabled),
                memory_mb: Value::of(None, raw.pool.memory_mb.map(Some)),
                max: Value::of(PoolSettings::default().max, raw.pool.max),
            },
            network: Network::resolve(raw.network)?,
            audit: Audit::resolve(raw.audit)?,
            history: History::resolve(raw.history)?,
            secrets: raw.secrets.into_iter().map(network::RawSecret::named).collect::<Result<_, _>>()?,
            packages: Packages::resolve(raw.packages),
            images: Images::resolve(raw.images)?,
            upstreams: Upstreams::resolve(raw.upstreams, raw.skills, raw.privacy)?,
            walls: Walls::resolve(raw.walls, raw.docker, raw.gvisor, raw.microvm, raw.wasm)?,
            oauth: Oauth::resolve(raw.oauth)?,
            self_test: SelfTest::resolve(raw.self_test),
            templates: raw.templates.into_iter().map(raw::Template::named).collect::<Result<_, _>>()?,
        })
    }
}
