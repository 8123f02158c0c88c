//! The steps of a case as data: what may be done, in the words of `cases.jsonl`. Doing it is in `steps.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::case::Limits;

/// One step: an action and what every action may carry.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(crate) struct Step {
    pub(crate) op: String,
    pub(crate) action: Action,
    pub(crate) save: Option<String>,
    pub(crate) allow_error: bool,
    pub(crate) within: Option<Duration>,
}

impl TryFrom<Map<String, Value>> for Step {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        let op = map.get("op").and_then(Value::as_str).ok_or("a step without op")?.to_owned();
        // Taken out by hand: serde cannot both flatten shared fields and refuse unknown ones.
        let save = match map.shift_remove("save") {
            None => None,
            Some(Value::String(name)) => Some(name),
            Some(other) => return Err(format!("{op}: save is {other}")),
        };
        let allow_error = map.shift_remove("allow_error").is_some_and(|value| value == Value::Bool(true));
        let within = match map.shift_remove("within_s") {
            None => None,
            Some(value) => Some(
                value
                    .as_f64()
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                    .ok_or_else(|| format!("{op}: within_s is {value}"))?,
            ),
        };
        let action = serde_json::from_value(Value::Object(map)).map_err(|error| format!("{op}: {error}"))?;
        Ok(Step { op, action, save, allow_error, within })
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Action {
    Exec {
        session: Option<String>,
        language: String,
        code: String,
        #[serde(default)]
        limits: Limits,
        /// `code` means that the program calls tools of the upstream, which every program can.
        mode: Option<String>,
    },
    StartExec {
        session: Option<String>,
        language: String,
        code: String,
        #[serde(default)]
        limits: Limits,
        #[serde(rename = "as")]
        name: Option<String>,
    },
    ReadFile {
        session: Option<String>,
        path: String,
        offset: Option<u64>,
        length: Option<u64>,
    },
    ListFiles {
        session: Option<String>,
        path: String,
    },
    WriteFile {
        session: Option<String>,
        path: String,
        content: Option<String>,
        content_repeat: Option<(String, usize)>,
        encoding: Option<String>,
        mode: Option<String>,
    },
    Destroy {
        session: Option<String>,
    },
    ListSessions {},
    ResourceRead {
        uri: String,
    },
    Call {
        tool: String,
        args: Map<String, Value>,
    },
    SearchTools {
        query: String,
    },
    /// Further tools of the upstream, by name.
    UpstreamTools {
        names: Vec<String>,
    },
    /// Further tools of the upstream, by description.
    UpstreamToolsDesc {
        descriptions: Vec<String>,
    },
    /// Something about the upstream's list that is a trap.
    UpstreamMode {
        mode: String,
    },
    Http(HttpStep),
    HttpSlowloris {
        conns: usize,
        s: f64,
        #[serde(rename = "as")]
        _name: Option<String>,
    },
    As {
        token: String,
        #[serde(rename = "do")]
        step: Box<Step>,
    },
    Repeat {
        n: usize,
        #[serde(rename = "do")]
        step: Box<Step>,
        #[serde(default)]
        must_not_contain: Vec<String>,
    },
    Parallel {
        n: usize,
        #[serde(rename = "do")]
        step: Box<Step>,
    },
    ParallelStart {
        n: usize,
        #[serde(rename = "do")]
        step: Box<Step>,
    },
    Await {
        of: String,
    },
    Cancel {
        of: String,
    },
    Sleep {
        s: f64,
    },
    SleepUntilIdleTtl {},
    /// What the server has written down of the case so far.
    ReadAuditLog {},
    RawStdio {
        data: String,
    },
    RawStdioB64 {
        data: String,
    },
    RawStdioRepeat {
        pre: String,
        unit: String,
        n: usize,
        post: String,
        #[serde(default)]
        newline: bool,
        #[serde(default)]
        allow_close: bool,
    },
    StopReading {
        s: f64,
    },
    ResumeReading {},
    CloseStdin {},
    DropConnection {},
    KillServer {
        signal: i32,
    },
    WaitServerExit {},
    RestartServer {
        #[serde(default)]
        env: BTreeMap<String, String>,
        ulimit_nofile: Option<u64>,
        as_user: Option<String>,
        #[serde(default)]
        without: Vec<String>,
    },
    ReconnectIfClosed {},
    AssertHost {
        check: String,
    },
    AssertRpc {
        check: String,
    },
    CreateSessions {
        n: usize,
        parallel: Option<usize>,
    },
    SnapshotHost {
        #[serde(rename = "as")]
        name: String,
    },
    CompareHost {
        to: String,
        max: BTreeMap<String, f64>,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpStep {
    pub(crate) method: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) query: Option<String>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "credential")]
    pub(crate) token: Credential,
    /// A method to call without parameters.
    pub(crate) body: Option<String>,
    /// A tool to call.
    pub(crate) body_call: Option<String>,
    pub(crate) protocol_in_meta: Option<String>,
}

/// Which bearer token a request carries; in the data an absent `token` and a null one differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Credential {
    #[default]
    Good,
    Nothing,
    Literal(String),
}

fn credential<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Credential, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map_or(Credential::Nothing, Credential::Literal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_is_refused_and_an_unknown_op_is_kept() {
        let step = |text: &str| serde_json::from_str::<Step>(text);
        assert!(step(r#"{"op":"sleep","seconds":1}"#).is_err());
        assert!(step(r#"{"op":"exec","language":"sh","code":"x","limits":{"memory":1}}"#).is_err());
        let unknown = step(r#"{"op":"dance","tempo":120}"#).unwrap();
        assert!(matches!(unknown.action, Action::Unknown));
        assert_eq!(unknown.op, "dance");
    }

    #[test]
    fn an_absent_token_is_not_a_null_token() {
        let token = |text: &str| match serde_json::from_str::<Step>(text).unwrap().action {
            Action::Http(http) => http.token,
            other => panic!("{other:?}"),
        };
        assert_eq!(token(r#"{"op":"http"}"#), Credential::Good);
        assert_eq!(token(r#"{"op":"http","token":null}"#), Credential::Nothing);
        assert_eq!(token(r#"{"op":"http","token":"wrong"}"#), Credential::Literal("wrong".into()));
    }
}
