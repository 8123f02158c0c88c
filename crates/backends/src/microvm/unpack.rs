//! What kernels and their modules are compressed with. They come from the operator's own packages, and still every
//! length is bounded: a file that is damaged must not take the server's memory.

use std::io::Read;

/// More than any kernel of a distribution comes to.
pub(super) const UNPACKED_MAX: usize = 256 << 20;

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// What the kernel's own build calls lz4: the older of its two formats, blocks without a frame around them.
const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];

/// The content of `bytes`, by what they begin with; as they are if that is nothing known. What comes after the end of the
/// compressed content is ignored: a kernel has its size there.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<u8>, String> {
    if bytes.starts_with(GZIP) {
        return all_of(flate2::read::GzDecoder::new(bytes), "gzip");
    }
    if bytes.starts_with(ZSTD) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|error| format!("zstd: {error}"))?;
        return all_of(decoder, "zstd");
    }
    if bytes.starts_with(XZ) {
        let mut out = Bounded(Vec::new());
        // What follows the end is an error to the decoder, by which time everything has come out.
        match lzma_rs::xz_decompress(&mut std::io::Cursor::new(bytes), &mut out) {
            Ok(()) => {}
            Err(_) if out.0.starts_with(b"\x7fELF") => {}
            Err(error) => return Err(format!("xz: {error:?}")),
        }
        return Ok(out.0);
    }
    if let Some(blocks) = bytes.strip_prefix(LZ4) {
        return lz4(blocks);
    }
    Ok(bytes.to_vec())
}

fn all_of(decoder: impl Read, kind: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    decoder.take(UNPACKED_MAX as u64 + 1).read_to_end(&mut out).map_err(|error| format!("{kind}: {error}"))?;
    if out.len() > UNPACKED_MAX { Err(format!("{kind}: too long")) } else { Ok(out) }
}

struct Bounded(Vec<u8>);

impl std::io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > UNPACKED_MAX {
            return Err(std::io::Error::other("too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Blocks of at most 8 MiB when unpacked, each after its length, until the bytes are at their end. The kernel's build puts
/// the unpacked size of the whole behind the last one.
fn lz4(mut blocks: &[u8]) -> Result<Vec<u8>, String> {
    const BLOCK_MAX: usize = 8 << 20;
    let mut out = Vec::new();
    while let Some((length, rest)) = blocks.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some((block, rest)) = rest.split_at_checked(length) else { break };
        let most = out.len() + BLOCK_MAX;
        lz4_block(block, &mut out, most)?;
        if out.len() > UNPACKED_MAX {
            return Err("lz4: too long".to_owned());
        }
        blocks = rest;
    }
    if blocks.len() > 4 { Err("lz4: a block is cut off".to_owned()) } else { Ok(out) }
}

/// Appends what one block comes to. A reference reaches at most to the block's beginning.
fn lz4_block(mut block: &[u8], out: &mut Vec<u8>, most: usize) -> Result<(), String> {
    let broken = || "lz4: a block is damaged".to_owned();
    let start = out.len();
    loop {
        let (&token, rest) = block.split_first().ok_or_else(broken)?;
        block = rest;
        let literals = length(token >> 4, &mut block).ok_or_else(broken)?;
        let (bytes, rest) = block.split_at_checked(literals).ok_or_else(broken)?;
        if out.len() + literals > most {
            return Err(broken());
        }
        out.extend_from_slice(bytes);
        block = rest;
        if block.is_empty() {
            return Ok(());
        }
        let (offset, rest) = block.split_first_chunk::<2>().ok_or_else(broken)?;
        block = rest;
        let offset = usize::from(u16::from_le_bytes(*offset));
        let copied = length(token & 15, &mut block).ok_or_else(broken)? + 4;
        if offset == 0 || offset > out.len() - start || out.len() + copied > most {
            return Err(broken());
        }
        // Byte by byte where the two overlap: what was just written is then what comes next.
        let mut from = out.len() - offset;
        if copied <= offset {
            out.extend_from_within(from..from + copied);
        } else {
            for _ in 0..copied {
                out.push(out[from]);
                from += 1;
            }
        }
    }
}

fn length(first: u8, block: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(first);
    if first == 15 {
        loop {
            let (&more, rest) = block.split_first()?;
            *block = rest;
            length = length.checked_add(usize::from(more))?;
            if more != 255 {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_lz4_block_repeats_what_was() {
        // Three literals, then a copy of 9 bytes from 3 back, then the last literal.
        let block = [0x35, b'a', b'b', b'c', 3, 0, 0x10, b'!'];
        let mut bytes = LZ4.to_vec();
        bytes.extend((block.len() as u32).to_le_bytes());
        bytes.extend(block);
        bytes.extend(13u32.to_le_bytes());
        assert_eq!(unpack(&bytes).unwrap(), b"abcabcabcabc!");
    }

    #[test]
    fn a_damaged_lz4_block_is_refused() {
        for block in [&[0x10][..], &[0x0f, 9, 0], &[0x14, b'a', 2, 0], &[0xf0, 255, 255], &[0x14, b'a', 0, 0]] {
            let mut bytes = LZ4.to_vec();
            bytes.extend((block.len() as u32).to_le_bytes());
            bytes.extend(block);
            assert!(unpack(&bytes).is_err(), "{block:?}");
        }
    }

    #[test]
    fn gzip_is_unpacked_and_anything_else_is_as_it_is() {
        use std::io::Write;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"a kernel").unwrap();
        let mut bytes = encoder.finish().unwrap();
        bytes.extend(8u32.to_le_bytes());
        assert_eq!(unpack(&bytes).unwrap(), b"a kernel");
        assert_eq!(unpack(b"\x7fELF as it is").unwrap(), b"\x7fELF as it is");
    }
}
