//! Kernels that are started ahead of their first cell.

use std::time::{Duration, Instant};

use belljar_core::wire::ToGuest;
use belljar_core::{Exit, FileErrorKind, Language, Source, State, Then};

use crate::harness::{Guest, Place, Told, cell, python};

use Language::{JavaScript, Python, Shell, TypeScript};

const PROMPT: Duration = Duration::from_secs(5);

const GOOD: Exit = Exit::Code(0);

fn place(waiting: Language) -> Place {
    let mut place = Place::default();
    place.init.waiting = Some(waiting);
    place
}

fn waiting(language: Language) -> Option<Guest> {
    Guest::start(place(language))
}

fn last(language: Language, code: &str) -> Source {
    Source::Cell { language, code: code.to_owned(), then: Then::End }
}

/// A guest in which a script of the test's own waits as the kernel of `language`: `body` comes after its driver's
/// beginning. It is in a directory that is there before the guest is.
fn with_script(language: Language, body: &str) -> Option<(Guest, tempfile::TempDir)> {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir_in("/opt").or_else(|_| tempfile::tempdir_in("/usr/local")).ok()?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join(language.interpreters()[0]);
    let text = format!(
        "#!/usr/bin/env -S -i /usr/bin/python3 -u\nimport os, sys, time, signal\n\
         def say(kind, text): os.write(3, b'%s %d\\n%s' % (kind, len(text), text))\n\
         def hear():\n    if not os.read(3, 100000): sys.exit(0)\n{body}\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut place = place(language);
    place.init.interpreters.retain(|(of, _)| *of != language);
    place.init.interpreters.push((language, path.to_str().unwrap().to_owned()));
    Guest::start(place).map(|guest| (guest, directory))
}

/// Waits until there are so many processes besides the guest and the one that looks.
fn settle(guest: &mut Guest, count: usize) -> String {
    let until = Instant::now() + PROMPT;
    loop {
        let others = guest.others();
        if others.lines().count() == count {
            return others;
        }
        assert!(Instant::now() < until, "not {count}: {others}");
    }
}

#[test]
fn a_first_cell_finds_its_kernel_there() {
    for (language, of, first, second) in [
        (Python, Python, "import os; x = 20 + 1; print(os.getpid())", "print(x * 2)"),
        (JavaScript, JavaScript, "var x = 20 + 1; console.log(process.pid)", "console.log(x * 2)"),
        (TypeScript, JavaScript, "var x = 20 + 1; console.log(process.pid)", "console.log(x * 2)"),
        (Shell, Shell, "x=21; echo $$", "echo $((x * 2))"),
    ] {
        let Some(mut guest) = waiting(language) else { return };
        // A runner, and the kernel below it.
        let there = settle(&mut guest, 2);
        let pid = there.lines().last().unwrap().split(' ').next().unwrap();
        let run = guest.cell(of, first);
        assert_eq!((run.stdout.trim(), run.end()), (pid, (GOOD, State::Fresh)), "{language}: {}", run.stderr);
        let run = guest.cell(of, second);
        assert_eq!((run.stdout.as_str(), run.end()), ("42\n", (GOOD, State::Preserved)), "{language}");
    }
}

#[test]
fn a_cell_that_comes_at_once_waits_for_its_kernel() {
    for language in [Python, JavaScript, Shell] {
        let code = match language {
            Python => "print(6 * 7)",
            JavaScript => "console.log(6 * 7)",
            _ => "echo $((6 * 7))",
        };
        for then in [Then::More, Then::End] {
            let Some(mut guest) = waiting(language) else { return };
            let run = guest.run(Source::Cell { language, code: code.to_owned(), then }, b"");
            assert_eq!((run.stdout.as_str(), run.end()), ("42\n", (GOOD, State::Fresh)), "{language}: {}", run.stderr);
        }
        let Some(mut guest) = waiting(language) else { return };
        let id = guest.begin_cell(language, code);
        guest.send(&ToGuest::Stop { id });
        let run = guest.finish(id, Told::default()).unwrap();
        assert!(run.end() == (Exit::Signal(9), State::Lost) || run.end() == (GOOD, State::Fresh), "{run:?}");
        assert_eq!(guest.cell(language, code).stdout, "42\n");
    }
}

/// As in a machine that is copied: the kernel has loaded much by its first cell, and is else as any other.
#[test]
fn a_kernel_that_is_to_be_copied_has_loaded_what_it_can() {
    let copied = || {
        let mut place = place(Python);
        place.init.copied = true;
        Guest::start(place)
    };
    let Some(mut guest) = copied() else { return };
    let there = settle(&mut guest, 2);
    let pid = there.lines().last().unwrap().split(' ').next().unwrap();
    let code =
        "import os, sys; y = input(); print(os.getpid(), 'decimal' in sys.modules, y); print('e', file=sys.stderr)";
    let run = guest.run(Source::Cell { language: Python, code: code.to_owned(), then: Then::More }, b"in\n");
    let told = (run.stdout.trim().to_owned(), run.stderr.as_str(), run.end());
    assert_eq!(told, (format!("{pid} True in"), "e\n", (GOOD, State::Fresh)));
    let run = guest
        .cell(Python, "import subprocess; subprocess.run(['sh', '-c', 'echo $0 >&2; kill -INT $$; echo lives', y])");
    assert_eq!((run.stderr.as_str(), run.end()), ("in\n", (GOOD, State::Preserved)), "{}", run.stdout);
    assert!(!run.stdout.contains("lives"), "a signal that the kernel ignored is ignored: {}", run.stdout);
    assert_eq!(guest.cell(Python, "1 / 0").end(), (Exit::Code(1), State::Preserved));

    // An only cell, and one that is there before the kernel stands.
    for _ in 0..2 {
        let Some(mut guest) = copied() else { return };
        let run = guest.run(last(Python, "print(6 * 7)"), b"");
        assert_eq!((run.stdout.as_str(), run.end()), ("42\n", (GOOD, State::Fresh)), "{}", run.stderr);
    }
}

#[test]
fn others_are_not_disturbed() {
    for language in [Python, JavaScript, Shell, Language::Go] {
        let Some(mut guest) = waiting(language) else { return };
        assert_eq!(guest.shell("sleep 1000 & echo fine").stdout, "fine\n");
        assert_eq!(guest.python("print('fine')").stdout, "fine\n");
        let kernels = [Python, JavaScript, Shell].into_iter().filter(|other| *other != language);
        for (other, code) in kernels.zip(["print(1)", "console.log(1)", "echo 1"]) {
            // Whether the code is good is not the matter.
            assert_eq!(guest.cell(other, code).end().1, State::Fresh, "{language} waits, {other} runs");
        }
        // The waiting one and those that ran, each with its runner.
        settle(&mut guest, 6);
        let id = guest.begin(python("print('up'); input()"));
        let mut told = Told::default();
        guest.hear(id, &mut told, "up");
        guest.send(&ToGuest::Stop { id });
        assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
    }
}

#[test]
fn a_cell_with_an_environment_of_its_own_gets_a_kernel_that_has_it() {
    for (language, code) in [
        (Python, "import os; print(os.environ.get('A'))"),
        (JavaScript, "console.log(process.env.A)"),
        (Shell, "echo $A"),
    ] {
        for then in [Then::More, Then::End] {
            let Some(mut guest) = waiting(language) else { return };
            settle(&mut guest, 2);
            let source = Source::Cell { language, code: code.to_owned(), then };
            let id = guest.begin_in(source, None, &[("A", "b c")]);
            guest.send(&ToGuest::InputEnd { id });
            let run = guest.finish(id, Told::default()).unwrap();
            assert_eq!((run.stdout.as_str(), run.exit), ("b c\n", GOOD), "{language}: {}", run.stderr);
            if then == Then::More {
                assert_eq!(run.end().1, State::Fresh);
                // One that has run cells is used, as it always was.
                let id = guest.begin_in(cell(language, code), None, &[("A", "other")]);
                guest.send(&ToGuest::InputEnd { id });
                let run = guest.finish(id, Told::default()).unwrap();
                assert_eq!((run.stdout.as_str(), run.end()), ("b c\n", (GOOD, State::Preserved)), "{language}");
                settle(&mut guest, 2);
            }
        }
    }
}

#[test]
fn one_that_died_while_it_waited_was_none() {
    for language in [Python, JavaScript, Shell] {
        let code = match language {
            Python => "print(1)",
            JavaScript => "console.log(1)",
            _ => "echo 1",
        };
        for (kill, then) in
            [("kill -9 -1", Then::More), ("kill -9 -1", Then::End), ("sleep 0.05; kill -9 -1", Then::More)]
        {
            let Some(mut guest) = waiting(language) else { return };
            settle(&mut guest, 2);
            // Not waited for: the cell may come before its end is known.
            let killer = guest.begin(Source::Command(kill.to_owned()));
            guest.send(&ToGuest::InputEnd { id: killer });
            guest.finish(killer, Told::default()).unwrap();
            let run = guest.run(Source::Cell { language, code: code.to_owned(), then }, b"");
            assert_eq!((run.stdout.as_str(), run.exit), ("1\n", GOOD), "{language} {kill}: {run:?}");
            assert!(run.finish.kernel.is_none_or(|state| state == State::Fresh), "{run:?}");
        }
    }
}

#[test]
fn one_that_cannot_be_started_is_told_of_by_the_first_cell_only() {
    for path in ["/nowhere/python3", "/etc/passwd", "/usr"] {
        let mut place = place(Python);
        place.init.interpreters.retain(|(language, _)| *language != Python);
        place.init.interpreters.push((Python, path.to_owned()));
        let Some(mut guest) = Guest::start(place) else { return };
        assert_eq!(guest.shell("echo fine").stdout, "fine\n");
        let id = guest.begin_cell(Python, "1");
        let error = guest.finish(id, Told::default()).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::NotFound, "python3"), "{path}");
        assert_eq!(guest.others(), "");
    }
    let Some((mut guest, _script)) = with_script(Python, "say(b'nonsense', b'')\ntime.sleep(1000)") else { return };
    settle(&mut guest, 0);
    let id = guest.begin_cell(Python, "1");
    assert_eq!(guest.finish(id, Told::default()).unwrap().end(), (Exit::Signal(9), State::Lost));
}

