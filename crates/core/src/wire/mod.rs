//! What crosses the wall: frames between the host and the guest agent, and datagrams between the host and the jail.
//!
//! A frame is a little-endian `u32` length and that many bytes of postcard. Both sides treat the other as hostile: a
//! length over [`FRAME_MAX`] or bytes that do not parse end the conversation. The codec is pure, for the fuzzer's sake.

mod guest;
mod jail;
mod keeper;
mod settle;

pub use guest::{FromGuest, Init, Part, Start, ToGuest};
pub use jail::{
    ASK, Bind, Bounds, CONTROL_FD, CgroupEntry, Fork, GUEST, GUEST_FD, JailReply, JailRequest, KERNEL_ENDS, Open,
    PORTS_MAX, RUNNER_NAME, SETTLE, Setup, TRANSPILE, TRANSPILE_FD, TRUST, TRUST_FD, WORD_PROGRAM, WORD_RUNNER, ZYGOTE,
    ZYGOTE_FD, ZYGOTE_GUEST_FD, ZYGOTE_NAME, ZYGOTE_SOCKET_FD, Zygote, is_building, is_store_name, word_of_forked,
};
pub use keeper::{
    DRIVES_FOR_LAYERS, DRIVES_OWN, Entry, EntryKind, FromKeeper, GUEST_PORT, GUEST_VSOCK, KEEPER_PORT, KEEPER_VSOCK,
    ToKeeper,
};

pub use settle::{Plan, SETTLED, SURVEY};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Spoken by both sides; a guest of another version is not talked to.
pub const VERSION: u16 = 6;

/// No frame's body is longer.
pub const FRAME_MAX: usize = 1024 * 1024 + 1024;

/// Bytes of output, input or file content that one frame carries at most.
pub const CHUNK_MAX: usize = 64 * 1024;

/// No record of a kernel's driver is longer.
pub const RECORD_MAX: usize = 16 * 1024 * 1024;

/// Bytes of `Input` that a host sends to a program before it hears that some were taken.
pub const INPUT_WINDOW: usize = 256 * 1024;

/// The socket in a sandbox that programs ask at: a connection is a question, which is a line; what comes back until the end
/// is the answer. A path, since programs take an abstract one for something of the host's.
pub const ASK_SOCKET: &str = "/home/agent/.belljar";

/// No question is longer, its newline included.
pub const QUESTION_MAX: usize = 1024 * 1024;

/// Questions of a sandbox that wait for their answers at once.
pub const QUESTIONS_MAX: usize = 16;

/// Numbers from here on are questions', which a guest gives; those below are operations', which a host gives.
pub const ASKED_FIRST: u32 = 1 << 31;

/// Numbers from here on are those of who comes to a door; a guest gives them too.
pub const KNOCKS_FIRST: u32 = 3 << 30;

/// Connections that a guest passes on at once. Whoever comes then waits at the door.
pub const KNOCKS_MAX: usize = 128;

/// A question to the resolver is no longer.
pub const NAME_MAX: usize = 1024;

const HEADER: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("a frame of {0} bytes is over the limit")]
    TooLong(usize),
    #[error("a frame does not parse")]
    Malformed,
}

/// Appends one frame to `out`.
pub fn encode<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    // `to_extend` gives the buffer back only on success; on failure there is nothing worth keeping in it.
    let mut whole = postcard::to_extend(message, std::mem::take(out)).map_err(|_| WireError::Malformed)?;
    let length = whole.len() - start - HEADER;
    if length > FRAME_MAX {
        whole.truncate(start);
        *out = whole;
        return Err(WireError::TooLong(length));
    }
    whole[start..start + HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    *out = whole;
    Ok(())
}

/// Reads one frame from the front of `bytes`: the message and how many bytes it took, or `None` while it is incomplete.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, WireError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let length = u32::from_le_bytes(*header) as usize;
    if length > FRAME_MAX {
        return Err(WireError::TooLong(length));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    Ok(Some((decode_body(body)?, HEADER + length)))
}

/// A message that fills `body` to its last byte.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(WireError::Malformed),
    }
}

/// A datagram's body: the datagram itself bounds it, so there is no header.
pub fn encode_body<T: Serialize>(message: &T) -> Result<Vec<u8>, WireError> {
    postcard::to_allocvec(message).map_err(|_| WireError::Malformed)
}

#[cfg(test)]
mod tests;
