//! WASI as the code inside finds it: wasmtime's own, but for what is not a file.
//!
//! Standard streams, the driver's control channel and questions are descriptors that only exist here: reading them waits for
//! the worker, so that a stop or an interrupt gets through whatever the code is waiting for.

use std::time::{Duration, Instant};

use belljar_core::Stream;
use belljar_core::wire::{CHUNK_MAX, QUESTION_MAX, RECORD_MAX};
use wasmtime::{AsContextMut, Caller, Extern, Linker, Memory};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as plain, WasiSnapshotPreview1};
use wasmtime_wasi::runtime::in_tokio;
use wiggle::GuestMemory;

use crate::instance::{Halt, Host, Steady};
use crate::line::{Inbox, Said, Woken};
use crate::sys;

/// Descriptors of ours, far from those that WASI gives. Code opens them by names in [`LINES`]: an interpreter may have a table
/// of its own before ours, and knows only what it has opened.
const CONTROL: i32 = 1000;
const LIBRARY: i32 = 1001;
const ASK: i32 = 1002;

/// A directory, the first that code finds open, in which there is nothing but what is ours.
pub const LINES: &str = "/belljar/lines";
const LINES_FD: i32 = 3;

const MODULE: &str = "wasi_snapshot_preview1";

const OK: i32 = 0;
const FAULT: i32 = 21;
const INTR: i32 = 27;
const INVAL: i32 = 28;
const MSGSIZE: i32 = 35;
const NOENT: i32 = 44;

/// Subscriptions of one poll.
const POLLED_MAX: usize = 1024;
const SUBSCRIPTION: usize = 48;
const EVENT: usize = 32;

pub(crate) fn add_to_linker(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasmtime_wasi::p1::add_to_linker_sync(linker, |host: &mut Host| &mut host.wasi)?;
    linker.allow_shadowing(true);
    linker.func_wrap(MODULE, "fd_write", write)?;
    linker.func_wrap(MODULE, "fd_read", read)?;
    linker.func_wrap(MODULE, "fd_seek", seek)?;
    linker.func_wrap(MODULE, "fd_close", close)?;
    linker.func_wrap(MODULE, "path_open", open)?;
    linker.func_wrap(MODULE, "poll_oneoff", poll)?;
    linker.func_wrap(MODULE, "proc_exit", exit)?;
    Ok(())
}

fn memory(caller: &mut Caller<'_, Host>) -> wasmtime::Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => Err(wasmtime::Error::msg("the module has no memory")),
    }
}

/// Wasmtime's own call of the same name.
macro_rules! pass {
    ($caller:ident, $call:ident, $($argument:expr),*) => {{
        let memory = memory(&mut $caller)?;
        let fuel = $caller.as_context_mut().hostcall_fuel();
        let (bytes, host) = memory.data_and_store_mut(&mut $caller);
        let wasi: &mut WasiP1Ctx = &mut host.wasi;
        wasi.set_hostcall_fuel(fuel);
        in_tokio(plain::$call(wasi, &mut GuestMemory::Unshared(bytes), $($argument),*))
    }};
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}

fn put(bytes: &mut [u8], at: u32, value: &[u8]) -> Option<()> {
    let at = at as usize;
    bytes.get_mut(at..at.checked_add(value.len())?)?.copy_from_slice(value);
    Some(())
}

/// The first part of memory that an array of them names and that is not empty, as its place and length.
fn first_part(bytes: &[u8], parts: i32, count: i32) -> Option<(usize, usize)> {
    for index in 0..count.max(0) as usize {
        let at = (parts as u32 as usize).checked_add(index.checked_mul(8)?)?;
        let (start, length) = (word(bytes, at)? as usize, word(bytes, at + 4)? as usize);
        if length > 0 {
            bytes.get(start..start.checked_add(length)?)?;
            return Some((start, length));
        }
    }
    Some((0, 0))
}

fn write(mut caller: Caller<'_, Host>, fd: i32, parts: i32, count: i32, written: i32) -> wasmtime::Result<i32> {
    if !matches!(fd, 1 | 2 | CONTROL | ASK) {
        return pass!(caller, fd_write, fd, parts, count, written);
    }
    let memory = memory(&mut caller)?;
    let (bytes, host) = memory.data_and_store_mut(&mut caller);
    let Some((start, length)) = first_part(bytes, parts, count) else { return Ok(FAULT) };
    let length = length.min(CHUNK_MAX);
    let part = bytes[start..start + length].to_vec();
    if put(bytes, written as u32, &(length as u32).to_le_bytes()).is_none() {
        return Ok(FAULT);
    }
    match fd {
        1 => host.say(Said::Output { stream: Stream::Stdout, bytes: part }),
        2 => host.say(Said::Output { stream: Stream::Stderr, bytes: part }),
        CONTROL => host.hear_driver(&part)?,
        _ => return Ok(host.hear_question(&part)),
    }
    if host.line.stopped().is_some() {
        return Err(Halt::Stopped.into());
    }
    Ok(OK)
}

