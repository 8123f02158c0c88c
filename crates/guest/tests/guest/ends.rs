//! How programs end, and that nothing of them outlives it.

use std::time::{Duration, Instant};

use belljar_core::wire::{Init, ToGuest};
use belljar_core::{Exit, FileErrorKind};

use crate::harness::{Guest, Place, Told, guest, guest_with_python, guest_without_interpreters, python, shell};

/// Well above what it takes, well below what a person or a timeout would notice as hanging.
const PROMPT: Duration = Duration::from_secs(5);

#[test]
fn exit_codes_and_signals_are_told_as_they_were() {
    let Some(mut guest) = guest() else { return };
    for (line, exit) in [
        ("exit 0", Exit::Code(0)),
        ("exit 3", Exit::Code(3)),
        ("exit 255", Exit::Code(255)),
        ("exit 127", Exit::Code(127)),
        ("kill -TERM $$", Exit::Signal(15)),
        ("kill -KILL $$", Exit::Signal(9)),
        ("kill -SEGV $$", Exit::Signal(11)),
        ("kill -PIPE $$", Exit::Signal(13)),
        ("kill -RTMIN $$", Exit::Signal(34)),
    ] {
        assert_eq!(guest.shell(line).exit, exit, "{line}");
    }
    assert_eq!(guest.python("import os; os.abort()").exit, Exit::Signal(6));
    assert_eq!(guest.python("raise KeyboardInterrupt").exit, Exit::Signal(2));
    // Signals are as a program expects them: a writer whose reader is gone dies of it.
    let run = guest.shell("set -o pipefail; yes | head -1; echo ${PIPESTATUS[0]}");
    assert_eq!(run.stdout, "y\n141\n");
}

#[test]
fn what_cannot_be_started_is_refused() {
    let Some(mut guest) = guest() else { return };
    let id = guest.begin_in(shell("echo hi"), Some("no/such"), &[]);
    let error = guest.finish(id, Told::default()).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::NotFound, "no/such"));
    let id = guest.begin_in(shell("echo hi"), Some("/etc/passwd"), &[]);
    assert_eq!(guest.finish(id, Told::default()).unwrap_err().kind, FileErrorKind::NotDirectory);
    assert_eq!(guest.shell("echo still here").stdout, "still here\n");
}

#[test]
fn an_interpreter_that_is_not_there_is_told() {
    let Some(mut guest) = guest_without_interpreters() else { return };
    let id = guest.begin(python("1"));
    let error = guest.finish(id, Told::default()).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::NotFound, "python3"));
    // Found, but nothing that the kernel can execute.
    let Some(mut guest) = guest_with_python("/workspace/python3") else { return };
    guest.shell("echo 'not a program' > python3; chmod +x python3");
    let id = guest.begin(python("1"));
    assert_eq!(guest.finish(id, Told::default()).unwrap_err().kind, FileErrorKind::Failed);
    // A program's own PATH is for what it starts, not for us to find it by.
    let Some(mut guest) = super::harness::guest() else { return };
    let id = guest.begin_in(shell("echo $PATH"), None, &[("PATH", "/nowhere")]);
    assert_eq!(guest.finish(id, Told::default()).unwrap().stdout, "/nowhere\n");
}

#[test]
fn a_daemon_that_forked_twice_is_gone_at_the_end() {
    let Some(mut guest) = guest() else { return };
    let daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.close(1); os.close(2)\n        time.sleep(1000)\n    os._exit(0)\nos.wait()\nprint('main done')";
    assert_eq!(guest.python(daemon).stdout, "main done\n");
    assert_eq!(guest.others(), "");
    // And so it is while another program runs, which stays.
    let (other, mut told) = (guest.begin(shell("echo ready; read line; echo got $line")), Told::default());
    guest.hear(other, &mut told, "ready");
    assert_eq!(guest.python(daemon).stdout, "main done\n");
    let left = guest.others();
    assert_eq!(left.lines().count(), 2, "the other program and its runner: {left}");
    guest.send(&ToGuest::Input { id: other, bytes: b"mail\n".to_vec() });
    let run = guest.finish(other, told).unwrap();
    assert_eq!((run.stdout.as_str(), run.exit), ("ready\ngot mail\n", Exit::Code(0)));
}

#[test]
fn a_child_that_holds_the_output_open_does_not_delay_the_end() {
    let Some(mut guest) = guest() else { return };
    let begun = Instant::now();
    let run = guest.shell("sleep 1000 & echo out; echo err >&2");
    assert_eq!((run.stdout.as_str(), run.stderr.as_str(), run.exit), ("out\n", "err\n", Exit::Code(0)));
    assert!(begun.elapsed() < PROMPT);
    assert_eq!(guest.others(), "");
}

#[test]
fn a_program_that_kills_its_runner_ends_itself() {
    let Some(mut guest) = guest() else { return };
    let begun = Instant::now();
    let run = guest.shell("echo before; kill -KILL $PPID; sleep 1000");
    assert_eq!((run.stdout.as_str(), run.exit), ("before\n", Exit::Signal(9)));
    // Everyone that it can reach: its runner, and those of others.
    let (other, mut told) = (guest.begin(shell("echo ready; sleep 1000")), Told::default());
    guest.hear(other, &mut told, "ready");
    let run = guest.shell("kill -KILL -1; sleep 1000");
    assert_eq!(run.exit, Exit::Signal(9));
    assert_eq!(guest.finish(other, told).unwrap().exit, Exit::Signal(9));
    assert_eq!(guest.others(), "");
    assert!(begun.elapsed() < PROMPT);
}