#[test]
fn what_the_start_did_is_not_the_cells_doing() {
    // It burns a third of a second, and writes at the very last.
    let body = "while time.process_time() < 0.35: pass\nopen('/workspace/cache', 'w').write('x')\n\
                print('held')\nsay(b'ready', b'1')\n\
                while True:\n    hear()\n    open('/workspace/made', 'w').write('y')\n    print('cell')\n    say(b'done', b'0')";
    // A cell that comes while it starts, one that comes just after, and one that comes much later.
    for wait in [0, 370, 1000] {
        let Some((mut guest, _script)) = with_script(Python, body) else { return };
        std::thread::sleep(Duration::from_millis(wait));
        let run = guest.run_looking(cell(Python, "go"), 10);
        assert_eq!((run.stdout.as_str(), run.end()), ("held\ncell\n", (GOOD, State::Fresh)), "{wait}: {}", run.stderr);
        assert_eq!(run.changed_paths(), ["made"], "{wait}");
        assert!(run.finish.usage.cpu_ms < 200, "{wait}: {:?}", run.finish.usage);
    }
}

#[test]
fn a_kernel_that_waits_or_is_idle_is_no_reason_to_look_at_memory_all_the_time() {
    let mut place = place(Python);
    place.init.watch_memory_bytes = Some(500 << 20);
    let Some(mut guest) = Guest::start(place) else { return };
    settle(&mut guest, 2);
    // The guest's own switches tell how often it woke.
    let woken = |guest: &mut Guest| -> u64 {
        let told = guest.shell("grep ^voluntary /proc/1/status").stdout;
        told.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = woken(&mut guest);
    std::thread::sleep(Duration::from_millis(1500));
    let waiting = woken(&mut guest) - before;
    assert!(waiting < 20, "{waiting} times");
    // It is held all the same when it has something to do, and what cells leave behind is too.
    let eat = "import threading\nkept = []\ndef eat():\n    while len(kept) < 900: kept.append(bytearray(b'x' * (1 << 20)))\n    \
               threading.Event().wait()\n";
    assert_eq!(guest.cell(Python, &format!("{eat}eat()")).end(), (Exit::OutOfMemory, State::Lost));
    assert_eq!(guest.cell(Python, &format!("{eat}threading.Timer(0.2, eat).start()")).end(), (GOOD, State::Reset));
    settle(&mut guest, 0);
    assert_eq!(guest.cell(Python, "1").end(), (GOOD, State::Reset));
}

#[test]
fn an_only_shell_cell_in_a_waiting_kernel_is_a_script() {
    for (code, stdout, exit) in [
        ("echo 2", "2\n", GOOD),
        ("echo $0 $# $?; exit 3", "bash 0 0\n", Exit::Code(3)),
        ("set -e; echo a; false; echo no", "a\n", Exit::Code(1)),
        ("echo a; (exit 4)", "a\n", Exit::Code(4)),
        ("kill -SEGV $$", "", Exit::Signal(11)),
        ("kill -9 $$", "", Exit::Signal(9)),
        ("trap 'echo bye' EXIT; echo a", "a\nbye\n", GOOD),
        ("exec sh -c 'echo x; exit 5'", "x\n", Exit::Code(5)),
        ("read a; echo [$a]; cat", "[one]\ntwo\n", GOOD),
        ("if (", "", Exit::Code(2)),
        ("ls /proc/self/fd", "0\n1\n2\n3\n", GOOD),
        ("head -c 3000000 /dev/zero | tr '\\0' x | wc -c; set +e", "3000000\n", GOOD),
    ] {
        let Some(mut guest) = waiting(Shell) else { return };
        settle(&mut guest, 2);
        let run = guest.run(last(Shell, code), b"one\ntwo\n");
        assert_eq!((run.stdout.as_str(), run.end()), (stdout, (exit, State::Fresh)), "{code}: {}", run.stderr);
        assert!(run.records.is_empty());
        settle(&mut guest, 0);
        // It was the only one: the next is a program, as it is where no kernel waits.
        let run = guest.run(last(Shell, "echo $0; exit 3"), b"");
        assert_eq!((run.stdout.as_str(), run.exit, run.finish.kernel), ("bash\n", Exit::Code(3), None));
        assert_eq!(guest.cell(Shell, "echo on").end(), (GOOD, State::Fresh), "nothing was lost");
    }
}

#[test]
fn what_an_only_shell_cell_leaves_in_the_background_ends_with_it() {
    for code in [
        "sleep 1000 & echo up",
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &) ; echo up",
        "exec 7>&1; sleep 1000 & echo up",
        "(while :; do :; done) & disown; echo up",
        "coproc cat; echo up",
    ] {
        let Some(mut guest) = waiting(Shell) else { return };
        settle(&mut guest, 2);
        let begun = Instant::now();
        let run = guest.run(last(Shell, code), b"");
        assert_eq!((run.stdout.as_str(), run.end()), ("up\n", (GOOD, State::Fresh)), "{code}: {}", run.stderr);
        assert!(begun.elapsed() < PROMPT);
        // At once, and not in a moment.
        assert_eq!(guest.others(), "", "{code}");
    }
}

