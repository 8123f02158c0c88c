//! The host's end of the conversation with a guest agent, the same for every backend.
//!
//! One task reads frames and hands each to the operation whose id it carries; another writes whole frames, so that an
//! operation may be dropped at any moment without leaving half of one on the stream. What comes from the guest is
//! hostile: a frame that does not parse, or that is out of turn, ends the link, and with it the sandbox.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::wire::{self, CHUNK_MAX, FromGuest, Init, Part, RECORD_MAX, Start, ToGuest};
use belljar_core::{
    Asked, BackendError, Content, Entry, Event, Finish, Later, Listing, Program, Range, Relay, Stdin, StdinWriter,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::knocks::Knocks;
use crate::questions::{Answering, Heard, Piece, Questions};
use crate::setup;

/// Frames of one operation that may wait for it. A slow operation then holds the reader, and so the guest, back.
const QUEUE: usize = 64;

/// No file is read whole past this, whatever a guest says of its size.
const CONTENT_MAX: usize = 64 * 1024 * 1024;

/// More than a guest of ours ever sends of one listing.
const LISTING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Frames that may wait to be written. Past that, whoever has more waits.
const OUTBOX: usize = 16;

/// And tasks of ours that have something to tell a guest while nobody waits for them. One that reads has it in no time; many
/// of them are what a guest made us say.
const BEHIND_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    outbox: mpsc::Sender<Vec<u8>>,
    /// For each task that is there only to tell the guest something.
    behind: Arc<Semaphore>,
    operations: Mutex<Operations>,
    questions: Questions,
    knocks: Arc<Knocks>,
    next_id: AtomicU32,
    alive: AtomicBool,
}

#[derive(Debug, Default)]
struct Operations {
    waiting: HashMap<u32, Waiting>,
    /// Why the link ended; no operation can begin after.
    ended: Option<String>,
}

/// Why nobody answers at the other end.
#[derive(Debug)]
pub(crate) enum NotThere {
    /// The place could not be made: how far it came, and the kernel's word.
    Broken {
        step: String,
        errno: i32,
    },
    Failed(BackendError),
}

impl From<BackendError> for NotThere {
    fn from(error: BackendError) -> Self {
        NotThere::Failed(error)
    }
}

type Reading = Box<dyn AsyncRead + Send + Unpin>;
type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// A way to send from beside the link.
pub(crate) trait Outgoing: Clone + Send + Sync + 'static {
    fn send(&self, message: &ToGuest) -> impl Future<Output = Result<(), BackendError>> + Send;
    /// From where nobody can wait.
    fn send_behind(&self, message: &ToGuest);
}

impl Outgoing for Arc<Shared> {
    async fn send(&self, message: &ToGuest) -> Result<(), BackendError> {
        Shared::send(self, message).await
    }

    fn send_behind(&self, message: &ToGuest) {
        Shared::send_behind(self, message);
    }
}

/// An operation as the reader knows it.
#[derive(Debug, Clone)]
struct Waiting {
    frames: mpsc::Sender<FromGuest>,
    /// Bytes of input that the guest still has room for.
    room: Arc<Semaphore>,
}

impl Link {
    /// Greets the guest at the other end of a stream, and waits until it stands.
    pub(crate) async fn establish(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
        init: Init,
    ) -> Result<Link, NotThere> {
        let (read, mut write): (Reading, Writing) = (Box::new(read), Box::new(write));
        let mut frame = Vec::new();
        wire::encode(&ToGuest::Init(init), &mut frame).map_err(|error| setup("greeting the guest", &error))?;
        write.write_all(&frame).await.map_err(|error| setup("greeting the guest", &error))?;
        let mut frames = Frames { read, buffer: Vec::new(), used: 0 };
        match frames.next().await.map_err(|why| setup("waiting for the guest", &why))? {
            FromGuest::Hello { version: wire::VERSION } => {}
            FromGuest::Hello { version } => {
                return Err(setup("greeting the guest", &format!("it speaks version {version}")).into());
            }
            FromGuest::Broken { step, errno } => return Err(NotThere::Broken { step, errno }),
            _ => return Err(setup("greeting the guest", &"it began out of turn").into()),
        }
        Ok(Link::over(frames, write))
    }

