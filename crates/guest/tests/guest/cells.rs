//! Kernels that remember, cells that are told truthfully, and drivers that do not keep to the rules.

use std::time::{Duration, Instant};

use belljar_core::wire::{CHUNK_MAX, FromGuest, ToGuest};
use belljar_core::{Exit, FileErrorKind, Language, Source, State, Then};

use crate::harness::{Guest, Place, Told, cell, guest, guest_with_python, python};

use Language::{JavaScript, Python, Shell, TypeScript};

/// Well above what it takes, well below what a person or a timeout would notice as hanging.
const PROMPT: Duration = Duration::from_secs(5);

const GOOD: Exit = Exit::Code(0);

#[test]
fn kernels_remember() {
    let Some(mut guest) = guest() else { return };
    for (language, first, second) in [
        (Python, "x = 20 + 1", "print(x * 2)"),
        (JavaScript, "var x = 20 + 1", "console.log(x * 2)"),
        (Shell, "x=21", "echo $((x * 2))"),
    ] {
        let run = guest.cell(language, first);
        assert_eq!(run.end(), (GOOD, State::Fresh), "{language}: {}", run.stderr);
        let run = guest.cell(language, second);
        assert_eq!((run.stdout.as_str(), run.end()), ("42\n", (GOOD, State::Preserved)), "{language}: {}", run.stderr);
    }
    // What shares a kernel is told so; whether the code runs is its driver's matter.
    assert_eq!(guest.cell(TypeScript, "console.log(x)").end().1, State::Preserved);
    // A program has nothing of it.
    assert_eq!(guest.python("print('x' in globals())").stdout, "False\n");
    assert_eq!(guest.cell(Python, "print(x)").stdout, "21\n");
}

#[test]
fn a_language_without_a_kernel_runs_its_cells_as_programs() {
    let mut place = Place::default();
    place.init.interpreters.retain(|(language, _)| *language != Language::Go);
    let Some(mut guest) = Guest::start(place) else { return };
    let code = "package main".to_owned();
    let (one, other) =
        (guest.begin_cell(Language::Go, &code), guest.begin(Source::Code { language: Language::Go, code }));
    let error = guest.finish(one, Told::default()).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::NotFound, "go"));
    assert_eq!(guest.finish(other, Told::default()).unwrap_err(), error);
}

#[test]
fn every_end_of_a_kernel_is_told() {
    let Some(mut guest) = guest() else { return };
    assert_eq!(guest.cell(Python, "x = 1").end(), (GOOD, State::Fresh));
    for (code, exit) in [
        ("import os; print('last words'); os._exit(3)", Exit::Code(3)),
        ("import os; print('last words'); os.kill(os.getpid(), 9)", Exit::Signal(9)),
        ("import os; print('last words'); os.kill(os.getppid(), 9); import time; time.sleep(1000)", Exit::Signal(9)),
        ("import os; print('last words'); os.kill(os.getpid(), 11)", Exit::Signal(11)),
        ("import ctypes; print('last words'); ctypes.string_at(0)", Exit::Signal(11)),
        ("import os; print('last words'); os.kill(-1, 9); import time; time.sleep(1000)", Exit::Signal(9)),
    ] {
        let run = guest.cell(Python, code);
        assert_eq!(run.end(), (exit, State::Lost), "{code}: {}", run.stderr);
        assert_eq!(run.stdout, "last words\n", "{code}");
        assert_eq!(guest.others(), "", "{code}");
        let run = guest.cell(Python, "try: print(x)\nexcept NameError: print('forgotten')\nx = 1");
        assert_eq!((run.stdout.as_str(), run.end()), ("forgotten\n", (GOOD, State::Reset)), "{code}");
        assert_eq!(guest.cell(Python, "x").end(), (GOOD, State::Preserved), "{code}");
    }
}

#[test]
fn an_end_between_cells_is_a_reset() {
    let Some(mut guest) = guest() else { return };
    let run = guest.cell(Python, "import os; print(os.getpid())");
    assert_eq!(run.end(), (GOOD, State::Fresh));
    assert_eq!(guest.shell(&format!("kill -KILL {}", run.stdout.trim())).exit, GOOD);
    // The program that killed it is told to be over after what it killed was seen to end, or at the same time; the
    // kernel's own runner may be a little behind.
    let until = Instant::now() + PROMPT;
    while !guest.others().is_empty() {
        assert!(Instant::now() < until, "it is not reaped");
    }
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Reset));
}

