//! What npm is told on this host.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::collect::Collected;
use super::url::{Address, basic};
use super::{HostSettings, Secret, ini};

const NPM: &str = "https://registry.npmjs.org/";

/// Gathers what there is, and says which registry is asked.
pub(super) fn read(host: &HostSettings<'_>, collected: &mut Collected) -> String {
    let values = values(host);
    let get = |key: &str| values.get(key).cloned().filter(|value| !value.is_empty());
    let own = host.any_var(&["npm_config_registry", "NPM_CONFIG_REGISTRY"]).or_else(|| get("registry"));
    let registry = own.and_then(|own| collected.registry(&own));
    let registry = registry.or_else(|| collected.registry(NPM)).unwrap_or_else(|| NPM.to_owned());
    collected.set("npm_config_registry", registry.clone());
    for (key, address) in &values {
        if let Some(scope) = key.strip_suffix(":registry").filter(|scope| scope.starts_with('@'))
            && let Some(address) = collected.registry(address)
        {
            collected.set(&format!("npm_config_{scope}:registry"), address);
        }
    }
    credentials(&values, &registry, collected);
    collected.ca_file(host.any_var(&["npm_config_cafile", "NPM_CONFIG_CAFILE"]).or_else(|| get("cafile")));
    collected.proxy = collected.proxy.take().or_else(|| get("https-proxy")).or_else(|| get("proxy"));
    collected.no_proxy = collected.no_proxy.take().or_else(|| get("noproxy"));
    if get("strict-ssl").as_deref() == Some("false") {
        collected.ignore("strict-ssl=false is not heeded: give npm's cafile instead");
    }
    registry
}

/// The user's file is stronger than the machine's.
fn values(host: &HostSettings<'_>) -> BTreeMap<String, String> {
    let user = match host.any_var(&["npm_config_userconfig", "NPM_CONFIG_USERCONFIG"]) {
        Some(path) => host.file(path),
        None => host.at_home(".npmrc"),
    };
    let global = host.any_var(&["npm_config_globalconfig", "NPM_CONFIG_GLOBALCONFIG"]).and_then(|path| host.file(path));
    let files = [host.file("/usr/etc/npmrc"), host.file("/etc/npmrc"), host.file("/usr/local/etc/npmrc"), global, user];
    let lines = files.into_iter().flatten().flat_map(|text| ini::parse(&text));
    lines.map(|(_, key, value)| (key, expanded(&value, host))).collect()
}

/// `${NAME}` is a variable's value.
fn expanded(value: &str, host: &HostSettings<'_>) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        text.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            text.push_str("${");
            rest = after;
            continue;
        };
        text.push_str(&host.var(name.trim_end_matches('?')).unwrap_or_default());
        rest = behind;
    }
    text + rest
}

/// `//host/path/:_authToken=...`, and what older files have without a host, which is for the registry.
fn credentials(values: &BTreeMap<String, String>, registry: &str, collected: &mut Collected) {
    let mut places = vec![(String::new(), Address::parse(registry))];
    for key in values.keys() {
        if let Some((place, _)) = key.rsplit_once(':').filter(|(place, _)| place.starts_with("//")) {
            // Whether it is reached with TLS is not said there; what is granted without it says so itself.
            let clear = values.values().any(|value| value.starts_with(&format!("http:{place}")));
            let address = Address::parse(&format!("{}:{place}", if clear { "http" } else { "https" }));
            places.push((format!("{place}:"), address));
        }
    }
    for (prefix, address) in places {
        let Some(address) = address else { continue };
        let get = |key: &str| values.get(&format!("{prefix}{key}")).filter(|value| !value.is_empty());
        let password = || STANDARD.decode(get("_password")?).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let value = if let Some(token) = get("_authToken") {
            Secret(format!("Bearer {token}"))
        } else if let Some(both) = get("_auth") {
            Secret(format!("Basic {both}"))
        } else if let (Some(name), Some(password)) = (get("username"), password()) {
            basic(name, &password)
        } else {
            continue;
        };
        collected.credential(&address, "authorization", value);
    }
}
