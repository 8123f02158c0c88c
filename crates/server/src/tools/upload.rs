//! Many files at once: by name with a new sandbox, or as a tar archive.
//!
//! An archive is only read here. Each file is then written from inside the walls, so that a name in it can reach what the
//! code in the sandbox could reach, and nothing else.

use std::io::Read;

use flate2::read::GzDecoder;

use super::arguments::base64_decode;
use super::{BadArgument, Call, ToolError};

/// All files of one call together.
pub(super) const BYTES_MAX: usize = 8 * 1024 * 1024;
const FILES_MAX: usize = 1000;
/// What an archive may hold when it is unpacked; a sandbox's own limit is checked where it is written.
const UNPACKED_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    path: String,
    bytes: Vec<u8>,
}

impl File {
    pub(super) fn place(&self) -> (String, usize) {
        (self.path.clone(), self.bytes.len())
    }
}

/// Files as an argument has them: text, or a `data:` URL with base64 for what is no text.
pub(super) fn named(files: Vec<(String, String)>) -> Result<Vec<File>, BadArgument> {
    let mut left = BYTES_MAX;
    let count = files.len();
    let file = |(path, content): (String, String)| {
        let encoded = content.strip_prefix("data:").and_then(|url| url.split_once(";base64,"));
        let bytes = match encoded {
            Some((_, data)) => base64_decode(data)
                .ok_or_else(|| BadArgument::new("a data: URL in files is not base64; encode it, or send text"))?,
            None => content.into_bytes(),
        };
        let Some(rest) = left.checked_sub(bytes.len()).filter(|_| count <= FILES_MAX) else {
            return Err(BadArgument::new(format!(
                "files are more than {FILES_MAX} or {BYTES_MAX} bytes; write the rest with write_file"
            )));
        };
        left = rest;
        Ok(File { path, bytes })
    };
    files.into_iter().map(file).collect()
}

/// The regular files of a tar archive, packed or not, below `directory`.
pub(super) fn unpacked(archive: &[u8], directory: &str) -> Result<Vec<File>, BadArgument> {
    let broken = |_| BadArgument::new("content is no tar archive in base64; make one with tar, gzip allowed");
    let reader: Box<dyn Read + '_> = match archive {
        [0x1f, 0x8b, ..] => Box::new(GzDecoder::new(archive)),
        _ => Box::new(archive),
    };
    let mut archive = tar::Archive::new(reader.take(UNPACKED_BYTES_MAX + 1));
    let (mut files, mut left) = (Vec::new(), UNPACKED_BYTES_MAX);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        // Links and devices are left out: what they would lead to is not in the archive.
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path().map_err(broken)?.to_string_lossy().into_owned();
        let name = name.trim_start_matches("./");
        if name.is_empty() || name.starts_with('/') || name.split('/').any(|part| part == "..") {
            let sentence = "the archive has a file whose path leads out of its directory; leave it out";
            return Err(BadArgument::new(sentence));
        }
        let mut bytes = Vec::new();
        entry.by_ref().take(left + 1).read_to_end(&mut bytes).map_err(broken)?;
        let Some(rest) = left.checked_sub(bytes.len() as u64).filter(|_| files.len() < FILES_MAX) else {
            let sentence =
                format!("the archive has more than {FILES_MAX} files or {UNPACKED_BYTES_MAX} bytes; send it in parts");
            return Err(BadArgument::new(sentence));
        };
        left = rest;
        files.push(File { path: format!("{}/{name}", directory.trim_end_matches('/')), bytes });
    }
    if files.is_empty() {
        return Err(BadArgument::new("the archive has no regular file; check what was packed"));
    }
    Ok(files)
}

/// Writes each file; returns how many bytes that were.
pub(super) async fn write_all(call: &Call<'_>, sandbox: &str, files: Vec<File>) -> Result<usize, ToolError> {
    let mut size = 0;
    for File { path, bytes } in files {
        size += bytes.len();
        call.engine.write(call.who, sandbox, &path, bytes).await?;
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn file(path: &str, bytes: &[u8]) -> File {
        File { path: path.into(), bytes: bytes.into() }
    }

    #[test]
    fn an_archive_is_unpacked_below_its_directory() {
        let plain = archive(&[("./a.txt", b"one"), ("d/b.bin", b"\0\xff")]);
        let expected = vec![file("in/a.txt", b"one"), file("in/d/b.bin", b"\0\xff")];
        assert_eq!(unpacked(&plain, "in/").unwrap(), expected);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &plain).unwrap();
        assert_eq!(unpacked(&packed.finish().unwrap(), "in").unwrap(), expected);
    }

    #[test]
    fn what_leads_out_or_is_no_archive_is_refused() {
        for hostile in ["../x", "/etc/x", "a/../../x"] {
            assert!(unpacked(&archive(&[(hostile, b"x")]), ".").unwrap_err().to_string().contains("leads out"));
        }
        for bytes in [&b"hello"[..], &[0x1f, 0x8b, 1, 2], &[], &[0; 2048]] {
            assert!(unpacked(bytes, ".").is_err());
        }
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let zeros = vec![0u8; 1 << 20];
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        let mut header = tar::Header::new_gnu();
        header.set_path("big").unwrap();
        header.set_size(1 << 30);
        header.set_cksum();
        std::io::Write::write_all(&mut packed, header.as_bytes()).unwrap();
        for _ in 0..100 {
            std::io::Write::write_all(&mut packed, &zeros).unwrap();
        }
        assert!(unpacked(&packed.finish().unwrap(), ".").is_err());
    }

    #[test]
    fn a_data_url_is_decoded_and_text_is_text() {
        let files = vec![("a".into(), "data:x".into()), ("b".into(), "data:image/png;base64,QUI=".into())];
        assert_eq!(named(files).unwrap(), [file("a", b"data:x"), file("b", b"AB")]);
        assert!(named(vec![("c".into(), "data:;base64,$".into())]).is_err());
    }
}