#[test]
fn a_stopped_cell_takes_its_kernel_along_and_no_other() {
    let Some(mut guest) = guest() else { return };
    assert_eq!(guest.cell(Shell, "x=here").end(), (GOOD, State::Fresh));
    let busy = "import subprocess\nfor _ in range(20): subprocess.Popen(['sleep', '1000'], start_new_session=True)\n\
                print('up')\nwhile True: pass";
    let (id, mut told) = (guest.begin_cell(Python, busy), Told::default());
    guest.hear(id, &mut told, "up");
    let begun = Instant::now();
    guest.send(&ToGuest::Stop { id });
    let run = guest.finish(id, told).unwrap();
    assert_eq!(run.end(), (Exit::Signal(9), State::Lost));
    assert!(begun.elapsed() < PROMPT);
    let left = guest.others();
    assert_eq!(left.lines().count(), 2, "the shell's kernel and its runner: {left}");
    assert_eq!(guest.cell(Shell, "echo $x").stdout, "here\n");
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Reset));
    // A host that does not wait for the end of what it stopped is not sent away.
    let id = guest.begin_cell(Python, "while True: pass");
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Reset));
    assert_eq!(guest.finish(id, Told::default()).unwrap().end(), (Exit::Signal(9), State::Lost));
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Preserved));
}

