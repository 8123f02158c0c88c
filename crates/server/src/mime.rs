//! What kind of content a file has: by its first bytes when they say it, by its name otherwise.

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
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let by_name = match ending.as_deref() {
        Some("md" | "markdown") => Some("text/markdown"),
        Some("html" | "htm") => Some("text/html"),
        Some("css") => Some("text/css"),
        Some("csv") => Some("text/csv"),
        Some("py") => Some("text/x-python"),
        Some("js" | "mjs" | "cjs") => Some("text/javascript"),
        Some("json" | "ipynb") => Some("application/json"),
        Some("xml") => Some("application/xml"),
        Some("svg") => Some("image/svg+xml"),
        Some("zip" | "whl") => Some("application/zip"),
        Some("gz" | "tgz") => Some("application/gzip"),
        Some("tar") => Some("application/x-tar"),
        Some("wav") => Some("audio/wav"),
        Some("mp3") => Some("audio/mpeg"),
        Some("mp4") => Some("video/mp4"),
        Some("parquet") => Some("application/vnd.apache.parquet"),
        _ => None,
    };
    by_name.unwrap_or(if std::str::from_utf8(bytes).is_ok() { "text/plain" } else { "application/octet-stream" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_win_over_the_name() {
        assert_eq!(of("a.txt", b"\x89PNG\r\n\x1a\n..."), "image/png");
        assert_eq!(of("a", b"RIFF....WEBPVP8 "), "image/webp");
        assert_eq!(of("a.png", b"not a picture"), "text/plain");
        assert_eq!(of("dir.d/notes.MD", b"#"), "text/markdown");
        assert_eq!(of("x.bin", b"\xff\xfe"), "application/octet-stream");
    }
}
