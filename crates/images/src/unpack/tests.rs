use std::ffi::OsStr;
use std::fs;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tar::{Builder, Header};

use super::*;
use crate::tree::open_root;

/// A tar with headers as whoever means harm writes them: the crate's own builder would refuse some.
#[derive(Default)]
struct Hostile(Vec<u8>);

impl Hostile {
    fn raw(mut self, name: &[u8], kind: u8, link: &[u8], mode: u32, size: u64, data: &[u8]) -> Hostile {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
        header.set_entry_type(EntryType::new(kind));
        header.set_mode(mode);
        header.set_mtime(1_000_000);
        header.set_size(size);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &[u8], text: &str) -> Hostile {
        self.raw(name, b'0', b"", 0o644, text.len() as u64, text.as_bytes())
    }

    fn directory(self, name: &[u8]) -> Hostile {
        self.raw(name, b'5', b"", 0o700, 0, b"")
    }

    fn symlink(self, name: &[u8], target: &[u8]) -> Hostile {
        self.raw(name, b'2', target, 0o777, 0, b"")
    }

    fn hard_link(self, name: &[u8], target: &[u8]) -> Hostile {
        self.raw(name, b'1', target, 0o644, 0, b"")
    }

    fn pax(self, records: &[(&str, &str)]) -> Hostile {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n");
            let length = (1..).find(|length: &usize| length.to_string().len() + rest.len() == *length).unwrap();
            data.extend(format!("{length}{rest}").into_bytes());
        }
        let size = data.len() as u64;
        self.raw(b"pax", b'x', b"", 0o644, size, &data)
    }

    fn unpack(mut self) -> Result<Tried, ImageError> {
        self.0.resize(self.0.len() + 1024, 0);
        tried(&self.0, &Bounds::default())
    }

    fn refused(self) -> ImageErrorKind {
        self.unpack().unwrap_err().kind
    }
}

/// A small file can name a hundred of them.
#[test]
fn directories_that_nobody_wrote_down_are_bounded() {
    let bounds = Bounds { implied_max: 100, ..Bounds::default() };
    let unpacked = |count: usize, below: &str| {
        let files = (0..count).fold(Hostile::default(), |tar, number| {
            tar.pax(&[("path", &format!("{number}/{below}file"))]).file(b"file", "")
        });
        tried(&[files.0, vec![0; 1024]].concat(), &bounds).map_err(|error| error.kind).map(drop)
    };
    assert_eq!(unpacked(100, ""), Ok(()));
    assert_eq!(unpacked(101, ""), Err(ImageErrorKind::TooLarge));
    // Few, and long.
    let long = "twenty letters and a/".repeat(20);
    assert_eq!(unpacked(3, &long), Ok(()));
    assert_eq!(unpacked(4, &long), Err(ImageErrorKind::TooLarge));
}

#[derive(Debug)]
struct Tried {
    around: tempfile::TempDir,
    skipped: u64,
}

impl Tried {
    fn root(&self) -> std::path::PathBuf {
        self.around.path().join("root")
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }
}