#[test]
fn an_interrupt_keeps_the_kernel() {
    let Some(mut guest) = guest() else { return };
    for (language, keep, busy, look) in [
        (Python, "x = 7", "print('up')\nwhile True: pass", "print(x)"),
        (Python, "x = 7", "print('up')\nimport time; time.sleep(1000)", "print(x)"),
        (JavaScript, "var x = 7", "console.log('up'); for (;;) {}", "console.log(x)"),
        (Shell, "x=7", "echo up; sleep 1000", "echo $x"),
    ] {
        assert_eq!(guest.cell(language, keep).exit, GOOD);
        let (id, mut told) = (guest.begin_cell(language, busy), Told::default());
        guest.hear(id, &mut told, "up");
        guest.send(&ToGuest::Signal { id, signal: 2 });
        let run = guest.finish(id, told).unwrap();
        assert_eq!(run.end(), (Exit::Code(130), State::Preserved), "{language} {busy}: {run:?}");
        let run = guest.cell(language, look);
        assert_eq!((run.stdout.as_str(), run.end()), ("7\n", (GOOD, State::Preserved)), "{language}");
    }
    // Before the driver stands it would kill: it is kept until then. A driver that has not read its cell by then may
    // drop it, and is asked again. Numbers that are no signals are nothing.
    let Some(mut guest) = self::guest() else { return };
    let id = guest.begin_cell(Python, "print('up')\nwhile True: pass");
    for signal in [0, -9, 65, i32::MIN, i32::MAX, 2] {
        guest.send(&ToGuest::Signal { id, signal });
    }
    let finish = loop {
        match guest.receive_of(id) {
            FromGuest::Output { .. } => guest.send(&ToGuest::Signal { id, signal: 2 }),
            FromGuest::Record { .. } => {}
            FromGuest::Finished { finish, .. } => break finish,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((finish.exit, finish.kernel), (Exit::Code(130), Some(State::Fresh)));
}

#[test]
fn a_signal_reaches_a_programs_group_and_nobody_else() {
    let Some(mut guest) = guest() else { return };
    let (other, mut other_told) = (guest.begin(python("print('up'); input(); print('fine')")), Told::default());
    guest.hear(other, &mut other_told, "up");
    let catch = "trap 'echo caught; exit 5' TERM; (trap 'echo child >&2; exit' TERM; echo in; while :; do sleep 0.01; done) &\
                 wait; wait; wait";
    let source = Source::Command(catch.to_owned());
    let (id, mut told) = (guest.begin(source), Told::default());
    guest.hear(id, &mut told, "in");
    guest.send(&ToGuest::Signal { id, signal: 15 });
    let run = guest.finish(id, told).unwrap();
    assert!(run.stdout.contains("caught") && run.exit == Exit::Code(5), "{run:?}");
    // At once after the start, when there is no such process yet: it is not lost.
    let id = guest.begin(Source::Command("sleep 1000".to_owned()));
    guest.send(&ToGuest::Signal { id, signal: 34 });
    assert_eq!(guest.finish(id, Told::default()).unwrap().exit, Exit::Signal(34));
    guest.send(&ToGuest::Input { id: other, bytes: b"\n".to_vec() });
    assert_eq!(guest.finish(other, other_told).unwrap().stdout, "up\nfine\n");
    guest.send(&ToGuest::Signal { id: other, signal: 9 });
    assert_eq!(guest.shell("echo alive").stdout, "alive\n");
}

#[test]
fn every_cell_has_its_own_input() {
    let Some(mut guest) = guest() else { return };
    let read = "import sys; print(len(sys.stdin.read()))";
    for (length, expected) in [(10, "10\n"), (0, "0\n"), (1 << 20, "1048576\n"), (3, "3\n")] {
        let (id, mut told) = (guest.begin(cell(Python, read)), Told::default());
        guest.feed(id, &mut told, &vec![b'x'; length]);
        guest.send(&ToGuest::InputEnd { id });
        let run = guest.finish(id, told).unwrap();
        assert_eq!((run.stdout.as_str(), run.exit), (expected, GOOD), "{}", run.stderr);
    }
    // A child of the kernel reads on where the kernel stopped, and what is left is gone with the cell.
    let run = guest.run(cell(Shell, "read a; echo $a; cat"), b"one\ntwo\n");
    assert_eq!(run.stdout, "one\ntwo\n");
    let run = guest.run(cell(Shell, "read a; echo $a"), b"three\nfour\n");
    assert_eq!(run.stdout, "three\n");
    assert_eq!(guest.run(cell(Shell, "cat; echo end"), b"").stdout, "end\n");
    // More than a cell may have: the kernel does not see it.
    let (id, mut told) = (guest.begin(cell(Python, read)), Told::default());
    guest.feed(id, &mut told, &vec![b'x'; 1 << 20]);
    guest.send(&ToGuest::Input { id, bytes: vec![b'x'] });
    guest.send(&ToGuest::InputEnd { id });
    assert_eq!(guest.finish(id, told).unwrap_err().kind, FileErrorKind::NoSpace);
    assert_eq!(guest.cell(Python, read).end(), (GOOD, State::Preserved));
}

#[test]
fn a_kernel_does_one_thing_at_a_time_and_kernels_work_side_by_side() {
    let Some(mut guest) = guest() else { return };
    let wait = "import os, time\nprint('up')\nwhile not os.path.exists('go'): time.sleep(0.005)\nprint('went')";
    let (id, mut told) = (guest.begin_cell(Python, wait), Told::default());
    guest.hear(id, &mut told, "up");
    let second = guest.begin_cell(Python, "1");
    let error = guest.finish(second, Told::default()).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::Failed, "the kernel is busy"));
    assert_eq!(guest.cell(JavaScript, "console.log('beside')").stdout, "beside\n");
    assert_eq!(guest.python("print('program')").stdout, "program\n");
    assert_eq!(guest.cell(Shell, "echo > go").exit, GOOD);
    let run = guest.finish(id, told).unwrap();
    assert_eq!((run.stdout.as_str(), run.end()), ("up\nwent\n", (GOOD, State::Fresh)));
}

#[test]
fn what_is_written_between_cells_comes_with_the_next() {
    let Some(mut guest) = guest() else { return };
    // A thread writes far more than a pipe holds when the cell is over, and then makes a file.
    let late = "import threading, os, time\ndef late():\n    while not os.path.exists('go'): time.sleep(0.005)\n    \
                for i in range(30000): os.write(1, b'%09d\\n' % i)\n    os.write(2, b'late err')\n    open('done', 'w').close()\n\
                threading.Thread(target=late, daemon=True).start()";
    assert_eq!(guest.cell(Python, late).end(), (GOOD, State::Fresh));
    assert_eq!(guest.shell(": > go; while [ ! -e done ]; do sleep 0.01; done").exit, GOOD);
    let run = guest.cell(Python, "print('now')");
    assert_eq!(run.stderr, "late err");
    let (held, now) = run.stdout.split_at(run.stdout.len() - 4);
    assert_eq!(now, "now\n");
    assert!(held.ends_with("000029998\n000029999\n"), "the last of it is kept: {:?}", &held[held.len().max(60) - 60..]);
    assert!(held.len() >= 64 * 1024 && held.len() <= 192 * 1024, "{}", held.len());
}

