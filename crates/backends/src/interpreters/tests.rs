use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn host(path: &Path, home: Option<&Path>) -> Host {
    Host { path: path.as_os_str().to_owned(), home: home.map(Path::to_owned), ..Host::default() }
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A Python as pyenv and uv have them: nothing of it can be run.
fn python(prefix: &Path, version: &str) {
    program(&prefix.join(format!("bin/python{version}")), "not to be run");
    for name in ["python3", "python"] {
        symlink(format!("python{version}"), prefix.join("bin").join(name)).unwrap();
    }
    file(&prefix.join(format!("lib/python{version}/os.py")), "");
}

fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn found(language: Language, host: &Host) -> Vec<Interpreter> {
    all_of(language, host).unwrap()
}

fn names(found: &[Interpreter]) -> Vec<String> {
    found.iter().filter_map(Interpreter::name).collect()
}

#[test]
fn one_in_the_system_needs_nothing() {
    let found = found(Language::Shell, &host(Path::new("/usr/bin"), None));
    assert_eq!((found[0].program.as_path(), found[0].homes.len(), found.len()), (Path::new("/usr/bin/bash"), 0, 1));
}

#[test]
fn none_is_told_with_what_to_install() {
    let empty = tempfile::tempdir().unwrap();
    let missing = all_of(Language::Python, &host(empty.path(), None)).unwrap_err();
    assert_eq!(missing.why, "no python3 or python in PATH");
    assert!(missing.fix.contains("apt install python3"));
    let all = Interpreters::find(&host(empty.path(), None));
    let lacking: Vec<Language> = all.missing().iter().map(|missing| missing.language).collect();
    assert!(lacking.starts_with(&[Language::Python, Language::JavaScript, Language::TypeScript, Language::Shell]));
}

#[test]
fn one_that_lives_elsewhere_is_asked_and_only_its_home_is_shown() {
    let home = tempfile::tempdir().unwrap();
    let versions = home.path().join(".pyenv/versions/3.12");
    program(&versions.join("bin/python3"), "#!/bin/sh\n");
    let answer = format!("#!/bin/sh\nprintf '%s\\n' {0}/bin/python3 3.12.4 {0} {0}\n", versions.display());
    program(&home.path().join("shims/python3"), &answer);
    let found = found(Language::Python, &host(&home.path().join("shims"), Some(home.path())));
    let program = versions.join("bin/python3");
    let homes = vec![versions.clone(), versions];
    assert_eq!(found, [Interpreter { language: Language::Python, version: version("3.12.4"), program, homes }]);
}

#[test]
fn of_a_home_that_is_shared_only_the_interpreters_parts_are_shown() {
    for shared in ["", ".local", "app"] {
        let home = tempfile::tempdir().unwrap();
        let prefix = home.path().join(shared);
        let node = prefix.join("bin/node");
        program(&node, &format!("#!/bin/sh\necho {}\necho v20.1.2\n", node.display()));
        fs::create_dir_all(prefix.join("lib/node_modules")).unwrap();
        fs::create_dir_all(prefix.join("share/keyrings")).unwrap();
        if shared == "app" {
            fs::write(prefix.join(".env"), "SECRET=1").unwrap();
        }
        let found = found(Language::JavaScript, &host(&prefix.join("bin"), Some(home.path())));
        let homes = vec![prefix.join("lib/node_modules"), node.clone()];
        let expected = Interpreter { language: Language::JavaScript, version: version("20.1.2"), program: node, homes };
        assert_eq!(found, [expected], "{shared:?}");
    }
}

#[test]
fn a_broken_or_ancient_one_does_not_hide_a_good_one() {
    let broken = tempfile::tempdir().unwrap();
    for text in ["#!/bin/sh\nexit 127\n", "#!/bin/sh\nprintf '%s\\n' /usr/bin/python3 3.6.15 /usr /usr\n"] {
        program(&broken.path().join("python3"), text);
        let path = std::env::join_paths([broken.path(), Path::new("/usr/bin")]).unwrap();
        let found = found(Language::Python, &Host { path, home: None, ..Host::default() });
        assert_eq!((found[0].program.as_path(), found[0].homes.len()), (Path::new("/usr/bin/python3"), 0));
    }
}

#[test]
fn other_versions_are_found_by_their_names_and_not_run() {
    let home = tempfile::tempdir().unwrap();
    let pyenv = home.path().join(".pyenv");
    for full in ["3.6.15", "3.9.18", "3.13.0", "3.13.2", "3.10.1"] {
        python(&pyenv.join("versions").join(full), full.rsplit_once('.').unwrap().0);
    }
    // One with something else in its directory would show that too.
    file(&pyenv.join("versions/3.10.1/notes.txt"), "");
    program(&pyenv.join("shims/python3.9"), "#!/bin/sh\nexit 1\n");
    let uv = home.path().join(".local/share/uv/python/cpython-3.14.0-linux-x86_64-gnu");
    python(&uv, "3.14");
    let path = std::env::join_paths([pyenv.join("shims"), "/usr/bin".into()]).unwrap();
    let found = found(Language::Python, &Host { path, home: Some(home.path().to_owned()), ..Host::default() });
    assert_eq!(found[0].program, Path::new("/usr/bin/python3"));
    let others: Vec<_> = found[1..].iter().map(|found| (found.version.to_string(), found.homes.clone())).collect();
    let home_of = |full: &str| vec![pyenv.join("versions").join(full)];
    assert_eq!(
        others,
        [
            ("3.14.0".to_owned(), vec![uv]),
            ("3.13.2".to_owned(), home_of("3.13.2")),
            ("3.9.18".to_owned(), home_of("3.9.18")),
        ]
    );
}

#[test]
fn nodes_of_nvm_are_known_by_their_headers() {
    let home = tempfile::tempdir().unwrap();
    for major in [18, 22] {
        let prefix = home.path().join(format!(".nvm/versions/node/v{major}.3.1"));
        program(&prefix.join("bin/node"), "not to be run");
        let header =
            format!("#define NODE_MAJOR_VERSION {major}\n#define NODE_MINOR_VERSION 3\n#define NODE_PATCH_VERSION 1\n");
        file(&prefix.join("include/node/node_version.h"), &header);
    }
    let default = home.path().join(".nvm/versions/node/v18.3.1/bin");
    let host = host(&default, Some(home.path()));
    let found = found(Language::JavaScript, &host);
    assert_eq!((names(&found), &found[0].program), (vec!["node-18".into(), "node-22".into()], &default.join("node")));
}

#[test]
fn a_shim_of_rustup_is_followed_to_its_toolchain() {
    let home = tempfile::tempdir().unwrap();
    let shims = home.path().join(".cargo/bin");
    program(&shims.join("rustup"), "not to be run");
    symlink("rustup", shims.join("rustc")).unwrap();
    let toolchain = |name: &str| home.path().join(".rustup/toolchains").join(name);
    for name in ["stable-x86_64-unknown-linux-gnu", "1.90.0-x86_64-unknown-linux-gnu", "nightly"] {
        program(&toolchain(name).join("bin/rustc"), "not to be run");
        file(&toolchain(name).join("lib/rustlib/components"), "");
    }
    let manifest = |name: &str, version: &str| {
        let text = format!("date = \"x\"\n[pkg.cargo]\nversion = \"0\"\n[pkg.rustc]\nversion = \"{version} (abc)\"\n");
        file(&toolchain(name).join("lib/rustlib/multirust-channel-manifest.toml"), &text);
    };
    manifest("stable-x86_64-unknown-linux-gnu", "1.95.0");
    manifest("nightly", "1.97.0-nightly");
    let settings = "version = \"12\"\ndefault_toolchain = \"stable-x86_64-unknown-linux-gnu\"\n";
    file(&home.path().join(".rustup/settings.toml"), settings);
    let host = host(&shims, Some(home.path()));
    let default = default::find(Language::Rust, &host).unwrap();
    let stable = toolchain("stable-x86_64-unknown-linux-gnu");
    assert_eq!((&default.program, &default.homes), (&stable.join("bin/rustc"), &vec![stable]));
    let mut others = names(&further::find(Language::Rust, &host, Some(&default)));
    others.sort();
    assert_eq!(
        (default.name().unwrap().as_str(), others),
        ("rust-1.95", vec!["rust-1.90".into(), "rust-nightly".into()])
    );
}

#[test]
fn go_is_where_its_sources_are() {
    let home = tempfile::tempdir().unwrap();
    let goroot = home.path().join("sdk/go1.22.3");
    program(&goroot.join("bin/go"), "not to be run");
    file(&goroot.join("src/runtime/runtime.go"), "");
    file(&goroot.join("VERSION"), "go1.22.3\ntime 2024-05-01T19:49:47Z\n");
    let links = home.path().join("links");
    fs::create_dir(&links).unwrap();
    symlink(goroot.join("bin/go"), links.join("go")).unwrap();
    let expected = Interpreter {
        language: Language::Go,
        version: version("1.22.3"),
        program: goroot.join("bin/go"),
        homes: vec![goroot],
    };
    // By `PATH`, or where the installer of further versions puts it.
    for path in [links.as_path(), Path::new("/nowhere")] {
        let found = found(Language::Go, &host(path, Some(home.path())));
        assert!(found.contains(&expected), "{found:?}");
        assert!(path != links || found[0] == expected);
    }
}

fn interpreter(language: Language, number: &str, program: &Path) -> Interpreter {
    Interpreter { language, version: version(number), program: program.to_owned(), homes: Vec::new() }
}

#[test]
fn what_is_named_is_used_and_comes_first() {
    let home = tempfile::tempdir().unwrap();
    let (old, new) = (home.path().join("3.9.18"), home.path().join("3.13.2"));
    python(&old, "3.9");
    python(&new, "3.13");
    // It has its plain names in no directory.
    let bare = home.path().join("bare/python3.10");
    program(&bare, "");
    let node = home.path().join("node/bin/node");
    program(&node, "");
    let shell =
        Interpreter { language: Language::Shell, version: Version::none(), program: "/bin/sh".into(), homes: vec![] };
    let all = Interpreters {
        found: vec![
            interpreter(Language::Python, "3.9.18", &old.join("bin/python3")),
            interpreter(Language::Python, "3.13.2", &new.join("bin/python3.13")),
            interpreter(Language::Python, "3.10", &bare),
            interpreter(Language::JavaScript, "20.1.0", &node),
            shell,
        ],
        missing: Vec::new(),
    };
    let choose = |names: &[&str]| {
        all.choose(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).map(|chosen| {
            let python = chosen.programs.iter().find(|(language, _)| *language == Language::Python);
            (python.unwrap().1.clone(), chosen.path)
        })
    };
    let chosen = |names: &[&str]| choose(names).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let usual = "/usr/local/bin:/usr/bin:/bin";
    let usual = format!("{}:{usual}", text(node.parent().unwrap()));
    let default = (text(&old.join("bin/python3")), format!("{}:{usual}", text(&old.join("bin"))));
    assert_eq!(chosen(&[]), default);
    assert_eq!(chosen(&["python"]), default);
    assert_eq!(chosen(&["python-3.9", "node-20"]), default);
    let newer = (text(&new.join("bin/python3.13")), format!("{}:{usual}", text(&new.join("bin"))));
    assert_eq!(chosen(&["python-3.13"]), newer);
    let path = format!("/belljar/python-3.10/bin:{}:{usual}", text(bare.parent().unwrap()));
    assert_eq!(chosen(&["python-3.10"]), (text(&bare), path));
    let links: Vec<_> =
        ["python3", "python"].map(|name| (format!("/belljar/python-3.10/bin/{name}"), text(&bare))).into();
    assert_eq!(all.links(), links);

    for unknown in ["python-3.1", "python-3.130", "ruby", "", "PYTHON-3.9"] {
        let Err(BackendError::Unavailable { why, fix }) = choose(&[unknown]) else { panic!("{unknown:?}") };
        assert!(why.contains(&format!("{unknown:?}")), "{why}");
        assert_eq!(fix, "use one of: python-3.9, python-3.13, python-3.10, node-20");
    }
    let Err(BackendError::Unavailable { why, .. }) = choose(&["python-3.9", "python-3.13"]) else { panic!() };
    assert!(why.contains("two were named"), "{why}");
}

#[test]
fn versions_are_read_as_they_are_written() {
    for (text, language, short, full) in [
        ("3.12.1", Language::Python, "3.12", "3.12.1"),
        ("v20.11.0\n", Language::JavaScript, "20", "20.11.0"),
        ("go1.22rc1", Language::Go, "1.22", "1.22"),
        ("1.97.0-nightly (abc 2026-01-01)", Language::Rust, "nightly", "1.97.0-nightly"),
        ("1.95.0 (abc)", Language::Rust, "1.95", "1.95.0"),
    ] {
        let version = version(text);
        assert_eq!((version.short(language).as_str(), version.to_string().as_str()), (short, full), "{text:?}");
    }
    for text in ["", "x", "stable", "1..2", "99999999999.1"] {
        assert_eq!(Version::parse(text), None, "{text:?}");
    }
}
