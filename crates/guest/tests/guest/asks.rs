//! Whose a question is: of the program or cell that whoever asks was started by, however far down.

use belljar_core::wire::{Part, ToGuest};
use belljar_core::{Exit, Language, Source};

use crate::harness::{Guest, Told, cell, guest, python};

/// Asks from a process that is not the program's own child any more, in a session of its own.
const FAR: &str = "
import os, socket
def ask(line):
    s = socket.socket(socket.AF_UNIX)
    s.connect('/home/agent/.belljar')
    s.sendall(line)
    return s.recv(100)
def far(line):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(reading)
            os.write(writing, ask(line))
        os._exit(0)
    os.close(writing)
    os.wait()
    return os.read(reading, 100)
";

fn answer(guest: &mut Guest, id: u32, text: &str) {
    guest.send(&ToGuest::Answer { id, bytes: text.as_bytes().to_vec(), part: Part::Last });
}

/// Begins it, and answers so many questions, all of which must be its own.
fn own_questions(guest: &mut Guest, source: Source, count: usize) -> u32 {
    let id = guest.begin(source);
    guest.send(&ToGuest::InputEnd { id });
    for _ in 0..count {
        let (question, by, line) = guest.asked();
        assert_eq!(by, Some(id), "{}", String::from_utf8_lossy(&line));
        answer(guest, question, "so");
    }
    id
}

#[test]
fn a_question_is_of_whoever_asks_and_of_all_that_it_started() {
    let Some(mut guest) = guest() else { return };
    let code = format!("{FAR}print(ask(b'near\\n'), far(b'far\\n'))");
    for source in [python(&code), cell(Language::Python, &code)] {
        let id = own_questions(&mut guest, source, 2);
        let run = guest.finish(id, Told::default()).unwrap();
        assert_eq!((run.stdout.as_str(), run.exit), ("b'so' b'so'\n", Exit::Code(0)), "{}", run.stderr);
    }
    // Two at once are told apart.
    let one = guest.begin(python(&format!("{FAR}input()\nprint(far(b'one\\n'))")));
    let other = own_questions(&mut guest, python(&code), 2);
    guest.send(&ToGuest::InputEnd { id: other });
    guest.send(&ToGuest::Input { id: one, bytes: b"\n".to_vec() });
    guest.send(&ToGuest::InputEnd { id: one });
    let (question, by, _) = guest.asked();
    assert_eq!(by, Some(one));
    answer(&mut guest, question, "so");
    for id in [one, other] {
        assert_eq!(guest.finish(id, Told::default()).unwrap().exit, Exit::Code(0));
    }
}

#[test]
fn what_a_cell_left_behind_asks_for_nobody() {
    let Some(mut guest) = guest() else { return };
    let code = format!(
        "{FAR}os.mkfifo('go')\nif os.fork() == 0:\n    os.setsid()\n    open('go').read()\n    \
         ask(b'late\\n')\n    os._exit(0)"
    );
    assert_eq!(guest.cell(Language::Python, &code).exit, Exit::Code(0));
    assert_eq!(guest.shell("echo >go").exit, Exit::Code(0));
    let (_, by, line) = guest.asked();
    assert_eq!((by, line.as_slice()), (None, &b"late\n"[..]));
    // In the next cell it is that one's, as is all that the kernel has.
    let id = own_questions(&mut guest, cell(Language::Python, "print(ask(b'now\\n'))"), 1);
    assert_eq!(guest.finish(id, Told::default()).unwrap().stdout, "b'so'\n");
}