#[test]
fn what_a_cell_starts_lives_on_and_ends_with_the_kernel() {
    let Some(mut guest) = guest() else { return };
    let start = "import subprocess, os, time\n\
                 p = subprocess.Popen(['sh', '-c', 'echo from behind; : > up; exec sleep 1000'])\n\
                 while not os.path.exists('up'): time.sleep(0.005)";
    assert_eq!(guest.cell(Python, start).stdout, "from behind\n");
    assert_eq!(guest.cell(Python, "print(p.poll())").stdout, "None\n");
    assert_eq!(guest.others().lines().count(), 3);
    // Other runs come and go without touching it.
    assert_eq!(guest.shell("sleep 1000 & echo fine").stdout, "fine\n");
    assert_eq!(guest.cell(Python, "print(p.poll())").stdout, "None\n");
    assert_eq!(guest.cell(Python, "import os; os._exit(0)").end(), (GOOD, State::Lost));
    assert_eq!(guest.others(), "");
}

#[test]
fn code_of_a_mebibyte_and_the_last_cell_are_run() {
    let Some(mut guest) = guest() else { return };
    let code = format!("# {}\nprint('end')", "x".repeat((1 << 20) - 100));
    assert_eq!(guest.cell(Python, &code).stdout, "end\n");
    let last = "import threading, time, atexit\natexit.register(print, 'at exit')\n\
                threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\nprint('main')";
    let source = Source::Cell { language: Python, code: last.to_owned(), then: Then::End };
    let run = guest.run(source, b"");
    assert_eq!((run.stdout.as_str(), run.exit), ("main\nthread\nat exit\n", GOOD), "{}", run.stderr);
}

#[test]
fn what_a_cell_uses_is_told() {
    let Some(mut guest) = guest() else { return };
    let burn = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.3: pass";
    let used = guest.cell(Python, burn).finish.usage;
    assert!(used.cpu_ms >= 290 && used.memory_peak_bytes > 4 << 20, "{used:?}");
    let used = guest.cell(Python, "x = bytearray(50 << 20)").finish.usage;
    assert!(used.cpu_ms < 250 && used.memory_peak_bytes > 50 << 20, "{used:?}");
    guest.cell(Shell, ":");
    let used = guest.cell(Shell, "for i in $(seq 20); do seq 100000 | tail -1 >/dev/null; done").finish.usage;
    assert!(used.cpu_ms >= 20, "{used:?}");
    // Of a kernel that ends in its cell, only what that cell used.
    let used = guest.cell(Python, "import os; os._exit(0)").finish.usage;
    assert!(used.cpu_ms < 250 && used.memory_peak_bytes > 50 << 20, "{used:?}");
}

#[test]
fn a_kernel_is_held_by_the_memory_watch() {
    let mut place = Place::default();
    place.init.watch_memory_bytes = Some(150 << 20);
    let Some(mut guest) = Guest::start(place) else { return };
    assert_eq!(guest.cell(Python, "x = bytearray(b'x' * (20 << 20))").end(), (GOOD, State::Fresh));
    let eat = "y = []\nwhile len(y) < 300: y.append(bytearray(b'x' * (1 << 20)))\nimport time; time.sleep(1000)";
    assert_eq!(guest.cell(Python, eat).end(), (Exit::OutOfMemory, State::Lost));
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Reset));
    // A kill that has nothing to do with memory is not told as one, in whatever went before.
    assert_eq!(guest.cell(Python, "import os; os.kill(os.getpid(), 9)").end(), (Exit::Signal(9), State::Lost));
}

/// A guest whose Python is a driver of the test's own making: `body` has `say` and `hear`.
fn with_driver(body: &str) -> Option<Guest> {
    let mut guest = guest_with_python("/workspace/python3")?;
    let driver = format!(
        "#!/usr/bin/env -S -i /usr/bin/python3 -u\nimport os, sys, time, signal, threading\n\
         def say(kind, text):\n    text = b'%s %d\\n%s' % (kind, len(text), text)\n    \
         while text: text = text[os.write(3, text):]\n\
         def hear():\n    line = b''\n    while line[-1:] != b'\\n':\n        more = os.read(3, 1)\n        if not more: sys.exit(0)\n        line += more\n    \
         left = int(line.split()[1]); code = b''\n    while left:\n        more = os.read(3, left); left -= len(more); code += more\n    \
         return code\n{body}\n"
    );
    let id = guest.fresh_id();
    guest.send(&ToGuest::Write { id, path: "python3".to_owned() });
    for chunk in driver.as_bytes().chunks(CHUNK_MAX) {
        guest.send(&ToGuest::Input { id, bytes: chunk.to_vec() });
    }
    guest.send(&ToGuest::InputEnd { id });
    assert_eq!(guest.receive_of(id), FromGuest::Done { id });
    assert_eq!(guest.shell("chmod +x python3").exit, GOOD);
    Some(guest)
}

