//! What an operator writes of a server: the ordinary `mcpServers` file that other clients read as well, with a few keys of
//! our own.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::expand::expand;
use super::hidden::Hidden;
use super::keys::Keys;
use crate::stubs::server_ident as ident;

const SERVERS_MAX: usize = 256;
const NAME_CHARACTERS_MAX: usize = 64;

/// One server, as configured.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    pub name: String,
    pub way: Way,
    /// Whether what it says of its tools (read-only, destructive) is believed.
    pub trusted: bool,
    /// The longest that one call may take.
    pub timeout: Duration,
    /// Patterns of tools, for the policy.
    pub allow: Vec<String>,
    pub ask: Vec<String>,
    pub deny: Vec<String>,
    /// The longest message that is accepted from it.
    pub result_bytes_max: usize,
    /// Whether text that is JSON is handed to programs as a value.
    pub parse: bool,
    /// Whether clients see all of it under its own names, as if it were a part of ours.
    pub forward: bool,
    pub oauth: Oauth,
    /// Of the name and of what was written, secrets aside: by this the list of its tools is kept.
    pub(super) fingerprint: String,
}

impl UpstreamConfig {
    /// What the server may repeat in its words, and nobody else is to read. Of `Bearer TOKEN` the token by itself too; of the
    /// environment and the arguments what its name says to be one, or what looks like one: no plain word, path or option.
    pub(super) fn secrets(&self) -> Vec<Hidden> {
        let looks_secret = |text: &str| {
            text.len() >= 8
                && !text.contains(['/', ' '])
                && !text.starts_with('-')
                && text.bytes().any(|b| b.is_ascii_digit())
        };
        let mut secrets = Vec::new();
        match &self.way {
            Way::Stdio { args, env, .. } => {
                let says_so = |name: &str| {
                    let name = name.to_ascii_uppercase();
                    ["KEY", "TOKEN", "SECRET", "PASS", "AUTH", "CREDENTIAL"].iter().any(|word| name.contains(word))
                };
                let kept = env.iter().filter(|(name, value)| says_so(name) || looks_secret(value.reveal()));
                secrets.extend(kept.map(|(_, value)| value.clone()));
                for argument in args {
                    let value = argument.reveal().rsplit('=').next().unwrap_or_default();
                    if looks_secret(value) {
                        secrets.push(Hidden::new(value));
                    }
                }
            }
            Way::Http { url, headers, .. } => {
                for (_, value) in headers {
                    secrets.push(value.clone());
                    secrets.extend(value.reveal().rsplit_once(' ').map(|(_, token)| Hidden::new(token)));
                }
                if let Ok(url) = url::Url::parse(url.reveal()) {
                    secrets.extend(url.query_pairs().map(|(_, value)| Hidden::new(value.into_owned())));
                    secrets.extend(url.password().map(Hidden::new));
                }
            }
        }
        secrets.extend(self.oauth.client_secret.clone());
        // The longest first, so that none is left in part.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.reveal().len()));
        secrets
    }
}

/// How it is reached.
#[derive(Debug, Clone)]
pub enum Way {
    Stdio {
        command: String,
        /// Hidden, since tokens are written here too.
        args: Vec<Hidden>,
        env: Vec<(String, Hidden)>,
        cwd: Option<PathBuf>,
    },
    Http {
        /// Hidden, since it may hold a token in its query.
        url: Hidden,
        headers: Vec<(String, Hidden)>,
        flavour: Flavour,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// Streamable HTTP; the older HTTP+SSE if the endpoint turns out to be one.
    Streamable,
    Sse,
}

/// What is known beforehand for an OAuth login.
#[derive(Debug, Clone, Default)]
pub struct Oauth {
    pub client_id: Option<String>,
    pub client_secret: Option<Hidden>,
    pub scopes: Vec<String>,
}

/// Why the configuration cannot be used. Never holds a value that was written there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration of servers is not JSON: {0}")]
    NotJson(String),
    #[error(
        "the configuration has neither \"mcpServers\" nor \"servers\"; it should be {{\"mcpServers\": {{\"name\": {{...}}}}}}"
    )]
    NoServers,
    #[error("server {server:?}: {problem}")]
    Server { server: String, problem: String },
}

/// The servers of a configuration, in order, without those that are disabled. Variables are asked of `lookup`.
pub fn parse(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Vec<UpstreamConfig>, ConfigError> {
    // The position is enough: serde's own message may quote a value.
    let file: Value = serde_json::from_str(text)
        .map_err(|error| ConfigError::NotJson(format!("line {}, column {}", error.line(), error.column())))?;
    let servers =
        ["mcpServers", "servers"].iter().find_map(|key| file.get(key)?.as_object()).ok_or(ConfigError::NoServers)?;
    if servers.len() > SERVERS_MAX {
        let problem = format!("there are {} servers, and at most {SERVERS_MAX} are possible", servers.len());
        return Err(ConfigError::Server { server: "*".into(), problem });
    }
    let mut configs: Vec<UpstreamConfig> = Vec::new();
    for (name, entry) in servers {
        let of = |problem: String| ConfigError::Server { server: name.chars().take(80).collect(), problem };
        let entry = entry.as_object().ok_or_else(|| of("is not an object".into()))?;
        check_name(name).map_err(of)?;
        if entry.get("disabled").and_then(Value::as_bool).unwrap_or(false) {
            continue;
        }
        let config = server(name, entry, lookup).map_err(of)?;
        if let Some(other) = configs.iter().find(|other| ident(&other.name) == ident(name)) {
            return Err(of(format!(
                "programs would know it as `{}`, and {:?} as well; rename one of them",
                ident(name),
                other.name
            )));
        }
        configs.push(config);
    }
    Ok(configs)
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(format!("a server's name has 1 to {NAME_CHARACTERS_MAX} characters"));
    }
    if name.chars().any(char::is_control) {
        return Err("a server's name has no control characters".into());
    }
    Ok(())
}

