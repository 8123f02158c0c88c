//! What every sandbox sees of the host, and what it sees instead of the host's own.

use std::fs;
use std::path::Path;

use belljar_core::wire::{ASK, Bind, Setup, TRUST};
use belljar_core::{BUILD, Language, LayerKind, Network, PROXY_PORT, PackageKind};

use super::interpreters::{Chosen, Interpreters};
use super::store::Store;
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
/// Without a network nobody is there, and the answer is a refusal at once.
const RESOLVER: &str = "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n";

/// Files of every place in place of the host's, or an image's.
pub(super) const OWN_ETC: [(&str, &str); 6] = [
    ("/etc/passwd", PASSWD),
    ("/etc/group", GROUP),
    ("/etc/hosts", HOSTS),
    ("/etc/hostname", "belljar\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    ("/etc/resolv.conf", RESOLVER),
];

/// Programs of ours that come before the host's own of the same name.
pub(super) const BIN: &str = "/belljar/bin";
/// Those that are the guest's executable, which looks at the name that it is called by.
pub(super) const ASKING: [&str; 4] = ["pip", "pip3", "uv", "tools"];
/// What Python finds before its own.
pub(super) const PYTHON_LIB: &str = "/belljar/lib";
/// What Node finds after all else.
const NODE_LIB: &str = "/belljar/node";
/// Small programs of ours, by their path.
pub(super) const PROGRAMS: [(&str, &str); 20] = [
    ("/belljar/bin/npm", include_str!("../../guest/src/ask/npm.sh")),
    ("/belljar/lib/pip/__init__.py", include_str!("../../guest/src/ask/pip/__init__.py")),
    ("/belljar/lib/pip/__main__.py", include_str!("../../guest/src/ask/pip/__main__.py")),
    ("/belljar/lib/sitecustomize.py", include_str!("../../guest/src/ask/sitecustomize.py")),
    ("/belljar/lib/tools.py", include_str!("../../guest/src/calls/python/tools.py")),
    ("/belljar/lib/mcp_runtime/__init__.py", include_str!("../../guest/src/calls/python/mcp_runtime/__init__.py")),
    ("/belljar/lib/mcp_runtime/_aio.py", include_str!("../../guest/src/calls/python/mcp_runtime/_aio.py")),
    ("/belljar/lib/mcp_runtime/_errors.py", include_str!("../../guest/src/calls/python/mcp_runtime/_errors.py")),
    ("/belljar/lib/mcp_runtime/_finder.py", include_str!("../../guest/src/calls/python/mcp_runtime/_finder.py")),
    ("/belljar/lib/mcp_runtime/_names.py", include_str!("../../guest/src/calls/python/mcp_runtime/_names.py")),
    ("/belljar/lib/mcp_runtime/_parallel.py", include_str!("../../guest/src/calls/python/mcp_runtime/_parallel.py")),
    ("/belljar/lib/mcp_runtime/_skills.py", include_str!("../../guest/src/calls/python/mcp_runtime/_skills.py")),
    ("/belljar/lib/mcp_runtime/_unknown.py", include_str!("../../guest/src/calls/python/mcp_runtime/_unknown.py")),
    ("/belljar/lib/mcp_runtime/_wire.py", include_str!("../../guest/src/calls/python/mcp_runtime/_wire.py")),
    ("/belljar/node/tools.js", include_str!("../../guest/src/calls/node/tools.js")),
    ("/belljar/node/belljar/errors.js", include_str!("../../guest/src/calls/node/belljar/errors.js")),
    ("/belljar/node/belljar/hooks.js", include_str!("../../guest/src/calls/node/belljar/hooks.js")),
    ("/belljar/node/belljar/once.js", include_str!("../../guest/src/calls/node/belljar/once.js")),
    ("/belljar/node/belljar/skills.js", include_str!("../../guest/src/calls/node/belljar/skills.js")),
    ("/belljar/node/belljar/wire.js", include_str!("../../guest/src/calls/node/belljar/wire.js")),
];

pub(super) fn plan(interpreters: &Interpreters, go_cache: Option<&Path>, store: Option<&Store>) -> Setup {
    let store = store.and_then(Store::path).map(str::to_owned);
    let mut setup = Setup { store, ask: true, ..Setup::default() };
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
    fit(&mut setup, interpreters.pythons());
    setup
}

/// What every root has of ours, whosever the rest is.
pub(super) fn fit(setup: &mut Setup, pythons: impl Iterator<Item = String>) {
    for (path, content) in OWN_ETC.into_iter().chain(PROGRAMS) {
        setup.files.push((path.to_owned(), content.to_owned()));
    }
    setup.links.extend(ASKING.map(|name| (format!("{BIN}/{name}"), ASK.to_owned())));
    let packages = PackageKind::Python.inside();
    let places = LayerKind::ALL.map(LayerKind::inside).into_iter().chain([BUILD, PYTHON_LIB]);
    setup.directories = places.map(str::to_owned).collect();
    // Python looks for its packages when it starts, and a layer may come later.
    for version in pythons {
        setup.directories.push(format!("{packages}/lib/python{version}/site-packages"));
    }
}

fn show(setup: &mut Setup, path: &str) {
    setup.binds.push(Bind { host: path.to_owned(), inside: path.to_owned() });
}

/// Whether what programs trust on their way out is a file of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    Ours,
    Hosts,
}

/// What is in the sandbox itself.
const DIRECT: &str = "localhost,127.0.0.1,::1";

/// Variables that name the file of certificates, by those who read them.
const TRUSTING: [&str; 7] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "NODE_EXTRA_CA_CERTS",
];

/// The whole environment of a sandbox's programs: nothing of the server's own, then what the caller added.
pub(super) fn environment(
    chosen: &Chosen,
    network: &Network,
    trust: Trust,
    added: &[(String, String)],
) -> Vec<(String, String)> {
    let (packages, modules) = (PackageKind::Python.inside(), PackageKind::Node.inside());
    let path = format!("{BIN}:{packages}/bin:{modules}/.bin:{}", chosen.path);
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    let mut base = vec![
        ("PATH", path.as_str()),
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/bash"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        // Nobody watches a window here: figures are drawn to memory.
        ("MPLBACKEND", "Agg"),
        ("PYTHONUSERBASE", packages),
        ("PYTHONPATH", PYTHON_LIB),
        ("NODE_PATH", NODE_LIB),
    ];
    let is_offline = *network == Network::None;
    // Compilers that would look for packages, and for other versions of themselves, on the network.
    if chosen.has(Language::Go) {
        base.push(("CGO_ENABLED", "0"));
        if is_offline {
            base.extend([("GOPROXY", "off"), ("GOTOOLCHAIN", "local")]);
        }
    }
    if chosen.has(Language::Rust) && is_offline {
        base.push(("CARGO_NET_OFFLINE", "true"));
    }
    if !is_offline {
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            base.push((name, &proxy));
        }
        base.extend([("NO_PROXY", DIRECT), ("no_proxy", DIRECT)]);
        if trust == Trust::Ours {
            base.extend(TRUSTING.map(|name| (name, TRUST)));
        }
    }
    let kept = base.iter().filter(|(name, _)| !added.iter().any(|(other, _)| other == name));
    kept.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain(added.iter().cloned()).collect()
}
