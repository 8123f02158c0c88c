//! What pip and uv are told on this host, as one set of settings for both: uv heeds none of pip's.

use toml::Value;

use super::collect::Collected;
use super::url::{Address, basic};
use super::{HostSettings, ini};

const PYPI: &str = "https://pypi.org/simple";
/// Where PyPI has its files.
const PYPI_FILES: &str = "https://files.pythonhosted.org";

/// Settings of one source; one that is stronger fills in first.
#[derive(Debug, Default)]
struct Python {
    index: Option<String>,
    extra: Vec<String>,
    find_links: Vec<String>,
    trusted: Vec<String>,
    no_index: bool,
}

impl Python {
    fn or(self, weaker: Python) -> Python {
        let either = |own: Vec<String>, other| if own.is_empty() { other } else { own };
        Python {
            index: self.index.or(weaker.index),
            extra: either(self.extra, weaker.extra),
            find_links: either(self.find_links, weaker.find_links),
            trusted: either(self.trusted, weaker.trusted),
            no_index: self.no_index || weaker.no_index,
        }
    }
}

/// Gathers what there is, and says which index is asked first.
pub(super) fn read(host: &HostSettings<'_>, collected: &mut Collected) -> String {
    let uv_files = [host.in_config("uv/uv.toml"), host.file("/etc/uv/uv.toml")];
    let uv_files = uv_files.into_iter().flatten().map(|text| of_uv_file(&text));
    let all = of_uv_env(host, collected).or(uv_files.fold(Python::default(), Python::or));
    let all = all.or(of_pip_env(host, collected)).or(of_pip_files(host, collected));

    if all.no_index {
        collected.ignore("no-index is not heeded: packages are looked for in the index");
    }
    let index = all.index.as_deref().and_then(|index| collected.registry(index)).unwrap_or_else(|| {
        [PYPI, PYPI_FILES].iter().for_each(|public| drop(collected.registry(public)));
        PYPI.to_owned()
    });
    let extra = all.extra.iter().filter_map(|extra| collected.registry(extra)).collect::<Vec<_>>();
    if extra.iter().chain([&index]).any(|index| index.starts_with("https://pypi.org/")) {
        collected.registry(PYPI_FILES);
    }
    collected.set("PIP_INDEX_URL", index.clone());
    collected.set("UV_DEFAULT_INDEX", index.clone());
    if !extra.is_empty() {
        collected.set("PIP_EXTRA_INDEX_URL", extra.join(" "));
        collected.set("UV_INDEX", extra.join(" "));
    }
    let mut links = Vec::new();
    for link in &all.find_links {
        match link.contains("://") && !link.starts_with("file:") {
            true => links.extend(collected.registry(link)),
            false => collected.ignore(
                "find-links in a directory of the host is not used: builds cannot see it; serve it as an index",
            ),
        }
    }
    if !links.is_empty() {
        collected.set("PIP_FIND_LINKS", links.join(" "));
        collected.set("UV_FIND_LINKS", links.join(","));
    }
    if !all.trusted.is_empty() {
        collected.set("UV_INSECURE_HOST", all.trusted.join(" "));
    }
    // uv takes an index without TLS as it is written; pip wants to be told so.
    let clear = extra.iter().chain([&index]).filter(|index| index.starts_with("http://"));
    let clear = clear.filter_map(|index| Some(Address::parse(index)?.place()));
    let trusted = all.trusted.iter().cloned().chain(clear).collect::<Vec<_>>();
    if !trusted.is_empty() {
        collected.set("PIP_TRUSTED_HOST", trusted.join(" "));
    }
    for name in
        ["UV_INDEX_STRATEGY", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_PRERELEASE", "UV_EXCLUDE_NEWER", "PIP_PRE"]
    {
        if let Some(value) = host.var(name) {
            collected.set(name, value);
        }
    }
    index
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn of_uv_env(host: &HostSettings<'_>, collected: &mut Collected) -> Python {
    let mut python = Python {
        index: host.any_var(&["UV_DEFAULT_INDEX", "UV_INDEX_URL"]).map(|text| without_name(&text).1.to_owned()),
        find_links: host
            .var("UV_FIND_LINKS")
            .map(|text| text.split(',').map(|one| one.trim().to_owned()).collect())
            .unwrap_or_default(),
        trusted: host.var("UV_INSECURE_HOST").map(|text| words(&text)).unwrap_or_default(),
        ..Python::default()
    };
    for text in ["UV_INDEX", "UV_EXTRA_INDEX_URL"].into_iter().filter_map(|name| host.var(name)) {
        for index in words(&text) {
            let (name, address) = without_name(&index);
            if let Some(name) = name {
                named_credentials(host, name, address, collected);
            }
            python.extra.push(address.to_owned());
        }
    }
    python
}

/// `name=https://...`, as uv has it.
fn without_name(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, address)) if !name.contains([':', '/']) => (Some(name), address),
        _ => (None, text),
    }
}

