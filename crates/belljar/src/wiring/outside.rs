//! What is beyond a sandbox: its way out, the operator's secrets, and where packages come from and are kept.

use std::env;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use belljar_backends::{Preload, Walls};
use belljar_core::{Backend, Host as NetworkHost};
use belljar_egress::{Audit, Bounds, Credential, Egress, Hidden, Over, Roots, Secret, Subnet, UpstreamProxy};
use belljar_engine::{NetworkSettings, Observer, Provisions};
use belljar_gateway::Gateway;
use belljar_packages::{HostSettings, Packages, Reachable, Registries};

use crate::complaint::Complaint;
use crate::config::{self, Config, SecretSource};
use crate::watching::{Counted, Watching};

/// More than any token or key.
const SECRET_BYTES_MAX: u64 = 16 * 1024;

/// How long a registry's name may take to be found before we call it offline.
const REACHABLE_MAX: Duration = Duration::from_secs(3);

/// Where the host keeps the certificates that it trusts.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What an engine is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) backend: Arc<dyn Backend>,
    /// `None` where no packages are installed.
    pub(crate) provisions: Option<Provisions>,
    pub(crate) network: NetworkSettings,
    /// `None` where no other servers are configured.
    pub(crate) gateway: Option<Gateway>,
    pub(crate) observers: Vec<Arc<dyn Observer>>,
}

/// Inside a runtime.
pub(crate) fn parts(preload: Preload, config: &Config) -> Result<Parts, Complaint> {
    watched_parts(preload, config, None)
}

/// The same, for a server that is watched. Inside a runtime.
pub(crate) fn watched_parts(
    preload: Preload,
    config: &Config,
    watching: Option<&Watching>,
) -> Result<Parts, Complaint> {
    let registries = registries();
    let records = super::records::records(config)?;
    let audit = super::records::of_egress(&records);
    let egress = Egress::new(egress_settings(config, &registries, audit, watching)?).map_err(complain)?;
    let has_upstreams = config.upstreams.are_configured();
    let store = if config.packages.install.value || has_upstreams { store(config)? } else { None };
    let gateway = super::gateway(config, store.clone(), &records, watching)?;
    let mut host = super::host(config);
    host.layers.clone_from(&store);
    host.trust = Some(egress.trust());
    let own = super::own_wall(config, &host, preload)?;
    let backend = belljar_egress::guard(Arc::new(Walls::new(own, host, preload)), egress);
    let backend = match watching {
        Some(watching) => watching.hold(backend, &config.templates),
        None => backend,
    };
    let mut observers = watching.map(Watching::observers).unwrap_or_default();
    if records.are_kept() {
        observers.push(Arc::new(records));
    }
    let network = NetworkSettings {
        allow: config.network.allow.value.grants.clone(),
        allow_packages: config.network.allow.value.packages,
        default: config.network.default.value.clone(),
        registries: registries.grants.clone(),
        registries_env: registries.env.clone(),
    };
    let provisions = store.filter(|_| config.packages.install.value).map(|store| Provisions {
        packages: Packages::new(backend.clone(), package_settings(config, store, registries)),
        infer: config.packages.infer.value,
    });
    Ok(Parts { backend, provisions, network, gateway, observers })
}

fn registries() -> Registries {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let env = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let env_names: Vec<String> = env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let home = env::var_os("HOME").map(PathBuf::from);
    let host = HostSettings { env: &env, env_names: &env_names, read: &read, home: home.as_deref() };
    let registries = Registries::read(&host);
    for sentence in &registries.ignored {
        tracing::info!("{sentence}");
    }
    registries
}

fn package_settings(config: &Config, store: PathBuf, registries: Registries) -> belljar_packages::Settings {
    // A proxy finds names that we cannot; and those the operator wrote down need not be found.
    let has_proxy = registries.proxy.is_some();
    let known: Vec<String> = config.network.hosts.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    let reachable: Reachable = Arc::new(move |host| {
        let is_known = has_proxy || matches!(&host, NetworkHost::Name(name) if known.contains(name));
        Box::pin(async move {
            let NetworkHost::Name(name) = host else { return true };
            let looked_up = tokio::time::timeout(REACHABLE_MAX, tokio::net::lookup_host((name, 443)));
            is_known || looked_up.await.is_ok_and(|found| found.is_ok_and(|mut found| found.next().is_some()))
        })
    });
    let mut settings = belljar_packages::Settings::new(store, registries, reachable);
    settings.budget_bytes = u64::from(config.packages.cache_gb.value) << 30;
    settings.refresh = Duration::from_secs(u64::from(config.packages.refresh_days.value) * 24 * 60 * 60);
    settings
}

