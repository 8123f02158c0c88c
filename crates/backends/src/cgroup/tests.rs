use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use belljar_core::Limits;

use super::find::{Found, find};
use super::*;

const V1: &str = "\
30 20 0:26 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
31 20 0:27 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
32 20 0:28 / /sys/fs/cgroup/pids rw,relatime shared:4 - cgroup cgroup rw,pids
33 20 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
34 20 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
35 20 0:31 / /proc rw - proc proc rw";

#[test]
fn version_one_has_a_tree_for_each_controller_and_a_bare_version_two_beside_it_is_left_alone() {
    let memberships = "4:memory:/user/a\n3:cpu:/\n2:pids:/user\n1:name=systemd:/\n0::/x";
    let tree = |controller: Controller, own: &str| Found {
        version: Version::One,
        controllers: vec![controller],
        own: PathBuf::from(own),
        top: PathBuf::from("/sys/fs/cgroup").join(controller.name()),
    };
    assert_eq!(
        find(V1, memberships),
        [
            tree(Controller::Cpu, "/sys/fs/cgroup/cpu"),
            tree(Controller::Memory, "/sys/fs/cgroup/memory/user/a"),
            tree(Controller::Pids, "/sys/fs/cgroup/pids/user"),
        ]
    );
}

#[test]
fn version_two_is_one_tree() {
    let mountinfo = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
    let found = find(mountinfo, "0::/user.slice/user-1000.slice/app.scope\n");
    let own = PathBuf::from("/sys/fs/cgroup/user.slice/user-1000.slice/app.scope");
    assert_eq!(
        found,
        [Found { version: Version::Two, controllers: Controller::ALL.to_vec(), own, top: "/sys/fs/cgroup".into() }]
    );
}

#[test]
fn in_a_container_the_mount_shows_only_its_own_part() {
    let mountinfo = "25 20 0:22 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory";
    let found = find(mountinfo, "4:memory:/docker/abc/inner\n");
    assert_eq!(found[0].own, PathBuf::from("/sys/fs/cgroup/memory/inner"));
}

/// A directory that looks like a cgroup of version 2: what we write can be read back.
fn version_two(controllers: &str) -> tempfile::TempDir {
    let own = tempfile::tempdir().unwrap();
    fs::write(own.path().join("cgroup.controllers"), controllers).unwrap();
    fs::write(own.path().join("cgroup.subtree_control"), "").unwrap();
    own
}

#[test]
fn version_two_hands_down_what_is_there() {
    // A plain file keeps only the last write, so one controller is what the imitation can show.
    let own = version_two("cpuset io memory");
    fs::write(own.path().join("cgroup.subtree_control"), "memory").unwrap();
    assert_eq!(enable(own.path(), &Controller::ALL).unwrap(), [Controller::Memory]);
    let bare = version_two("hugetlb");
    assert_eq!(enable(bare.path(), &Controller::ALL).unwrap(), []);
    assert_eq!(fs::read_to_string(bare.path().join("cgroup.subtree_control")).unwrap(), "");
}

#[test]
fn version_two_asks_for_a_controller_that_is_off() {
    let own = version_two("pids");
    let enabled = enable(own.path(), &[Controller::Pids]).unwrap();
    assert_eq!(fs::read_to_string(own.path().join("cgroup.subtree_control")).unwrap(), "+pids");
    // The imitation does not turn it on, and so it is not counted as on.
    assert_eq!(enabled, []);
}

/// The files that the kernel makes with a directory, which the imitation has to be given.
fn make_control_files(directory: &std::path::Path) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("memory.events"), "").unwrap();
}

#[test]
fn version_two_writes_its_limits_and_counts_kills() {
    let own = tempfile::tempdir().unwrap();
    let tree = Tree { version: Version::Two, controllers: Controller::ALL.to_vec(), directory: own.path().to_owned() };
    let limits = Limits { memory_bytes: 1 << 20, cpu_milli: 500, processes: 10, ..Limits::default() };
    let directory = own.path().join("1");
    make_control_files(&directory);
    let group = Group::in_existing(&tree, &directory, &limits).unwrap();
    let read = |file: &str| fs::read_to_string(directory.join(file)).unwrap();
    assert_eq!(read("memory.max"), "1048576");
    assert_eq!(read("cpu.max"), "50000 100000");
    assert_eq!(read("pids.max"), "12");
    assert_eq!(group.memory_kills(), 0);
    fs::write(directory.join("memory.events"), "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n").unwrap();
    assert_eq!(group.memory_kills(), 1);
    assert_eq!(group.cpu_used(), None, "not counted here");
    fs::write(directory.join("cpuacct.usage"), "2000000\n").unwrap();
    assert_eq!(group.cpu_used(), Some(Duration::from_millis(2)));
    fs::write(directory.join("cpu.stat"), "usage_usec 7000\nuser_usec 5000\nsystem_usec 2000\n").unwrap();
    assert_eq!(group.cpu_used(), Some(Duration::from_millis(7)));
}

#[test]
fn a_directory_that_nobody_can_join_is_an_error_and_is_removed() {
    let own = tempfile::tempdir().unwrap();
    let tree = Tree { version: Version::One, controllers: vec![], directory: own.path().to_owned() };
    assert!(Group::create(std::slice::from_ref(&tree), "1", &Limits::default()).is_err());
    assert!(!own.path().join("1").exists());
}
