//! A server's packages, on a store of their own.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::{Backend, Network, PackageKind, Spec};
use belljar_egress::{Egress, Settings as EgressSettings, guard};
use belljar_packages::{Credential, HostSettings, Installed, Over, Packages, Registries, Settings, Wanted};
use belljar_testkit::contract::{command, run};
use tempfile::TempDir;

pub(crate) struct Ground<S = TempDir> {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) packages: Arc<Packages>,
    pub(crate) store: S,
}

/// As this host has them.
pub(crate) fn registries() -> Registries {
    let names = std::env::vars().map(|(name, _)| name).collect::<Vec<_>>();
    Registries::read(&HostSettings {
        env: &|name| std::env::var(name).ok(),
        env_names: &names,
        read: &|path| fs::read_to_string(path).ok(),
        home: std::env::var_os("HOME").as_deref().map(Path::new),
    })
}

/// An index on this host's loopback, by a name that only our own guard knows.
pub(crate) fn only_index(port: u16) -> Registries {
    index_at(&format!("http://index.test:{port}/simple"))
}

pub(crate) fn index_at(url: &str) -> Registries {
    Registries::read(&HostSettings {
        env: &|name| (name == "UV_DEFAULT_INDEX").then(|| url.to_owned()),
        env_names: &[],
        read: &|_| None,
        home: None,
    })
}

pub(crate) fn ground_in(store: TempDir, settings: impl FnOnce(&mut Settings)) -> Ground {
    let Ground { backend, packages, .. } = ground_at(store.path(), settings);
    Ground { backend, packages, store }
}

pub(crate) fn ground_at(store: &Path, settings: impl FnOnce(&mut Settings)) -> Ground<()> {
    let mut own = Settings::new(store.to_owned(), registries(), Arc::new(|_| Box::pin(async { true })));
    settings(&mut own);
    let here = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let pinned = vec![("index.test".to_owned(), here.clone()), ("home.test".to_owned(), here)];
    let credentials = own.registries.credentials.iter().map(credential).collect();
    let egress = Egress::new(EgressSettings { pinned, credentials, ..EgressSettings::default() }).unwrap();
    let host = Host {
        path: std::env::var_os("PATH").unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
        layers: Some(store.to_owned()),
        trust: Some(egress.trust()),
        ..Host::default()
    };
    let backend = guard(choose(Choice::Native, &host, Preload::No), egress);
    let packages = Packages::new(backend.clone(), own);
    packages.tidy().unwrap();
    Ground { backend, packages, store: () }
}

fn credential(one: &Credential) -> belljar_egress::Credential {
    belljar_egress::Credential {
        host: one.grant.clone(),
        header: one.header.clone(),
        value: belljar_egress::Hidden::new(one.value.reveal().to_owned()),
        over: match one.over {
            Over::Tls => belljar_egress::Over::Tls,
            Over::Either => belljar_egress::Over::Either,
        },
        below: one.below.clone(),
    }
}

pub(crate) fn ground(settings: impl FnOnce(&mut Settings)) -> Ground {
    ground_in(TempDir::new().unwrap(), settings)
}

pub(crate) fn python(required: &[&str], inferred: &[&str]) -> Wanted {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    Wanted {
        required: own(required),
        inferred: own(inferred),
        ..Wanted::new(PackageKind::Python, &belljar_core::Ground::default())
    }
}

/// What a line says in a fresh sandbox with that environment.
pub(crate) async fn told(backend: &dyn Backend, installed: &Installed, line: &str) -> String {
    let layers = installed.environment.iter().map(|environment| environment.layer.clone()).collect();
    let sandbox = backend.open(&Spec { layers, network: Network::None, ..Spec::default() }).await.unwrap();
    let ran = run(&*sandbox, command(line)).await;
    format!("{}{}", ran.stdout, ran.stderr).trim().to_owned()
}

/// What is in the store beside layers, records and its own directories.
pub(crate) fn strays(store: &Path) -> Vec<String> {
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("building-") || name.starts_with("removing-")).collect()
}

/// Returns when a build that was given up has left nothing.
pub(crate) async fn until_clean(store: &Path) {
    while !strays(store).is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
