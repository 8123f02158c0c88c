//! A value of the configuration, and where it came from.

use std::collections::BTreeMap;

/// One value that the rest of the program uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value<T> {
    pub(crate) value: T,
    pub(crate) whence: Whence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whence {
    BuiltIn,
    /// In the file, or in a variable: [`Origins`] knows which.
    Written,
    Flag,
}

impl<T> Value<T> {
    pub(super) fn of(built_in: T, written: Option<T>) -> Value<T> {
        match written {
            Some(value) => Value { value, whence: Whence::Written },
            None => Value { value: built_in, whence: Whence::BuiltIn },
        }
    }

    /// The command line goes before all.
    pub(crate) fn or_flag(&mut self, flag: Option<T>) {
        if let Some(value) = flag {
            *self = Value { value, whence: Whence::Flag };
        }
    }
}

/// Where a key was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// The line of the file.
    Line(usize),
    /// The variable's name.
    Variable(String),
}

/// By the key's path, such as `pool.max`.
pub(super) type Origins = BTreeMap<String, Origin>;
