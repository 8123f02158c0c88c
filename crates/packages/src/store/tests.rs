use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path().join("layers"));
    store.prepare().unwrap();
    (directory, store)
}

fn record(bytes: u64) -> Record {
    Record {
        kind: belljar_core::PackageKind::Python,
        packages: vec![("six".into(), "1.0".into())],
        modules: BTreeSet::from(["six".to_owned()]),
        bytes,
        made: 0,
        made_for: "python-3.11".into(),
        requirements: vec!["six".into()],
        left_out: Vec::new(),
    }
}

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn publish(store: &Store, digit: char, bytes: u64) -> Arc<Environment> {
    let building = store.begin().unwrap();
    fs::create_dir(building.path.join("layer")).unwrap();
    fs::write(building.path.join("layer/six.py"), "x = 1").unwrap();
    building.publish(&id(digit), &record(bytes)).unwrap()
}

/// Names in the store, without its own directories.
fn names(store: &Store) -> Vec<String> {
    let all = fs::read_dir(store.root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names = all.filter(|name| name != "locks" && name != "requests").collect::<Vec<_>>();
    names.sort();
    names
}

#[test]
fn what_is_published_is_there_and_nothing_of_the_build_is_left() {
    let (_directory, store) = store();
    let environment = publish(&store, 'a', 10);
    assert_eq!(environment.layer.id, id('a'));
    assert!(environment.has("Six"));
    assert_eq!(names(&store), [id('a'), format!("{}.json", id('a'))]);
    assert!(fs::read_dir(store.root().join("locks")).unwrap().all(|entry| entry.unwrap().file_name() == "store"));
}

#[test]
fn a_build_that_is_dropped_leaves_nothing_whatever_it_wrote() {
    let (directory, store) = store();
    let building = store.begin().unwrap();
    let outside = directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    symlink(&outside, building.path.join("link")).unwrap();
    // Deeper than a path can be long, and than there are descriptors.
    let mut at = rustix::fs::open(&building.path, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..3000 {
        rustix::fs::mkdirat(&at, "deep", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "deep", rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    fs::create_dir_all(building.path.join("closed/below")).unwrap();
    fs::set_permissions(building.path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    drop(building);
    assert_eq!(names(&store), [] as [&str; 0]);
    assert!(outside.join("kept").exists());
}

#[test]
fn leftovers_of_the_dead_go_and_those_of_the_living_stay() {
    let (_directory, store) = store();
    let living = store.begin().unwrap();
    // The last is a layer of tools, which others look after.
    let others = "0".repeat(40);
    for left in ["building-00ff", "removing-00ff", &id('b'), &others] {
        fs::create_dir_all(store.root().join(left).join("below")).unwrap();
    }
    fs::write(store.lock_path("building-00ff"), "").unwrap();
    let kept = publish(&store, 'a', 10);
    store.clear_leftovers().unwrap();
    let record = format!("{}.json", kept.layer.id);
    assert_eq!(names(&store), [others.clone(), kept.layer.id.clone(), record, living.name.clone()]);
    assert!(!store.lock_path("building-00ff").exists());
    drop(kept);
    store.keep_budget(0).unwrap();
    assert_eq!(names(&store), [others, living.name.clone()]);
}

#[test]
fn past_the_budget_the_least_recently_used_go_but_not_those_in_use() {
    let (_directory, store) = store();
    for (digit, age) in [('a', 300), ('b', 200), ('c', 100)] {
        drop(publish(&store, digit, 10));
        let file = File::options().write(true).open(store.record_path(&id(digit))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    store.remember("key-a", &id('a')).unwrap();
    store.remember("key-b", &id('b')).unwrap();
    let held = store.hold(&id('a')).unwrap();
    assert_eq!(store.keep_budget(30).unwrap(), [] as [&str; 0]);
    assert_eq!(store.keep_budget(20).unwrap(), [id('b')]);
    assert!(store.hold(&id('b')).is_none() && store.request("key-b").is_none());
    assert_eq!(store.request("key-a").unwrap().id, id('a'));
    held.touch();
    drop(held);
    assert_eq!(store.keep_budget(10).unwrap(), [id('c')], "it was used longer ago than the one that was touched");
    assert_eq!(names(&store), [id('a'), format!("{}.json", id('a'))]);
}

#[test]
fn the_same_layer_is_kept_once() {
    let (_directory, store) = store();
    let first = publish(&store, 'a', 10);
    let second = publish(&store, 'a', 99);
    assert_eq!((first.bytes, second.bytes), (10, 10));
}

#[test]
fn a_layer_must_be_a_directory_and_not_a_link_to_one() {
    let (directory, store) = store();
    let building = store.begin().unwrap();
    symlink(directory.path(), building.path.join("layer")).unwrap();
    assert!(building.publish(&id('a'), &record(1)).is_err());
    assert!(store.hold(&id('a')).is_none());
}

#[test]
fn a_store_that_others_may_write_to_is_refused() {
    let (_directory, store) = store();
    fs::set_permissions(store.root(), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(store.prepare().unwrap_err().kind, InstallErrorKind::Unavailable);
}

#[test]
fn a_tree_is_measured_without_leaving_it() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(directory.path().join("big"), vec![1; 1 << 20]).unwrap();
    symlink(directory.path().join("big"), tree.join("link")).unwrap();
    symlink("..", tree.join("up")).unwrap();
    fs::write(tree.join("one"), vec![1; 64 << 10]).unwrap();
    fs::hard_link(tree.join("one"), tree.join("two")).unwrap();
    let measured = measure(&tree, 100).unwrap();
    assert_eq!(measured.files, 4);
    assert!((64 << 10..128 << 10).contains(&measured.bytes), "{measured:?}");
    assert!(measure(&tree, 2).unwrap().incomplete);
}

#[tokio::test]
async fn whoever_waits_for_a_lock_gets_it_when_it_is_free() {
    let (_directory, store) = store();
    let path = store.lock_path("request-00");
    let mut first = Lock::try_take(&path).unwrap();
    assert!(first.is_some() && Lock::try_take(&path).unwrap().is_none());
    let second = Lock::take(&path, || drop(first.take())).await;
    assert!(second.is_ok() && first.is_none());
}