fn read(mut caller: Caller<'_, Host>, fd: i32, parts: i32, count: i32, got: i32) -> wasmtime::Result<i32> {
    if !matches!(fd, 0 | CONTROL | LIBRARY | ASK) {
        return pass!(caller, fd_read, fd, parts, count, got);
    }
    let memory = memory(&mut caller)?;
    let (bytes, host) = memory.data_and_store_mut(&mut caller);
    let Some((start, length)) = first_part(bytes, parts, count) else { return Ok(FAULT) };
    let room = &mut bytes[start..start + length];
    let line = host.line.clone();
    let done = match fd {
        0 => {
            let most = room.len();
            let read = line.wait(None, true, |inbox| inbox.stdin.take(most).map(|part| fill(room, part)));
            if let Ok(count) = read {
                host.say(Said::Taken(count as u32));
            }
            read
        }
        LIBRARY => {
            let rest = &host.library[host.library_read.min(host.library.len())..];
            let count = fill(room, &rest[..rest.len().min(room.len())]);
            host.library_read += count;
            Ok(count)
        }
        // Its own: an interrupt that comes when no cell runs is nobody's.
        CONTROL => line.wait(None, false, |inbox| move_out(&mut inbox.control, room)),
        _ => {
            let read = line.wait(None, true, |inbox| {
                let answered = inbox.is_answered.then_some(0);
                move_out(&mut inbox.answer, room).or(answered)
            });
            if read == Err(Woken::Interrupted) {
                host.withdraw();
            }
            read
        }
    };
    match done {
        Ok(count) => {
            let told = put(bytes, got as u32, &(count as u32).to_le_bytes());
            Ok(if told.is_some() { OK } else { FAULT })
        }
        Err(Woken::Interrupted) => interrupted(&mut caller),
        Err(Woken::Stopped | Woken::Late) => Err(Halt::Stopped.into()),
    }
}

fn fill(room: &mut [u8], part: &[u8]) -> usize {
    room[..part.len()].copy_from_slice(part);
    part.len()
}

/// As much of `from` as there is room for; `None` for nothing.
fn move_out(from: &mut Vec<u8>, room: &mut [u8]) -> Option<usize> {
    let count = from.len().min(room.len());
    let part: Vec<u8> = from.drain(..count).collect();
    (count > 0).then(|| fill(room, &part))
}

/// Lets the interpreter know, and tells it that its call was cut short. One that cannot be told ends.
fn interrupted(caller: &mut Caller<'_, Host>) -> wasmtime::Result<i32> {
    if crate::instance::interrupt(caller)? { Ok(INTR) } else { Err(Halt::Interrupted.into()) }
}

fn seek(mut caller: Caller<'_, Host>, fd: i32, offset: i64, whence: i32, to: i32) -> wasmtime::Result<i32> {
    if fd != 0 {
        return pass!(caller, fd_seek, fd, offset, whence, to);
    }
    let memory = memory(&mut caller)?;
    let (bytes, host) = memory.data_and_store_mut(&mut caller);
    let place = |inbox: &mut Inbox| {
        let base = match whence {
            0 => 0,
            1 => inbox.stdin.position(),
            _ => inbox.stdin.length(),
        };
        inbox.stdin.seek(i64::try_from(base).ok()?.checked_add(offset)?)
    };
    let Some(place) = host.line.put(place) else { return Ok(INVAL) };
    Ok(if put(bytes, to as u32, &(place as u64).to_le_bytes()).is_some() { OK } else { FAULT })
}

/// The names of ours, and whatever the place has elsewhere.
#[expect(clippy::too_many_arguments, reason = "WASI has so many")]
fn open(
    mut caller: Caller<'_, Host>,
    directory: i32,
    follow: i32,
    path: i32,
    length: i32,
    flags: i32,
    rights: i64,
    inherited: i64,
    state: i32,
    opened: i32,
) -> wasmtime::Result<i32> {
    if directory != LINES_FD {
        return pass!(caller, path_open, directory, follow, path, length, flags, rights, inherited, state, opened);
    }
    let memory = memory(&mut caller)?;
    let bytes = memory.data_mut(&mut caller);
    let start = path as u32 as usize;
    let Some(name) = start.checked_add(length as u32 as usize).and_then(|end| bytes.get(start..end)) else {
        return Ok(FAULT);
    };
    let fd = match name {
        b"control" => CONTROL,
        b"library" => LIBRARY,
        b"ask" => ASK,
        _ => return Ok(NOENT),
    };
    Ok(if put(bytes, opened as u32, &fd.to_le_bytes()).is_some() { OK } else { FAULT })
}

fn close(mut caller: Caller<'_, Host>, fd: i32) -> wasmtime::Result<i32> {
    if matches!(fd, CONTROL | LIBRARY | ASK) {
        return Ok(OK);
    }
    pass!(caller, fd_close, fd)
}

fn exit(_: Caller<'_, Host>, code: i32) -> wasmtime::Result<()> {
    Err(Halt::Exited(code & 0xff).into())
}