#[test]
fn an_only_shell_cell_can_be_interrupted_and_stopped() {
    for (code, signal, exit) in [
        ("echo up; sleep 1000", 2, Exit::Signal(2)),
        ("set -e; echo up; while :; do :; done", 2, Exit::Signal(2)),
        ("trap 'echo caught; exit 5' TERM; echo up; while :; do sleep 0.01; done", 15, Exit::Code(5)),
        ("echo up; while :; do :; done", 9, Exit::Signal(9)),
    ] {
        let Some(mut guest) = waiting(Shell) else { return };
        let id = guest.begin(last(Shell, code));
        guest.send(&ToGuest::InputEnd { id });
        let mut told = Told::default();
        guest.hear(id, &mut told, "up");
        guest.send(&ToGuest::Signal { id, signal });
        let begun = Instant::now();
        let run = guest.finish(id, told).unwrap();
        assert_eq!(run.end(), (exit, State::Fresh), "{code}: {run:?}");
        assert!(begun.elapsed() < PROMPT, "{code}");
    }
    let Some(mut guest) = waiting(Shell) else { return };
    let id = guest.begin(last(Shell, "trap '' TERM INT HUP; echo up; set -e; sleep 1000"));
    guest.send(&ToGuest::InputEnd { id });
    let mut told = Told::default();
    guest.hear(id, &mut told, "up");
    guest.send(&ToGuest::Stop { id });
    assert_eq!(guest.finish(id, told).unwrap().exit, Exit::Signal(9));
    assert_eq!(guest.others(), "");
}

