//! What runsc is told of one sandbox: the `config.json` of an OCI bundle, as far as we say anything in it.

use std::fs;
use std::io;
use std::path::Path;

use belljar_core::wire::Bind;
use serde::Serialize;

/// The host name in every sandbox.
const HOST_NAME: &str = "belljar";

/// What the first process may do inside gVisor's own kernel until it has finished the place: mount the disk, bind doors at low
/// ports, become the sandbox's user, and give all of it up. None of it is a right on the host.
const CAPABILITIES: [&str; 9] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_ADMIN",
];

/// Everything that differs between bundles.
#[derive(Debug)]
pub(super) struct Bundle<'a> {
    /// The root file system, an absolute path of the host's.
    pub(super) root: &'a Path,
    pub(super) arguments: Vec<String>,
    /// Shown read-only, in this order.
    pub(super) binds: Vec<Bind>,
    /// The one directory of the host that it may write.
    pub(super) build: Option<Bind>,
}

impl Bundle<'_> {
    /// Writes it where runsc looks for it.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        fs::write(directory.join("config.json"), serde_json::to_vec(&self.config())?)
    }

    fn config(&self) -> Config<'_> {
        let own = |destination, kind, options: &[&'static str]| Mount {
            destination,
            kind,
            source: kind,
            options: options.to_vec(),
        };
        let bind = |bind, access| Mount {
            destination: inside(bind),
            kind: "bind",
            source: host(bind),
            options: vec![access, "rbind", "nosuid", "nodev"],
        };
        let mut mounts = vec![
            own("/proc", "proc", &["nosuid", "nodev", "noexec"]),
            // Ours, and empty: gVisor would put its own sysfs there, which tells of the machine.
            own("/sys", "tmpfs", &["ro", "nosuid", "nodev", "noexec", "size=4096"]),
        ];
        mounts.extend(self.binds.iter().map(|one| bind(one, "ro")));
        mounts.extend(self.build.iter().map(|one| bind(one, "rw")));
        Config {
            oci_version: "1.0.2",
            process: Process {
                terminal: false,
                user: User { uid: 0, gid: 0 },
                args: &self.arguments,
                env: [],
                cwd: "/",
                capabilities: Capabilities { bounding: CAPABILITIES, effective: CAPABILITIES, permitted: CAPABILITIES },
                no_new_privileges: true,
            },
            root: Root { path: self.root, readonly: true },
            hostname: HOST_NAME,
            mounts,
            linux: Linux { namespaces: ["pid", "network", "ipc", "uts", "mount"].map(|kind| Namespace { kind }) },
        }
    }
}

fn inside(bind: &Bind) -> &str {
    &bind.inside
}

fn host(bind: &Bind) -> &str {
    &bind.host
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    oci_version: &'a str,
    process: Process<'a>,
    root: Root<'a>,
    hostname: &'a str,
    mounts: Vec<Mount<'a>>,
    linux: Linux,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Process<'a> {
    terminal: bool,
    user: User,
    args: &'a [String],
    env: [&'static str; 0],
    cwd: &'a str,
    capabilities: Capabilities,
    no_new_privileges: bool,
}

#[derive(Debug, Serialize)]
struct User {
    uid: u32,
    gid: u32,
}

#[derive(Debug, Serialize)]
struct Capabilities {
    bounding: [&'static str; 9],
    effective: [&'static str; 9],
    permitted: [&'static str; 9],
}

#[derive(Debug, Serialize)]
struct Root<'a> {
    path: &'a Path,
    readonly: bool,
}

#[derive(Debug, Serialize)]
struct Mount<'a> {
    destination: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    source: &'a str,
    options: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct Linux {
    namespaces: [Namespace; 5],
}

#[derive(Debug, Serialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_to_build_in_is_writable() {
        let bind = |path: &str| Bind { host: format!("/host{path}"), inside: path.to_owned() };
        let bundle = Bundle {
            root: Path::new("/r"),
            arguments: vec!["/belljar/settle".to_owned()],
            binds: vec![bind("/usr"), bind("/opt")],
            build: Some(bind("/belljar/build")),
        };
        let directory = tempfile::tempdir().unwrap();
        bundle.write(directory.path()).unwrap();
        let text = fs::read(directory.path().join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(config["root"], serde_json::json!({"path": "/r", "readonly": true}));
        let mounts = config["mounts"].as_array().unwrap();
        let writable: Vec<_> = mounts
            .iter()
            .filter(|mount| mount["type"] == "bind" && mount["options"][0] != "ro")
            .map(|mount| mount["destination"].as_str().unwrap())
            .collect();
        assert_eq!(writable, ["/belljar/build"]);
        assert_eq!(config["process"]["env"], serde_json::json!([]));
        assert!(config["linux"]["namespaces"].as_array().unwrap().iter().any(|one| one["type"] == "network"));
    }
}