    /// Goes on with a guest that has been greeted already, by another link: its place is a copy of that one's.
    pub(crate) fn resume(
        read: impl AsyncRead + Send + Unpin + 'static,
        write: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Link {
        Link::over(Frames { read: Box::new(read), buffer: Vec::new(), used: 0 }, Box::new(write))
    }

    fn over(frames: Frames, write: Writing) -> Link {
        let (outbox, frames_out) = mpsc::channel(OUTBOX);
        let shared = Arc::new(Shared {
            outbox,
            behind: Arc::new(Semaphore::new(BEHIND_MAX)),
            operations: Mutex::default(),
            questions: Questions::default(),
            knocks: Arc::default(),
            next_id: AtomicU32::new(1),
            alive: AtomicBool::new(true),
        });
        let reader = tokio::spawn(read_frames(frames, Arc::clone(&shared)));
        let writer = tokio::spawn(write_frames(write, frames_out));
        Link { shared, reader, writer }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.shared.alive.load(Ordering::Acquire)
    }

    pub(crate) async fn start(&self, program: Program, cpu_seconds: u64) -> Result<Started, BackendError> {
        let operation = self.begin()?;
        let id = operation.id;
        let Program { source, env, cwd, changed_max, .. } = program;
        let start = Start { source, env, cwd, cpu_seconds, changed_max };
        let mut frames = encode(&ToGuest::Start { id, start })?;
        let writer = || Writer { id, room: Arc::clone(&operation.room), shared: Arc::clone(&self.shared) };
        let stdin = match program.stdin {
            Stdin::Live => {
                self.shared.send_frames(frames).await?;
                Some(writer())
            }
            // In one write: the guest then sees all of it at once.
            Stdin::Whole(bytes) if bytes.len() <= wire::INPUT_WINDOW => {
                for chunk in bytes.chunks(CHUNK_MAX) {
                    add(&ToGuest::Input { id, bytes: chunk.to_vec() }, &mut frames)?;
                }
                add(&ToGuest::InputEnd { id }, &mut frames)?;
                self.shared.send_frames(frames).await?;
                None
            }
            // More than the guest takes at once: whoever waits for the program must not wait for this.
            Stdin::Whole(bytes) => {
                self.shared.send_frames(frames).await?;
                let mut writer = writer();
                tokio::spawn(async move { writer.write(&bytes).await });
                None
            }
        };
        Ok(Started { operation, stdin, record: Vec::new() })
    }

    pub(crate) async fn read(&self, path: &str, range: Range) -> Result<Content, BackendError> {
        let mut operation = self.begin()?;
        operation.send(&ToGuest::Read { id: operation.id, path: path.to_owned(), range }).await?;
        let most = usize::try_from(range.length).unwrap_or(usize::MAX).min(CONTENT_MAX);
        let mut bytes = Vec::new();
        loop {
            match operation.next().await? {
                FromGuest::Content { bytes: more, .. } if bytes.len() + more.len() <= most => bytes.extend(more),
                FromGuest::Read { size, .. } => return Ok(Content { bytes, size }),
                other => return Err(operation.refusal(other)),
            }
        }
    }

    pub(crate) async fn write(&self, path: &str, bytes: &[u8]) -> Result<(), BackendError> {
        let mut operation = self.begin()?;
        operation.send(&ToGuest::Write { id: operation.id, path: path.to_owned() }).await?;
        operation.send_input(bytes).await?;
        match operation.next().await? {
            FromGuest::Done { .. } => Ok(()),
            other => Err(operation.refusal(other)),
        }
    }

    pub(crate) async fn list(&self, path: &str, depth: u32, entries_max: u32) -> Result<Listing, BackendError> {
        let mut operation = self.begin()?;
        operation.send(&ToGuest::List { id: operation.id, path: path.to_owned(), depth, entries_max }).await?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        loop {
            match operation.next().await? {
                FromGuest::Entries { entries: more, .. } if entries.len() + more.len() <= entries_max as usize => {
                    bytes += more.iter().map(|entry: &Entry| entry.path.len()).sum::<usize>();
                    if bytes > LISTING_BYTES_MAX {
                        return Err(operation.refusal(FromGuest::Entries { id: operation.id, entries: more }));
                    }
                    entries.extend(more);
                }
                FromGuest::Listed { truncated, .. } => return Ok(Listing { entries, truncated }),
                other => return Err(operation.refusal(other)),
            }
        }
    }

    /// The next thing that a program inside asks.
    pub(crate) async fn asked(&self) -> Result<Asked, BackendError> {
        let asked = self.shared.questions.next().await;
        asked.ok_or_else(|| BackendError::Lost { why: self.shared.why_ended() })
    }

    pub(crate) fn answer(&self, id: u32, bytes: Vec<u8>, part: Part) {
        self.shared.questions.answer(id, bytes, part);
    }

    /// Those who come to the sandbox's doors, where the guest passes them on; given once.
    pub(crate) fn relay(&self) -> Option<Box<dyn Relay>> {
        self.shared.knocks.relay()
    }

    fn begin(&self) -> Result<Operation, BackendError> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed) % wire::ASKED_FIRST;
        let (frames, receiver) = mpsc::channel(QUEUE);
        let room = Arc::new(Semaphore::new(wire::INPUT_WINDOW));
        let mut operations = self.shared.operations();
        if let Some(why) = &operations.ended {
            return Err(BackendError::Lost { why: why.clone() });
        }
        operations.waiting.insert(id, Waiting { frames, room: Arc::clone(&room) });
        Ok(Operation { id, receiver, room, shared: Arc::clone(&self.shared), done: false })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Both halves of the stream go with it, which the guest takes as its end.
        self.reader.abort();
        self.writer.abort();
        self.shared.end("it was closed".to_owned());
    }
}