#[test]
fn a_directory_or_an_environment_of_its_own_makes_a_shell_cell_a_program() {
    let Some(mut guest) = waiting(Shell) else { return };
    settle(&mut guest, 2);
    let id = guest.begin_in(last(Shell, "pwd"), Some("/tmp"), &[]);
    guest.send(&ToGuest::InputEnd { id });
    let run = guest.finish(id, Told::default()).unwrap();
    assert_eq!((run.stdout.as_str(), run.finish.kernel), ("/tmp\n", None));
    let run = guest.run(last(Shell, "pwd"), b"");
    assert_eq!((run.stdout.as_str(), run.end()), ("/workspace\n", (GOOD, State::Fresh)));
}

#[test]
fn an_interrupt_that_was_lost_is_sent_again_once() {
    // It heeds only the second, or none; a Python is sent no second.
    let body = "count = 0\ndef caught(*_):\n    global count\n    count += 1\nsignal.signal(signal.SIGINT, caught)\n\
                say(b'ready', b'1')\nhear()\nprint('up')\nbegun = time.monotonic()\n\
                while count < ENOUGH and time.monotonic() - begun < 1.5: time.sleep(0.01)\nprint(count)\nsay(b'done', b'130')\nhear()";
    for (language, enough, counted) in [(Shell, "2", "2"), (Shell, "9", "2"), (Python, "9", "1")] {
        let Some((mut guest, _script)) = with_script(language, &body.replace("ENOUGH", enough)) else { return };
        let (id, mut told) = (guest.begin_cell(language, "go"), Told::default());
        guest.hear(id, &mut told, "up");
        guest.send(&ToGuest::Signal { id, signal: 2 });
        let run = guest.finish(id, told).unwrap();
        assert_eq!((run.stdout, run.exit), (format!("up\n{counted}\n"), Exit::Code(130)), "{language} {enough}");
    }
}
