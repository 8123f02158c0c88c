use super::*;

fn maker() -> Maker {
    Maker::find(None, OsStr::new("")).expect("e2fsprogs are installed")
}

fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("a")).unwrap();
    std::fs::write(tree.path().join("a/b"), "content").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", tree.path().join("link")).unwrap();
    tree
}

#[test]
fn an_image_is_made_once() {
    let (cache, tree) = (tempfile::tempdir().unwrap(), tree());
    let disks = Disks::new(cache.path().join("images"), maker()).unwrap();
    let image = disks.image("abc", tree.path()).unwrap();
    let metadata = image.metadata().unwrap();
    assert_eq!(metadata.len(), IMAGE_BYTES);
    assert!(metadata.blocks() * 512 < 32 << 20, "the rest is a hole");
    // The second time nothing is looked at any more.
    assert_eq!(disks.image("abc", Path::new("/no/such/place")).unwrap(), image);
}

#[test]
fn a_stamp_tells_of_every_change() {
    let tree = tree();
    let before = look(tree.path()).unwrap();
    assert_eq!((before.entries, look(tree.path()).unwrap()), (3, before.clone()));
    std::fs::write(tree.path().join("a/b"), "other").unwrap();
    assert_ne!(look(tree.path()).unwrap().stamp, before.stamp);
}

#[test]
fn what_fails_leaves_nothing() {
    let (cache, tree) = (tempfile::tempdir().unwrap(), tree());
    let disks = Disks::new(cache.path().join("images"), Maker::Erofs("/bin/false".into())).unwrap();
    assert!(matches!(disks.image("abc", tree.path()), Err(BackendError::Setup { .. })));
    assert_eq!(std::fs::read_dir(cache.path().join("images")).unwrap().count(), 0);
}

/// On a file system of its own that is full, which takes root.
#[test]
fn a_full_disk_is_told_and_nothing_is_left() {
    let cache = tempfile::tempdir().unwrap();
    let size = Some(c"size=2m");
    let flags = rustix::mount::MountFlags::empty();
    if rustix::mount::mount("tmpfs", cache.path(), "tmpfs", flags, size).is_err() {
        println!("skipped: mounting a small file system takes root");
        return;
    }
    let tree = tree();
    std::fs::write(tree.path().join("large"), vec![7; 3 << 20]).unwrap();
    let disks = Disks::new(cache.path().join("images"), maker()).unwrap();
    let Err(BackendError::Unavailable { why, .. }) = disks.image("abc", tree.path()) else { panic!("it does not fit") };
    assert!(why.contains("full"), "{why}");
    // One that is found out only while it is made: the look ahead counts no tables.
    std::fs::remove_file(tree.path().join("large")).unwrap();
    std::fs::write(cache.path().join("filler"), vec![7; (2 << 20) - 20_000]).unwrap();
    assert!(disks.image("def", tree.path()).is_err());
    assert_eq!(std::fs::read_dir(cache.path().join("images")).unwrap().count(), 0);
    rustix::mount::unmount(cache.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
}
