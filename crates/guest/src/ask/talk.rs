//! The conversation with process 1: one line out, lines back until it is over.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use belljar_core::wire::ASK_SOCKET;

use super::json::{self, Value};
use super::others;
use super::wish::Wish;

const LINE_BYTES_MAX: u64 = 1 << 20;
/// Of what a quiet one holds back.
const KEPT_BYTES_MAX: usize = 1 << 16;

/// Asks for it, passes on what comes, and is the exit code.
pub(super) fn ask(wish: &Wish, cwd: &str) -> Result<i32, String> {
    let unreachable = |error: std::io::Error| {
        format!(
            "nobody here can install packages ({error}); name them where the sandbox is made, or the code is run: packages"
        )
    };
    let mut stream = UnixStream::connect(ASK_SOCKET).map_err(unreachable)?;
    stream.write_all(question(wish, cwd).as_bytes()).map_err(|error| format!("asking: {error}"))?;
    hear(BufReader::new(stream), wish.quiet)
}

fn question(wish: &Wish, cwd: &str) -> String {
    let mut text = format!("{{\"install\":{{\"kind\":\"python\",\"requirements\":{}", json::list(&wish.requirements));
    if !wish.constraints.is_empty() {
        text += &format!(",\"constraints\":{}", json::list(&wish.constraints));
    }
    if wish.upgrade {
        text += ",\"upgrade\":true";
    }
    if wish.pre {
        text += ",\"pre\":true";
    }
    // One that was made in the sandbox is known to nobody outside; the sandbox's own is meant then.
    if let Some(python) = wish.python.as_ref().filter(|path| path.starts_with('/') && !others::is_of_this_sandbox(path))
    {
        text += &format!(",\"python\":{}", json::quoted(python));
    }
    text + &format!(",\"cwd\":{}}}}}\n", json::quoted(cwd))
}

fn hear(mut stream: impl BufRead, quiet: bool) -> Result<i32, String> {
    let mut kept = String::new();
    let ended = || "the answer broke off; nothing says that it is installed, so try again".to_owned();
    loop {
        let mut line = Vec::new();
        let got = stream.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        got.map_err(|error| format!("waiting for the answer: {error}"))?;
        if line.last() != Some(&b'\n') {
            say(&kept);
            return Err(ended());
        }
        let Some(members) = std::str::from_utf8(&line).ok().and_then(json::members) else {
            say(&kept);
            return Err(ended());
        };
        for (name, value) in members {
            match (name.as_str(), value) {
                ("err" | "out", Value::Text(text)) if quiet => {
                    kept.push_str(&text);
                    let from = kept.len().saturating_sub(KEPT_BYTES_MAX);
                    kept.drain(..(from..kept.len()).find(|at| kept.is_char_boundary(*at)).unwrap_or(0));
                }
                ("err", Value::Text(text)) => say(&text),
                ("out", Value::Text(text)) => {
                    let mut out = std::io::stdout();
                    // Whoever does not read has heard enough.
                    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                }
                ("exit", Value::Number(code)) => {
                    if code != 0 {
                        say(&kept);
                    }
                    return Ok(i32::try_from(code.clamp(0, 255)).unwrap_or(1));
                }
                // Of a later version.
                _ => {}
            }
        }
    }
}

/// To stderr; nobody is left to tell if that fails.
pub(super) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_one_line() {
        let plain = Wish { requirements: vec!["x>=1".to_owned(), "y".to_owned()], ..Wish::default() };
        assert_eq!(
            question(&plain, "/workspace"),
            "{\"install\":{\"kind\":\"python\",\"requirements\":[\"x>=1\",\"y\"],\"cwd\":\"/workspace\"}}\n"
        );
        let full = Wish {
            constraints: vec!["z<2".to_owned()],
            upgrade: true,
            pre: true,
            python: Some("/usr/bin/python3".to_owned()),
            ..plain
        };
        let text = question(&full, "/a\nb");
        assert!(
            text.contains("\"constraints\":[\"z<2\"],\"upgrade\":true,\"pre\":true,\"python\":\"/usr/bin/python3\"")
        );
        assert_eq!(text.matches('\n').count(), 1);
    }

    #[test]
    fn an_answer_without_its_end_is_a_failure() {
        assert_eq!(hear(&b"{\"later\":1}\n{\"exit\":300}\n"[..], true), Ok(255));
        for broken in [&b""[..], b"{\"exit\":0}", b"{\"err\":\"\"}\n", b"nonsense\n{\"exit\":0}\n", b"\xff\n"] {
            assert!(hear(broken, true).unwrap_err().contains("broke off"));
        }
        let endless = std::io::repeat(b'x');
        assert!(hear(BufReader::new(endless), true).unwrap_err().contains("broke off"));
    }
}
