//! What kind of content a file has: by its first bytes when they say it, by its name otherwise.

const BYTES: &str = "application/octet-stream";

/// The kind of picture, for the kinds that models read.
pub(crate) fn image(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

pub(crate) fn of(path: &str, bytes: &[u8]) -> &'static str {
    if let Some(image) = image(bytes) {
        return image;
    }
    if bytes.starts_with(b"%PDF-") {
        return "application/pdf";
    }
    let is_text = std::str::from_utf8(bytes).is_ok();
    match by_name(path) {
        // These would have been told by their first bytes.
        Some("image/png" | "image/jpeg" | "image/gif" | "image/webp" | "application/pdf") => None,
        Some(text) if text.starts_with("text/") && !is_text => None,
        by_name => by_name,
    }
    .unwrap_or(if is_text { "text/plain" } else { BYTES })
}

/// What the name alone says, for files that nobody has looked into.
pub(crate) fn by_name(path: &str) -> Option<&'static str> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let (_, ending) = name.rsplit_once('.')?;
    // What programs work with, where the table knows another thing by the same ending, or nothing.
    match ending.to_ascii_lowercase().as_str() {
        "py" | "pyi" => Some("text/x-python"),
        "mjs" | "cjs" => Some("text/javascript"),
        "ts" | "mts" | "cts" | "tsx" => Some("text/x-typescript"),
        "go" => Some("text/x-go"),
        "java" => Some("text/x-java"),
        "sh" | "bash" => Some("text/x-shellscript"),
        "sql" => Some("text/x-sql"),
        "tex" => Some("text/x-tex"),
        "ipynb" => Some("application/x-ipynb+json"),
        "jsonl" | "ndjson" => Some("application/x-ndjson"),
        "whl" => Some("application/zip"),
        "tgz" => Some("application/gzip"),
        "xml" => Some("application/xml"),
        ending => mime_guess::from_ext(ending).first_raw().filter(|kind| *kind != BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_win_over_the_name() {
        assert_eq!(of("a.txt", b"\x89PNG\r\n\x1a\n..."), "image/png");
        assert_eq!(of("a", b"RIFF....WEBPVP8 "), "image/webp");
        assert_eq!(of("a.txt", b"%PDF-1.7"), "application/pdf");
        assert_eq!(of("a.png", b"not a picture"), "text/plain");
        assert_eq!(of("a.pdf", b"\xff\xfe"), "application/octet-stream");
        assert_eq!(of("a.md", b"\xff\xfe"), "application/octet-stream");
    }

    #[test]
    fn the_name_tells_the_rest() {
        assert_eq!(of("dir.d/notes.MD", b"#"), "text/markdown");
        assert_eq!(of("x.bin", b"\xff\xfe"), "application/octet-stream");
        assert_eq!(of("x.bin", b"text"), "text/plain");
        assert_eq!(of("dir.html/README", b"text"), "text/plain");
        for (name, kind) in [
            ("a.svg", "image/svg+xml"),
            ("a.html", "text/html"),
            ("a.htm", "text/html"),
            ("a.css", "text/css"),
            ("a.csv", "text/csv"),
            ("a.py", "text/x-python"),
            ("a.js", "text/javascript"),
            ("a.ts", "text/x-typescript"),
            ("a.json", "application/json"),
            ("a.xml", "application/xml"),
            ("a.zip", "application/zip"),
            ("a.tar.gz", "application/gzip"),
            ("a.tar", "application/x-tar"),
            ("a.wav", "audio/wav"),
            ("a.mp3", "audio/mpeg"),
            ("a.mp4", "video/mp4"),
            ("a.parquet", "application/vnd.apache.parquet"),
        ] {
            assert_eq!(of(name, b"<"), kind, "{name}");
            assert_eq!(by_name(name), Some(kind), "{name}");
        }
        assert_eq!(by_name("a.png"), Some("image/png"));
        assert_eq!((by_name("README"), by_name("x.bin"), by_name("x.whatever")), (None, None, None));
    }
}
