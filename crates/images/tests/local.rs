//! Images of tars and directories, builds side by side, and a disk that is full.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare itself fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use belljar_images::{Bounds, ImageErrorKind, Registries, Source, Store, Tell};

fn silent() -> Tell {
    Arc::new(|_| {})
}

fn tree(directory: &Path) -> PathBuf {
    let root = directory.join("tree");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::write(root.join("usr/bin/bash"), "x").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(root.join("usr/bin/bash"), mode).unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    symlink("/etc/shadow", root.join("usr/out")).unwrap();
    root
}

#[tokio::test]
async fn a_directory_and_a_tar_of_it_are_roots() {
    let directory = tempfile::tempdir().unwrap();
    let root = tree(directory.path());
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
        .unwrap();
    let store = Store::open(&directory.path().join("images")).unwrap();
    let built = store.build("d", Source::Dir(root.clone()), silent()).await.unwrap();
    assert_eq!((built.layers, built.skipped), (1, 1));
    assert_eq!(built.root.interpreters[0].path, "/usr/bin/bash");
    assert_eq!(fs::read_link(built.root.path.join("usr/out")).unwrap(), Path::new("/etc/shadow"));
    // The same content is the same digest.
    let again = store.build("again", Source::Dir(root.clone()), silent()).await.unwrap();
    assert_eq!((&again.root.digest, &again.root.path), (&built.root.digest, &built.root.path));

    let tar = directory.path().join("root.tar");
    let made = Command::new("tar").arg("-czf").arg(&tar).arg("-C").arg(&root).arg(".").status().unwrap();
    assert!(made.success());
    let built = store.build("t", Source::Tar(tar), silent()).await.unwrap();
    assert_eq!(built.skipped, 1);
    assert!(built.root.path.join("bin/bash").is_file());
}

#[tokio::test]
async fn what_is_no_root_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("images")).unwrap();
    let kind = async |source| store.build("x", source, silent()).await.unwrap_err().kind;
    assert_eq!(kind(Source::Tar(directory.path().join("none"))).await, ImageErrorKind::NotFound);
    assert_eq!(kind(Source::Dir(directory.path().join("none"))).await, ImageErrorKind::NotFound);
    assert_eq!(kind(Source::Tar(directory.path().to_owned())).await, ImageErrorKind::NotFound);
    assert_eq!(kind(Source::Dir(directory.path().to_owned())).await, ImageErrorKind::Unsupported);
    let saved = directory.path().join("saved");
    fs::create_dir(&saved).unwrap();
    fs::write(saved.join("manifest.json"), "[]").unwrap();
    let tar = directory.path().join("saved.tar");
    assert!(Command::new("tar").arg("-cf").arg(&tar).arg("-C").arg(&saved).arg(".").status().unwrap().success());
    assert_eq!(kind(Source::Tar(tar)).await, ImageErrorKind::Unsupported);
    assert_eq!(fs::read_dir(directory.path().join("images/layers")).unwrap().count(), 0);
    assert!(store.find("x").unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_build_the_same_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let root = tree(directory.path());
    let open = || Store::open(&directory.path().join("images")).unwrap();
    let builds: Vec<_> = (0..8)
        .map(|number| {
            let (store, root) = (open(), root.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    let name = format!("n{}", number % 3);
                    store.build(&name, Source::Dir(root.clone()), silent()).await.unwrap();
                    // Another may just have removed it: then it is whole or not there.
                    if let Some(found) = store.find(&name).unwrap() {
                        assert!(found.path.join("usr/bin/bash").is_file());
                    }
                    store.remove(&name).unwrap();
                }
            })
        })
        .collect();
    for build in builds {
        build.await.unwrap();
    }
    let store = open();
    store.build("last", Source::Dir(root), silent()).await.unwrap();
    store.remove("last").unwrap();
    let left: Vec<String> = fs::read_dir(directory.path().join("images"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("building-"))
        .collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(fs::read_dir(directory.path().join("images/roots")).unwrap().count(), 0);
}

#[tokio::test]
async fn what_a_killed_build_left_goes_with_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let images = directory.path().join("images");
    let store = Store::open(&images).unwrap();
    fs::create_dir_all(images.join("building-0123456789abcdef/layer/tree/a")).unwrap();
    fs::create_dir_all(images.join("layers").join("a".repeat(64))).unwrap();
    let error = store.build("x", Source::Dir("/nowhere".into()), silent()).await.unwrap_err();
    assert_eq!(error.kind, ImageErrorKind::NotFound);
    assert!(!images.join("building-0123456789abcdef").exists());
    assert_eq!(fs::read_dir(images.join("layers")).unwrap().count(), 0);
}

#[test]
fn a_store_that_others_write_to_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let mode =
        |mode| fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o777);
    assert_eq!(Store::open(directory.path()).unwrap_err().kind, ImageErrorKind::Files);
    mode(0o700);
    assert!(Store::open(directory.path()).is_ok());
}

/// A real one of a megabyte: this test starts itself again in namespaces of its own, where it can mount.
#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    const INSIDE: &str = "IMAGES_TEST_FULL_DISK";
    #[expect(clippy::disallowed_methods, reason = "how this test tells itself that it is inside")]
    let inside = std::env::var(INSIDE).ok();
    let Some(disk) = inside else {
        let disk = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=1m,mode=0700 full \"$1\" && exec \"$2\" --exact a_full_disk_is_told_and_leaves_nothing --nocapture";
        let status = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh"])
            .arg(disk.path())
            .arg(std::env::current_exe().unwrap())
            .env(INSIDE, disk.path())
            .status()
            .unwrap();
        assert!(status.success());
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("tree");
    fs::create_dir(&root).unwrap();
    for number in 0..64 {
        fs::write(root.join(format!("file{number}")), vec![b'x'; 64 * 1024]).unwrap();
    }
    let images = Path::new(&disk).join("images");
    let store = Store::open(&images).unwrap().with(Registries::default(), Bounds::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(store.build("x", Source::Dir(root), silent())).unwrap_err();
    assert_eq!(error.kind, ImageErrorKind::NoSpace, "{error}");
    assert!(error.kind.next_step().contains("make room"));
    for part in ["layers", "roots", "names"] {
        assert_eq!(fs::read_dir(images.join(part)).unwrap().count(), 0, "{part}");
    }
    assert_eq!(fs::read_dir(&images).unwrap().count(), 4);
    // There is room for a smaller one.
    let small = directory.path().join("small");
    fs::create_dir(&small).unwrap();
    fs::write(small.join("a"), "1").unwrap();
    runtime.block_on(store.build("x", Source::Dir(small), silent())).unwrap();
}
