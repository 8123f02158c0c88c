//! Files that are nobody else's: lists of tools from the last time, and tokens.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::Listed;

const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Writes a file that only its owner can read, in one step.
pub(super) fn write(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut nonce = [0; 8];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    let draft = directory.join(format!(".{name}.{}", super::hex(&nonce)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, directory.join(name))
    })();
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

pub(super) fn read(directory: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match fs::File::open(directory.join(name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > BYTES_MAX {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(Some(bytes)),
    }
}

/// Whether there was one.
pub(super) fn remove(directory: &Path, name: &str) -> io::Result<bool> {
    match fs::remove_file(directory.join(name)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The tools that a server had the last time. A file that cannot be read counts as none.
pub(super) fn listed(directory: &Path, fingerprint: &str) -> Option<Listed> {
    let bytes = read(directory, &format!("{fingerprint}.json")).ok()??;
    let mut file: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let tools = file.get_mut("tools")?.take();
    let serde_json::Value::Array(tools) = tools else { return None };
    Some(Listed { instructions: file.get("instructions").and_then(|text| text.as_str()).map(str::to_owned), tools })
}

pub(super) fn keep_listed(directory: &Path, fingerprint: &str, listed: &Listed) -> io::Result<()> {
    let file = serde_json::json!({ "instructions": listed.instructions, "tools": listed.tools });
    write(directory, &format!("{fingerprint}.json"), &serde_json::to_vec(&file)?)
}
