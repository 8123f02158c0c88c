//! What every sandbox sees of the host, and what it sees instead of the host's own.

use std::fs;
use std::path::Path;

use belljar_core::Language;
use belljar_core::wire::{Bind, Setup};

use super::interpreters::{Chosen, Interpreters};
use super::warm;

/// Directories of the root that are links on newer systems and real ones on older.
const TOP: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What programs need of /etc. Never a directory that may hold a secret, a host name or an account.
const ETC: [&str; 22] = [
    "alternatives",
    "ca-certificates.conf",
    "ca-certificates",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "locale.conf",
    "magic",
    "mime.types",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "python3",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

const PASSWD: &str =
    "agent:x:1000:1000:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
const GROUP: &str = "agent:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost belljar\n::1 localhost\n";

pub(super) fn plan(interpreters: &Interpreters, go_cache: Option<&Path>) -> Setup {
    let mut setup = Setup { binds: Vec::new(), links: Vec::new(), files: Vec::new(), zygote_id: None };
    for directory in ["/usr", "/nix/store"] {
        if Path::new(directory).is_dir() {
            show(&mut setup, directory);
        }
    }
    for name in TOP {
        let path = format!("/{name}");
        match fs::read_link(&path) {
            Ok(target) => setup.links.push((path, target.to_string_lossy().into_owned())),
            Err(_) if Path::new(&path).is_dir() => show(&mut setup, &path),
            Err(_) => {}
        }
    }
    for name in ETC {
        let path = format!("/etc/{name}");
        match fs::read_link(&path) {
            // A link into /usr is the same inside; any other is followed here, where its target is.
            Ok(target) if target.starts_with("/usr") => {
                setup.links.push((path, target.to_string_lossy().into_owned()));
            }
            _ if Path::new(&path).exists() => show(&mut setup, &path),
            _ => {}
        }
    }
    setup.links.extend(interpreters.links());
    for home in interpreters.homes() {
        if let Some(home) = home.to_str() {
            show(&mut setup, home);
        }
    }
    if let Some(cache) = go_cache.and_then(Path::to_str) {
        setup.binds.push(Bind { host: cache.to_owned(), inside: warm::INSIDE.to_owned() });
    }
    for (path, content) in [
        ("/etc/passwd", PASSWD),
        ("/etc/group", GROUP),
        ("/etc/hosts", HOSTS),
        ("/etc/hostname", "belljar\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        ("/etc/resolv.conf", ""),
    ] {
        setup.files.push((path.to_owned(), content.to_owned()));
    }
    setup
}

fn show(setup: &mut Setup, path: &str) {
    setup.binds.push(Bind { host: path.to_owned(), inside: path.to_owned() });
}

/// The whole environment of a sandbox's programs: nothing of the server's own, then what the caller added.
pub(super) fn environment(chosen: &Chosen, added: &[(String, String)]) -> Vec<(String, String)> {
    let mut base = vec![
        ("PATH", chosen.path.as_str()),
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        // Nobody watches a window here: figures are drawn to memory.
        ("MPLBACKEND", "Agg"),
    ];
    // Compilers that would look for packages, and for other versions of themselves, on the network.
    if chosen.has(Language::Go) {
        base.extend([("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    }
    if chosen.has(Language::Rust) {
        base.push(("CARGO_NET_OFFLINE", "true"));
    }
    let kept = base.iter().filter(|(name, _)| !added.iter().any(|(other, _)| other == name));
    kept.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain(added.iter().cloned()).collect()
}
