use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use crate::settings::{GvisorSettings, WallSettings};

/// A backend whose runsc is this script, which has told its version before.
fn with_script(ground: &Path, script: &str) -> Gvisor {
    let runsc = ground.join("runsc");
    let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && exec echo runsc version release-20990101.0\n{script}\n");
    std::fs::write(&runsc, text).unwrap();
    std::fs::set_permissions(&runsc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let walls = WallSettings { gvisor: GvisorSettings { runsc: Some(runsc) }, ..WallSettings::default() };
    let host = Host { path: "/usr/bin:/bin".into(), cache: Some(ground.join("c")), walls, ..Host::default() };
    Gvisor { hello_patience: Duration::from_secs(1), ..Gvisor::start(&host) }
}

async fn refusal(gvisor: &Gvisor) -> String {
    match gvisor.open(&Spec::default()).await.unwrap_err() {
        BackendError::Unavailable { why, fix } => format!("{why} / {fix}"),
        other => panic!("{other:?}"),
    }
}

/// What is below the run directory of a server but for its root and its lock.
fn left(gvisor: &Gvisor) -> usize {
    std::fs::read_dir(gvisor.base.as_ref().unwrap().run.path()).unwrap().count() - 2
}

#[tokio::test]
async fn what_runsc_complains_of_is_told_and_nothing_is_left() {
    let ground = tempfile::tempdir().unwrap();
    let gvisor = with_script(ground.path(), "echo 'starting: no such \\033[31mthing' >&2; exit 128");
    let why = refusal(&gvisor).await;
    assert!(why.contains("starting: no such [31mthing"), "{why}");
    assert_eq!(left(&gvisor), 0);
    assert!(!probe::probe(&gvisor).usable());
}

#[tokio::test]
async fn a_guest_that_never_speaks_is_given_up() {
    let ground = tempfile::tempdir().unwrap();
    let gvisor = with_script(ground.path(), "echo waiting >&2; sleep 1000 & echo $! >$5.pid; wait");
    let started = Instant::now();
    let why = refusal(&gvisor).await;
    assert!(why.contains("no word in 1 seconds") && why.contains("waiting"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(left(&gvisor), 0);
}
