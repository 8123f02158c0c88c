//! What a server wrote, made fit for a line of a log or an error: cleaned, bounded, and without our own secrets in it.

use std::sync::Mutex;

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::Value;

use super::hidden::Hidden;
use crate::error::CallError;

/// Shorter values are too likely to be ordinary words.
const SECRET_BYTES_MIN: usize = 6;

/// One line without terminal sequences, control and invisible characters, of at most so many characters.
pub(super) fn clean(text: &str, characters_max: usize) -> String {
    let mut out = String::new();
    let mut count = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            if letters.next_if_eq(&'[').is_some() {
                while letters.next_if(|next| !('@'..='~').contains(next)).is_some() {}
                letters.next();
            }
            continue;
        }
        let letter = if letter.is_whitespace() { ' ' } else { letter };
        if letter.is_control() || invisible(letter) || (letter == ' ' && (out.is_empty() || out.ends_with(' '))) {
            continue;
        }
        if count == characters_max {
            out.push('…');
            break;
        }
        out.push(letter);
        count += 1;
    }
    out.trim_end().to_owned()
}

/// Characters that hide or reorder what stands beside them.
fn invisible(letter: char) -> bool {
    matches!(letter,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The last words of a server's processes.
#[derive(Debug, Default)]
pub(super) struct Words {
    secrets: Vec<Hidden>,
    said: Mutex<Said>,
}

#[derive(Debug, Default)]
struct Said {
    line: String,
    exit: Option<String>,
}

impl Words {
    pub(super) fn new(secrets: impl IntoIterator<Item = Hidden>) -> Words {
        let secrets = secrets.into_iter().filter(|secret| secret.reveal().len() >= SECRET_BYTES_MIN).collect();
        Words { secrets, said: Mutex::default() }
    }

    /// The same of everything that an error says.
    pub(super) fn redact_error(&self, mut error: CallError) -> CallError {
        error.message = self.redact(&error.message);
        if let Some(data) = &mut error.data {
            self.redact_value(data);
        }
        error
    }

    pub(super) fn redact_result(&self, mut result: CallToolResult) -> CallToolResult {
        if self.secrets.is_empty() {
            return result;
        }
        for block in &mut result.content {
            if let ContentBlock::Text(text) = block
                && self.secrets.iter().any(|secret| text.text.contains(secret.reveal()))
            {
                text.text = self.redact(&text.text);
            }
        }
        if let Some(structured) = &mut result.structured_content {
            self.redact_value(structured);
        }
        result
    }

    fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.secrets.iter().any(|secret| text.contains(secret.reveal())) => {
                *text = self.redact(text);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.redact_value(field)),
            _ => {}
        }
    }

    /// Text without the secrets that were configured.
    pub(super) fn redact(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| match text.contains(secret.reveal()) {
            true => text.replace(secret.reveal(), "[hidden]"),
            false => text,
        })
    }

    /// Keeps a line of its standard error, and gives it back as it may be shown.
    pub(super) fn line(&self, bytes: &[u8]) -> String {
        let line = clean(&self.redact(&String::from_utf8_lossy(bytes)), 300);
        if !line.is_empty() {
            self.lock().line.clone_from(&line);
        }
        line
    }

    pub(super) fn begin(&self) {
        *self.lock() = Said::default();
    }

    pub(super) fn exit(&self, how: String) {
        self.lock().exit = Some(how);
    }

    /// A clause for the end of a message, empty if it said nothing.
    pub(super) fn clause(&self) -> String {
        let said = self.lock();
        let exit = said.exit.as_ref().map(|exit| format!("; it ended with {exit}")).unwrap_or_default();
        match said.line.as_str() {
            "" => exit,
            line => format!("{exit}; its last line on stderr: {line}"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_left_out() {
        assert_eq!(clean("\u{1b}[31mred\u{1b}[0m  a\tb\r\n\u{202e}c\u{200b}", 100), "red a b c");
        assert_eq!(clean("abcdef", 3), "abc…");
    }

    #[test]
    fn secrets_are_not_repeated() {
        let words = Words::new([Hidden::new("hunter2hunter2"), Hidden::new("a")]);
        assert_eq!(words.line(b"bad token hunter2hunter2, try again"), "bad token [hidden], try again");
        assert!(words.clause().contains("bad token [hidden], try again"));
    }
}
