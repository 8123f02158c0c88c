//! Archives of anybody's: none reaches out of the directory that it is unpacked into, and a caller's files are below where the
//! caller wants them.
#![no_main]

use std::fs;
use std::path::Path;

use belljar_images::fuzzing::unpack_into;
use belljar_server::fuzzing::unpacked;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let tar = with_sums(bytes);
    for (path, _) in unpacked(&tar, "in").unwrap_or_default() {
        let rest = path.strip_prefix("in/").expect("below the directory");
        assert!(!rest.starts_with('/') && !rest.split('/').any(|part| part == ".."), "{path:?}");
    }
    // Memory is quicker than a disk, where there is such a place.
    let around = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let (root, beside) = (around.path().join("root"), around.path().join("beside"));
    fs::create_dir(&root).expect("a directory");
    fs::create_dir(&beside).expect("a directory");
    fs::write(beside.join("file"), "untouched").expect("a file");
    let _ = unpack_into(&tar, &root);
    assert_eq!(fs::read_to_string(beside.join("file")).expect("the file"), "untouched");
    assert_eq!((entries(&beside), entries(around.path())), (1, 2), "something was put beside");
});

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("a directory").count()
}

/// With the check sums that its headers should have, or nearly nothing would be read of what was changed.
fn with_sums(bytes: &[u8]) -> Vec<u8> {
    const SUM: std::ops::Range<usize> = 148..156;
    let mut tar = bytes.to_vec();
    for block in tar.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[SUM].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    tar
}