impl Shared {
    fn operations(&self) -> std::sync::MutexGuard<'_, Operations> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, why: String) {
        self.alive.store(false, Ordering::Release);
        let mut operations = self.operations();
        operations.ended.get_or_insert(why);
        // Their receivers see the end once they have taken what was already sent.
        for (_, waiting) in operations.waiting.drain() {
            waiting.room.close();
        }
        drop(operations);
        self.questions.end();
        self.knocks.end();
    }

    /// Takes a part of a question in. Whether the guest kept to the rules.
    fn hear(self: &Arc<Self>, id: u32, by: Option<u32>, bytes: &[u8], part: Part) -> bool {
        match self.questions.hear(id, by, bytes, part) {
            Heard::More => {}
            // Not by the number of open questions alone: one that was withdrawn is none, and its answer may still be on its way.
            Heard::Whole(answering) => {
                if let Some(permit) = self.go_behind() {
                    tokio::spawn(Arc::clone(self).pass_answer(answering, permit));
                }
            }
            Heard::Refused => self.send_behind(&ToGuest::Answer { id, bytes: Vec::new(), part: Part::Last }),
            Heard::OutOfTurn => return false,
        }
        true
    }

    /// Sends what a question is answered, as the guest has room for it, until its end or until nobody waits for it.
    async fn pass_answer(self: Arc<Self>, mut answering: Answering, _permit: OwnedSemaphorePermit) {
        let id = answering.id;
        while let Some(Piece { bytes, part }) = answering.pieces.recv().await {
            let mut chunks = bytes.chunks(CHUNK_MAX).peekable();
            loop {
                let chunk = chunks.next().unwrap_or_default();
                let is_end = chunks.peek().is_none();
                let Ok(room) = answering.room.acquire_many(chunk.len() as u32).await else { return };
                room.forget();
                let part = if is_end { part } else { Part::MoreComes };
                let Ok(frame) = encode(&ToGuest::Answer { id, bytes: chunk.to_vec(), part }) else { return };
                let Ok(place) = self.outbox.reserve().await else { return };
                if part == Part::Last {
                    // Before it is sent: from then on the guest may begin another. And with room for it: the open ones are
                    // all that a guest that does not read can have waiting here.
                    self.questions.close(id);
                }
                place.send(frame);
                if part == Part::Last {
                    return;
                }
                if is_end {
                    break;
                }
            }
        }
    }

    async fn send(&self, message: &ToGuest) -> Result<(), BackendError> {
        self.send_frames(encode(message)?).await
    }

    /// One or more whole frames.
    async fn send_frames(&self, frames: Vec<u8>) -> Result<(), BackendError> {
        self.outbox.send(frames).await.map_err(|_| BackendError::Lost { why: self.why_ended() })
    }

    /// Sends from where nobody can wait, such as a drop.
    fn send_behind(self: &Arc<Self>, message: &ToGuest) {
        let Ok(frame) = encode(message) else { return };
        let Err(mpsc::error::TrySendError::Full(frame)) = self.outbox.try_send(frame) else { return };
        let Some(permit) = self.go_behind() else { return };
        let outbox = self.outbox.clone();
        // Without a runtime the whole server is going down, and every sandbox with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = outbox.send(frame).await;
                drop(permit);
            });
        }
    }

    /// For one more task that tells the guest something. Without one the link has ended.
    fn go_behind(&self) -> Option<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.behind).try_acquire_owned().ok();
        if permit.is_none() {
            self.end("its guest agent does not take what it is told".to_owned());
        }
        permit
    }

    fn why_ended(&self) -> String {
        self.operations().ended.clone().unwrap_or_else(|| "its guest agent is gone".to_owned())
    }
}

