//! How many tokens a text is to a model, and what a conversation costs in them.
//!
//! ```text
//! workflows ─ arms::play, on a Stage ─▶ a transcript for each arm ─ transcript::bill ─▶ turns, tokens, peak
//! ```
//!
//! No model is asked anything here: what it would write is in the workflows, and all that it would read is what servers
//! really said. Deliberately not here: how a server is started, and how the table looks.

pub mod arms;
pub mod recorded;
pub mod transcript;
pub mod workflows;

/// A way of cutting text into tokens. Claude's own is not public; it differs from both by some percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    O200k,
    Cl100k,
}

impl Encoding {
    pub const ALL: [Encoding; 2] = [Encoding::O200k, Encoding::Cl100k];

    pub fn name(self) -> &'static str {
        match self {
            Encoding::O200k => "o200k",
            Encoding::Cl100k => "cl100k",
        }
    }

    /// Takes some memory from its first use on.
    pub fn count(self, text: &str) -> usize {
        match self {
            Encoding::O200k => bpe_openai::o200k_base().count(text),
            Encoding::Cl100k => bpe_openai::cl100k_base().count(text),
        }
    }
}

/// By o200k.
pub fn count(text: &str) -> usize {
    Encoding::O200k.count(text)
}