#[test]
fn a_driver_finds_what_it_is_promised() {
    let body = "library = os.pread(4, 1 << 20, 0)\nos.close(4)\n\
                say(b'ready', b'%d' % os.getpid())\nwhile True:\n    code = hear()\n    \
                print(code.decode(), len(library) > 100, sorted(map(int, os.listdir('/proc/self/fd')))[:4], os.getcwd(),\n        \
                os.getsid(0) == os.getpid() == os.getpgid(0), os.get_blocking(3), os.read(0, 100), sys.argv[1:4])\n    say(b'done', b'0')";
    let Some(mut guest) = with_driver(body) else { return };
    let run = guest.run(cell(Python, "code"), b"input");
    let expected = "code True [0, 1, 2, 3] /workspace True True b'input' ['-s', '-X', 'utf8']\n";
    assert_eq!((run.stdout.as_str(), run.end()), (expected, (GOOD, State::Fresh)), "{}", run.stderr);
}

#[test]
fn records_of_all_sizes_pass() {
    let body = "say(b'ready', b'1')\nwhile True:\n    n = int(hear())\n    \
                for i in range(3): say(b'record', b'%d' % i * n)\n    say(b'done', b'300')";
    let Some(mut guest) = with_driver(body) else { return };
    for (size, state) in
        [(10_000_000, State::Fresh), (0, State::Preserved), (1, State::Preserved), (16 << 20, State::Preserved)]
    {
        let run = guest.cell(Python, &size.to_string());
        assert_eq!(run.records, ["0".repeat(size), "1".repeat(size), "2".repeat(size)]);
        // A code is cut as an exit code is.
        assert_eq!(run.end(), (Exit::Code(300 % 256), state));
    }
}

#[test]
fn records_wait_for_a_slow_host() {
    let body = "say(b'ready', b'1')\nhear()\nfor i in range(2000): say(b'record', b'%05d' % i + b'x' * 10000)\nsay(b'done', b'0')\nhear()";
    let Some(mut guest) = with_driver(body) else { return };
    let id = guest.begin_cell(Python, "go");
    // Nothing is read until the driver has certainly been held up: then the guest must not hold more than its bounds.
    std::thread::sleep(Duration::from_millis(300));
    let memory = guest.shell("grep VmHWM /proc/1/status || echo VmHWM: 0 kB");
    let kib: u64 = memory.stdout.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 16 * 1024, "{kib} KiB");
    let run = guest.finish(id, Told::default()).unwrap();
    assert_eq!(run.records.len(), 2000);
    assert!(
        run.records
            .iter()
            .enumerate()
            .all(|(i, record)| record.starts_with(&format!("{i:05}x")) && record.len() == 10005)
    );
}

#[test]
fn a_driver_that_breaks_the_rules_is_ended() {
    for bad in [
        "os.write(3, b'nonsense')\nos.write(3, b'x' * 100)",
        "os.write(3, b'record 99999999\\n')",
        "os.write(3, b'record -5\\n')",
        "os.write(3, b'done 1\\nx')",
        "os.write(3, b'ready 1\\n1')",
        "while True: os.write(3, b'r' * 50)",
        "os.write(3, b'\\n')",
        "os.close(3)",
        "os.closerange(0, 100)",
    ] {
        let Some(mut guest) = with_driver(&format!("say(b'ready', b'1')\nhear()\n{bad}\ntime.sleep(1000)")) else {
            return;
        };
        let begun = Instant::now();
        let run = guest.cell(Python, "go");
        assert_eq!(run.end(), (Exit::Signal(9), State::Lost), "{bad}");
        assert!(begun.elapsed() < PROMPT, "{bad}");
        assert_eq!(guest.others(), "", "{bad}");
    }
}

