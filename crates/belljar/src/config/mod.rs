//! The configuration: as it is written in a file ([`raw`]), and as the rest of the program uses it, with nothing left
//! open. Each value knows where it came from, for `belljar config show`.
//!
//! Order: what is built in, then the file, then the command line. Keys are the flags' own words.

mod images;
mod network;
mod packages;
mod raw;
mod upstreams;
mod walls;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_engine::{PoolSettings, Template};

pub(crate) use self::images::Images;
pub(crate) use self::network::{Hosts, Network, Secret, SecretSource};
pub(crate) use self::packages::Packages;
pub(crate) use self::upstreams::{Upstreams, approve, approve_word};
pub(crate) use self::walls::Walls;
use crate::complaint::Complaint;

/// Far more than anyone writes by hand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// The file that was read, if there was one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) idle_timeout: Value<Duration>,
    pub(crate) max_age: Value<Duration>,
    pub(crate) max_sandboxes: Value<Option<usize>>,
    pub(crate) yield_after: Value<Duration>,
    pub(crate) profile: Value<Option<String>>,
    pub(crate) pool: Pool,
    pub(crate) network: Network,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) packages: Packages,
    pub(crate) images: Images,
    pub(crate) upstreams: Upstreams,
    pub(crate) walls: Walls,
    pub(crate) templates: Vec<Template>,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value<T> {
    pub(crate) value: T,
    pub(crate) whence: Whence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whence {
    BuiltIn,
    File,
    Flag,
}

impl fmt::Display for Whence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Whence::BuiltIn => "built in",
            Whence::File => "file",
            Whence::Flag => "flag",
        })
    }
}

impl<T> Value<T> {
    fn of(built_in: T, file: Option<T>) -> Value<T> {
        match file {
            Some(value) => Value { value, whence: Whence::File },
            None => Value { value: built_in, whence: Whence::BuiltIn },
        }
    }

    /// The command line goes before all.
    pub(crate) fn or_flag(&mut self, flag: Option<T>) {
        if let Some(value) = flag {
            *self = Value { value, whence: Whence::Flag };
        }
    }
}

