//! Two MCP clients that do as little as they can, so that what is measured is the server.
//!
//! A request is put together before its clock starts and an answer taken apart after its clock has stopped; in between are
//! one write and the reads until the last byte. Nothing here is async: a thread that blocks is woken once.

mod http;
mod stdio;

use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};

pub(super) use http::Http;
pub(super) use stdio::Stdio;

/// How a tool call went: how long it took, or what was wrong with its answer.
pub(super) type Sample = Result<Duration, String>;

/// What came back, and when.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) took: Duration,
    /// The result of the request.
    pub(super) result: Value,
}

impl Answer {
    pub(super) fn field(&self, name: &str) -> &Value {
        &self.result["structuredContent"][name]
    }

    /// The time, if the program printed just this.
    pub(super) fn printed(&self, expected: &str) -> Sample {
        self.is(self.field("stdout") == expected)
    }

    /// The time, if the answer is the one that was wanted.
    pub(super) fn is(&self, wanted: bool) -> Sample {
        if wanted { Ok(self.took) } else { Err(self.shown()) }
    }

    fn shown(&self) -> String {
        let text = self.result["content"][0]["text"].as_str().unwrap_or_default();
        text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
    }
}

/// A tool call, whichever way it goes.
#[derive(Debug, Clone)]
pub(super) struct Call {
    tool: String,
    arguments: Value,
}

impl Call {
    pub(super) fn new(tool: &str, arguments: Value) -> Call {
        Call { tool: tool.to_owned(), arguments }
    }

    /// In a sandbox of its own, which is thrown away.
    pub(super) fn fresh(language: &str, code: &str) -> Call {
        Call::new("run_code", json!({ "language": language, "code": code }))
    }

    /// In a sandbox that stays.
    pub(super) fn within(sandbox: &str, language: &str, code: &str) -> Call {
        Call::new("run_code", json!({ "language": language, "code": code, "sandbox_id": sandbox }))
    }

    fn params(&self) -> Value {
        json!({ "name": self.tool, "arguments": self.arguments })
    }
}

/// What both can do: one request at a time.
pub(super) trait Client {
    fn call(&mut self, call: &Call) -> anyhow::Result<Answer>;

    /// A new sandbox, with room for much output.
    fn create(&mut self) -> anyhow::Result<String> {
        let answer = self.call(&Call::new("create_sandbox", json!({ "limits": { "output_kb": 16384 } })))?;
        match answer.field("sandbox_id").as_str() {
            Some(sandbox) => Ok(sandbox.to_owned()),
            None => bail!("{}", answer.shown()),
        }
    }

    /// What a program printed that is only asked for what it knows.
    fn ask(&mut self, language: &str, code: &str) -> anyhow::Result<String> {
        let answer = self.call(&Call::fresh(language, code))?;
        match answer.field("stdout").as_str() {
            Some(text) if answer.field("exit_code") == 0 => Ok(text.trim().to_owned()),
            _ => bail!("{}", answer.shown()),
        }
    }
}

/// The result in a message, if it is one.
fn result(mut message: Value) -> anyhow::Result<Value> {
    if !message["result"].is_object() {
        bail!("the server answered {}", message["error"]);
    }
    Ok(message["result"].take())
}
