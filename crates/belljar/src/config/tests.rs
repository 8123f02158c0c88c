use jsonschema::validator_for;

use super::schema::{Kind, keys};
use super::sources::of_text;
use super::*;

fn read(text: &str) -> Result<Config, Complaint> {
    of_text(text, &[])
}

fn from(config: &Config, key: &str) -> (String, String) {
    let row = config.rows().into_iter().find(|row| row.key == key).unwrap();
    (row.value, row.from)
}

#[test]
fn a_variable_goes_before_the_file_and_a_flag_before_both() {
    let text = "idle_timeout = 60\n\n[pool]\nmax = 4\nmemory_mb = 8";
    let mut config = of_text(text, &[("BELLJAR_IDLE_TIMEOUT", "7.5"), ("BELLJAR_POOL__MAX", "5")]).unwrap();
    assert_eq!(config.idle_timeout, Value { value: Duration::from_millis(7500), whence: Whence::Written });
    assert_eq!((config.pool.max.value, config.pool.memory_mb.value), (5, Some(8)));
    assert_eq!(from(&config, "idle_timeout"), ("7.5 s".into(), "env BELLJAR_IDLE_TIMEOUT".into()));
    assert_eq!(from(&config, "pool.max"), ("5".into(), "env BELLJAR_POOL__MAX".into()));
    assert_eq!(from(&config, "pool.memory_mb"), ("8".into(), "test.toml:5".into()));
    assert_eq!(from(&config, "max_age"), ("86400 s".into(), "built in".into()));
    config.idle_timeout.or_flag(Some(Duration::from_secs(5)));
    assert_eq!(from(&config, "idle_timeout"), ("5 s".into(), "flag".into()));
}

#[test]
fn variables_have_the_types_of_their_keys() {
    let given = [
        ("BELLJAR_NETWORK__ALLOW", "packages, *.example.org"),
        ("BELLJAR_NETWORK__PRIVATE", ""),
        ("BELLJAR_PACKAGES__INSTALL", "false"),
        ("BELLJAR_UPSTREAMS__APPROVE", "never"),
        ("BELLJAR_DOCKER__IMAGE", "a,b"),
        ("BELLJAR_POOL__MAX", ""),
        ("BELLJAR_LOG", "debug"),
        ("BELLJAR_SERVICE_HOST", "10.0.0.1"),
        ("BELLJAR_PORT_8931_TCP", "tcp://10.0.0.1:8931"),
        ("BELLJAR_TEST_ROOT", "/x"),
        ("PATH", "/bin"),
    ];
    let config = of_text("[network]\nprivate = [\"10.0.0.0/8\"]", &given).unwrap();
    assert_eq!(config.network.allow.value.words(), ["packages", "*.example.org"]);
    assert!(config.network.private.value.is_empty() && !config.packages.install.value);
    assert_eq!(config.walls.settings.docker.image.as_deref(), Some("a,b"));
    assert_eq!(config.pool.max.whence, Whence::BuiltIn);
    assert_eq!(from(&config, "log"), ("debug".into(), "env BELLJAR_LOG".into()));
}

#[test]
fn wrong_variables_are_told_by_name_and_without_their_values() {
    for (name, value, said) in [
        ("BELLJAR_IDLE_TIMOUT", "sesame", "did you mean `BELLJAR_IDLE_TIMEOUT`?"),
        ("BELLJAR_POOL_MAX", "sesame", "did you mean `BELLJAR_POOL__MAX`?"),
        ("BELLJAR_TEMPLATES", "sesame", "unknown variable BELLJAR_TEMPLATES"),
        ("BELLJAR_X\u{1b}[31m", "sesame", "BELLJAR_X\\u{1b}[31m"),
        ("BELLJAR_POOL__MAX", "sesame", "the variable BELLJAR_POOL__MAX"),
        ("BELLJAR_POOL__MAX", "-1", "the variable BELLJAR_POOL__MAX: invalid value"),
        ("BELLJAR_POOL__ENABLED", "yes", "the variable BELLJAR_POOL__ENABLED"),
        ("BELLJAR_IDLE_TIMEOUT", "nan", "idle_timeout is no time"),
        ("BELLJAR_LOG", "sesame=sesame=sesame", "log is no filter"),
        ("BELLJAR_WALLS__BACKEND", "nativ", "did you mean `native`?"),
        ("BELLJAR_PRIVACY__HIDE", "email,mail", "the variable BELLJAR_PRIVACY__HIDE cannot be \"mail\""),
    ] {
        let complaint = of_text("", &[(name, value)]).unwrap_err();
        assert!(complaint.what.contains(said), "{name}: {}", complaint.what);
        assert!(!complaint.what.contains("sesame") && !complaint.hint.is_empty(), "{}", complaint.what);
    }
}