impl Config {
    /// From the file that was named, which must be there, or from the usual one, which may be.
    pub(crate) fn read(named: Option<&Path>, usual: Option<PathBuf>) -> Result<Config, Complaint> {
        let (path, must_exist) = match (named, usual) {
            (Some(named), _) => (named.to_owned(), true),
            (None, Some(usual)) => (usual, false),
            (None, None) => return Config::resolve(None, raw::Config::default()),
        };
        let shown = path.display();
        let unread = |error: std::io::Error| {
            Complaint::new(
                format!("cannot read the configuration {shown}: {error}"),
                "give another file with --config, or make it readable",
            )
        };
        let metadata = match std::fs::metadata(&path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {
                return Config::resolve(None, raw::Config::default());
            }
            Err(error) => return Err(unread(error)),
        };
        if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
            let what = format!("the configuration {shown} is no file of at most {FILE_BYTES_MAX} bytes");
            return Err(Complaint::new(what, "docs/configuration.md shows what it may hold"));
        }
        let text = std::fs::read_to_string(&path).map_err(unread)?;
        let raw = toml::from_str(&text).map_err(|error| {
            // The error has the line, the text in it, and a mark below.
            let what = format!("in the configuration {shown}: {}", error.to_string().trim_end());
            Complaint::new(what, "docs/configuration.md shows what it may hold")
        })?;
        Config::resolve(Some(path), raw)
    }

    fn resolve(file: Option<PathBuf>, raw: raw::Config) -> Result<Config, Complaint> {
        let seconds = |name: &str, value: Option<f64>| match value.map(Duration::try_from_secs_f64) {
            None => Ok(None),
            Some(Ok(duration)) if !duration.is_zero() => Ok(Some(duration)),
            Some(_) => {
                let what = format!("in the configuration: {name} is no time");
                Err(Complaint::new(what, format!("write seconds above 0, such as {name} = 60")))
            }
        };
        let settings = belljar_engine::Settings::default();
        let surface = belljar_server::Surface::default();
        Ok(Config {
            file,
            idle_timeout: Value::of(settings.idle, seconds("idle_timeout", raw.idle_timeout)?),
            max_age: Value::of(settings.age_max, seconds("max_age", raw.max_age)?),
            max_sandboxes: Value::of(None, raw.max_sandboxes.map(Some)),
            yield_after: Value::of(surface.yield_after, seconds("yield_after", raw.yield_after)?),
            profile: Value::of(None, raw.profile.map(Some)),
            pool: Pool {
                enabled: Value::of(true, raw.pool.enabled),
                memory_mb: Value::of(None, raw.pool.memory_mb.map(Some)),
                max: Value::of(PoolSettings::default().max, raw.pool.max),
            },
            network: Network::resolve(raw.network, raw.audit)?,
            secrets: raw.secrets.into_iter().map(network::RawSecret::named).collect::<Result<_, _>>()?,
            packages: Packages::resolve(raw.packages),
            images: Images::resolve(raw.images)?,
            upstreams: Upstreams::resolve(raw.upstreams, raw.skills, raw.privacy)?,
            walls: Walls::resolve(raw.walls, raw.docker, raw.gvisor, raw.microvm, raw.wasm)?,
            templates: raw.templates.into_iter().map(raw::Template::named).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, Complaint> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(Some(&path), None)
    }

    #[test]
    fn a_file_goes_before_what_is_built_in_and_a_flag_before_the_file() {
        let mut config = read("idle_timeout = 60\nmax_sandboxes = 4").unwrap();
        assert_eq!(config.idle_timeout, Value { value: Duration::from_secs(60), whence: Whence::File });
        assert_eq!(config.yield_after.whence, Whence::BuiltIn);
        config.idle_timeout.or_flag(Some(Duration::from_secs(5)));
        assert_eq!(config.idle_timeout, Value { value: Duration::from_secs(5), whence: Whence::Flag });
    }

    #[test]
    fn a_pool_is_there_unless_it_is_turned_off() {
        let built_in = read("").unwrap().pool;
        assert_eq!(built_in.settings(), Some(PoolSettings::default()));
        let own = read("[pool]\nmemory_mb = 64\nmax = 4").unwrap().pool;
        assert_eq!(own.settings(), Some(PoolSettings { memory_bytes: Some(64 << 20), max: 4 }));
        assert_eq!(read("[pool]\nenabled = false\nmax = 4").unwrap().pool.settings(), None);
        let mut flagged = own;
        flagged.enabled.or_flag(Some(false));
        assert_eq!((flagged.settings(), flagged.enabled.whence), (None, Whence::Flag));
    }

    #[test]
    fn hosts_secrets_and_packages_are_read() {
        let config = read(
            "[network]\nallow = [\"packages\", \"*.example.org\"]\nprivate = [\"10.0.0.0/8\"]\nhosts = { \"a.test\" = \"10.0.0.1\" }\n\
             [audit]\nfile = \"audit.jsonl\"\n[secrets.GITHUB]\nenv = \"TOKEN\"\nhosts = [\"api.example.org\"]\n[packages]\ninfer = false",
        );
        let config = config.unwrap();
        assert_eq!(config.network.allow.value.words(), ["packages", "*.example.org"]);
        assert_eq!(config.network.hosts, [("a.test".to_owned(), "10.0.0.1".parse().unwrap())]);
        assert_eq!(config.network.audit.value, Some(PathBuf::from("audit.jsonl")));
        assert_eq!(config.secrets[0].source, SecretSource::Environment("TOKEN".into()));
        assert!(config.packages.install.value && !config.packages.infer.value);
    }

    #[test]
    fn a_template_has_interpreters_limits_and_environment() {
        let text = "[templates.science]\ninterpreters = [\"python-3.12\"]\nenv = { A = \"1\" }\nlimits = { memory_mb = 2048, cpus = 1.5 }";
        let config = read(text).unwrap();
        let science = &config.templates[0];
        assert_eq!((science.name.as_str(), &science.ground.interpreters), ("science", &vec!["python-3.12".to_owned()]));
        assert_eq!((science.wish.memory_bytes, science.wish.cpu_milli), (Some(2 << 30), Some(1500)));
        assert_eq!(science.env, [("A".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, said) in [
            ("idle_timout = 5", "unknown field `idle_timout`"),
            ("idle_timeout = \"x\"", "line 1"),
            ("idle_timeout = -1", "idle_timeout is no time"),
            ("[pool]\nsize = 1", "unknown field `size`"),
            ("[pool]\nmax = -1", "line 2"),
            ("[templates.x]\ngpus = 1", "unknown field `gpus`"),
            ("[templates.x.limits]\nmemory_mb = -1", "line 2"),
            ("[templates.x.limits]\ncpus = 0.0", "cpus"),
            ("[templates.\"a b\"]", "a template's name"),
            ("[network]\nallow = [\"http://x\"]", "http://x"),
            ("[network]\ndefault = [\"packages\"]", "packages"),
            ("[network]\nports = [1]", "unknown field `ports`"),
            ("[secrets.a]\nenv = \"A\"", "missing field `hosts`"),
            ("[secrets.a]\nhosts = [\"x.test\"]", "no source"),
            ("[secrets.a]\nenv = \"A\"\nfile = \"b\"\nhosts = [\"x.test\"]", "several"),
            ("[secrets.\"a b\"]\nenv = \"A\"\nhosts = [\"x.test\"]", "name"),
            ("[secrets.a]\nenv = \"A\"\nhosts = []", "no hosts"),
            ("[packages]\ncach = 1", "unknown field `cach`"),
            ("[images]\nmirror = 1", "unknown field `mirror`"),
            ("[images]\ninsecure = [\"http://x\"]", "http://x"),
            ("[images]\nmirrors = { \"docker.io\" = [\"a/b\"] }", "a/b"),
            ("=", "line 1"),
        ] {
            let complaint = read(text).unwrap_err();
            assert!(complaint.what.contains(said), "{text}: {}", complaint.what);
            assert!(!complaint.hint.is_empty());
        }
    }

    #[test]
    fn registries_are_read() {
        let text = "[images]\nmirrors = { \"docker.io\" = [\"mirror.test:5000\"] }\ninsecure = [\"localhost:5000\"]\nauth = \"/a\"";
        let registries = read(text).unwrap().images.registries();
        assert_eq!(registries.mirrors["docker.io"], ["mirror.test:5000"]);
        assert_eq!((registries.insecure, registries.auth), (vec!["localhost:5000".to_owned()], Some("/a".into())));
    }

    #[test]
    fn the_usual_file_may_be_missing_and_a_named_one_may_not() {
        let nowhere = PathBuf::from("/nowhere/config.toml");
        assert_eq!(Config::read(None, Some(nowhere.clone())).unwrap().file, None);
        assert!(Config::read(Some(&nowhere), None).is_err());
    }
}