/// Frames as they come off the stream.
struct Frames {
    read: Reading,
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that were taken already.
    used: usize,
}

impl Frames {
    async fn next(&mut self) -> Result<FromGuest, String> {
        loop {
            match wire::decode(&self.buffer[self.used..]) {
                Ok(Some((frame, used))) => {
                    self.used += used;
                    return Ok(frame);
                }
                Ok(None) => {}
                Err(error) => return Err(format!("its guest agent broke the protocol: {error}")),
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            self.buffer.reserve(CHUNK_MAX);
            match self.read.read_buf(&mut self.buffer).await {
                Ok(0) => return Err("its guest agent ended".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("its stream broke: {error}")),
            }
        }
    }
}

async fn read_frames(mut frames: Frames, shared: Arc<Shared>) {
    let why = loop {
        let frame = match frames.next().await {
            Ok(frame) => frame,
            Err(why) => break why,
        };
        let frame = match by_guest(frame, &shared) {
            Ok(Some(frame)) => frame,
            Ok(None) if shared.alive.load(Ordering::Acquire) => continue,
            Ok(None) => return,
            Err(why) => break why.to_owned(),
        };
        let Some(id) = operation_of(&frame) else { break "its guest agent spoke out of turn".to_owned() };
        // An operation that nobody waits for any more was dropped; its last frames may still come.
        let Some(waiting) = shared.operations().waiting.get(&id).cloned() else { continue };
        if let FromGuest::Taken { bytes, .. } = frame {
            // No guest can make the window larger than it was.
            let taken = (bytes as usize).min(wire::INPUT_WINDOW.saturating_sub(waiting.room.available_permits()));
            waiting.room.add_permits(taken);
        } else {
            let _ = waiting.frames.send(frame).await;
        }
    };
    shared.end(why);
}

/// Takes what the guest itself began: questions, and those who come to the doors. Gives back what is an operation's.
fn by_guest(frame: FromGuest, shared: &Arc<Shared>) -> Result<Option<FromGuest>, &'static str> {
    match frame {
        FromGuest::Asked { id, by, bytes, part } => {
            if !shared.hear(id, by, &bytes, part) {
                return Err("its guest agent asked out of turn");
            }
        }
        FromGuest::Knock { id, to, port } => shared.knocks.knock(shared, id, to, port).map_err(|_| KNOCKED)?,
        FromGuest::Said { id, bytes, part } => shared.knocks.said(id, bytes, part).map_err(|_| KNOCKED)?,
        FromGuest::Name { id, bytes } => shared.knocks.name(shared, id, bytes).map_err(|_| KNOCKED)?,
        FromGuest::Withdrawn { id } if id >= wire::KNOCKS_FIRST => shared.knocks.withdraw(id),
        FromGuest::Withdrawn { id } => shared.questions.withdraw(id),
        FromGuest::Taken { id, bytes } if id >= wire::KNOCKS_FIRST => shared.knocks.taken(id, bytes),
        FromGuest::Taken { id, bytes } if id >= wire::ASKED_FIRST => shared.questions.taken(id, bytes),
        other => return Ok(Some(other)),
    }
    Ok(None)
}

const KNOCKED: &str = "its guest agent knocked out of turn";

async fn write_frames(mut write: Writing, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        // A stream that cannot be written ends for the reader too, which tells everybody.
        let written = async {
            write.write_all(&frame).await?;
            // Some streams keep what they are given until they are told.
            write.flush().await
        };
        if written.await.is_err() {
            return;
        }
    }
}

fn encode(message: &ToGuest) -> Result<Vec<u8>, BackendError> {
    let mut frame = Vec::new();
    add(message, &mut frame)?;
    Ok(frame)
}

fn add(message: &ToGuest, frames: &mut Vec<u8>) -> Result<(), BackendError> {
    wire::encode(message, frames).map_err(|error| setup("writing a frame", &error))
}

fn operation_of(frame: &FromGuest) -> Option<u32> {
    match frame {
        FromGuest::Hello { .. } | FromGuest::Broken { .. } => None,
        FromGuest::Output { id, .. }
        | FromGuest::Taken { id, .. }
        | FromGuest::Asked { id, .. }
        | FromGuest::Knock { id, .. }
        | FromGuest::Said { id, .. }
        | FromGuest::Name { id, .. }
        | FromGuest::Withdrawn { id }
        | FromGuest::Record { id, .. }
        | FromGuest::Changed { id, .. }
        | FromGuest::Finished { id, .. }
        | FromGuest::Content { id, .. }
        | FromGuest::Read { id, .. }
        | FromGuest::Entries { id, .. }
        | FromGuest::Listed { id, .. }
        | FromGuest::Done { id }
        | FromGuest::Refused { id, .. } => Some(*id),
    }
}