#[test]
fn secrets_are_not_shown() {
    let config = read(
        "[secrets.A]\ncommand = 'echo sesame'\nhosts = ['a.test']\n[upstreams.servers.s]\nurl = 'https://u:sesame@a.test'\n\
         headers = { Authorization = 'sesame' }\n[templates.t]\nenv = { KEY = 'sesame' }\npackages = ['polars']\n\
         [privacy.patterns]\nCUSTOMER = 'C-1'\n[images.mirrors]\n'docker.io' = ['a.test', 'b.test']",
    );
    let config = config.unwrap();
    let shown = format!("{:?}", config.rows());
    assert!(!shown.contains("sesame"), "{shown}");
    assert!(!format!("{:?}", config.upstreams).contains("sesame"));
    assert!(!format!("{config:?}").contains("sesame"), "{config:?}");
    let hidden = "(hidden)".to_owned();
    assert_eq!(from(&config, "secrets.A.command"), (hidden.clone(), "test.toml:2".into()));
    assert_eq!(from(&config, "secrets.A.hosts"), ("a.test".into(), "test.toml:3".into()));
    assert_eq!(from(&config, "upstreams.servers.s").0, hidden);
    assert_eq!(from(&config, "templates.t.env.KEY").0, hidden);
    assert_eq!(from(&config, "templates.t.packages").0, "polars");
    assert_eq!(from(&config, "privacy.patterns.CUSTOMER").0, "C-1");
    assert_eq!(from(&config, "images.mirrors.docker.io").0, "a.test, b.test");
}

/// Each node of the schema that stands for a key, with its path.
fn nodes(schema: &serde_json::Value, at: &str, found: &mut Vec<(String, serde_json::Value)>) {
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{at}.{name}");
        nodes(below, &path, found);
        found.push((path, below.clone()));
    }
    if schema["additionalProperties"].is_object() {
        nodes(&schema["additionalProperties"], &format!("{at}.*"), found);
    }
}

#[test]
fn every_key_is_described_and_shown() {
    let schema = schema();
    let mut all = Vec::new();
    nodes(&schema, "", &mut all);
    assert!(all.len() > 60, "{}", all.len());
    for (path, node) in &all {
        let words = node["description"].as_str().unwrap_or_default();
        assert!(words.ends_with('.') && words.len() > 10, "{path} has no full sentence as its comment: {words:?}");
        assert!(node["type"].is_string(), "{path} has no plain type: {node}");
        assert!(node.get("format").is_none() && node.get("$ref").is_none(), "{path}: {node}");
        if node.get("properties").is_some() {
            assert_eq!(node["additionalProperties"], false, "{path} takes unknown keys: deny_unknown_fields");
        }
    }
    let built_in = read("").unwrap();
    let told = super::rows::told(&built_in);
    for key in keys(&schema).into_iter().filter(|key| key.kind != Kind::Table) {
        assert!(told.contains(&key.path.as_str()), "{} has no line in rows::effective", key.path);
    }
    for key in told {
        assert!(keys(&schema).iter().any(|known| known.path == key), "rows::effective has {key}, which is no key");
    }
}

/// What stands between fences in the documents and is a file of ours.
fn examples() -> Vec<(String, String)> {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(docs).unwrap().map(Result::unwrap) {
        let path = entry.path();
        // The clients' page shows the clients' own files.
        if path.extension().is_none_or(|extension| extension != "md") || path.ends_with("clients.md") {
            continue;
        }
        let text = std::fs::read_to_string(entry.path()).unwrap();
        for (at, block) in text.split("```toml\n").skip(1).enumerate() {
            let block = block.split("```").next().unwrap().to_owned();
            found.push((format!("{} {at}", entry.path().display()), block));
        }
    }
    found
}

