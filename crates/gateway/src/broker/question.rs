//! Questions as programs ask them. Each is one object of JSON with one key that says what it wants.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{CallError, ErrorKind};
use crate::search::Detail;
use crate::skills;
use crate::stubs::Dialect;

#[derive(Debug)]
pub(super) enum Question {
    Call(CallQuestion),
    Search(SearchQuestion),
    Describe(DescribeQuestion),
    List,
    Skills(SkillsQuestion),
}

#[derive(Debug, Default, Deserialize)]
struct Raw {
    call: Option<CallQuestion>,
    search: Option<SearchQuestion>,
    describe: Option<DescribeQuestion>,
    list: Option<Map<String, Value>>,
    skills: Option<SkillsQuestion>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallQuestion {
    pub(super) server: Option<String>,
    pub(super) tool: Option<String>,
    /// In place of both: `server.tool`, or a tool's name that only one server has.
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) arguments: Map<String, Value>,
    #[serde(default)]
    pub(super) raw: bool,
    pub(super) timeout: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SearchQuestion {
    #[serde(default)]
    pub(crate) query: String,
    #[serde(default)]
    pub(crate) detail: Detail,
    pub(crate) server: Option<String>,
    pub(crate) limit: Option<usize>,
    #[serde(default)]
    pub(crate) language: Tongue,
}

#[derive(Debug, Deserialize)]
pub(super) struct DescribeQuestion {
    pub(super) name: String,
    #[serde(default)]
    pub(super) language: Tongue,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SkillsQuestion {
    Save(skills::Wanted),
    Get { name: String },
    List {},
    Remove { name: String },
}

/// In whose words signatures are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tongue {
    #[default]
    Python,
    #[serde(alias = "javascript")]
    TypeScript,
    Shell,
}

impl Tongue {
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Tongue::Python | Tongue::Shell => Dialect::Python,
            Tongue::TypeScript => Dialect::TypeScript,
        }
    }
}

impl Question {
    pub(super) fn parse(text: &[u8]) -> Result<Question, CallError> {
        let raw: Raw = serde_json::from_slice(text).map_err(|error| no_question(&error.to_string()))?;
        match raw {
            Raw { call: Some(call), .. } => Ok(Question::Call(call)),
            Raw { search: Some(search), .. } => Ok(Question::Search(search)),
            Raw { describe: Some(describe), .. } => Ok(Question::Describe(describe)),
            Raw { list: Some(_), .. } => Ok(Question::List),
            Raw { skills: Some(skills), .. } => Ok(Question::Skills(skills)),
            Raw { .. } => Err(no_question("it has none of call, search, describe, list, skills")),
        }
    }
}

pub(super) fn no_question(why: &str) -> CallError {
    let why: String = why.chars().take(200).collect();
    CallError::new(ErrorKind::InvalidArguments, format!("this is no question that belljar knows: {why}"))
}
