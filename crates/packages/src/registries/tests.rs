use std::collections::HashMap;

use super::*;

fn read(env: &[(&str, &str)], files: &[(&str, &str)]) -> Registries {
    let own = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<HashMap<_, _>>()
    };
    let (env, files) = (own(env), own(files));
    let names = env.keys().cloned().collect::<Vec<_>>();
    Registries::read(&HostSettings {
        env: &|name| env.get(name).cloned(),
        env_names: &names,
        read: &|path| files.get(path.to_str()?).cloned(),
        home: Some(Path::new("/home/me")),
    })
}

fn env<'a>(registries: &'a Registries, name: &str) -> Option<&'a str> {
    registries.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

fn hosts(registries: &Registries) -> Vec<String> {
    registries.grants.iter().map(ToString::to_string).collect()
}

fn header(registries: &Registries, host: &str) -> Option<String> {
    let found = registries.credentials.iter().find(|one| one.grant.to_string() == host);
    found.map(|one| one.value.reveal().to_owned())
}

#[test]
fn without_settings_the_public_registries_are_used() {
    let public = read(&[], &[]);
    assert_eq!(
        hosts(&public),
        [
            "pypi.org",
            "files.pythonhosted.org",
            "registry.npmjs.org",
            "proxy.golang.org",
            "sum.golang.org",
            "index.crates.io",
            "static.crates.io",
            "crates.io"
        ]
    );
    assert_eq!(env(&public, "UV_DEFAULT_INDEX"), Some("https://pypi.org/simple"));
    assert!(public.credentials.is_empty() && public.proxy.is_none() && public.ignored.is_empty());
    assert_eq!(public.host_of(PackageKind::Node).unwrap().to_string(), "registry.npmjs.org");
}

#[test]
fn pips_settings_are_uvs_too_and_passwords_are_taken_out() {
    let conf = "[global]\nindex-url = https://me:p%40ss@index.example.com:8443/simple\nextra-index-url =\n    https://pypi.org/simple\n    \
                https://more.example.com/simple\ntrusted-host = index.example.com\ncert = /etc/own.pem\n[install]\nfind-links = /opt/wheels\n";
    let own =
        read(&[], &[("/etc/pip.conf", conf), ("/home/me/.netrc", "machine more.example.com login a password b\n")]);
    assert_eq!(env(&own, "UV_DEFAULT_INDEX"), Some("https://index.example.com:8443/simple"));
    assert_eq!(env(&own, "PIP_INDEX_URL"), Some("https://index.example.com:8443/simple"));
    assert_eq!(env(&own, "UV_INDEX"), Some("https://pypi.org/simple https://more.example.com/simple"));
    assert_eq!(
        hosts(&own)[..4],
        ["index.example.com:8443", "pypi.org", "more.example.com", "files.pythonhosted.org"].map(str::to_owned)
    );
    assert_eq!(header(&own, "index.example.com:8443").unwrap(), "Basic bWU6cEBzcw==");
    assert_eq!(header(&own, "more.example.com").unwrap(), "Basic YTpi");
    assert_eq!(own.ca_files, [Path::new("/etc/own.pem")]);
    assert!(own.ignored.iter().any(|sentence| sentence.contains("find-links")));
    assert!(own.grants.iter().all(|grant| grant.reach == belljar_core::Reach::Anywhere));
}

#[test]
fn an_index_without_tls_is_taken_by_both() {
    let own = read(&[("UV_DEFAULT_INDEX", "http://index.example:8080/simple")], &[]);
    assert_eq!(env(&own, "PIP_TRUSTED_HOST"), Some("index.example:8080"));
    assert_eq!(env(&own, "UV_INSECURE_HOST"), None);
}

