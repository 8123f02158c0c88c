//! The contract suite on each backend of the registry.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::path::{Path, PathBuf};

use belljar_backends::{Choice, DockerSettings, GvisorSettings, Host, Preload, WallSettings, choose};
use belljar_testkit::contract::Stage;
use tempfile::TempDir;

/// With a store of layers of its own.
fn stage(choice: Choice, host: Host) -> Stage {
    let layers = TempDir::new().unwrap();
    let host = Host {
        path: std::env::var_os("PATH").unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
        layers: Some(layers.path().to_owned()),
        ..host
    };
    Stage { backend: choose(choice, &host, Preload::No), layers: Some(layers) }
}

fn native() -> Stage {
    stage(Choice::Native, Host::default())
}

belljar_testkit::keeps_the_contract!(native, std::future::ready(native()));

/// With the runsc that scripts/runsc fetches, or the one in PATH. Without either, every check fails and says so.
fn gvisor() -> Stage {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/engines/runsc/usr/bin/runsc");
    let runsc = std::env::var_os("BELLJAR_TEST_RUNSC").map(PathBuf::from).or_else(|| fetched.canonicalize().ok());
    let walls = WallSettings { gvisor: GvisorSettings { runsc }, ..WallSettings::default() };
    let cache = std::env::var_os("BELLJAR_TEST_CACHE").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    stage(Choice::Gvisor, Host { cache: Some(cache.into()), walls, ..Host::default() })
}

belljar_testkit::keeps_the_contract!(gvisor, std::future::ready(gvisor()));

/// An engine that `scripts/engines` has started, by the address that it printed.
fn engine(variable: &'static str, name: &str) -> Result<String, String> {
    std::env::var_os(variable)
        .and_then(|socket| socket.into_string().ok())
        .ok_or_else(|| format!("no engine: start one and name it, {variable}=$(scripts/engines {name} start)"))
}

fn docker(variable: &'static str, runtime: Option<&str>) -> Stage {
    let settings = DockerSettings {
        socket: engine(variable, "").ok(),
        image: Some("belljar-test:latest".to_owned()),
        runtime: runtime.map(str::to_owned),
        ..DockerSettings::default()
    };
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let walls = WallSettings { docker: settings, ..WallSettings::default() };
    stage(Choice::Docker, Host { walls, cache: Some(cache), ..Host::default() })
}

belljar_testkit::keeps_the_contract!(
    docker,
    where engine("BELLJAR_TEST_DOCKER", "docker"),
    std::future::ready(docker("BELLJAR_TEST_DOCKER", None))
);
belljar_testkit::keeps_the_contract!(
    podman,
    where engine("BELLJAR_TEST_PODMAN", "podman"),
    std::future::ready(docker("BELLJAR_TEST_PODMAN", None))
);
belljar_testkit::keeps_the_contract!(
    docker_with_runsc,
    where engine("BELLJAR_TEST_DOCKER", "docker"),
    std::future::ready(docker("BELLJAR_TEST_DOCKER", Some("runsc")))
);