/// Unpacks beside a directory that nothing may touch.
fn tried(tar: &[u8], bounds: &Bounds) -> Result<Tried, ImageError> {
    let around = tempfile::tempdir().unwrap();
    fs::create_dir(around.path().join("root")).unwrap();
    fs::create_dir(around.path().join("beside")).unwrap();
    fs::write(around.path().join("beside/file"), "untouched").unwrap();
    let stop = AtomicBool::new(false);
    let mut budget = Budget::new(bounds, &stop);
    let into = open_root(&around.path().join("root")).unwrap();
    let unpacked = unpack(Cursor::new(tar), into, &mut budget);
    assert_eq!(fs::read_to_string(around.path().join("beside/file")).unwrap(), "untouched");
    assert_eq!(fs::read_dir(around.path().join("beside")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(around.path()).unwrap().count(), 2);
    let skipped = budget.skipped;
    unpacked.map(|unpacked| {
        assert_eq!(unpacked.diff_id, crate::decode::sha256(tar));
        Tried { around, skipped }
    })
}

#[test]
fn names_that_lead_up_are_refused_and_absolute_ones_are_below_the_root() {
    for name in ["../beside/file", "a/../../beside/file", "..", "./..", "/../beside/file"] {
        assert_eq!(Hostile::default().file(name.as_bytes(), "x").refused(), ImageErrorKind::Hostile, "{name}");
    }
    let tried = Hostile::default().file(b"/etc/passwd", "ours").directory(b"./").unpack().unwrap();
    assert_eq!(tried.text("etc/passwd"), "ours");
    for kind in [b'0', b'2', b'1'] {
        let root = Hostile::default().raw(b"./", kind, b"x", 0o644, 0, b"");
        // The reader takes a plain file whose name ends with a slash for a directory, as old tars have it.
        if kind != b'0' {
            assert_eq!(root.refused(), ImageErrorKind::Hostile);
        }
    }
}

#[test]
fn nothing_is_written_through_a_link() {
    for target in [b"../beside".as_slice(), b"/", b"."] {
        let through = || Hostile::default().symlink(b"link", target);
        assert_eq!(through().file(b"link/file", "x").refused(), ImageErrorKind::Hostile);
        assert_eq!(through().directory(b"link/new/").file(b"link/new/x", "x").refused(), ImageErrorKind::Hostile);
        assert_eq!(through().symlink(b"link/x", b"y").refused(), ImageErrorKind::Hostile);
        assert_eq!(through().hard_link(b"stolen", b"link/file").refused(), ImageErrorKind::Hostile);
    }
    // One that is in the way of a file, or of a directory, goes itself.
    let tried = Hostile::default()
        .symlink(b"a", b"../beside/file")
        .file(b"a", "mine")
        .symlink(b"b", b"../beside")
        .directory(b"b/")
        .file(b"b/file", "mine")
        .unpack()
        .unwrap();
    assert_eq!((tried.text("a"), tried.text("b/file")), ("mine".to_owned(), "mine".to_owned()));
    // And it is kept as it is, wherever it leads.
    let tried = Hostile::default().symlink(b"out", b"../../../etc/shadow").unpack().unwrap();
    assert_eq!(fs::read_link(tried.root().join("out")).unwrap(), Path::new("../../../etc/shadow"));
}

#[test]
fn hard_links_are_to_what_is_there() {
    for target in ["../beside/file", "none", "/", "directory"] {
        let tar = Hostile::default().directory(b"directory").hard_link(b"stolen", target.as_bytes());
        assert_eq!(tar.refused(), ImageErrorKind::Hostile, "{target}");
    }
    let tried = Hostile::default()
        .file(b"one", "first")
        .hard_link(b"d/two", b"/one")
        .hard_link(b"one", b"one")
        .file(b"one", "second")
        .unpack()
        .unwrap();
    // What comes later under the same name is another file: the link's is as it was.
    assert_eq!((tried.text("one"), tried.text("d/two")), ("second".to_owned(), "first".to_owned()));
    // One to a link is to the link itself, not to where it leads.
    let tried = Hostile::default().symlink(b"l", b"../beside/file").hard_link(b"m", b"l").unpack().unwrap();
    assert!(tried.root().join("m").is_symlink());
    // What it is a link to goes to make room for it.
    assert_eq!(Hostile::default().file(b"a/b", "x").hard_link(b"a", b"a/b").refused(), ImageErrorKind::Hostile);
}

#[test]
fn kinds_take_each_others_place() {
    let tried = Hostile::default()
        .file(b"x/deep/er", "1")
        .file(b"x", "file")
        .file(b"y", "file")
        .directory(b"y")
        .file(b"y/z", "2")
        .unpack()
        .unwrap();
    assert_eq!((tried.text("x"), tried.text("y/z")), ("file".to_owned(), "2".to_owned()));
    assert_eq!(Hostile::default().file(b"x", "").file(b"x/y", "").refused(), ImageErrorKind::Hostile);
}

#[test]
fn devices_are_left_out_and_modes_are_ours() {
    let tried = Hostile::default()
        .raw(b"null", b'3', b"", 0o666, 0, b"")
        .raw(b"disk", b'4', b"", 0o666, 0, b"")
        .raw(b"pipe", b'6', b"", 0o666, 0, b"")
        .raw(b"sudo", b'0', b"", 0o6711, 1, b"x")
        .raw(b"secret", b'0', b"", 0o000, 1, b"x")
        .directory(b"closed")
        .unpack()
        .unwrap();
    assert_eq!(tried.skipped, 3);
    let mode = |name: &str| fs::symlink_metadata(tried.root().join(name)).unwrap().mode() & 0o7777;
    assert_eq!([mode("sudo"), mode("secret"), mode("closed")], [0o755, 0o644, 0o755]);
    assert!(!tried.root().join("null").exists());
    assert_eq!(fs::metadata(tried.root().join("sudo")).unwrap().mtime(), 1_000_000);
}

#[test]
fn names_may_be_any_bytes_but_not_any_length() {
    let name = b"caf\xe9/\xff\xfe";
    let tried = Hostile::default().file(name, "x").unpack().unwrap();
    assert!(tried.root().join(OsStr::from_bytes(name)).is_file());
    let long = "n".repeat(256);
    assert_eq!(Hostile::default().pax(&[("path", &long)]).file(b"x", "").refused(), ImageErrorKind::TooLarge);
    let deep = "d/".repeat(200) + "x";
    assert_eq!(Hostile::default().pax(&[("path", &deep)]).file(b"x", "").refused(), ImageErrorKind::TooLarge);
    let zero = Hostile::default().pax(&[("path", "a\0b")]).file(b"x", "");
    assert_eq!(zero.refused(), ImageErrorKind::Hostile);
    let up = Hostile::default().pax(&[("path", "../beside/file")]).file(b"x", "");
    assert_eq!(up.refused(), ImageErrorKind::Hostile);
    let link = Hostile::default().pax(&[("linkpath", "../beside/file")]).hard_link(b"x", b"y");
    assert_eq!(link.refused(), ImageErrorKind::Hostile);
}

#[test]
fn sizes_are_what_the_data_is() {
    // The extended header's size goes before the plain one's.
    let tried = Hostile::default().pax(&[("size", "5")]).raw(b"x", b'0', b"", 0o644, 5, b"hello").unpack().unwrap();
    assert_eq!(tried.text("x"), "hello");
    // More than there is.
    assert_eq!(Hostile::default().raw(b"x", b'0', b"", 0o644, 1 << 20, b"hello").refused(), ImageErrorKind::Corrupt);
    let huge = Hostile::default().pax(&[("size", "99999999999999")]).file(b"x", "hello");
    assert_eq!(huge.refused(), ImageErrorKind::TooLarge);
    let sparse = Hostile::default().pax(&[("GNU.sparse.major", "1")]).file(b"x", "hello");
    assert_eq!(sparse.refused(), ImageErrorKind::Unsupported);
}

#[test]
fn a_long_name_is_not_held_without_a_bound() {
    // As large as it says, so that a reader which takes all of it would have all of it in memory.
    let size = HEADERS_BYTES_MAX + 512;
    let name = vec![b'n'; size as usize];
    for kind in [b'L', b'K', b'x'] {
        let tar = Hostile::default().raw(b"long", kind, b"", 0o644, size, &name).file(b"x", "");
        assert_eq!(tar.refused(), ImageErrorKind::TooLarge, "{}", char::from(kind));
    }
}

#[test]
fn bombs_meet_their_bounds() {
    let bounds = Bounds { unpacked_bytes_max: 1 << 20, file_bytes_max: 1 << 19, entries_max: 100, ..Bounds::default() };
    let tar = |count: usize, size: usize| {
        let mut builder = Builder::new(Vec::new());
        for number in 0..count {
            let mut header = Header::new_gnu();
            header.set_size(size as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, format!("file{number}"), vec![0; size].as_slice()).unwrap();
        }
        builder.into_inner().unwrap()
    };
    let kind = |tar: &[u8]| tried(tar, &bounds).map(drop).unwrap_err().kind;
    assert_eq!(kind(&tar(101, 0)), ImageErrorKind::TooLarge);
    assert_eq!(kind(&tar(5, 1 << 18)), ImageErrorKind::TooLarge);
    assert_eq!(kind(&tar(1, (1 << 19) + 1)), ImageErrorKind::TooLarge);
    assert!(tried(&tar(4, 1 << 18), &bounds).is_ok());
    // Nothing but zeros after the end.
    let mut padded = tar(1, 0);
    padded.resize(4 << 20, 0);
    assert_eq!(kind(&padded), ImageErrorKind::TooLarge);
}

#[test]
fn files_with_holes_count_as_what_they_are() {
    // As `tar --sparse` writes them: 4 KiB at the end of `size` bytes.
    let sparse = |size: u64| {
        let mut header = Header::new_gnu();
        header.set_path("holes").unwrap();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_mode(0o644);
        header.set_size(4096);
        let gnu = header.as_gnu_mut().unwrap();
        let octal = |field: &mut [u8], value: u64| {
            field[..11].copy_from_slice(format!("{value:011o}").as_bytes());
        };
        octal(&mut gnu.sparse[0].offset, size - 4096);
        octal(&mut gnu.sparse[0].numbytes, 4096);
        octal(&mut gnu.realsize, size);
        header.set_cksum();
        let mut tar = header.as_bytes().to_vec();
        tar.extend(vec![b'x'; 4096]);
        tar.extend(vec![0; 1024]);
        tar
    };
    let tried_small = tried(&sparse(1 << 20), &Bounds::default()).unwrap();
    let content = fs::read(tried_small.root().join("holes")).unwrap();
    assert_eq!((content.len(), content[0], content[(1 << 20) - 1]), (1 << 20, 0, b'x'));
    let bounds = Bounds { unpacked_bytes_max: 1 << 19, ..Bounds::default() };
    assert_eq!(tried(&sparse(1 << 20), &bounds).map(drop).unwrap_err().kind, ImageErrorKind::TooLarge);
}

#[test]
fn garbage_is_no_tar_and_a_stop_is_heard() {
    assert_eq!(tried(&[b'g'; 4096], &Bounds::default()).map(drop).unwrap_err().kind, ImageErrorKind::Corrupt);
    let around = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(true);
    let bounds = Bounds::default();
    let mut budget = Budget::new(&bounds, &stop);
    let tar = Hostile::default().file(b"x", "").0;
    let stopped = unpack(Cursor::new(tar), open_root(around.path()).unwrap(), &mut budget);
    assert_eq!(stopped.unwrap_err().kind, ImageErrorKind::Cancelled);
}