/// One operation, from its first frame to its last.
#[derive(Debug)]
struct Operation {
    id: u32,
    receiver: mpsc::Receiver<FromGuest>,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
    /// Its last frame has come.
    done: bool,
}

impl Operation {
    async fn send(&self, message: &ToGuest) -> Result<(), BackendError> {
        self.shared.send(message).await
    }

    async fn send_input(&self, bytes: &[u8]) -> Result<(), BackendError> {
        for chunk in bytes.chunks(CHUNK_MAX) {
            self.send(&ToGuest::Input { id: self.id, bytes: chunk.to_vec() }).await?;
        }
        self.send(&ToGuest::InputEnd { id: self.id }).await
    }

    async fn next(&mut self) -> Result<FromGuest, BackendError> {
        match self.receiver.recv().await {
            Some(frame) => {
                self.done = is_last(&frame);
                Ok(frame)
            }
            None => Err(BackendError::Lost { why: self.shared.why_ended() }),
        }
    }

    /// What an unexpected frame means: a refusal, or a guest that does not keep to the protocol.
    fn refusal(&self, frame: FromGuest) -> BackendError {
        match frame {
            FromGuest::Refused { error, .. } => BackendError::File(error),
            _ => {
                self.shared.end("its guest agent answered out of turn".to_owned());
                BackendError::Lost { why: self.shared.why_ended() }
            }
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.shared.operations().waiting.remove(&self.id);
        self.room.close();
        if !self.done {
            self.shared.send_behind(&ToGuest::Stop { id: self.id });
        }
    }
}

fn is_last(frame: &FromGuest) -> bool {
    !matches!(
        frame,
        FromGuest::Output { .. }
            | FromGuest::Record { .. }
            | FromGuest::Changed { .. }
            | FromGuest::Content { .. }
            | FromGuest::Entries { .. }
    )
}

/// A program that was started. Dropping it stops it, as dropping any operation does.
#[derive(Debug)]
pub(crate) struct Started {
    operation: Operation,
    stdin: Option<Writer>,
    /// The parts of a record that have come.
    record: Vec<u8>,
}

impl Started {
    pub(crate) fn number(&self) -> u32 {
        self.operation.id
    }

    pub(crate) async fn next(&mut self) -> Result<Event, BackendError> {
        loop {
            return match self.operation.next().await? {
                FromGuest::Output { stream, bytes, .. } => Ok(Event::Output { stream, bytes }),
                FromGuest::Record { bytes, part, .. } if self.record.len() + bytes.len() <= RECORD_MAX => {
                    self.record.extend_from_slice(&bytes);
                    match part {
                        Part::MoreComes => continue,
                        Part::Last => Ok(Event::Record(std::mem::take(&mut self.record))),
                    }
                }
                FromGuest::Changed { changes, .. } => Ok(Event::Changed(changes)),
                FromGuest::Finished { finish, .. } => Ok(Event::Finished(finish)),
                other => Err(self.operation.refusal(other)),
            };
        }
    }

    pub(crate) fn signal(&mut self, signal: i32) {
        if !self.operation.done {
            self.operation.shared.send_behind(&ToGuest::Signal { id: self.operation.id, signal });
        }
    }

    pub(crate) fn stop(&mut self) {
        if !self.operation.done {
            self.operation.shared.send_behind(&ToGuest::Stop { id: self.operation.id });
        }
    }

    pub(crate) fn stdin(&mut self) -> Option<Box<dyn StdinWriter>> {
        self.stdin.take().map(|writer| Box::new(writer) as Box<dyn StdinWriter>)
    }
}

/// Standard input on its way to a program, never more than the window ahead of it.
#[derive(Debug)]
struct Writer {
    id: u32,
    room: Arc<Semaphore>,
    shared: Arc<Shared>,
}

impl Writer {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), BackendError> {
        for chunk in bytes.chunks(CHUNK_MAX) {
            // Closed when the program is over: nobody reads any more, which is no failure of the writer's.
            let Ok(room) = self.room.acquire_many(chunk.len() as u32).await else { return Ok(()) };
            room.forget();
            self.shared.send(&ToGuest::Input { id: self.id, bytes: chunk.to_vec() }).await?;
        }
        Ok(())
    }
}

