//! The modules of a kernel that a machine cannot do without, in the order in which they are to be loaded.
//!
//! Who needs whom is read from the modules themselves: `modules.dep` is made when a kernel is installed, and one that was
//! only unpacked has none.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::unpack::unpack;

/// What a machine of ours has. One that is neither there nor built in is an error.
const NEEDED: [&str; 4] = ["virtio_mmio", "virtio_blk", "virtio_console", "overlay"];

/// Loaded if it is there: file systems ask for it, and no module names it as needed.
const HELPFUL: &str = "crc32c_generic";

/// No kernel has as many files below its modules.
const FILES_MAX: usize = 20_000;

/// A module's name and its content, unpacked.
pub(super) type Module = (String, Vec<u8>);

/// All that is to be loaded, each after those that it needs: `more` are the images' file system and what the VMM's own
/// devices need.
pub(super) fn in_order(directory: &Path, more: &[&str]) -> Result<Vec<Module>, String> {
    let files = files_of(&directory.join("kernel"))?;
    let builtin = std::fs::read_to_string(directory.join("modules.builtin")).unwrap_or_default();
    let is_builtin = |name: &str| builtin.lines().any(|line| stem(Path::new(line)).as_deref() == Some(name));
    let mut order = Vec::new();
    add(HELPFUL, &files, &mut order, 0)?;
    for name in NEEDED.into_iter().chain(more.iter().copied()) {
        if files.contains_key(name) {
            add(name, &files, &mut order, 0)?;
        } else if !is_builtin(name) {
            return Err(format!("the kernel has no {name}, neither built in nor as a module"));
        }
    }
    Ok(order)
}

fn add(name: &str, files: &HashMap<String, PathBuf>, order: &mut Vec<Module>, depth: u32) -> Result<(), String> {
    if depth > 16 || order.iter().any(|(other, _)| other == name) {
        return Ok(());
    }
    // One that is needed and is no file is built in.
    let Some(path) = files.get(name) else { return Ok(()) };
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let bytes = unpack(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    for needed in needs(&bytes) {
        add(&needed, files, order, depth + 1)?;
    }
    order.push((name.to_owned(), bytes));
    Ok(())
}

/// The names after `depends=`, in the section that modinfo prints: strings with a NUL after each.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|bytes| bytes == KEY) else { return Vec::new() };
    let text = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text).into_owned();
    text.split(',').filter(|name| !name.is_empty()).map(plain).collect()
}

fn files_of(directory: &Path) -> Result<HashMap<String, PathBuf>, String> {
    let mut found = HashMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        let entries = std::fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        for entry in entries.filter_map(Result::ok) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            } else if let Some(name) = stem(&entry.path()) {
                found.insert(name, entry.path());
            }
            if found.len() + left.len() > FILES_MAX {
                return Err(format!("{}: too many files", directory.display()));
            }
        }
    }
    Ok(found)
}

/// A module's name: its file's, without `.ko` and what it was packed with, and with underscores.
fn stem(path: &Path) -> Option<String> {
    let (name, packed) = path.file_name()?.to_str()?.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"].contains(&packed).then(|| plain(name))
}

fn plain(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(directory: &Path, path: &str, needs: &str) {
        let path = directory.join("kernel").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("\x7fELF\0license=GPL\0depends={needs}\0name=x\0")).unwrap();
    }

    #[test]
    fn each_comes_after_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        module(directory.path(), "a/virtio_mmio.ko", "virtio,virtio_ring");
        module(directory.path(), "a/virtio_ring.ko", "virtio");
        module(directory.path(), "a/virtio.ko", "");
        module(directory.path(), "b/virtio_blk.ko", "virtio_ring,virtio");
        module(directory.path(), "b/virtio-console.ko", "virtio");
        module(directory.path(), "unwanted.ko", "");
        module(directory.path(), "crypto/crc32c_generic.ko", "");
        std::fs::write(directory.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\nkernel/fs/overlay.ko\n")
            .unwrap();
        let order = in_order(directory.path(), &["ext4"]).unwrap();
        let names: Vec<&str> = order.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["crc32c_generic", "virtio", "virtio_ring", "virtio_mmio", "virtio_blk", "virtio_console"]);
        assert!(in_order(directory.path(), &["erofs"]).unwrap_err().contains("erofs"));
    }
}
