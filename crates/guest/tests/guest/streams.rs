//! Output and input that come faster than they are taken, many programs at once, and hosts that break the rules.

use std::time::{Duration, Instant};

use belljar_core::wire::{CHUNK_MAX, FRAME_MAX, FromGuest, INPUT_WINDOW, ToGuest};
use belljar_core::{Exit, FileErrorKind};

use crate::harness::{Told, guest, python, shell};

#[test]
fn a_flood_reaches_a_slow_host_whole_and_in_order() {
    let Some(mut guest) = guest() else { return };
    // Ten MiB of numbered lines, while the host does not read until the program has certainly been held up.
    let flood = "import sys, io\nout = io.BufferedWriter(sys.stdout.buffer)\n\
                 for i in range(10 << 16): out.write(b'%015d\\n' % i)";
    let id = guest.begin(python(flood));
    let mut bytes = Vec::new();
    let exit = loop {
        match guest.receive_of(id) {
            FromGuest::Output { bytes: chunk, .. } => {
                assert!(chunk.len() <= CHUNK_MAX);
                bytes.extend(chunk);
                if bytes.len() < 2 << 20 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            FromGuest::Finished { finish, .. } => break finish.exit,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((bytes.len(), exit), (10 << 20, Exit::Code(0)));
    for (number, line) in bytes.chunks(16).enumerate() {
        assert_eq!(line, format!("{number:015}\n").as_bytes());
    }
}

#[test]
fn a_stop_gets_through_a_flood_that_nobody_reads() {
    let Some(mut guest) = guest() else { return };
    let (id, mut told) = (guest.begin(shell("echo up; exec yes")), Told::default());
    guest.hear(id, &mut told, "up");
    let begun = Instant::now();
    guest.send(&ToGuest::Stop { id });
    let run = guest.finish(id, told).unwrap();
    assert_eq!(run.exit, Exit::Signal(9));
    // What was on its way is bounded: the guest's buffer, the socket's, and the pipe's.
    assert!(run.stdout.len() < 4 << 20, "{} bytes", run.stdout.len());
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn all_that_was_printed_before_a_stop_arrives() {
    let Some(mut guest) = guest() else { return };
    let code = "import sys, time\nsys.stderr.write('e')\nprint('x' * 5000, end='')\nprint('no newline', end='')\ntime.sleep(1000)";
    let (id, mut told) = (guest.begin(python(code)), Told::default());
    guest.hear(id, &mut told, "no newline");
    guest.send(&ToGuest::Stop { id });
    let run = guest.finish(id, told).unwrap();
    assert_eq!((run.stdout.len(), run.stderr.as_str(), run.exit), (5010, "e", Exit::Signal(9)));
}

#[test]
fn input_waits_for_a_program_that_reads_late() {
    let Some(mut guest) = guest() else { return };
    let code = "import sys\nprint('up')\nlate = sys.stdin.buffer.read()\n\
                print(len(late), late == bytes(range(256)) * 20000)";
    let (id, mut told) = (guest.begin(python(code)), Told::default());
    guest.hear(id, &mut told, "up");
    let all: Vec<u8> = (0..=255).cycle().take(20_000 * 256).collect();
    guest.feed(id, &mut told, &all);
    guest.send(&ToGuest::InputEnd { id });
    assert_eq!(guest.finish(id, told).unwrap().stdout, "up\n5120000 True\n");
}

#[test]
fn input_that_nobody_reads_waits_and_is_dropped_at_the_end() {
    let Some(mut guest) = guest() else { return };
    let (id, mut told) = (guest.begin(shell("echo up; sleep 1000")), Told::default());
    guest.hear(id, &mut told, "up");
    for _ in 0..INPUT_WINDOW / CHUNK_MAX {
        guest.send(&ToGuest::Input { id, bytes: vec![b'x'; CHUNK_MAX] });
    }
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
    // Closed by the program: all of it counts as taken, so that the host does not wait, and the program is not disturbed.
    let (id, mut told) = (guest.begin(shell("exec <&-; echo up; sleep 1000")), Told::default());
    guest.hear(id, &mut told, "up");
    guest.feed(id, &mut told, &vec![b'x'; 2 << 20]);
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
}

#[test]
fn a_host_that_ignores_the_window_ends_the_guest() {
    let Some(mut guest) = guest() else { return };
    let (id, mut told) = (guest.begin(shell("echo up; sleep 1000")), Told::default());
    guest.hear(id, &mut told, "up");
    // A pipe takes 64 KiB of it, or what it holds elsewhere.
    guest.send(&ToGuest::Input { id, bytes: vec![b'x'; INPUT_WINDOW] });
    guest.send(&ToGuest::Input { id, bytes: vec![b'x'; INPUT_WINDOW] });
    guest.gone();
}

#[test]
fn a_stranger_that_holds_the_output_open_does_not_keep_the_run_open() {
    let Some(mut guest) = guest() else { return };
    // The first program hands its standard output to the second over a socket; the second keeps writing to it.
    let keeper = "import socket, array, os\ns = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); s.listen()\nprint('up')\nc, _ = s.accept()\n_, anc, _, _ = c.recvmsg(1, 64)\nfd = array.array('i', anc[0][2])[0]\nprint('got it')\nos.set_blocking(fd, False)\nwhile True:\n    try: os.write(fd, b'y' * 4096)\n    except BlockingIOError: pass\n    except BrokenPipeError: break\nprint('closed')";
    let (keeper, mut kept) = (guest.begin(python(keeper)), Told::default());
    guest.hear(keeper, &mut kept, "up");
    let giver = "import socket, array\nc = socket.socket(socket.AF_UNIX); c.connect('/tmp/s')\nc.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1]))])";
    let run = guest.python(giver);
    assert_eq!(run.exit, Exit::Code(0));
    assert_eq!(guest.finish(keeper, kept).unwrap().stdout, "up\ngot it\nclosed\n");
}

#[test]
fn floods_beside_each_other_all_get_their_turn() {
    let Some(mut guest) = guest() else { return };
    let ids: Vec<u32> = (0..12).map(|_| guest.begin(shell("exec yes"))).collect();
    let mut heard = vec![0; ids.len()];
    while heard.iter().any(|&bytes| bytes < 300_000) {
        let FromGuest::Output { id, bytes, .. } = guest.receive().unwrap() else { panic!("no program ends") };
        heard[ids.iter().position(|&known| known == id).unwrap()] += bytes.len();
        let most = heard.iter().max().unwrap();
        assert!(*most < 100_000_000, "some are never heard: {heard:?}");
    }
}

#[test]
fn twenty_programs_at_once_do_not_mix() {
    let Some(mut guest) = guest() else { return };
    let ids: Vec<u32> = (0..20).map(|n| guest.begin(shell(&format!("read x; echo {n} $x; exit {n}")))).collect();
    for &id in ids.iter().rev() {
        guest.send(&ToGuest::Input { id, bytes: format!("in{id}\n").into_bytes() });
        guest.send(&ToGuest::InputEnd { id });
    }
    for (n, &id) in ids.iter().enumerate() {
        let run = guest.finish(id, Told::default()).unwrap();
        assert_eq!((run.stdout, run.exit), (format!("{n} in{id}\n"), Exit::Code(n as i32)));
    }
    assert_eq!(guest.others(), "");
}

#[test]
fn more_programs_than_there_is_room_for_are_refused() {
    let Some(mut guest) = guest() else { return };
    let ids: Vec<u32> = (0..65).map(|_| guest.begin(shell("read x"))).collect();
    assert_eq!(guest.finish(ids[64], Told::default()).unwrap_err().kind, FileErrorKind::Failed);
    for &id in &ids[..64] {
        guest.send(&ToGuest::InputEnd { id });
    }
    for &id in &ids[..64] {
        assert_eq!(guest.finish(id, Told::default()).unwrap().exit, Exit::Code(1));
    }
    assert_eq!(guest.shell("echo room again").stdout, "room again\n");
}

#[test]
fn a_host_that_breaks_the_protocol_ends_the_guest() {
    let long = (FRAME_MAX as u32 + 1).to_le_bytes().to_vec();
    for bytes in [long, vec![2, 0, 0, 0, 0xff, 0xff], vec![1, 0, 0, 0, 4]] {
        let Some(mut guest) = guest() else { return };
        let (id, mut told) = (guest.begin(shell("echo up; sleep 1000")), Told::default());
        guest.hear(id, &mut told, "up");
        guest.send_raw(&bytes);
        guest.gone();
    }
}

#[test]
fn frames_for_what_is_over_are_no_offence() {
    let Some(mut guest) = guest() else { return };
    for frame in
        [ToGuest::Stop { id: 900 }, ToGuest::InputEnd { id: 900 }, ToGuest::Input { id: 900, bytes: vec![1, 2, 3] }]
    {
        guest.send(&frame);
    }
    assert_eq!(guest.shell("echo fine").stdout, "fine\n");
}

#[test]
fn the_guest_cannot_be_signalled() {
    let Some(mut guest) = guest() else { return };
    let run = guest.shell("kill -KILL 1; kill -STOP 1; kill -TERM 1; kill -INT 1; echo sent");
    assert_eq!(run.stdout, "sent\n");
    assert_eq!(guest.shell("echo alive").stdout, "alive\n");
}