impl StdinWriter for Writer {
    fn write(&mut self, bytes: Vec<u8>) -> Later<'_, ()> {
        Box::pin(async move { Writer::write(self, &bytes).await })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.send_behind(&ToGuest::InputEnd { id: self.id });
    }
}

/// Whether a finish looks like the work of the kernel's out-of-memory killer: a kill, or a shell's report of one.
pub(crate) fn was_killed(finish: &Finish) -> bool {
    use belljar_core::Exit;
    matches!(finish.exit, Exit::Signal(9) | Exit::Code(137))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    /// What the link of a guest ended for that takes none of what it is told. It says what `says` hands it, and hears of each
    /// question when it was answered.
    async fn ended_for<F: Future<Output = ()> + Send + 'static>(
        says: impl FnOnce(mpsc::Sender<FromGuest>, mpsc::Receiver<u32>) -> F,
    ) -> String {
        let (ours, theirs) = tokio::io::duplex(256);
        let (read, write) = tokio::io::split(ours);
        let (_from_us, mut to_us) = tokio::io::split(theirs);
        let (tell, mut told) = mpsc::channel(1);
        let (answered, hears) = mpsc::channel(1);
        let guest = tokio::spawn(says(tell, hears));
        let saying = tokio::spawn(async move {
            let mut said = Vec::new();
            wire::encode(&FromGuest::Hello { version: wire::VERSION }, &mut said).unwrap();
            loop {
                if to_us.write_all(&said).await.is_err() {
                    return;
                }
                let Some(frame) = told.recv().await else { return std::future::pending().await };
                said.clear();
                wire::encode(&frame, &mut said).unwrap();
            }
        });
        let init = Init {
            interpreters: Vec::new(),
            env: Vec::new(),
            watch_memory_bytes: None,
            waiting: None,
            copied: false,
            forked: None,
        };
        let link = Link::establish(read, write, init).await.unwrap();
        // As whoever answers questions does, where there is nobody to answer for.
        let answering = async {
            while let Ok(asked) = link.asked().await {
                if let Asked::Question { id, .. } = asked {
                    link.answer(id, b"{}\n".to_vec(), Part::Last);
                    let _ = answered.try_send(id);
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), answering).await.unwrap();
        let Err(BackendError::Lost { why }) = link.list("/", 1, 1).await else { panic!("it still answers") };
        guest.abort();
        saying.abort();
        why
    }

    const TAKES_NOTHING: &str = "its guest agent does not take what it is told";

    /// Nobody serves the doors, so that each who comes is sent away.
    #[tokio::test]
    async fn a_guest_that_knocks_and_does_not_listen_loses_its_link() {
        let knocks = |tell: mpsc::Sender<FromGuest>, _| async move {
            for id in wire::KNOCKS_FIRST.. {
                if tell.send(FromGuest::Knock { id, to: Ipv4Addr::LOCALHOST, port: 1 }).await.is_err() {
                    return;
                }
            }
        };
        assert_eq!(ended_for(knocks).await, TAKES_NOTHING);
    }

    fn question(id: u32) -> FromGuest {
        FromGuest::Asked { id, by: None, bytes: b"{}".to_vec(), part: Part::Last }
    }

    #[tokio::test]
    async fn a_guest_that_asks_and_does_not_listen_has_its_open_questions_and_no_more() {
        let asks = |tell: mpsc::Sender<FromGuest>, mut hears: mpsc::Receiver<u32>| async move {
            for id in wire::ASKED_FIRST.. {
                if tell.send(question(id)).await.is_err() || hears.recv().await.is_none() {
                    return;
                }
            }
        };
        assert_eq!(ended_for(asks).await, "its guest agent asked out of turn");
    }

    #[tokio::test]
    async fn a_guest_that_asks_and_withdraws_and_does_not_listen_loses_its_link() {
        let both = |tell: mpsc::Sender<FromGuest>, mut hears: mpsc::Receiver<u32>| async move {
            for id in wire::ASKED_FIRST.. {
                if tell.send(question(id)).await.is_err() || hears.recv().await.is_none() {
                    return;
                }
                // By now the answer waits for its room; it is a task of its own, which has had its turn.
                tokio::task::yield_now().await;
                let _ = tell.send(FromGuest::Withdrawn { id }).await;
            }
        };
        assert_eq!(ended_for(both).await, TAKES_NOTHING);
    }
}