#[test]
fn a_program_that_stops_its_runner_ends_all_the_same() {
    let Some(mut guest) = guest() else { return };
    let begun = Instant::now();
    assert_eq!(guest.shell("kill -STOP $PPID; exit 4").exit, Exit::Code(4));
    // Other signals to the runner are nothing to it, and do not show in the exit.
    assert_eq!(guest.shell("kill -TERM $PPID; kill -INT $PPID; exit 5").exit, Exit::Code(5));
    let (id, mut told) = (guest.begin(shell("echo up; while :; do kill -STOP $PPID; done")), Told::default());
    guest.hear(id, &mut told, "up");
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
    assert_eq!(guest.others(), "");
    assert!(begun.elapsed() < PROMPT);
}

#[test]
fn stop_ends_a_tree_of_hundreds_and_leaves_the_neighbour() {
    let Some(mut guest) = guest() else { return };
    let (other, mut other_told) = (guest.begin(shell("echo ready; read line; echo $line")), Told::default());
    guest.hear(other, &mut other_told, "ready");
    let tree = "import os, time\nfor i in range(300):\n    if os.fork() == 0:\n        if i % 3 == 0: os.setsid()\n        if i % 2 and os.fork(): os._exit(0)\n        time.sleep(1000)\nprint('up')\ntime.sleep(1000)";
    let (id, mut told) = (guest.begin(python(tree)), Told::default());
    guest.hear(id, &mut told, "up");
    let begun = Instant::now();
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
    println!("stopping 300 processes took {:?}", begun.elapsed());
    assert!(begun.elapsed() < PROMPT);
    assert_eq!(guest.others().lines().count(), 2);
    guest.send(&ToGuest::Input { id: other, bytes: b"fine\n".to_vec() });
    assert_eq!(guest.finish(other, other_told).unwrap().stdout, "ready\nfine\n");
}

/// Stops a bomb that has grown as far as it can.
fn bomb(guest: &mut Guest) {
    let bomb = "import os\nfull = False\nwhile True:\n    try:\n        if os.fork() == 0: os.setsid()\n    except OSError:\n        if not full: print('full')\n        full = True";
    let (id, mut told) = (guest.begin(python(bomb)), Told::default());
    guest.hear(id, &mut told, "full");
    let begun = Instant::now();
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
    println!("stopping a fork bomb took {:?}", begun.elapsed());
    assert!(begun.elapsed() < PROMPT);
}

#[test]
fn a_fork_bomb_is_stopped_alone_and_beside_another_program() {
    let place = Place { processes: Some(200), ..Place::default() };
    let Some(mut guest) = Guest::start(place) else { return };
    bomb(&mut guest);
    assert_eq!(guest.others(), "");
    let (other, mut told) = (guest.begin(shell("echo ready; read line; echo $line")), Told::default());
    guest.hear(other, &mut told, "ready");
    bomb(&mut guest);
    assert_eq!(guest.others().lines().count(), 2);
    guest.send(&ToGuest::Input { id: other, bytes: b"fine\n".to_vec() });
    assert_eq!(guest.finish(other, told).unwrap().stdout, "ready\nfine\n");
}

#[test]
fn a_process_whose_first_thread_is_gone_is_not_taken_for_dead() {
    let Some(mut guest) = guest() else { return };
    let (other, mut told) = (guest.begin(shell("echo ready; read line")), Told::default());
    guest.hear(other, &mut told, "ready");
    let hiding = "import ctypes, os, threading, time\nif os.fork() == 0:\n    threading.Thread(target=time.sleep, args=(1000,)).start()\n    ctypes.CDLL(None).syscall(60, 0)\ntime.sleep(0.1)\nprint('done')";
    assert_eq!(guest.python(hiding).stdout, "done\n");
    assert_eq!(guest.others().lines().count(), 2);
    guest.send(&ToGuest::Stop { id: other });
    guest.finish(other, told).unwrap();
}

#[test]
fn the_cpu_limit_ends_a_program_that_nobody_stops() {
    let Some(mut guest) = guest() else { return };
    let id = guest.fresh_id();
    let start = belljar_core::wire::Start {
        source: python("while True: pass"),
        env: vec![],
        cwd: None,
        cpu_seconds: 1,
        changed_max: 0,
    };
    guest.send(&ToGuest::Start { id, start });
    let run = guest.finish(id, Told::default()).unwrap();
    assert_eq!(run.exit, Exit::Signal(24));
    // On a busy machine the kernel accounts for less than the limit: 0.82 s were seen of a bare process.
    assert!(run.finish.usage.cpu_ms >= 500, "{:?}", run.finish.usage);
}

#[test]
fn what_uses_too_much_memory_is_ended_for_it() {
    let init = Init { watch_memory_bytes: Some(150 << 20), ..Place::default().init };
    let Some(mut guest) = Guest::start(Place { init, workspace: "400m", ..Place::default() }) else { return };
    assert_eq!(guest.python("x = bytearray(20 << 20); print('fits')").stdout, "fits\n");
    let own =
        "x = []\nprint('up')\nimport time\nwhile len(x) < 300: x.append(bytearray(b'x' * (1 << 20)))\ntime.sleep(1000)";
    let run = guest.python(own);
    assert_eq!((run.stdout.as_str(), run.exit), ("up\n", Exit::OutOfMemory));
    let shared =
        "import mmap, time\nm = mmap.mmap(-1, 300 << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\ntime.sleep(1000)";
    assert_eq!(guest.python(shared).exit, Exit::OutOfMemory);
    let files = "import time\nwith open('big', 'wb') as f:\n    for _ in range(300): f.write(b'x' * (1 << 20))\ntime.sleep(1000)";
    assert_eq!(guest.python(files).exit, Exit::OutOfMemory);
    assert_eq!(guest.others(), "");
}
