//! The languages that Belljar runs, and the names people call them by.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    Python,
    JavaScript,
    TypeScript,
    Shell,
    Go,
    Rust,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown language {0:?}; use one of: python, javascript, typescript, shell, go, rust")]
pub struct UnknownLanguage(pub String);

impl Language {
    pub const ALL: [Language; 6] =
        [Language::Python, Language::JavaScript, Language::TypeScript, Language::Shell, Language::Go, Language::Rust];

    pub fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::TypeScript => "typescript",
            Language::Shell => "shell",
            Language::Go => "go",
            Language::Rust => "rust",
        }
    }

    /// Programs that can run it, best first, as they are looked up in `PATH`.
    pub fn interpreters(self) -> &'static [&'static str] {
        match self {
            Language::Python => &["python3", "python"],
            Language::JavaScript | Language::TypeScript => &["node", "nodejs"],
            Language::Shell => &["bash", "sh"],
            Language::Go => &["go"],
            Language::Rust => &["rustc"],
        }
    }

    /// The language whose kernel runs its cells, so that two may share one; `None` where every cell is compiled and run
    /// as a program of its own, and nothing but files is remembered.
    pub fn kernel(self) -> Option<Language> {
        match self {
            Language::Python => Some(Language::Python),
            Language::JavaScript | Language::TypeScript => Some(Language::JavaScript),
            Language::Shell => Some(Language::Shell),
            Language::Go | Language::Rust => None,
        }
    }

    /// The language of a file, by its ending.
    pub fn of_file(name: &str) -> Option<Language> {
        match name.rsplit_once('.')?.1 {
            "py" => Some(Language::Python),
            "js" | "mjs" | "cjs" => Some(Language::JavaScript),
            "ts" | "mts" | "cts" => Some(Language::TypeScript),
            "go" => Some(Language::Go),
            "rs" => Some(Language::Rust),
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
            "typescript" | "ts" => Ok(Language::TypeScript),
            "shell" | "sh" | "bash" => Ok(Language::Shell),
            "go" | "golang" => Ok(Language::Go),
            "rust" | "rs" => Ok(Language::Rust),
            _ => Err(UnknownLanguage(name.chars().take(40).collect())),
        }
    }
}
