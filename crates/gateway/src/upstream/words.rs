//! What a server wrote, made fit for a line of a log or an error: cleaned, bounded, and without our own secrets in it.

use std::sync::Mutex;

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde::de::DeserializeOwned;
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

    pub(super) fn redact_result(&self, result: CallToolResult) -> CallToolResult {
        self.redact_said(result).unwrap_or_else(|| CallToolResult::error(vec![ContentBlock::text("[hidden]")]))
    }

    /// The same of whatever else a server says. `None` for what is no such thing any more without its secrets.
    pub(super) fn redact_said<T: Serialize + DeserializeOwned>(&self, said: T) -> Option<T> {
        if self.secrets.is_empty() {
            return Some(said);
        }
        let mut value = serde_json::to_value(&said).ok()?;
        if !self.has_secret(&value) {
            return Some(said);
        }
        self.redact_value(&mut value);
        serde_json::from_value(value).ok()
    }

    fn has_secret(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.secrets.iter().any(|secret| text.contains(secret.reveal())),
            Value::Array(items) => items.iter().any(|item| self.has_secret(item)),
            Value::Object(fields) => fields.values().any(|field| self.has_secret(field)),
            _ => false,
        }
    }

    pub(super) fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact(text),
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
    use rmcp::model::ServerResult;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_seen_is_left_out() {
        assert_eq!(clean("\u{1b}[31mred\u{1b}[0m  a\tb\r\n\u{202e}c\u{200b}", 100), "red a b c");
        assert_eq!(clean("abcdef", 3), "abc…");
    }

    #[test]
    fn no_kind_of_answer_has_a_secret_in_it() {
        const SECRET: &str = "hunter2hunter2";
        let words = Words::new([Hidden::new(SECRET)]);
        let times =
            json!({"createdAt": "2026-07-28T00:00:00Z", "lastUpdatedAt": "2026-07-28T00:00:00Z", "ttlMs": null});
        let task = |more: Value| {
            let mut task = times.clone();
            task["taskId"] = "t".into();
            task.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            task
        };
        let said = format!("bad token {SECRET}");
        let text = json!({"type": "text", "text": said});
        let inner = json!({"uri": "x://y", "text": said});
        for answer in [
            task(json!({"resultType": "complete", "status": "completed", "result": {"content": [text]}})),
            task(json!({"resultType": "complete", "status": "failed", "error": {"code": 1, "message": said}})),
            task(json!({"resultType": "task", "status": "working", "statusMessage": said})),
            json!({"contents": [inner]}),
            json!({"messages": [{"role": "user", "content": text}]}),
            json!({"content": [{"type": "resource", "resource": inner}], "_meta": {"k": SECRET}}),
            json!({"resultType": "input_required", "requestState": SECRET}),
            json!({"completion": {"values": [said]}}),
            json!({"something": {"else": [said]}}),
        ] {
            let came: ServerResult = serde_json::from_value(answer.clone()).unwrap();
            let kind = std::mem::discriminant(&came);
            let shown = words.redact_said(came).unwrap_or_else(|| panic!("{answer}"));
            assert_eq!(std::mem::discriminant(&shown), kind, "{answer}");
            let shown = serde_json::to_string(&shown).unwrap();
            assert!(!shown.contains(SECRET) && shown.contains("[hidden]"), "{shown}");
        }
    }

    #[test]
    fn secrets_are_not_repeated() {
        let words = Words::new([Hidden::new("hunter2hunter2"), Hidden::new("a")]);
        assert_eq!(words.line(b"bad token hunter2hunter2, try again"), "bad token [hidden], try again");
        assert!(words.clause().contains("bad token [hidden], try again"));
    }
}
