//! What a token is good for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The first three are steps of a ladder: each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// To look: at files, at what jobs printed, at resources, at what tools there are.
    Read,
    /// To make and remove sandboxes, and to write their files.
    Files,
    /// To run programs, and to talk to those that run.
    Run,
    /// To call other servers' tools, from programs or without one.
    Tools,
}

/// The word is none of the scopes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no such scope; use some of: read, files, run, tools")]
pub struct UnknownScope;

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Read, Scope::Files, Scope::Run, Scope::Tools];

    pub fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Files => "files",
            Scope::Run => "run",
            Scope::Tools => "tools",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(word: &str) -> Result<Scope, UnknownScope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == word).ok_or(UnknownScope)
    }
}

/// Some scopes, with all that they include.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scopes {
    /// The highest step of the ladder.
    step: Option<Scope>,
    tools: bool,
}

impl Scopes {
    pub const NONE: Scopes = Scopes { step: None, tools: false };
    pub const ALL: Scopes = Scopes { step: Some(Scope::Run), tools: true };

    pub fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Tools => self.tools,
            step => self.step.is_some_and(|has| has >= step),
        }
    }

    pub fn is_empty(self) -> bool {
        self == Scopes::NONE
    }

    /// The fewest words that say the same.
    pub fn words(self) -> Vec<Scope> {
        self.step.into_iter().chain(self.tools.then_some(Scope::Tools)).collect()
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Scopes {
        scopes.into_iter().fold(Scopes::NONE, |all, scope| match scope {
            Scope::Tools => Scopes { tools: true, ..all },
            step => Scopes { step: all.step.max(Some(step)), ..all },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_includes_those_before_it_and_tools_stand_apart() {
        let of = |words: &[Scope]| words.iter().copied().collect::<Scopes>();
        let has = |scopes: Scopes| Scope::ALL.map(|scope| scopes.has(scope));
        assert_eq!(has(Scopes::NONE), [false; 4]);
        assert_eq!(has(of(&[Scope::Read])), [true, false, false, false]);
        assert_eq!(has(of(&[Scope::Files])), [true, true, false, false]);
        assert_eq!(has(of(&[Scope::Run, Scope::Read])), [true, true, true, false]);
        assert_eq!(has(of(&[Scope::Tools])), [false, false, false, true]);
        assert_eq!(of(&[Scope::Tools, Scope::Read, Scope::Run]), Scopes::ALL);
        assert_eq!(Scopes::ALL.words(), [Scope::Run, Scope::Tools]);
    }

    #[test]
    fn scopes_are_exact_words() {
        assert_eq!("files".parse(), Ok(Scope::Files));
        for bad in ["", "Run", "run ", "*", "admin"] {
            assert_eq!(bad.parse::<Scope>(), Err(UnknownScope), "{bad:?}");
        }
    }
}