#[test]
fn the_schema_and_the_reader_take_what_the_documents_show() {
    let schema = schema();
    let validator = validator_for(&schema).unwrap();
    let examples = examples();
    assert!(examples.iter().any(|(place, _)| place.contains("configuration.md")));
    for (place, text) in examples {
        read(&text).unwrap_or_else(|complaint| panic!("{place}: {}", complaint.what));
        let value = serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
        let wrong: Vec<_> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{place}: {wrong:?}");
    }
    for wrong in ["idle_timout = 1", "[pool]\nmax = 'x'", "[walls]\nbackend = 'nativ'", "[templates.a]\nx = 1"] {
        let value = serde_json::to_value(toml::from_str::<toml::Table>(wrong).unwrap()).unwrap();
        assert!(!validator.is_valid(&value) && read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_key_has_a_row_in_the_documents_table() {
    let page = include_str!("../../../../docs/configuration.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    for key in keys(&schema()) {
        let has = |row: &&str| match key.path.split_once('.') {
            None => row.contains(&format!("`{}`", key.path)) || row.contains(&format!("`[{}.NAME]`", key.path)),
            Some((section, name)) => {
                let whole = row.contains(&format!("`[{section}]`")) && !row.contains(" in `[");
                let named = row.contains(&format!("`{name}`")) && row.contains(&format!("`[{section}]`"));
                whole || named || row.contains(&format!("`[{section}.{name}"))
            }
        };
        assert!(rows.iter().any(has), "docs/configuration.md has no row for {}", key.path);
    }
}

#[test]
fn a_pool_is_there_unless_it_is_turned_off() {
    let built_in = read("").unwrap().pool;
    assert_eq!(built_in.settings(), Some(PoolSettings::default()));
    let own = read("[pool]\nmemory_mb = 64\nmax = 4").unwrap().pool;
    assert_eq!(own.settings(), Some(PoolSettings { memory_bytes: Some(64 << 20), max: 4 }));
    assert_eq!(read("[pool]\nenabled = false\nmax = 4").unwrap().pool.settings(), None);
    let mut flagged = own;
    flagged.enabled.or_flag(Some(false));
    assert_eq!((flagged.settings(), flagged.enabled.whence), (None, Whence::Flag));
}

#[test]
fn hosts_secrets_and_packages_are_read() {
    let config = read(
        "[network]\nallow = [\"packages\", \"*.example.org\"]\nprivate = [\"10.0.0.0/8\"]\nhosts = { \"a.test\" = \"10.0.0.1\" }\n\
         [audit]\nfile = \"audit.jsonl\"\n[secrets.GITHUB]\nenv = \"TOKEN\"\nhosts = [\"api.example.org\"]\n[packages]\ninfer = false",
    );
    let config = config.unwrap();
    assert_eq!(config.network.allow.value.words(), ["packages", "*.example.org"]);
    assert_eq!(config.network.hosts, [("a.test".to_owned(), "10.0.0.1".parse().unwrap())]);
    assert_eq!(config.audit.file.value, Some(PathBuf::from("audit.jsonl")));
    assert_eq!(config.secrets[0].source, SecretSource::Environment("TOKEN".into()));
    assert!(config.packages.install.value && !config.packages.infer.value);
}

#[test]
fn a_template_has_interpreters_limits_and_environment() {
    let text = "[templates.science]\ninterpreters = [\"python-3.12\"]\nenv = { A = \"1\" }\nlimits = { memory_mb = 2048, cpus = 1.5 }";
    let config = read(text).unwrap();
    let science = &config.templates[0];
    assert_eq!((science.name.as_str(), &science.ground.interpreters), ("science", &vec!["python-3.12".to_owned()]));
    assert_eq!((science.wish.memory_bytes, science.wish.cpu_milli), (Some(2 << 30), Some(1500)));
    assert_eq!(science.env, [("A".to_owned(), "1".to_owned())]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, said) in [
        ("idle_timout = 5", "unknown key `idle_timout` in line 1; did you mean `idle_timeout`?"),
        ("idle_timeout = \"x\"", "line 1"),
        ("idle_timeout = -1", "idle_timeout is no time"),
        ("[pool]\nsize = 1", "unknown key `pool.size` in line 2"),
        ("[pool]\nenable = true", "did you mean `pool.enabled`?"),
        ("memory_mb = 5", "did you mean `pool.memory_mb`?"),
        ("[walls]\n\nbackend = \"nativ\"", "`walls.backend` in line 3 cannot be \"nativ\"; did you mean `native`?"),
        ("[walls]\nallow = [\"docker\", \"xyz\"]", "`walls.allow` in line 2 cannot be \"xyz\"; use one of: native"),
        ("profile = \"e2c\"", "did you mean `e2b`?"),
        ("[templates.a.limits]\ncpu = 1", "did you mean `templates.a.limits.cpus`?"),
        ("[pool]\nmax = -1", "line 2"),
        ("[templates.x]\ngpus = 1", "unknown key `templates.x.gpus`"),
        ("[templates.x.limits]\nmemory_mb = -1", "line 2"),
        ("[templates.x.limits]\ncpus = 0.0", "cpus"),
        ("[templates.\"a b\"]", "a template's name"),
        ("[network]\nallow = [\"http://x\"]", "http://x"),
        ("[network]\ndefault = [\"packages\"]", "packages"),
        ("[network]\nports = [1]", "unknown key `network.ports`"),
        ("[secrets.a]\nenv = \"A\"", "missing field `hosts`"),
        ("[secrets.a]\nhosts = [\"x.test\"]", "no source"),
        ("[secrets.a]\nenv = \"A\"\nfile = \"b\"\nhosts = [\"x.test\"]", "several"),
        ("[secrets.\"a b\"]\nenv = \"A\"\nhosts = [\"x.test\"]", "name"),
        ("[secrets.a]\nenv = \"A\"\nhosts = []", "no hosts"),
        ("[packages]\ncach = 1", "did you mean `packages.cache`?"),
        ("[images]\nmirror = 1", "did you mean `images.mirrors`?"),
        ("[images]\ninsecure = [\"http://x\"]", "http://x"),
        ("[images]\nmirrors = { \"docker.io\" = [\"a/b\"] }", "a/b"),
        ("=", "line 1"),
    ] {
        let complaint = read(text).unwrap_err();
        assert!(complaint.what.contains(said), "{text}: {}", complaint.what);
        assert!(!complaint.hint.is_empty());
    }
}

#[test]
fn registries_are_read() {
    let text = "[images]\nmirrors = { \"docker.io\" = [\"mirror.test:5000\"] }\ninsecure = [\"localhost:5000\"]\nauth = \"/a\"";
    let registries = read(text).unwrap().images.registries();
    assert_eq!(registries.mirrors["docker.io"], ["mirror.test:5000"]);
    assert_eq!((registries.insecure, registries.auth), (vec!["localhost:5000".to_owned()], Some("/a".into())));
}

#[test]
fn the_usual_file_may_be_missing_and_a_named_one_may_not() {
    let home = tempfile::tempdir().unwrap();
    let usual = || Sources { usual: Some(home.path().to_owned()), ..Sources::default() };
    assert_eq!(usual().read().unwrap().file, None);
    assert!(Sources::only(&home.path().join("config.toml")).read().is_err());

    let (old, new) = (home.path().join("config.toml"), home.path().join("belljar.toml"));
    std::fs::write(&old, "idle_timeout = 1").unwrap();
    assert_eq!(usual().read().unwrap().file, Some(old.clone()));
    std::fs::write(&new, "idle_timeout = 2").unwrap();
    let complaint = usual().read().unwrap_err();
    assert!(complaint.what.contains("two configurations"), "{}", complaint.what);
    assert_eq!(Sources::only(&old).read().unwrap().idle_timeout.value, Duration::from_secs(1));
    std::fs::remove_file(&old).unwrap();
    assert_eq!(usual().read().unwrap().idle_timeout.value, Duration::from_secs(2));

    std::fs::write(&new, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(usual().read().unwrap_err().what.contains("no file of at most"));
    std::fs::remove_file(&new).unwrap();
    std::fs::create_dir(&new).unwrap();
    assert!(usual().read().unwrap_err().what.contains("no file of at most"));
}
