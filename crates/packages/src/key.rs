//! Names that are made of all that they depend on.

use sha2::{Digest, Sha256};

/// A hash of texts in their order, each with its length, so that no two lists give the same.
#[derive(Debug)]
pub(crate) struct Key(Sha256);

impl Key {
    pub(crate) fn new(purpose: &str) -> Key {
        // The number changes with what is in a layer of the same name.
        Key(Sha256::new()).with("belljar layers 1").with(purpose)
    }

    pub(crate) fn with(mut self, text: &str) -> Key {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text.as_bytes());
        self
    }

    pub(crate) fn with_all<'a>(self, texts: impl ExactSizeIterator<Item = &'a str>) -> Key {
        let counted = self.with(&texts.len().to_string());
        texts.fold(counted, Key::with)
    }

    pub(crate) fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
