//! The host's end of the conversation with a machine's keeper. A keeper answers what it was asked, and tells by itself when
//! its kernel has ended something for want of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_core::BackendError;
use belljar_core::wire::{self, FromKeeper, ToKeeper, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::setup;

/// A keeper that has not answered by then hangs, or its machine does.
const PATIENCE: Duration = Duration::from_secs(60);

/// And one that goes on and on with what was built does not mean to come to an end.
const COLLECT_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Control {
    write: Mutex<(OwnedWriteHalf, mpsc::Receiver<FromKeeper>)>,
    killed: Arc<AtomicU64>,
    reader: JoinHandle<()>,
}

/// What a keeper may send before somebody takes it: it is asked one thing at a time.
const QUEUE: usize = 4;

impl Control {
    pub(super) fn new(stream: UnixStream) -> Control {
        let (read, write) = stream.into_split();
        let (answers, answered) = mpsc::channel(QUEUE);
        let killed = Arc::new(AtomicU64::new(0));
        let reader = tokio::spawn(listen(read, answers, Arc::clone(&killed)));
        Control { write: Mutex::new((write, answered)), killed, reader }
    }

    /// Waits until the machine is up.
    pub(super) async fn ready(&self, patience: Duration) -> Result<(), BackendError> {
        let (_, answers) = &mut *self.write.lock().await;
        match tokio::time::timeout(patience, answers.recv()).await {
            Ok(Some(FromKeeper::Ready { version: VERSION })) => Ok(()),
            Ok(Some(FromKeeper::Failed { step, errno })) => Err(failed(&step, errno)),
            Ok(Some(_)) => Err(setup("booting", &"the machine's keeper began out of turn")),
            Ok(None) => Err(setup("booting", &"the machine ended")),
            Err(_) => Err(setup("booting", &format!("the machine was not up after {} s", patience.as_secs()))),
        }
    }

    pub(super) async fn ask(&self, request: &ToKeeper) -> Result<(), BackendError> {
        let mut frame = Vec::new();
        wire::encode(request, &mut frame).map_err(|error| setup("asking the keeper", &error))?;
        let (write, answers) = &mut *self.write.lock().await;
        let asked = async {
            write.write_all(&frame).await.map_err(|error| setup("asking the keeper", &error))?;
            match answers.recv().await {
                Some(FromKeeper::Done) => Ok(()),
                Some(FromKeeper::Failed { step, errno }) => Err(failed(&step, errno)),
                Some(_) => Err(setup("asking the keeper", &"it answered out of turn")),
                None => Err(setup("asking the keeper", &"its machine is gone")),
            }
        };
        let late = |_| Err(setup("asking the keeper", &"it does not answer"));
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(late)
    }

    /// Has everything sent that was built, and hands each piece on, until it says that it is all, or `take` is an error.
    pub(super) async fn collect(
        &self,
        mut take: impl FnMut(FromKeeper) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let mut frame = Vec::new();
        wire::encode(&ToKeeper::Collect, &mut frame).map_err(|error| setup("asking the keeper", &error))?;
        let (write, answers) = &mut *self.write.lock().await;
        write.write_all(&frame).await.map_err(|error| setup("asking the keeper", &error))?;
        let end = Instant::now() + COLLECT_MAX;
        loop {
            match tokio::time::timeout_at(end.min(Instant::now() + PATIENCE), answers.recv()).await {
                _ if Instant::now() >= end => {
                    return Err(setup("collecting what was built", &"the keeper comes to no end"));
                }
                Ok(Some(FromKeeper::Done)) => return Ok(()),
                Ok(Some(FromKeeper::Failed { step, errno })) => return Err(failed(&step, errno)),
                Ok(Some(piece)) => take(piece)?,
                Ok(None) => return Err(setup("collecting what was built", &"the machine is gone")),
                Err(_) => return Err(setup("collecting what was built", &"the keeper does not answer")),
            }
        }
    }

    /// How many processes the machine's kernel has ended for want of memory; goes on counting.
    pub(super) fn killed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.killed)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn listen(mut read: OwnedReadHalf, answers: mpsc::Sender<FromKeeper>, killed: Arc<AtomicU64>) {
    let mut buffer = Vec::new();
    loop {
        // What does not parse, or comes without having been asked for, ends the conversation, as it does for a guest.
        let Ok(decoded) = wire::decode::<FromKeeper>(&buffer) else { return };
        match decoded {
            Some((message, used)) => {
                buffer.drain(..used);
                match message {
                    FromKeeper::Killed { count } => killed.store(count, Ordering::Release),
                    answer => {
                        // Whoever sends more than is taken waits.
                        if answers.send(answer).await.is_err() {
                            return;
                        }
                    }
                }
            }
            None => {
                if !matches!(read.read_buf(&mut buffer).await, Ok(1..)) {
                    return;
                }
            }
        }
    }
}

fn failed(step: &str, errno: i32) -> BackendError {
    let why = std::io::Error::from_raw_os_error(errno);
    let step: String = step.chars().filter(|c| !c.is_control()).take(100).collect();
    setup("in the machine", &format!("{step}: {why}"))
}
