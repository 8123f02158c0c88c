//! The kernel that machines boot: found among those of the distribution, or given; as the ELF file that a VMM can start
//! without a boot loader (PVH).

use std::path::{Path, PathBuf};

use belljar_core::BackendError;

use super::unpack::{UNPACKED_MAX, unpack};

/// A kernel and its modules, as files of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kernel {
    /// A bzImage or an ELF file.
    pub(super) image: PathBuf,
    /// The directory of its modules, such as `/lib/modules/6.1.0-50-cloud-amd64`; `None` for one that has all it needs
    /// built in.
    pub(super) modules: Option<PathBuf>,
}

impl Kernel {
    /// Its version, as far as its name has it.
    pub(super) fn release(&self) -> String {
        let name = self.image.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.strip_prefix("vmlinuz-").map(str::to_owned).unwrap_or(name)
    }
}

/// Which kernel the operator wants. Nothing given is the distribution's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) kernel: Option<PathBuf>,
    pub(super) modules: Option<PathBuf>,
}

const FIX: &str = "install a kernel for virtual machines (Debian: apt install linux-image-cloud-amd64; Ubuntu: \
                   linux-image-kvm), or name one in the configuration: [microvm] kernel = \"/path/to/vmlinux\"";

pub(super) fn find(wanted: &Wanted) -> Result<Kernel, BackendError> {
    find_below(Path::new("/"), wanted)
}

fn find_below(root: &Path, wanted: &Wanted) -> Result<Kernel, BackendError> {
    let missing = |why: String| BackendError::Unavailable { why, fix: FIX.to_owned() };
    if let Some(image) = &wanted.kernel {
        if !image.is_file() {
            return Err(missing(format!("there is no kernel at {}", image.display())));
        }
        let modules = wanted.modules.clone().or_else(|| modules_of(root, image));
        return Ok(Kernel { image: image.clone(), modules });
    }
    let boot = root.join("boot");
    let entries = std::fs::read_dir(&boot).map_err(|error| missing(format!("{}: {error}", boot.display())))?;
    let images = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = images
        .filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"vmlinuz-")))
        .filter(|path| modules_of(root, path).is_some())
        .collect();
    // One made for machines like these has less to start, and comes first; among equals the newest by its name.
    found.sort_by_key(|path| {
        let name = path.to_string_lossy().into_owned();
        (["cloud", "kvm", "virt"].iter().any(|kind| name.contains(kind)), numbers(&name))
    });
    let image = found.pop().ok_or_else(|| missing("there is no kernel below /boot with its modules".to_owned()))?;
    Ok(Kernel { modules: modules_of(root, &image), image })
}

fn modules_of(root: &Path, image: &Path) -> Option<PathBuf> {
    let release = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let modules = root.join("lib/modules").join(release);
    modules.is_dir().then_some(modules)
}

fn numbers(name: &str) -> Vec<u32> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The kernel as an ELF file. A bzImage has it as compressed content, and says in its header where.
pub(super) fn elf(image: &Path) -> Result<Vec<u8>, BackendError> {
    let failed = |why: String| BackendError::Unavailable {
        why: format!("the kernel {} cannot be used: {why}", image.display()),
        fix: "name another in the configuration: [microvm] kernel = \"/path/to/vmlinux\"".to_owned(),
    };
    let length = std::fs::metadata(image).map_err(|error| failed(error.to_string()))?.len();
    if length > UNPACKED_MAX as u64 {
        return Err(failed(format!("{length} bytes are too many")));
    }
    let bytes = std::fs::read(image).map_err(|error| failed(error.to_string()))?;
    let elf =
        if bytes.starts_with(b"\x7fELF") { bytes } else { unpack(payload(&bytes).map_err(failed)?).map_err(failed)? };
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return Err(failed("it is not a 64-bit ELF file, nor a bzImage of one".to_owned()));
    }
    Ok(elf)
}

/// Documentation/arch/x86/boot.rst: `setup_sects`, the magic, the version, then `payload_offset` and `payload_length` from
/// version 2.08 on.
fn payload(bytes: &[u8]) -> Result<&[u8], String> {
    let not_one = || "it is neither an ELF file nor a bzImage".to_owned();
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(not_one());
    }
    let version = word(0x206).ok_or_else(not_one)? & 0xffff;
    if version < 0x208 {
        return Err("it is too old".to_owned());
    }
    let sectors = match bytes.get(0x1f1) {
        Some(0) | None => 4,
        Some(&sectors) => usize::from(sectors),
    };
    let (offset, length) = (word(0x248).ok_or_else(not_one)? as usize, word(0x24c).ok_or_else(not_one)? as usize);
    let start = (sectors + 1) * 512 + offset;
    bytes.get(start..start.saturating_add(length)).ok_or_else(|| "it is cut off".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bzimage(content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 0x260];
        bytes[0x1f1] = 1;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x206..0x208].copy_from_slice(&0x20fu16.to_le_bytes());
        bytes[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        bytes[0x24c..0x250].copy_from_slice(&(content.len() as u32).to_le_bytes());
        bytes.resize(1024 + 16, 0);
        bytes.extend_from_slice(content);
        bytes
    }

    #[test]
    fn the_elf_file_of_a_bzimage_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("vmlinuz-1");
        std::fs::write(&image, bzimage(b"\x7fELF\x02\x01 a kernel")).unwrap();
        assert_eq!(elf(&image).unwrap(), b"\x7fELF\x02\x01 a kernel");
        for broken in [bzimage(b"something else"), bzimage(b"\x1f\x8bno"), bzimage(b"x")[..0x250].to_vec(), Vec::new()]
        {
            std::fs::write(&image, broken).unwrap();
            assert!(matches!(elf(&image), Err(BackendError::Unavailable { .. })));
        }
    }

    #[test]
    fn one_for_machines_comes_first_and_the_newest_of_them() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("boot")).unwrap();
        for release in ["6.1.0-9-cloud-amd64", "6.1.0-50-cloud-amd64", "6.12.1-amd64", "7.0-cloud-amd64-gone"] {
            std::fs::write(root.path().join("boot/vmlinuz-").with_file_name(format!("vmlinuz-{release}")), "").unwrap();
            if !release.ends_with("gone") {
                std::fs::create_dir_all(root.path().join("lib/modules").join(release)).unwrap();
            }
        }
        let found = find_below(root.path(), &Wanted::default()).unwrap();
        assert_eq!(found.image, root.path().join("boot/vmlinuz-6.1.0-50-cloud-amd64"));
        assert_eq!(found.modules, Some(root.path().join("lib/modules/6.1.0-50-cloud-amd64")));
    }

    #[test]
    fn no_kernel_is_told_with_how_to_get_one() {
        let root = tempfile::tempdir().unwrap();
        let Err(BackendError::Unavailable { fix, .. }) = find_below(root.path(), &Wanted::default()) else {
            panic!("there is none")
        };
        assert!(fix.contains("linux-image-cloud-amd64"));
        let given = Wanted { kernel: Some(root.path().join("none")), modules: None };
        assert!(matches!(find_below(root.path(), &given), Err(BackendError::Unavailable { .. })));
    }
}