fn server(
    name: &str,
    entry: &Map<String, Value>,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<UpstreamConfig, String> {
    let fill = |text: &str| {
        expand(text, lookup).map_err(|name| {
            format!("the variable {name} is not set; set it, or write ${{{name}:-default}} for one that may be missing")
        })
    };
    let keys = Keys { entry };
    let way = if entry.contains_key("command") {
        let mut args = Vec::new();
        for arg in keys.strings("args")? {
            args.push(Hidden::new(fill(&arg)?));
        }
        let mut env = Vec::new();
        for (key, value) in keys.pairs("env")? {
            if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
                return Err("a name or value in \"env\" cannot be one of an environment".into());
            }
            env.push((key, Hidden::new(fill(&value)?)));
        }
        let command = fill(&keys.string("command")?.unwrap_or_default())?;
        if command.is_empty() {
            return Err("\"command\" is empty".into());
        }
        let cwd = keys.string("cwd")?.map(|cwd| fill(&cwd)).transpose()?.map(PathBuf::from);
        Way::Stdio { command, args, env, cwd }
    } else {
        let key = ["url", "serverUrl", "httpUrl"].into_iter().find(|key| entry.contains_key(*key));
        let key = key.ok_or("has neither \"command\" (a program to start) nor \"url\" (a server to reach)")?;
        http(&fill(&keys.string(key)?.unwrap_or_default())?, &keys, &fill)?
    };
    let megabytes = keys.number("max_result_mb", 16.0, 0.001, 1024.0)?;
    let config = UpstreamConfig {
        name: name.to_owned(),
        way,
        trusted: keys.flag("trusted", false)?,
        timeout: Duration::from_secs_f64(keys.number("timeout", 60.0, 0.01, 86_400.0)?),
        allow: keys.strings("allow")?,
        ask: keys.strings("ask")?,
        deny: keys.strings("deny")?,
        result_bytes_max: (megabytes * 1024.0 * 1024.0) as usize,
        parse: keys.flag("parse", true)?,
        forward: keys.flag("forward", false)?,
        oauth: oauth(&keys, &fill)?,
        fingerprint: fingerprint(name, entry),
    };
    keys.mention_unknown(name);
    Ok(config)
}

fn http(url: &str, keys: &Keys<'_>, fill: &dyn Fn(&str) -> Result<String, String>) -> Result<Way, String> {
    let parsed = url::Url::parse(url).map_err(|_| "\"url\" is not an address".to_owned())?;
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err("\"url\" has to begin with http:// or https://".into());
    }
    let kind = match keys.string("type")? {
        Some(kind) => Some(kind),
        None => keys.string("transport")?,
    };
    let flavour = match kind.as_deref() {
        None | Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => Flavour::Streamable,
        Some("sse") => Flavour::Sse,
        Some(_) => return Err("\"type\" of a server with a url is \"http\" or \"sse\"".into()),
    };
    let mut headers = Vec::new();
    for (key, value) in keys.pairs("headers")? {
        let value = Hidden::new(fill(&value)?);
        if http::HeaderName::try_from(&key).is_err() || http::HeaderValue::try_from(value.reveal()).is_err() {
            return Err("a name or value in \"headers\" cannot be one of an HTTP header".into());
        }
        headers.push((key, value));
    }
    Ok(Way::Http { url: Hidden::new(parsed.as_str()), headers, flavour })
}

fn oauth(keys: &Keys<'_>, fill: &dyn Fn(&str) -> Result<String, String>) -> Result<Oauth, String> {
    let Some(entry) = keys.entry.get("oauth") else { return Ok(Oauth::default()) };
    let keys = Keys { entry: entry.as_object().ok_or("\"oauth\" is not an object")? };
    let client_id = keys.string("client_id")?.map(|text| fill(&text)).transpose()?;
    let client_secret = keys.string("client_secret")?.map(|text| fill(&text)).transpose()?.map(Hidden::new);
    if client_secret.is_some() && client_id.is_none() {
        return Err("\"oauth\" has a \"client_secret\" without its \"client_id\"".into());
    }
    Ok(Oauth { client_id, client_secret, scopes: keys.strings("scopes")? })
}

/// Over what was written, before variables are filled in, and without the values of `env` and `headers`.
fn fingerprint(name: &str, entry: &Map<String, Value>) -> String {
    let names = |key: &str| -> Vec<&String> {
        entry.get(key).and_then(Value::as_object).into_iter().flat_map(Map::keys).collect()
    };
    let url = ["url", "serverUrl", "httpUrl"].iter().find_map(|key| entry.get(*key));
    let what = serde_json::json!([
        name,
        entry.get("command"),
        entry.get("args"),
        entry.get("cwd"),
        names("env"),
        url,
        names("headers"),
    ]);
    super::hex(&Sha256::digest(what.to_string()))
}
