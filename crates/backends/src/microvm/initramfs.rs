//! The file system that a machine starts with: our keeper as /init, and the modules that it loads. Written as the kernel
//! reads it ("newc", Documentation/driver-api/early-userspace/buffer-format.rst), without the help of another program.

use super::modules::Module;

/// Where the keeper finds the modules; a file in it, [`ORDER`], has their names, one on a line.
const MODULES: &str = "modules";
const ORDER: &str = "modules/order";

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// Directories that the keeper mounts on.
const PLACES: [&str; 8] = ["dev", "proc", "sys", "root", "fittings", "place", "run", MODULES];

pub(super) fn build(keeper: &[u8], modules: &[Module]) -> Vec<u8> {
    let mut archive = Archive::default();
    for place in PLACES {
        archive.add(place, DIRECTORY, &[]);
    }
    archive.add("init", PROGRAM, keeper);
    let mut order = String::new();
    for (name, bytes) in modules {
        archive.add(&format!("{MODULES}/{name}"), FILE, bytes);
        order.push_str(name);
        order.push('\n');
    }
    archive.add(ORDER, FILE, order.as_bytes());
    archive.finish()
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (number, name_length) = (self.entries, name.len() as u32 + 1);
        // number, mode, uid, gid, links, mtime, size, the device's two numbers, two more, the name's length, no checksum.
        let fields = [number, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name_length, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel reads it: six digits, thirteen numbers, a name, and content, each from a multiple of four on.
    fn entries(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], b"070701");
            let field = |at: usize| {
                u32::from_str_radix(std::str::from_utf8(&bytes[6 + at * 8..14 + at * 8]).unwrap(), 16).unwrap() as usize
            };
            let (size, name_length) = (field(6), field(11));
            let name = String::from_utf8(bytes[110..110 + name_length - 1].to_vec()).unwrap();
            let start = (110 + name_length).next_multiple_of(4);
            if name == "TRAILER!!!" {
                assert_eq!(bytes.len(), start);
                return found;
            }
            found.push((name, field(1) as u32, bytes[start..start + size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn it_has_the_keeper_and_the_modules_in_order() {
        let archive = build(b"keeper", &[("virtio".to_owned(), vec![1, 2, 3]), ("overlay".to_owned(), vec![4])]);
        let entries = entries(&archive);
        assert!(entries.contains(&("init".to_owned(), PROGRAM, b"keeper".to_vec())));
        assert!(entries.contains(&("modules/virtio".to_owned(), FILE, vec![1, 2, 3])));
        assert!(entries.contains(&(ORDER.to_owned(), FILE, b"virtio\noverlay\n".to_vec())));
        assert!(entries.contains(&("place".to_owned(), DIRECTORY, Vec::new())));
    }
}