/// The directory that layers are kept in, made if it is not there. That of a cache that was named must be; the usual one
/// need not.
pub(crate) fn store(config: &Config) -> Result<Option<PathBuf>, Complaint> {
    let named = config.packages.cache.value.as_ref();
    let Some(path) = named.map(|cache| cache.join("belljar")).or_else(super::usual_cache) else { return Ok(None) };
    // The jail mounts it, and knows no working directory.
    let path = std::path::absolute(&path).unwrap_or(path);
    // What packages have in it is not for other users of this host; sandboxes are some, and come in behind this one.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    let made = made.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)));
    let layers = path.join("layers");
    match made.and_then(|()| fs::DirBuilder::new().recursive(true).mode(0o755).create(&layers)) {
        Ok(()) => Ok(Some(layers)),
        Err(error) if named.is_some() => {
            let what = format!("the cache of packages {} cannot be made: {error}", path.display());
            Err(Complaint::new(what, "name another below [packages], or leave it out"))
        }
        Err(error) => {
            let path = path.display();
            tracing::info!(%path, %error, "no packages are installed: there is no place to keep them; name one as [packages] cache");
            Ok(None)
        }
    }
}

fn egress_settings(
    config: &Config,
    registries: &Registries,
    audit: Arc<dyn Audit>,
    watching: Option<&Watching>,
) -> Result<belljar_egress::Settings, Complaint> {
    let network = &config.network;
    let private = network.private.value.iter().map(|range| range.parse::<Subnet>()).collect::<Result<_, _>>();
    let audit = match watching {
        Some(watching) => Arc::new(Counted::new(&watching.watch, audit)),
        None => audit,
    };
    let upstream = registries.proxy.as_ref().map(|url| UpstreamProxy::parse(url.reveal(), &registries.no_proxy));
    Ok(belljar_egress::Settings {
        secrets: config.secrets.iter().map(secret).collect::<Result<_, _>>()?,
        credentials: registries.credentials.iter().map(credential).collect(),
        private: private.map_err(complain)?,
        pinned: network.hosts.iter().map(|(name, address)| (name.clone(), vec![*address])).collect(),
        upstream: upstream.transpose().map_err(complain)?,
        roots: roots(&registries.ca_files),
        bounds: Bounds { all_connections: (super::open_files() / 16).clamp(16, 4096), ..Bounds::default() },
        audit,
    })
}

fn credential(credential: &belljar_packages::Credential) -> Credential {
    Credential {
        host: credential.grant.clone(),
        header: credential.header.clone(),
        value: Hidden::new(credential.value.reveal().to_owned()),
        over: match credential.over {
            belljar_packages::Over::Tls => Over::Tls,
            belljar_packages::Over::Either => Over::Either,
        },
        below: credential.below.clone(),
    }
}

/// The host's own, and what its package managers are told to trust besides.
fn roots(more: &[PathBuf]) -> Roots {
    let own = env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let own = own.or_else(|| BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file()));
    let more: Vec<&PathBuf> = more.iter().filter(|path| Some(*path) != own.as_ref()).collect();
    if more.is_empty() {
        return Roots::Host;
    }
    let pem = own.iter().chain(more).filter_map(|path| fs::read_to_string(path).ok()).collect::<Vec<_>>().join("\n");
    Roots::These(pem)
}

fn complain(error: belljar_egress::EgressError) -> Complaint {
    match error.to_string().split_once("; ") {
        Some((what, hint)) => Complaint::new(what, hint),
        None => Complaint::new(error.to_string(), "docs/network.md tells what can be set"),
    }
}

/// Reads a secret's value, which is then in no variable, file or argument that a sandbox could see.
fn secret(secret: &config::Secret) -> Result<Secret, Complaint> {
    let name = &secret.name;
    let wrong = |why: String, hint: &str| Complaint::new(format!("the secret {name} cannot be read: {why}"), hint);
    let value = match &secret.source {
        SecretSource::Environment(variable) => env::var(variable)
            .map_err(|_| wrong(format!("the variable {variable} is not set"), "set it, or name another source"))?,
        SecretSource::File(path) => {
            let hint = "name a file that you alone can read, of at most 16 KiB of text";
            let metadata = fs::metadata(path).map_err(|error| wrong(error.to_string(), hint))?;
            if metadata.permissions().mode() & 0o077 != 0 || metadata.len() > SECRET_BYTES_MAX {
                return Err(wrong("its file can be read by others, or is too large".into(), hint));
            }
            fs::read_to_string(path).map_err(|error| wrong(error.to_string(), hint))?
        }
        SecretSource::Command(line) => {
            let hint = "try the command by itself: it has to print the value and exit with 0";
            let ran = Command::new("/bin/sh").args(["-c", line]).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
            let output = ran.map_err(|error| wrong(error.to_string(), hint))?;
            if !output.status.success() {
                return Err(wrong("its command failed".into(), hint));
            }
            String::from_utf8(output.stdout).map_err(|_| wrong("it is not text".into(), hint))?
        }
    };
    let value = value.trim_end_matches(['\n', '\r']).to_owned();
    Ok(Secret {
        name: name.clone(),
        value: Hidden::new(value),
        hosts: secret.hosts.clone(),
        headers: secret.headers.clone(),
    })
}
