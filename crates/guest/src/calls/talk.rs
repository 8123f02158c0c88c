//! One question of this command's to process 1, and how its answer is told.

use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;

use belljar_core::wire::{ASK_SOCKET, QUESTION_MAX};

use super::json::Json;

/// No answer is longer: what is, is in a file.
const ANSWER_MAX: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// As the class of the same error is named elsewhere.
    pub(super) kind: String,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(kind: &str, message: impl Into<String>) -> Failure {
        Failure { kind: kind.to_owned(), message: message.into() }
    }

    /// The words were not understood.
    pub(super) fn usage(message: impl Into<String>) -> Failure {
        Failure::new("InvalidArguments", message)
    }

    /// What scripts tell failures apart by.
    pub(super) fn code(&self) -> i32 {
        match self.kind.as_str() {
            "InvalidArguments" => 2,
            "PolicyDenied" | "ApprovalDenied" => 3,
            "UnknownTool" => 4,
            "ToolTimeout" => 5,
            _ => 1,
        }
    }

    fn told(error: &Json) -> Failure {
        let mut message = error.get_text("message").unwrap_or("the call failed").to_owned();
        let texts = |name: &str| error.get(name).map_or(&[][..], Json::items).iter().filter_map(Json::as_text);
        for problem in texts("problems").filter(|problem| !message.contains(*problem)).collect::<Vec<_>>() {
            message += &format!("\n- {problem}");
        }
        if let Some(signature) = error.get_text("signature").filter(|signature| !message.contains(*signature)) {
            message += &format!("\nSignature: {signature}");
        }
        let suggestions: Vec<_> = texts("suggestions").collect();
        if !suggestions.is_empty() && !suggestions.iter().any(|one| message.contains(one)) {
            message += &format!("\nDid you mean: {}", suggestions.join(", "));
        }
        if let Some(url) = error.get_text("url").filter(|url| !message.contains(*url)) {
            message += &format!("\n{url}");
        }
        Failure { kind: error.get_text("type").unwrap_or("ToolError").to_owned(), message }
    }
}

/// Asks, and is the answer, which is no error.
pub(super) fn ask(question: &Json) -> Result<Json, Failure> {
    let mut line = question.compact();
    line.push('\n');
    if line.len() > QUESTION_MAX {
        let why =
            format!("the arguments are {} bytes, and a call takes {QUESTION_MAX}: pass a path or a part", line.len());
        return Err(Failure::usage(why));
    }
    let unreachable =
        |error: std::io::Error| Failure::new("Upstream", format!("nobody answers calls in this sandbox ({error})"));
    let mut stream = UnixStream::connect(ASK_SOCKET).map_err(unreachable)?;
    stream.write_all(line.as_bytes()).map_err(unreachable)?;
    let mut answer = String::new();
    let broke_off = || {
        let why = "the answer broke off: whether the call was made is not known; look before it is made again";
        Failure::new("Cancelled", why)
    };
    stream.take(ANSWER_MAX).read_to_string(&mut answer).map_err(|_| broke_off())?;
    let answer = Json::parse(&answer).ok_or_else(broke_off)?;
    match answer.get("error") {
        Some(error) => Err(Failure::told(error)),
        None => Ok(answer),
    }
}

/// What a call came to, to stdout: a text as it is, else JSON, with lines for a person.
pub(super) fn print_value(value: &Json) {
    match value {
        Json::Text(text) => print(text),
        _ if std::io::stdout().is_terminal() => print(&value.indented()),
        _ => print(&value.compact()),
    }
}

/// The same of a value that is in a file, which is not held in memory unless it is one long text.
pub(super) fn print_file(path: &str) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::new("Upstream", format!("the result is in the file {path}, which cannot be read: {error}"))
    };
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let mut first = [0];
    let count = file.read(&mut first).map_err(|error| failed(&error))?;
    let mut whole = first[..count].chain(file);
    if first == *b"\"" {
        let mut text = String::new();
        whole.read_to_string(&mut text).map_err(|error| failed(&error))?;
        print_value(&Json::parse(&text).ok_or_else(|| failed(&"it is no JSON"))?);
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    // Whoever does not read has heard enough.
    let _ = std::io::copy(&mut whole, &mut out).and_then(|_| out.write_all(b"\n"));
    Ok(())
}

/// A text and the end of its last line.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(end.as_bytes())).and_then(|()| out.flush());
}

/// To stderr; nobody is left to tell if that fails.
pub(super) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
