//! Files as a host reads, writes and lists them.

use belljar_core::wire::{CHUNK_MAX, FromGuest, ToGuest};
use belljar_core::{Entry, FileErrorKind, FileKind, Range};

use crate::harness::{Guest, Place, guest, id_of};

fn read(guest: &mut Guest, path: &str, offset: u64, length: u64) -> Result<(Vec<u8>, u64), FileErrorKind> {
    let id = guest.fresh_id();
    guest.send(&ToGuest::Read { id, path: path.to_owned(), range: Range { offset, length } });
    let mut content = Vec::new();
    loop {
        match guest.receive_of(id) {
            FromGuest::Content { bytes, .. } => {
                assert!(bytes.len() <= CHUNK_MAX);
                content.extend(bytes);
            }
            FromGuest::Read { size, .. } => return Ok((content, size)),
            FromGuest::Refused { error, .. } => {
                assert_eq!(error.path, path);
                return Err(error.kind);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn write(guest: &mut Guest, path: &str, content: &[u8]) -> Result<(), FileErrorKind> {
    let id = guest.fresh_id();
    guest.send(&ToGuest::Write { id, path: path.to_owned() });
    for chunk in content.chunks(CHUNK_MAX) {
        guest.send(&ToGuest::Input { id, bytes: chunk.to_vec() });
    }
    guest.send(&ToGuest::InputEnd { id });
    match guest.receive_of(id) {
        FromGuest::Done { .. } => Ok(()),
        FromGuest::Refused { error, .. } => Err(error.kind),
        other => panic!("{other:?}"),
    }
}

fn list(guest: &mut Guest, path: &str, depth: u32, entries_max: u32) -> Result<(Vec<Entry>, bool), FileErrorKind> {
    let id = guest.fresh_id();
    guest.send(&ToGuest::List { id, path: path.to_owned(), depth, entries_max });
    let mut all = Vec::new();
    loop {
        match guest.receive_of(id) {
            FromGuest::Entries { entries, .. } => all.extend(entries),
            FromGuest::Listed { truncated, .. } => return Ok((all, truncated)),
            FromGuest::Refused { error, .. } => return Err(error.kind),
            other => panic!("{other:?}"),
        }
    }
}

fn paths(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn a_large_file_comes_back_as_it_went() {
    let Some(mut guest) = guest() else { return };
    let content: Vec<u8> = (0..20_000_003_u32).map(|n| (n % 251) as u8).collect();
    write(&mut guest, "deep/er/big.bin", &content).unwrap();
    let (back, size) = read(&mut guest, "/workspace/deep/er/big.bin", 0, u64::MAX).unwrap();
    assert!(back == content && size == content.len() as u64);
    let (part, size) = read(&mut guest, "deep/er/big.bin", 1_000_000, 70_000).unwrap();
    assert!(part == content[1_000_000..1_070_000] && size == content.len() as u64);
    assert_eq!(read(&mut guest, "deep/er/big.bin", 1 << 40, 5).unwrap().0, b"");
    assert_eq!(read(&mut guest, "deep/er/big.bin", u64::MAX, 5).unwrap().0, b"");
    // No temporary file is left.
    assert_eq!(paths(&list(&mut guest, "deep/er", 1, 100).unwrap().0), ["big.bin"]);
    write(&mut guest, "empty", b"").unwrap();
    assert_eq!(read(&mut guest, "empty", 0, 10).unwrap(), (vec![], 0));
}

#[test]
fn what_is_no_regular_file_is_not_read() {
    let Some(mut guest) = guest() else { return };
    guest.shell("mkfifo fifo; mkdir dir; ln -s nowhere dangling; ln -s loop loop; ln -s fifo link");
    guest.python("import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock')");
    for (path, kind) in [
        ("fifo", FileErrorKind::NotRegular),
        ("link", FileErrorKind::NotRegular),
        ("sock", FileErrorKind::NotRegular),
        ("/dev/zero", FileErrorKind::NotRegular),
        ("dir", FileErrorKind::IsDirectory),
        (".", FileErrorKind::IsDirectory),
        ("/proc/self/status", FileErrorKind::NotRegular),
        ("/proc/1/environ", FileErrorKind::NotRegular),
        ("/proc/version", FileErrorKind::NotRegular),
        ("dangling", FileErrorKind::NotFound),
        ("missing", FileErrorKind::NotFound),
        ("loop", FileErrorKind::NotRegular),
        ("/etc/passwd/x", FileErrorKind::NotDirectory),
        ("", FileErrorKind::BadPath),
        ("a\0b", FileErrorKind::BadPath),
    ] {
        assert_eq!(read(&mut guest, path, 0, 10), Err(kind), "{path:?}");
    }
}

#[test]
fn a_part_of_a_tebibyte_is_read_and_other_things_go_on() {
    let Some(mut guest) = guest() else { return };
    guest.shell("truncate -s 1T sparse; printf end | dd of=sparse bs=1 seek=1099511627773 conv=notrunc 2>/dev/null");
    assert_eq!(read(&mut guest, "sparse", (1 << 40) - 3, 100).unwrap(), (b"end".to_vec(), 1 << 40));
    // The whole of it is asked for, and the answer not waited for: a program still runs beside it.
    let id = guest.fresh_id();
    let range = Range { offset: 0, length: u64::MAX };
    guest.send(&ToGuest::Read { id, path: "sparse".to_owned(), range });
    let other = guest.begin(crate::harness::shell("echo beside"));
    let mut seen = 0;
    loop {
        match guest.receive().unwrap() {
            FromGuest::Content { bytes, .. } => {
                seen += bytes.len();
                assert!(seen < 2 << 30, "the read starves the program");
            }
            FromGuest::Finished { id, .. } if id == other => break,
            _ => {}
        }
    }
}

#[test]
fn a_write_replaces_what_is_there_and_follows_nothing() {
    let Some(mut guest) = guest() else { return };
    guest.shell("echo old > target; ln -s target link; mkdir dir; ln -s dir dirlink; mkfifo fifo; printf x > script; chmod 4755 script");
    write(&mut guest, "link", b"new").unwrap();
    assert_eq!(read(&mut guest, "target", 0, 10).unwrap().0, b"old\n");
    assert_eq!(read(&mut guest, "link", 0, 10).unwrap().0, b"new");
    write(&mut guest, "script", b"y").unwrap();
    assert_eq!(guest.shell("stat -c %a script link; umask").stdout, "755\n644\n0022\n");
    write(&mut guest, "dirlink/inside", b"z").unwrap();
    assert_eq!(read(&mut guest, "dir/inside", 0, 10).unwrap().0, b"z");
    let long = format!("/{}", "a/".repeat(2047));
    for (path, kind) in [
        ("dir", FileErrorKind::IsDirectory),
        ("dir/", FileErrorKind::IsDirectory),
        ("dir/.", FileErrorKind::IsDirectory),
        ("..", FileErrorKind::IsDirectory),
        ("missing/", FileErrorKind::BadPath),
        ("", FileErrorKind::BadPath),
        ("nul\0", FileErrorKind::BadPath),
        (&"n".repeat(300), FileErrorKind::BadPath),
        (&long, FileErrorKind::BadPath),
        ("fifo", FileErrorKind::NotRegular),
        ("target/below", FileErrorKind::NotDirectory),
        ("/sealed/file", FileErrorKind::Denied),
        ("/sealed/dir/file", FileErrorKind::Denied),
    ] {
        assert_eq!(write(&mut guest, path, b"content"), Err(kind), "{path:?}");
    }
    assert_eq!(guest.shell("ls -A | grep belljar").stdout, "");
}

#[test]
fn an_operation_that_is_stopped_says_no_more_and_leaves_nothing() {
    let Some(mut guest) = guest() else { return };
    write(&mut guest, "kept", b"old").unwrap();
    guest.shell("truncate -s 1T sparse");
    let (reading, writing, listing) = (guest.fresh_id(), guest.fresh_id(), guest.fresh_id());
    let range = Range { offset: 0, length: u64::MAX };
    guest.send(&ToGuest::Read { id: reading, path: "sparse".to_owned(), range });
    guest.send(&ToGuest::Write { id: writing, path: "kept".to_owned() });
    guest.send(&ToGuest::Input { id: writing, bytes: b"new".to_vec() });
    guest.send(&ToGuest::List { id: listing, path: "/usr".to_owned(), depth: 9, entries_max: 10_000 });
    for id in [reading, writing, listing] {
        guest.send(&ToGuest::Stop { id });
    }
    guest.send(&ToGuest::InputEnd { id: writing });
    // Whatever of them was on its way comes before the answer to what was asked later.
    assert_eq!(read(&mut guest, "kept", 0, 10).unwrap().0, b"old");
    let (entries, _) = list(&mut guest, ".", 1, 10).unwrap();
    assert_eq!(paths(&entries), ["kept", "sparse"]);
    let after = guest.fresh_id();
    guest.send(&ToGuest::Read { id: after, path: "kept".to_owned(), range });
    loop {
        let frame = guest.receive().unwrap();
        assert_eq!(id_of(&frame), after, "{frame:?}");
        if matches!(frame, FromGuest::Read { .. }) {
            break;
        }
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing_behind() {
    let Some(mut guest) = Guest::start(Place { workspace: "1m", ..Place::default() }) else { return };
    write(&mut guest, "kept", b"kept").unwrap();
    assert_eq!(write(&mut guest, "kept", &vec![1; 5 << 20]), Err(FileErrorKind::NoSpace));
    assert_eq!(read(&mut guest, "kept", 0, 10).unwrap().0, b"kept");
    assert_eq!(paths(&list(&mut guest, ".", 1, 100).unwrap().0), ["kept"]);
    write(&mut guest, "fits", &vec![1; 500 << 10]).unwrap();
}

#[test]
fn a_listing_has_each_directory_in_order() {
    let Some(mut guest) = guest() else { return };
    guest.shell(
        "mkdir -p b/c/d; printf 12345 > a; ln -s /etc z; touch b/y b/x b/c/w; mkfifo f; printf '' > $'bad\\xff'",
    );
    guest.shell("touch -d @1000 a");
    let (entries, truncated) = list(&mut guest, ".", 1, 100).unwrap();
    assert_eq!((paths(&entries), truncated), (vec!["a", "b", "bad\u{fffd}", "f", "z"], false));
    let kinds: Vec<FileKind> = entries.iter().map(|entry| entry.metadata.kind).collect();
    assert_eq!(kinds, [FileKind::File, FileKind::Directory, FileKind::File, FileKind::Other, FileKind::Symlink]);
    assert_eq!((entries[0].metadata.size, entries[0].metadata.modified), (5, 1000));
    let (entries, _) = list(&mut guest, "/workspace", 3, 100).unwrap();
    let all = ["a", "b", "bad\u{fffd}", "f", "z", "b/c", "b/x", "b/y", "b/c/d", "b/c/w"];
    assert_eq!(paths(&entries), all);
    let (entries, truncated) = list(&mut guest, "b/", 9, 2).unwrap();
    assert_eq!((paths(&entries), truncated), (vec!["c", "x"], true));
    assert_eq!(list(&mut guest, "a", 1, 10), Err(FileErrorKind::NotDirectory));
    assert_eq!(list(&mut guest, "nowhere", 1, 10), Err(FileErrorKind::NotFound));
    assert_eq!(list(&mut guest, "f", 1, 10), Err(FileErrorKind::NotDirectory));
}

#[test]
fn large_directories_and_deep_trees_are_listed_in_bounds() {
    let Some(mut guest) = guest() else { return };
    guest.python("import os\nos.mkdir('wide')\nfor i in range(12000): os.close(os.open('wide/%05d' % i, os.O_CREAT))");
    let (entries, truncated) = list(&mut guest, "wide", 1, u32::MAX).unwrap();
    assert_eq!((entries.len(), truncated), (10_000, true));
    assert!(entries.iter().enumerate().all(|(n, entry)| entry.path == format!("{n:05}")));
    let run = guest.python("import os\nfor i in range(10000):\n    os.mkdir('d'); os.chdir('d')\nprint('made')");
    assert_eq!(run.stdout, "made\n", "{}", run.stderr);
    let begun = std::time::Instant::now();
    let (entries, truncated) = list(&mut guest, "d", u32::MAX, u32::MAX).unwrap();
    println!("listed {} entries in {:?}", entries.len(), begun.elapsed());
    // As deep as a path can reach, and not a level further.
    assert!(truncated && entries.len() > 2000, "{}", entries.len());
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
}