#[test]
fn a_driver_that_says_done_twice_is_ended_and_the_next_cell_is_told() {
    let body = "say(b'ready', b'1')\nhear()\nsay(b'done', b'0')\nsay(b'record', b'{}')\ntime.sleep(0.05)\nsay(b'done', b'1')\ntime.sleep(1000)";
    let Some(mut guest) = with_driver(body) else { return };
    let run = guest.cell(Python, "go");
    assert_eq!((run.end(), run.records.len()), ((GOOD, State::Fresh), 0));
    let until = Instant::now() + PROMPT;
    while !guest.others().is_empty() {
        assert!(Instant::now() < until, "it lives on");
    }
    assert_eq!(guest.cell(Python, "go").end(), (GOOD, State::Reset));
}

#[test]
fn a_record_that_began_between_cells_is_nobodys() {
    let body = "say(b'ready', b'1')\nhear()\nsay(b'done', b'0')\nos.write(3, b'record 10\\nhalf ')\nos.rename('python3', 'moved')\n\
                hear()\nos.write(3, b'half ')\nsay(b'record', b'whole')\nsay(b'done', b'0')\nhear()";
    let Some(mut guest) = with_driver(body) else { return };
    assert_eq!(guest.cell(Python, "go").end(), (GOOD, State::Fresh));
    guest.shell("while [ ! -e moved ]; do sleep 0.01; done");
    let run = guest.cell(Python, "go");
    assert_eq!((run.end(), run.records), ((GOOD, State::Preserved), vec!["whole".to_owned()]));
}

#[test]
fn a_driver_that_never_answers_is_stopped() {
    for silent in [
        "time.sleep(1000)",
        "say(b'ready', b'1')\nos.kill(os.getpid(), signal.SIGSTOP)",
        "os.kill(os.getppid(), signal.SIGSTOP)\nhear()\ntime.sleep(1000)",
    ] {
        let Some(mut guest) = with_driver(&format!("print('up')\n{silent}")) else { return };
        let (id, mut told) = (guest.begin_cell(Python, &"x".repeat(1_000_000)), Told::default());
        guest.hear(id, &mut told, "up");
        guest.send(&ToGuest::Signal { id, signal: 2 });
        // The guest goes on meanwhile.
        assert_eq!(guest.shell("echo fine").stdout, "fine\n");
        let begun = Instant::now();
        guest.send(&ToGuest::Stop { id });
        assert_eq!(guest.finish(id, told).unwrap().end(), (Exit::Signal(9), State::Lost), "{silent}");
        assert!(begun.elapsed() < PROMPT);
        assert_eq!(guest.others(), "");
    }
}

#[test]
fn a_kernel_that_ends_when_its_cell_is_done_has_ended_between_cells() {
    let Some(mut guest) = with_driver("say(b'ready', b'1')\nhear()\nprint('said')\nsay(b'done', b'4')\nos._exit(9)")
    else {
        return;
    };
    for state in std::iter::once(State::Fresh).chain([State::Reset; 20]) {
        let run = guest.cell(Python, "go");
        assert_eq!((run.stdout.as_str(), run.end()), ("said\n", (Exit::Code(4), state)));
        let until = Instant::now() + PROMPT;
        while !guest.others().is_empty() {
            assert!(Instant::now() < until, "it is not reaped");
        }
    }
}

#[test]
fn children_that_hold_the_socket_do_not_keep_a_dead_kernels_cell_open() {
    let body = "say(b'ready', b'1')\nhear()\nsay(b'record', b'said')\nprint('printed')\n\
                if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: say(b'record', b'flood')\n    os._exit(0)\n\
                os.wait()\nos._exit(7)";
    let Some(mut guest) = with_driver(body) else { return };
    let begun = Instant::now();
    let run = guest.cell(Python, "go");
    assert_eq!((run.stdout.as_str(), run.end()), ("printed\n", (Exit::Code(7), State::Lost)));
    assert_eq!(run.records.first().map(String::as_str), Some("said"));
    assert!(begun.elapsed() < PROMPT);
    assert_eq!(guest.others(), "");
}

#[test]
fn a_kernel_that_cannot_be_started_is_refused_and_was_none() {
    let Some(mut guest) = guest_with_python("/workspace/python3") else { return };
    let id = guest.begin_cell(Python, "1");
    let error = guest.finish(id, Told::default()).unwrap_err();
    assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::NotFound, "python3"));
    guest.shell("echo 'not a program' > python3; chmod +x python3");
    let id = guest.begin_cell(Python, "1");
    assert_eq!(guest.finish(id, Told::default()).unwrap_err().kind, FileErrorKind::Failed);
    guest.shell("rm python3; ln -s /usr/bin/python3 python3");
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Fresh));
}