fn named_credentials(host: &HostSettings<'_>, name: &str, address: &str, collected: &mut Collected) {
    let name = name.to_ascii_uppercase().replace(['-', '.'], "_");
    let user = host.var(&format!("UV_INDEX_{name}_USERNAME")).unwrap_or_default();
    if let (Some(password), Some(address)) = (host.var(&format!("UV_INDEX_{name}_PASSWORD")), Address::parse(address)) {
        collected.credential(&address, "authorization", basic(&user, &password));
    }
}

fn of_uv_file(text: &str) -> Python {
    let Ok(table) = text.parse::<toml::Table>() else { return Python::default() };
    let pip = table.get("pip").and_then(Value::as_table);
    let one = |key: &str| {
        let found = table.get(key).or_else(|| pip.and_then(|pip| pip.get(key)));
        found.and_then(Value::as_str).map(str::to_owned)
    };
    let many = |key: &str| {
        let found = table.get(key).or_else(|| pip.and_then(|pip| pip.get(key))).and_then(Value::as_array);
        found.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut python = Python {
        index: one("index-url"),
        extra: many("extra-index-url"),
        find_links: many("find-links"),
        trusted: many("allow-insecure-host"),
        no_index: false,
    };
    for index in table.get("index").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table) {
        let Some(address) = index.get("url").and_then(Value::as_str) else { continue };
        match index.get("default").and_then(Value::as_bool) {
            Some(true) => python.index = Some(address.to_owned()),
            Some(false) | None => python.extra.push(address.to_owned()),
        }
    }
    python
}

fn of_pip_env(host: &HostSettings<'_>, collected: &mut Collected) -> Python {
    let list = |name| host.var(name).map(|text| words(&text)).unwrap_or_default();
    collected.ca_file(host.var("PIP_CERT"));
    collected.proxy = collected.proxy.take().or_else(|| host.var("PIP_PROXY"));
    Python {
        index: host.var("PIP_INDEX_URL"),
        extra: list("PIP_EXTRA_INDEX_URL"),
        find_links: list("PIP_FIND_LINKS"),
        trusted: list("PIP_TRUSTED_HOST"),
        no_index: host.var("PIP_NO_INDEX").is_some(),
    }
}

/// The user's files are stronger than the machine's, and `[install]` than `[global]`.
fn of_pip_files(host: &HostSettings<'_>, collected: &mut Collected) -> Python {
    let own = host.var("PIP_CONFIG_FILE").filter(|path| path != "/dev/null");
    let files = [
        own.and_then(|path| host.file(path)),
        host.in_config("pip/pip.conf"),
        host.at_home(".pip/pip.conf"),
        host.file("/etc/xdg/pip/pip.conf"),
        host.file("/etc/pip.conf"),
    ];
    let mut python = Python::default();
    for values in files.into_iter().flatten().map(|text| ini::parse(&text)) {
        for wanted in ["install", "global"] {
            let get = |key: &str| {
                let found = values.iter().find(|(section, name, _)| section == wanted && name.replace('_', "-") == key);
                found.map(|(_, _, value)| value.clone()).filter(|value| !value.is_empty())
            };
            let list = |key| get(key).map(|text| words(&text)).unwrap_or_default();
            python = python.or(Python {
                index: get("index-url"),
                extra: list("extra-index-url"),
                find_links: list("find-links"),
                trusted: list("trusted-host"),
                no_index: get("no-index").is_some_and(|value| matches!(value.as_str(), "1" | "true" | "yes")),
            });
            collected.ca_file(get("cert"));
            collected.proxy = collected.proxy.take().or_else(|| get("proxy"));
        }
    }
    python
}
