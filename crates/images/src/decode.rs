//! A layer's bytes as they come: out of gzip, zstd or nothing, counted, and with the digest that gives a layer its name.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};

/// The window that a zstd stream may ask for, which is memory: 128 MiB, as the program has it too.
const ZSTD_WINDOW_LOG: u32 = 27;

/// By what it begins with: media types are often wrong.
pub(crate) fn decoded(file: File) -> io::Result<Box<dyn Read>> {
    let mut file = BufReader::with_capacity(128 * 1024, file);
    let start = file.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(MultiGzDecoder::new(file)));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let mut decoder = zstd::Decoder::with_buffer(file)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(file))
}

/// More than was allowed, as the error of a read.
#[derive(Debug, thiserror::Error)]
#[error("it has more than it may")]
pub(crate) struct TooMuch;

/// Counts and digests what is read through it.
pub(crate) struct Measured<R> {
    inner: R,
    hasher: Sha256,
    left: u64,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Measured<R> {
    /// Gives no more than `bytes_max`, and no more than the allowance as it is when it is read.
    pub(crate) fn new(inner: R, bytes_max: u64, allowance: Rc<Cell<u64>>) -> Measured<R> {
        Measured { inner, hasher: Sha256::new(), left: bytes_max, allowance }
    }

    /// The digest of all, the rest included.
    pub(crate) fn finish(mut self) -> io::Result<String> {
        self.allowance.set(u64::MAX);
        io::copy(&mut self, &mut io::sink())?;
        Ok(hex(&self.hasher.finalize()))
    }
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let may = self.left.min(self.allowance.get());
        if may == 0 {
            // The end may be just here.
            return if self.inner.read(&mut [0])? == 0 { Ok(0) } else { Err(io::Error::other(TooMuch)) };
        }
        let length = buffer.len().min(usize::try_from(may).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buffer[..length])?;
        self.hasher.update(&buffer[..read]);
        self.left -= read as u64;
        if self.allowance.get() != u64::MAX {
            self.allowance.set(self.allowance.get() - read as u64);
        }
        Ok(read)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The sixty-four digits of a digest such as `sha256:...`. Nothing else becomes a path.
pub(crate) fn digits(digest: &str) -> Option<&str> {
    let digits = digest.strip_prefix("sha256:")?;
    is_digits(digits).then_some(digits)
}

pub(crate) fn is_digits(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}
