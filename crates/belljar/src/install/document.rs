//! How a text has to change so that an entry is in it, or no longer is, and nothing else is different.

use serde_json::Value;

use super::{json, toml, yaml};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// With the comments and trailing commas that some clients allow.
    Json,
    Toml,
    Yaml,
}

/// The place of an entry: a name below the key that holds all servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot<'a> {
    pub(crate) servers: &'a str,
    pub(crate) name: &'a str,
}

/// Why a text is left as it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    NotParsed {
        line: usize,
        column: usize,
        why: String,
    },
    /// It means something else than the client would make of it.
    Unexpected {
        what: String,
    },
    /// Right, but written in a way that is not edited here.
    Unsupported {
        what: String,
    },
}

/// What becomes of the key that holds all servers when its last entry goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emptied {
    Kept,
    Dropped,
}

#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    /// This entry. Keys that it does not have are left as they are.
    Present(Value),
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    Added,
    Updated,
    Unchanged,
    Removed,
    /// There was nothing to remove.
    Missing,
}

/// What has to be done to a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) did: Did,
    /// What the file shall hold; none if it shall not be.
    pub(crate) after: Option<String>,
    /// The entry as it was.
    pub(crate) before: Option<Value>,
    /// The entry as it will be.
    pub(crate) entry: Option<Value>,
}

/// The entry that a text has.
pub(crate) fn find(format: Format, slot: Slot<'_>, text: &str) -> Result<Option<Value>, Trouble> {
    format.read(text.strip_prefix(BOM).unwrap_or(text), slot)
}

const BOM: char = '\u{feff}';

/// `now` is the file's text, if there is a file; `backup` the text before our first change, if one was kept.
pub(crate) fn change(
    format: Format,
    slot: Slot<'_>,
    wanted: &Wanted,
    command_key: &str,
    now: Option<&str>,
    backup: Option<&str>,
) -> Result<Change, Trouble> {
    let (bom, text) = match now.and_then(|text| text.strip_prefix(BOM)) {
        Some(rest) => (BOM.to_string(), rest),
        None => (String::new(), now.unwrap_or_default()),
    };
    let found = format.read(text, slot)?;
    let same = |did| Change { did, after: now.map(str::to_owned), before: found.clone(), entry: found.clone() };
    match wanted {
        Wanted::Present(entry) => {
            let (did, after) = match &found {
                None => (Did::Added, format.put(text, slot, entry)?),
                Some(old) if covers(old, entry) => return Ok(same(Did::Unchanged)),
                // Something else than a command: its keys would contradict ours.
                Some(old) if !old.get(command_key).is_some_and(Value::is_string) => {
                    (Did::Updated, format.put(&format.take(text, slot, Emptied::Kept)?, slot, entry)?)
                }
                Some(_) => (Did::Updated, format.update(text, slot, entry)?),
            };
            let entry = format.check(text, &after, slot, Some(entry))?;
            Ok(Change { did, after: Some(bom + &after), before: found, entry })
        }
        Wanted::Absent => {
            let Some(entry) = &found else { return Ok(same(Did::Missing)) };
            let after = before_us(format, slot, entry, now, backup);
            let after = match after {
                Some(after) => after,
                None => {
                    let had_servers = backup.is_none_or(|text| format.has_servers(text, slot));
                    let emptied = if had_servers { Emptied::Kept } else { Emptied::Dropped };
                    let after = format.take(text, slot, emptied)?;
                    format.check(text, &after, slot, None)?;
                    Some(bom + &after)
                }
            };
            Ok(Change { did: Did::Removed, after, before: found.clone(), entry: None })
        }
    }
}

/// The text as it was before this entry came, if that can be known for certain: what we would make of it is what is
/// there now. The inner none is a file that was not there.
fn before_us(
    format: Format,
    slot: Slot<'_>,
    entry: &Value,
    now: Option<&str>,
    backup: Option<&str>,
) -> Option<Option<String>> {
    let Some(backup) = backup else {
        return (format.put("", slot, entry).ok().as_deref() == now).then_some(None);
    };
    let (bom, text) = match backup.strip_prefix(BOM) {
        Some(rest) => (BOM.to_string(), rest),
        None => (String::new(), backup),
    };
    // An entry of that name that was there before us goes too: removed is removed.
    let absent = format.read(text, slot).is_ok_and(|found| found.is_none());
    let again = format.put(text, slot, entry).ok().map(|text| bom + &text);
    (absent && again.as_deref() == now).then(|| Some(backup.to_owned()))
}

/// Whether an entry already says all that is wanted of it.
fn covers(found: &Value, wanted: &Value) -> bool {
    let Some(wanted) = wanted.as_object() else { return found == wanted };
    wanted.iter().all(|(key, value)| found.get(key) == Some(value))
}

impl Format {
    pub(super) fn read(self, text: &str, slot: Slot<'_>) -> Result<Option<Value>, Trouble> {
        match self {
            Format::Json => json::read(text, slot),
            Format::Toml => toml::read(text, slot),
            Format::Yaml => yaml::read(text, slot),
        }
    }

    /// Puts an entry into a text that has none of that name.
    pub(super) fn put(self, text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
        match self {
            Format::Json => json::put(text, slot, entry),
            Format::Toml => toml::put(text, slot, entry),
            Format::Yaml => yaml::put(text, slot, entry),
        }
    }

    /// Makes an entry that is there say what this one says, and leaves its other keys.
    fn update(self, text: &str, slot: Slot<'_>, entry: &Value) -> Result<String, Trouble> {
        match self {
            Format::Json => json::update(text, slot, entry),
            Format::Toml => toml::update(text, slot, entry),
            Format::Yaml => yaml::update(text, slot, entry),
        }
    }

    pub(super) fn take(self, text: &str, slot: Slot<'_>, emptied: Emptied) -> Result<String, Trouble> {
        match self {
            Format::Json => json::take(text, slot, emptied),
            Format::Toml => toml::take(text, slot),
            Format::Yaml => yaml::take(text, slot, emptied),
        }
    }

    fn has_servers(self, text: &str, slot: Slot<'_>) -> bool {
        let text = text.strip_prefix(BOM).unwrap_or(text);
        match self {
            Format::Json => json::has_servers(text, slot),
            Format::Toml => true,
            Format::Yaml => yaml::has_servers(text, slot),
        }
    }

    /// Whether both texts say the same about everything but this entry.
    fn same_rest(self, before: &str, after: &str, slot: Slot<'_>) -> Result<bool, Trouble> {
        match self {
            Format::Json => Ok(json::rest(before, slot)? == json::rest(after, slot)?),
            Format::Toml => Ok(toml::rest(before, slot)? == toml::rest(after, slot)?),
            Format::Yaml => Ok(yaml::rest(before, slot)? == yaml::rest(after, slot)?),
        }
    }

    /// Reads what was made, as the client will: the entry is as wanted, and nothing else has changed. The way a file is
    /// written can be odder than any editor foresees, and then the file is left alone.
    fn check(
        self,
        before: &str,
        after: &str,
        slot: Slot<'_>,
        wanted: Option<&Value>,
    ) -> Result<Option<Value>, Trouble> {
        let found = self.read(after, slot);
        let as_wanted = match (&found, wanted) {
            (Ok(Some(found)), Some(wanted)) => covers(found, wanted),
            (Ok(None), None) => true,
            _ => false,
        };
        if as_wanted && self.same_rest(before, after, slot).unwrap_or(false) {
            return found;
        }
        Err(Trouble::Unsupported {
            what: format!("is written in a way in which {:?} cannot be changed safely", slot.name),
        })
    }
}

#[cfg(test)]
mod tests;