/// Waits for the first of some times; files are always ready.
fn poll(mut caller: Caller<'_, Host>, from: i32, to: i32, count: i32, told: i32) -> wasmtime::Result<i32> {
    let count = count as u32 as usize;
    if count == 0 || count > POLLED_MAX {
        return Ok(INVAL);
    }
    let memory = memory(&mut caller)?;
    let steady = caller.data().steady;
    let Some(waits) = subscriptions(memory.data(&caller), from as u32 as usize, count, steady) else {
        return Ok(FAULT);
    };
    let line = caller.data().line.clone();
    if !waits.iter().any(|wait| wait.after.is_none()) {
        let first = waits.iter().filter_map(|wait| wait.after).min().unwrap_or_default();
        // Some bound: a sleep of a century is as good as one that is cut short.
        let until = Instant::now() + first.min(Duration::from_secs(365 * 24 * 3600));
        match line.wait(Some(until), true, |_| None::<()>) {
            // As if the time were over: of any other end C's sleep makes an error of its own, and Python looks for signals
            // after either.
            Err(Woken::Interrupted) => interrupted(&mut caller).map(drop)?,
            Err(Woken::Stopped) => return Err(Halt::Stopped.into()),
            Ok(()) | Err(Woken::Late) => {}
        }
    }
    let first = waits.iter().map(|wait| wait.after.unwrap_or_default()).min().unwrap_or_default();
    let bytes = memory.data_mut(&mut caller);
    let (mut at, mut number) = (to as u32, 0u32);
    for wait in waits.iter().filter(|wait| wait.after.unwrap_or_default() <= first) {
        let mut event = [0; EVENT];
        event[..8].copy_from_slice(&wait.userdata.to_le_bytes());
        event[10] = wait.kind;
        event[16] = 1;
        if put(bytes, at, &event).is_none() {
            return Ok(FAULT);
        }
        at = at.wrapping_add(EVENT as u32);
        number += 1;
    }
    Ok(if put(bytes, told as u32, &number.to_le_bytes()).is_some() { OK } else { FAULT })
}

struct Wait {
    userdata: u64,
    kind: u8,
    /// `None` for what is ready.
    after: Option<Duration>,
}

fn subscriptions(bytes: &[u8], from: usize, count: usize, steady: Steady) -> Option<Vec<Wait>> {
    let mut waits = Vec::with_capacity(count);
    for index in 0..count {
        let at = from.checked_add(index * SUBSCRIPTION)?;
        let (userdata, kind) = (long(bytes, at)?, *bytes.get(at + 8)?);
        let (clock, timeout, flags) = (word(bytes, at + 16)?, long(bytes, at + 24)?, *bytes.get(at + 40)?);
        let after = (kind == 0).then(|| {
            let time = Duration::from_nanos(timeout);
            let is_absolute = flags & 1 != 0;
            let now = if clock == 0 { sys::wall_clock() } else { steady.now() };
            if is_absolute { time.saturating_sub(now) } else { time }
        });
        waits.push(Wait { userdata, kind, after });
    }
    Some(waits)
}

impl Host {
    /// What the driver says of itself and of its cell. One that does not keep to the form ends.
    fn hear_driver(&mut self, bytes: &[u8]) -> wasmtime::Result<()> {
        self.driver.extend_from_slice(bytes);
        loop {
            let Some(end) = self.driver.iter().take(64).position(|&byte| byte == b'\n') else {
                return if self.driver.len() < 64 { Ok(()) } else { Err(Halt::Broken.into()) };
            };
            let header = String::from_utf8_lossy(&self.driver[..end]).into_owned();
            let (kind, length) = header.split_once(' ').ok_or(Halt::Broken)?;
            let length: usize = length.parse().map_err(|_| Halt::Broken)?;
            if length > RECORD_MAX {
                return Err(Halt::Broken.into());
            }
            if self.driver.len() < end + 1 + length {
                return Ok(());
            }
            let body: Vec<u8> = self.driver.drain(..end + 1 + length).skip(end + 1).collect();
            match kind {
                "ready" => self.say(Said::Ready),
                "record" => self.say(Said::Record(body)),
                "done" => {
                    let code = std::str::from_utf8(&body).ok().and_then(|code| code.parse().ok());
                    self.say(Said::Done { code: code.ok_or(Halt::Broken)? });
                }
                _ => return Err(Halt::Broken.into()),
            }
        }
    }

    /// A part of a question, which is a line.
    fn hear_question(&mut self, bytes: &[u8]) -> i32 {
        if self.question.len() + bytes.len() > QUESTION_MAX {
            self.question.clear();
            return MSGSIZE;
        }
        self.question.extend_from_slice(bytes);
        if let Some(end) = self.question.iter().position(|&byte| byte == b'\n') {
            self.question.truncate(end + 1);
            let line = std::mem::take(&mut self.question);
            self.ask(line);
        }
        OK
    }

    pub(crate) fn ask(&mut self, line: Vec<u8>) {
        self.line.put(|inbox| {
            inbox.answer.clear();
            inbox.is_answered = false;
        });
        self.say(Said::Asked(line));
    }

    pub(crate) fn withdraw(&mut self) {
        self.say(Said::Withdrawn);
        self.line.put(|inbox| {
            inbox.answer.clear();
            inbox.is_answered = true;
        });
    }
}