#[test]
fn the_stronger_setting_wins() {
    let files = [
        ("/etc/pip.conf", "[global]\nindex-url = https://weak.example/simple\n"),
        (
            "/home/me/.config/pip/pip.conf",
            "[global]\nindex-url = https://user.example/simple\n[install]\nindex_url = https://install.example/simple\n",
        ),
    ];
    assert_eq!(read(&[], &files).python_index, "https://install.example/simple");
    assert_eq!(
        read(&[("PIP_INDEX_URL", "https://env.example/simple")], &files).python_index,
        "https://env.example/simple"
    );
    let uv = ("/home/me/.config/uv/uv.toml", "[[index]]\nurl = 'https://uv.example/simple'\ndefault = true\n");
    let both = [files[0], files[1], uv];
    assert_eq!(
        read(&[("PIP_INDEX_URL", "https://env.example/simple")], &both).python_index,
        "https://uv.example/simple"
    );
    let named = [
        ("UV_DEFAULT_INDEX", "mine=https://named.example/simple"),
        ("UV_INDEX", "x-y=https://x.example/s"),
        ("UV_INDEX_X_Y_PASSWORD", "pw"),
    ];
    let named = read(&named, &both);
    assert_eq!(named.python_index, "https://named.example/simple");
    assert_eq!(header(&named, "x.example").unwrap(), "Basic OnB3");
}

#[test]
fn npms_registries_scopes_and_tokens_are_found() {
    let npmrc = "registry=https://npm.example.com/repo/\n@mine:registry=http://10.0.0.5:4873/\n//npm.example.com/repo/:_authToken=${TOKEN}\n\
                 //10.0.0.5:4873/:username=me\n//10.0.0.5:4873/:_password=cHc=\n; comment\nhttps-proxy=http://proxy.example:3128\n";
    let own = read(&[("TOKEN", "t0ken")], &[("/home/me/.npmrc", npmrc)]);
    assert_eq!(env(&own, "npm_config_registry"), Some("https://npm.example.com/repo/"));
    assert_eq!(env(&own, "npm_config_@mine:registry"), Some("http://10.0.0.5:4873/"));
    assert_eq!(header(&own, "npm.example.com").unwrap(), "Bearer t0ken");
    assert_eq!(header(&own, "10.0.0.5:4873").unwrap(), "Basic bWU6cHc=");
    let clear = own.credentials.iter().find(|one| one.grant.to_string() == "10.0.0.5:4873").unwrap();
    assert_eq!(clear.over, Over::Either);
    assert_eq!(own.proxy.as_ref().unwrap().reveal(), "http://proxy.example:3128");
    assert_eq!(own.host_of(PackageKind::Node), None, "only the proxy knows");
}

#[test]
fn go_and_cargo_keep_their_own() {
    let own = read(
        &[
            ("GOPROXY", "https://u:p@goproxy.example,https://proxy.golang.org|direct"),
            ("GOSUMDB", "off"),
            ("CARGO_REGISTRIES_MINE_INDEX", "sparse+https://cargo.example/index/"),
            ("CARGO_REGISTRIES_MINE_TOKEN", "secret-token"),
        ],
        &[],
    );
    assert_eq!(env(&own, "GOPROXY"), Some("https://goproxy.example,https://proxy.golang.org|direct"));
    assert_eq!(header(&own, "goproxy.example").unwrap(), "Basic dTpw");
    assert_eq!(env(&own, "CARGO_REGISTRIES_MINE_INDEX"), Some("sparse+https://cargo.example/index/"));
    assert_eq!(header(&own, "cargo.example").unwrap(), "secret-token");
    assert!(!hosts(&own).contains(&"sum.golang.org".to_owned()));
}

#[test]
fn nothing_secret_is_shown() {
    let own = read(
        &[
            ("PIP_INDEX_URL", "https://me:hunter2@index.example/simple"),
            ("HTTPS_PROXY", "http://me:hunter2@proxy.example:8080"),
            ("PIP_EXTRA_INDEX_URL", "ftp://me:hunter2@old.example/"),
            ("npm_config_registry", "https://me:hunter2@npm.example/"),
            ("GOPROXY", "https://me:hunter2@go.example"),
        ],
        &[
            ("/home/me/.npmrc", "//a.example/:_authToken=hunter2"),
            ("/home/me/.netrc", "machine x login y password hunter2"),
        ],
    );
    assert!(!format!("{own:?}").contains("hunter2"));
    assert!(own.env.iter().all(|(_, value)| !value.contains("hunter2")));
    assert_eq!(own.proxy.unwrap().reveal(), "http://me:hunter2@proxy.example:8080");
}

#[test]
fn a_default_of_netrc_and_its_macros_are_not_for_registries() {
    let netrc = "macdef x\nmachine pypi.org login evil password evil\n\ndefault login a password b\n";
    assert!(read(&[], &[("/home/me/.netrc", netrc)]).credentials.is_empty());
}
