//! What holds for all servers.

use std::fmt::{Debug, Formatter, Result};
use std::path::PathBuf;
use std::time::Duration;

/// The only names of our own environment that a server's process is given without being told: those that a program needs to
/// run at all, and to reach the network the way the host does.
const INHERITED: [&str; 29] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PYENV_ROOT",
];

/// Given once, to [`super::Upstreams::new`].
#[derive(Clone)]
pub struct Settings {
    /// What a server's process sees of the environment, besides what its configuration adds.
    pub environment: Vec<(String, String)>,
    /// Where lists of tools are kept for the next time.
    pub cache: Option<PathBuf>,
    /// Where tokens are kept. Without it nobody can log in.
    pub tokens: Option<PathBuf>,
    pub start_limit: Duration,
    pub list_limit: Duration,
    /// A process that nobody has called for so long is ended; the next call starts it again.
    pub idle: Duration,
    /// How long to wait for more of the kind after a word that the tools have changed.
    pub debounce: Duration,
    pub login_limit: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            environment: Vec::new(),
            cache: None,
            tokens: None,
            start_limit: Duration::from_secs(30),
            list_limit: Duration::from_secs(20),
            idle: Duration::from_secs(600),
            debounce: Duration::from_millis(300),
            login_limit: Duration::from_secs(300),
        }
    }
}

impl Settings {
    /// Takes from an environment what servers may see of it.
    pub fn inherit(mut self, environment: impl IntoIterator<Item = (String, String)>) -> Settings {
        let kept = |name: &str| INHERITED.contains(&name) || name.starts_with("LC_");
        self.environment = environment.into_iter().filter(|(name, _)| kept(name)).collect();
        self
    }
}

impl Debug for Settings {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        // Addresses of proxies hold passwords.
        let names: Vec<&String> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("Settings").field("environment", &names).field("cache", &self.cache).finish_non_exhaustive()
    }
}
