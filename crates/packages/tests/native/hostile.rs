//! Packages that mean ill, builds that are given up, and disks that are full.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use belljar_packages::{InstallErrorKind, Phase, Progress};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::ground::{
    Ground, ground, ground_at, ground_in, index_at, only_index, python, registries, strays, told, until_clean,
};
use crate::index;

/// With uv in the store already, so that the index of the test need not have it.
async fn with_uv() -> Ground {
    let first = ground(|settings| settings.registries = registries());
    first.packages.environment(python(&["six"], &[]), |_| ()).await.unwrap();
    first
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_means_ill_gains_nothing() {
    let first = with_uv().await;
    let home = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let home_port = home.local_addr().unwrap().port();
    let secret = TempDir::new().unwrap();
    fs::write(secret.path().join("token"), "hunter2").unwrap();
    fs::set_permissions(secret.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let code = format!(
        r#"
    import os, socket, stat, urllib.request
    def attempt(name, what):
        try:
            told.append((name, str(what())[:200]))
        except BaseException as error:
            told.append((name, "refused"))
    attempt("host file", lambda: open("{secret}/token").read())
    attempt("shadow", lambda: open("/etc/shadow").read())
    attempt("store", lambda: os.listdir("{store}"))
    attempt("direct", lambda: socket.create_connection(("127.0.0.1", {home_port}), 2))
    attempt("name", lambda: socket.create_connection(("home.test", {home_port}), 2))
    attempt("proxy", lambda: urllib.request.urlopen("http://home.test:{home_port}/", timeout=2).read())
    attempt("address", lambda: urllib.request.urlopen("http://127.0.0.1:{home_port}/", timeout=2).read())
    attempt("uv", lambda: open("/belljar/build/uv", "ab").write(b"x"))
    attempt("fifo", lambda: os.mkfifo("/belljar/build/layer/fifo"))
    attempt("link", lambda: os.symlink("/", "/belljar/build/layer/root"))
    attempt("setuid", lambda: (open("/belljar/build/layer/suid", "w").close(), os.chmod("/belljar/build/layer/suid", 0o6777)))
    import glob
    site = (glob.glob("/belljar/build/layer/lib/python*/site-packages") or [None])[0]
    os.makedirs(site + "/six-1.0.dist-info", exist_ok=True)
    open(site + "/six-1.0.dist-info/METADATA", "w").write("Metadata-Version: 2.1\nName: six\nVersion: 1.0\n")
    open(site + "/six.py", "w").write("evil = True")
    attempt("device", lambda: os.mknod("/belljar/build/layer/device", stat.S_IFBLK | 0o666, os.makedev(8, 0)))
"#,
        secret = secret.path().display(),
        store = first.store.path().display(),
    );
    let port = index::serve("hostile", &code).await;
    let Ground { store, .. } = first;
    let Ground { backend, packages, store } = ground_in(store, |settings| settings.registries = only_index(port));
    let installed = packages.environment(python(&["hostile"], &[]), |_| ()).await.unwrap();
    let line = "python3 -c 'import hostile\nfor name, what in hostile.told: print(name + \"=\" + what)'";
    let said = told(&*backend, &installed, line).await;
    for name in ["host file", "shadow", "store", "direct", "name", "proxy", "address", "device"] {
        assert!(said.lines().any(|line| line == format!("{name}=refused")), "{name}: {said}");
    }
    let nobody = tokio::time::timeout(Duration::from_millis(200), home.accept()).await;
    assert!(nobody.is_err(), "it phoned home");
    // It may claim to be anything; what others ask for is not what it made.
    let environment = installed.environment.unwrap();
    assert!(environment.has("six"), "it did not get to lie");
    let other = packages.environment(python(&["six"], &[]), |_| ()).await.unwrap().environment.unwrap();
    assert_ne!(other.layer, environment.layer);
    let error = packages.environment(python(&["six<2"], &[]), |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::NotFound, "this index has no other six: {error}");
    until_clean(store.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_is_given_up_leaves_nothing_and_the_next_one_builds() {
    let first = with_uv().await;
    let port = index::serve("sleepy", "    import time\n    time.sleep(600)\n").await;
    let Ground { packages, store, .. } = ground_in(first.store, |settings| settings.registries = only_index(port));
    let (begun, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let build = tokio::spawn({
        let packages = packages.clone();
        async move {
            let tell = |progress: Progress| {
                let _ = begun.send(progress.phase);
            };
            packages.environment(python(&["sleepy"], &[]), tell).await
        }
    });
    while seen.recv().await != Some(Phase::Building) {}
    assert_eq!(strays(store.path()).len(), 1);
    build.abort();
    assert!(build.await.unwrap_err().is_cancelled());
    until_clean(store.path()).await;

    let Ground { packages, store, .. } = ground_in(store, |settings| {
        settings.registries = only_index(port);
        settings.wall = Duration::from_secs(3);
    });
    let error = packages.environment(python(&["sleepy"], &[]), |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::Timeout, "{error}");
    until_clean(store.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_takes_too_much_is_stopped() {
    let first = with_uv().await;
    let code =
        "\n    import time\n    open('/belljar/build/big', 'wb').write(b'x' * (300 << 20))\n    time.sleep(600)\n";
    let port = index::serve("greedy", code).await;
    let Ground { packages, store, .. } = ground_in(first.store, |settings| {
        settings.registries = only_index(port);
        settings.layer_bytes = 200 << 20;
    });
    let error = packages.environment(python(&["greedy"], &[]), |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::TooLarge, "{error}");
    until_clean(store.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_and_the_store_stays_clean() {
    let store = TempDir::new().unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=90m,mode=711", "tmpfs"]).arg(store.path()).status();
    if !mount.is_ok_and(|status| status.success()) {
        eprintln!("skipped: nobody but root can mount a small disk");
        return;
    }
    let path = store.path().to_owned();
    let Ground { backend, packages, store } = ground_in(store, |settings| settings.free_bytes = 1 << 20);
    let error = packages.environment(python(&["pandas"], &[]), |_| ()).await.unwrap_err();
    let clean = tokio::time::timeout(Duration::from_secs(20), until_clean(store.path())).await;
    drop((packages, backend));
    let unmounted = Command::new("umount").arg("-l").arg(&path).status().unwrap().success();
    assert_eq!(error.kind, InstallErrorKind::NoSpace, "{error}");
    assert!(clean.is_ok() && unmounted);
}

/// Begins a build that never ends, and says so; to be killed.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the other process of the next test"]
async fn a_server_that_is_killed() {
    let store = std::path::PathBuf::from(std::env::var("BELLJAR_TEST_STORE").unwrap());
    let port = std::env::var("BELLJAR_TEST_PORT").unwrap().parse().unwrap();
    let Ground { packages, .. } = &ground_at(&store, |settings| settings.registries = only_index(port));
    let tell = |progress: Progress| {
        if progress.phase == Phase::Building {
            fs::write(store.join("begun"), "").unwrap();
        }
    };
    let _ = packages.environment(python(&["sleepy"], &[]), tell).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_in_a_build_leaves_no_half_layer() {
    let Ground { store, packages, backend } = with_uv().await;
    drop((packages, backend));
    let port = index::serve("sleepy", "    import time\n    time.sleep(600)\n").await;
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "hostile::a_server_that_is_killed"])
        .env("BELLJAR_TEST_STORE", store.path())
        .env("BELLJAR_TEST_PORT", port.to_string())
        .spawn()
        .unwrap();
    while !store.path().join("begun").exists() {
        assert!(other.try_wait().unwrap().is_none(), "it ended by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(strays(store.path()).len(), 1);
    other.kill().unwrap();
    other.wait().unwrap();
    let Ground { packages, store, .. } = ground_in(store, |settings| settings.registries = only_index(port));
    // What it left goes as soon as nothing of it lives any more.
    while !strays(store.path()).is_empty() {
        packages.tidy().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_uv_pip_does_it() {
    let port = index::serve("plain", "    told.append(1)\n").await;
    let Ground { backend, packages, store } = ground(|settings| settings.registries = only_index(port));
    let installed = packages.environment(python(&["plain"], &[]), |_| ()).await.unwrap();
    assert_eq!(told(&*backend, &installed, "python3 -c 'import plain; print(plain.told)'").await, "[1]");
    assert!(installed.environment.unwrap().has("plain"));
    until_clean(store.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_of_an_index_opens_it_and_is_nowhere_in_the_sandbox() {
    let first = with_uv().await;
    // me:hunter22
    let header = "authorization: Basic bWU6aHVudGVyMjI=";
    let code = r#"
    import os
    told.append(repr(dict(os.environ)))
    for name in os.listdir("/belljar/build"):
        if os.path.isfile("/belljar/build/" + name) and name != "uv":
            told.append(open("/belljar/build/" + name).read())
"#;
    let port = index::serve_to("private", code, Some(header)).await;
    let own = index_at(&format!("http://me:hunter22@index.test:{port}/simple"));
    let Ground { packages, backend, store } = ground_in(first.store, |settings| settings.registries = own);
    let installed = packages.environment(python(&["private"], &[]), |_| ()).await.unwrap();
    let said = told(&*backend, &installed, "python3 -c 'import private; print(private.told)'").await;
    assert!(said.contains("index.test") && !said.contains("hunter22") && !said.contains("bWU6aHVudGVyMjI"), "{said}");
    // Who comes without it is turned away, and told so.
    let Ground { packages, store: _store, .. } = ground_in(store, |settings| settings.registries = only_index(port));
    let error = packages.environment(python(&["private>=1"], &[]), |_| ()).await.unwrap_err();
    assert!(error.words.contains("401"), "{error}");
}
