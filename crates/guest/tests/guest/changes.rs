//! The files that a run made or changed.

use belljar_core::wire::{FromGuest, ToGuest};
use belljar_core::{Exit, Language, Source};

use crate::harness::{cell, guest};

fn command(line: &str) -> Source {
    Source::Command(line.to_owned())
}

#[test]
fn what_a_run_made_or_changed_is_told_in_order() {
    let Some(mut guest) = guest() else { return };
    let made =
        "mkdir -p a/b sub; echo 1 > z; echo 22 > a/b/c; : > a-b; echo > a/x; ln -s z link; mkfifo pipe; ln -s /etc out";
    let run = guest.run_looking(command(made), 100);
    assert_eq!(run.changed_paths(), ["a-b", "a/b/c", "a/x", "z"]);
    assert_eq!(run.changed.as_ref().unwrap().entries[1].metadata.size, 3);
    // At once after: nothing of it is the next run's, and what it changes is.
    assert_eq!(guest.run_looking(command("cat z"), 100).changed_paths(), [""; 0]);
    assert_eq!(guest.run_looking(command("echo 33 >> z; rm a/x; mv a-b moved"), 100).changed_paths(), ["moved", "z"]);
    // Times that are set are no way around it.
    assert_eq!(guest.run_looking(command("touch -d 2001-01-01 a/b/c"), 100).changed_paths(), ["a/b/c"]);
    assert_eq!(guest.run_looking(command("touch -d 2031-01-01 z"), 100).changed_paths(), ["z"]);
    assert_eq!(guest.run_looking(command("true"), 100).changed_paths(), [""; 0]);
    assert!(guest.run_looking(command("echo > new"), 0).changed.is_none());
}

#[test]
fn cells_tell_theirs_also_when_the_kernel_dies() {
    let Some(mut guest) = guest() else { return };
    let python = |code| cell(Language::Python, code);
    let run = guest.run_looking(python("open('one', 'w').write('1')"), 10);
    assert_eq!((run.changed_paths(), run.exit), (vec!["one"], Exit::Code(0)));
    let run = guest.run_looking(python("open('two', 'w').write('2'); 1/0"), 10);
    assert_eq!((run.changed_paths(), run.exit), (vec!["two"], Exit::Code(1)));
    let run = guest.run_looking(python("f = open('three', 'w'); f.write('3'); f.flush(); import os; os._exit(1)"), 10);
    assert_eq!(run.changed_paths(), ["three"]);
    for _ in 0..50 {
        assert_eq!(guest.run_looking(python("1"), 10).changed_paths(), [""; 0]);
        assert_eq!(guest.run_looking(python("open('one', 'a').write('1')"), 10).changed_paths(), ["one"]);
    }
}

#[test]
fn what_the_host_wrote_is_no_runs_doing() {
    let Some(mut guest) = guest() else { return };
    for number in 0..20 {
        let id = guest.fresh_id();
        guest.send(&ToGuest::Write { id, path: format!("data-{number}") });
        guest.send(&ToGuest::Input { id, bytes: b"rows".to_vec() });
        guest.send(&ToGuest::InputEnd { id });
        assert_eq!(guest.receive_of(id), FromGuest::Done { id });
        let run = guest.run_looking(command(&format!("cat data-{number} > copy-{number}")), 10);
        assert_eq!(run.changed_paths(), [format!("copy-{number}")]);
    }
}

#[test]
fn what_nobody_wants_to_be_told_of_is_left_out() {
    let Some(mut guest) = guest() else { return };
    let made = "mkdir -p .git __pycache__ node_modules/x target/debug sub/target other/target; \
                echo 'Signature: 8a477f597d28d172789f06886806bc55' > target/CACHEDIR.TAG; \
                for d in .git __pycache__ node_modules/x target/debug sub/target other; do echo > $d/file; done; echo > .hidden";
    let run = guest.run_looking(command(made), 100);
    assert_eq!(run.changed_paths(), ["other/file", "sub/target/file"]);
}

#[test]
fn no_more_are_told_than_asked_for_and_the_rest_is_counted() {
    let Some(mut guest) = guest() else { return };
    let run = guest.run_looking(command("for i in $(seq 1000 1999); do : > f$i; done; mkdir d; : > d/x"), 3);
    let changed = run.changed.as_ref().unwrap();
    assert_eq!((run.changed_paths(), changed.more), (vec!["d/x", "f1000", "f1001"], 998));
    // Long names that are not UTF-8 fit their frame, however many are asked for.
    let bad = "import os\nfor i in range(2000): open(b'%04d' % i + b'\\xff' * 250, 'w').close()";
    let run = guest.run_looking(cell(Language::Python, bad), u32::MAX);
    let changed = run.changed.unwrap();
    assert_eq!(changed.entries.len() as u32 + changed.more, 2000);
    assert!(changed.entries.len() >= 900, "{}", changed.entries.len());
}

#[test]
fn a_workspace_too_large_to_look_at_does_not_hold_the_run_up() {
    let Some(mut guest) = guest() else { return };
    let many = "import os\nfor i in range(300):\n    os.mkdir(f'd{i}')\n    for j in range(200): open(f'd{i}/{j}', 'w').close()\n\
                d = '.'\nfor i in range(500):\n    os.mkdir('deep'); os.chdir('deep')\nos.symlink('/', 'root'); os.symlink('.', 'loop')";
    let run = guest.run_looking(cell(Language::Python, many), 5);
    let changed = run.changed.as_ref().unwrap();
    assert_eq!(changed.entries.len(), 5);
    assert!(changed.more > 1000 && changed.more < 20_000, "{}", changed.more);
}
