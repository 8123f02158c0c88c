//! What Go and Cargo are told on this host.

use super::collect::Collected;
use super::url::Address;
use super::{HostSettings, Secret};

const GO_PROXY: &str = "https://proxy.golang.org";
const GO_SUMS: &str = "https://sum.golang.org";
const CRATES: [&str; 3] = ["https://index.crates.io", "https://static.crates.io", "https://crates.io"];

pub(super) fn read(host: &HostSettings<'_>, collected: &mut Collected) {
    go(host, collected);
    cargo(host, collected);
}

fn go(host: &HostSettings<'_>, collected: &mut Collected) {
    // `go env -w` keeps its own file; a variable is stronger.
    let kept = host.in_config("go/env").unwrap_or_default();
    let get = |name: &str| {
        let own = || kept.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=').map(str::to_owned));
        host.var(name).or_else(own).filter(|value| !value.is_empty())
    };
    let proxies = get("GOPROXY").unwrap_or_else(|| GO_PROXY.to_owned());
    let mut kept = String::new();
    let mut rest = proxies.as_str();
    loop {
        let end = rest.find([',', '|']).unwrap_or(rest.len());
        let (proxy, behind) = rest.split_at(end);
        match proxy.trim() {
            // Whatever host a module names: that is for the operator to grant.
            word @ ("direct" | "off") => kept.push_str(word),
            proxy => kept.push_str(&collected.registry(proxy).unwrap_or_default()),
        }
        let Some(sign) = behind.chars().next() else { break };
        kept.push(sign);
        rest = behind.get(1..).unwrap_or_default();
    }
    collected.set("GOPROXY", kept);
    match get("GOSUMDB") {
        None => drop(collected.registry(GO_SUMS)),
        Some(own) => collected.set("GOSUMDB", own),
    }
    for name in ["GONOSUMDB", "GONOSUMCHECK", "GOPRIVATE", "GONOPROXY"] {
        if let Some(value) = get(name) {
            collected.set(name, value);
        }
    }
    // The one that is there: another would be a program from outside.
    collected.set("GOTOOLCHAIN", "local");
}

fn cargo(host: &HostSettings<'_>, collected: &mut Collected) {
    CRATES.iter().for_each(|address| drop(collected.registry(address)));
    for name in host.env_names {
        let Some(registry) = name.strip_prefix("CARGO_REGISTRIES_").and_then(|rest| rest.strip_suffix("_INDEX")) else {
            continue;
        };
        let Some(text) = host.var(name) else { continue };
        let Some(address) = collected.registry(&text) else { continue };
        collected.set(name, address);
        if let (Some(token), Some(address)) =
            (host.var(&format!("CARGO_REGISTRIES_{registry}_TOKEN")), Address::parse(&text))
        {
            collected.credential(&address, "authorization", Secret(token));
        }
    }
    let replaced = [".cargo/config.toml", ".cargo/config"].iter().filter_map(|path| host.at_home(path));
    if replaced.into_iter().any(|text| text.contains("replace-with")) {
        collected.ignore("Cargo's replace-with is not heeded: it cannot be given to a sandbox by a variable");
    }
}
