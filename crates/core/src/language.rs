//! The languages that Belljar runs, and the names people call them by.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    JavaScript,
    Shell,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown language {0:?}; use one of: python, javascript, shell")]
pub struct UnknownLanguage(pub String);

impl Language {
    pub const ALL: [Language; 3] = [Language::Python, Language::JavaScript, Language::Shell];

    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::Shell => "shell",
        }
    }

    /// Programs that can run it, best first, as they are looked up in `PATH`.
    pub fn interpreters(self) -> &'static [&'static str] {
        match self {
            Language::Python => &["python3", "python"],
            Language::JavaScript => &["node", "nodejs"],
            Language::Shell => &["bash", "sh"],
        }
    }

    /// The language of a file, by its ending.
    pub fn of_file(name: &str) -> Option<Language> {
        match name.rsplit_once('.')?.1 {
            "py" => Some(Language::Python),
            "js" | "mjs" | "cjs" => Some(Language::JavaScript),
            "sh" | "bash" => Some(Language::Shell),
            _ => None,
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Language {
    type Err = UnknownLanguage;

    /// Accepts the short names that agents and people type; the canonical one is what every answer uses.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name.to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" => Ok(Language::Python),
            "javascript" | "js" | "node" | "nodejs" => Ok(Language::JavaScript),
            "shell" | "sh" | "bash" => Ok(Language::Shell),
            _ => Err(UnknownLanguage(name.chars().take(40).collect())),
        }
    }
}
