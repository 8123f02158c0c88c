//! Other MCP servers, what a person is asked about them, and what the model is not to see.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use belljar_gateway::policy::Approve;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Value;
use crate::complaint::Complaint;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Upstreams {
    /// Files in the form that other clients read too.
    pub(crate) files: Value<Vec<PathBuf>>,
    /// Servers of this file's own: the same form, as JSON.
    pub(crate) own: Option<String>,
    pub(crate) approve: Value<Approve>,
    pub(crate) direct: Value<bool>,
    pub(crate) calls: Value<u64>,
    pub(crate) in_flight: Value<usize>,
    pub(crate) skills: Value<Option<PathBuf>>,
    /// Of `email`, `phone` and `card`.
    pub(crate) hide: Value<Vec<String>>,
    /// The operator's own patterns, by name.
    pub(crate) patterns: Vec<(String, String)>,
}

// The servers have tokens.
impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstreams").field("files", &self.files).finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUpstreams {
    /// Files of other MCP servers, in the form that other clients read too.
    files: Option<Vec<PathBuf>>,
    /// Servers written here, by their names, with the keys that those files have.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, serde_json::Map<String, serde_json::Value>>", extend("writeOnly" = true))]
    servers: BTreeMap<String, toml::Value>,
    /// What a person is asked about, of what no rule names.
    #[schemars(extend("enum" = APPROVE))]
    approve: Option<String>,
    /// The servers' tools as ordinary ones, too.
    direct: Option<bool>,
    /// Calls that one run may make.
    calls: Option<u64>,
    /// Calls of one run at once, 1 to 64.
    in_flight: Option<usize>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSkills {
    /// Where programs that were kept are.
    folder: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrivacy {
    /// What gets tokens in its place in what reaches the model.
    #[schemars(extend("items" = {"type": "string", "enum": ["email", "phone", "card"]}))]
    hide: Option<Vec<String>>,
    /// The same for patterns of your own: regular expressions by names of upper-case letters and `_`.
    #[serde(default)]
    patterns: BTreeMap<String, String>,
}

impl Upstreams {
    pub(super) fn resolve(raw: RawUpstreams, skills: RawSkills, privacy: RawPrivacy) -> Result<Upstreams, Complaint> {
        let budget = belljar_gateway::Budget::default();
        let own = match raw.servers.is_empty() {
            true => None,
            false => Some(serde_json::json!({"mcpServers": raw.servers}).to_string()),
        };
        Ok(Upstreams {
            files: Value::of(Vec::new(), raw.files),
            own,
            approve: Value::of(Approve::default(), raw.approve.as_deref().map(approve).transpose()?),
            direct: Value::of(false, raw.direct),
            calls: Value::of(budget.calls, raw.calls),
            in_flight: Value::of(budget.in_flight, raw.in_flight.map(|count| count.clamp(1, 64))),
            skills: Value::of(None, skills.folder.map(Some)),
            hide: Value::of(Vec::new(), privacy.hide),
            patterns: privacy.patterns.into_iter().collect(),
        })
    }

    /// Programs that are to be approved, and data that is to be hidden, are its concern too.
    pub(crate) fn need_a_gateway(&self) -> bool {
        let hides = !self.hide.value.is_empty() || !self.patterns.is_empty();
        self.are_configured() || self.approve.value == Approve::Ask || hides
    }

    pub(crate) fn are_configured(&self) -> bool {
        self.own.is_some() || !self.files.value.is_empty()
    }
}

/// What a person can be asked.
const APPROVE: [&str; 3] = ["never", "writes", "ask"];

/// One of the three words.
pub(crate) fn approve(word: &str) -> Result<Approve, Complaint> {
    match word {
        "never" => Ok(Approve::Never),
        "writes" => Ok(Approve::Writes),
        "ask" => Ok(Approve::Ask),
        other => {
            let what = format!("{other:?} is not what a person can be asked");
            Err(Complaint::new(what, "write never, writes or ask"))
        }
    }
}

pub(crate) fn approve_word(approve: Approve) -> &'static str {
    match approve {
        Approve::Never => "never",
        Approve::Writes => "writes",
        Approve::Ask => "ask",
    }
}
