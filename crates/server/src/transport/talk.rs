//! A conversation over a stream: one message a line, in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_meters::{Meters, Refused as Why};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::conversation::{self, Bounds, Door, Gone, Open, Outgoing, Pipe, Said};
use super::lines::{Line, Lines};
use super::messages::{MESSAGE_BYTES_MAX, Refused};
use crate::handler::{Handler, Hangup};

/// What has been asked for when the input ends may still be answered, for this long. Then it is killed.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long an error of ours waits for a caller that sends and does not read.
const REPLY_WAIT: Duration = Duration::from_secs(10);
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Whether a caller whose stream ends can come back for what it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Return {
    /// The server ends with its only caller.
    Never,
    /// By another connection.
    Possible,
}

/// The steps in which a conversation ends.
#[derive(Debug, Clone)]
struct Ends {
    /// The caller hung up; what it began may be asked for again.
    hangup: Option<CancellationToken>,
    /// What is being worked on is given up.
    stop: CancellationToken,
    /// What is not written yet is given up, too.
    gone: CancellationToken,
}

impl Ends {
    fn stop(&self) {
        if let Some(hangup) = &self.hangup {
            hangup.cancel();
        }
        self.stop.cancel();
    }
}

/// A conversation under way. Whoever has it holds it, and then ends it.
#[derive(Debug)]
pub(super) struct Talk {
    ends: Ends,
    pipe: Pipe,
    open: Open,
    // Dropped with this: nobody reads or writes on after it.
    reading: JoinSet<()>,
    writing: JoinSet<()>,
}

impl Talk {
    /// What is refused before it reaches a handler is counted by `meters`.
    pub(super) fn begin<R, W>(
        reader: R,
        writer: W,
        bounds: Bounds,
        back: Return,
        stop: CancellationToken,
        meters: Arc<Meters>,
    ) -> Talk
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let hangup = (back == Return::Possible).then(CancellationToken::new);
        let ends = Ends { hangup, stop, gone: CancellationToken::new() };
        let (door, pipe, said) = conversation::begin(bounds, ends.gone.clone());
        let (mut reading, mut writing) = (JoinSet::new(), JoinSet::new());
        let open = said.open.clone();
        writing.spawn(write(writer, said, ends.clone()));
        let ear = Ear { door, outgoing: pipe.outgoing.clone(), stalled: AtomicBool::new(false), meters };
        reading.spawn(read(Lines::new(reader, MESSAGE_BYTES_MAX), ear, ends.clone()));
        Talk { ends, pipe, open, reading, writing }
    }

    /// Answers until the caller is gone; or until `stopping`, and then what was asked before.
    pub(super) async fn hold(&self, handler: Handler, stopping: &CancellationToken) {
        tokio::select! {
            () = conversation::hold(handler, self.pipe.clone(), &self.ends.stop) => {}
            () = self.until_answered(stopping) => {}
        }
        self.ends.stop();
    }

    /// Returns when nothing is open that was asked, or soon: a request may have no end of its own.
    async fn until_answered(&self, stopping: &CancellationToken) {
        const LOOKED_EVERY: Duration = Duration::from_millis(5);
        stopping.cancelled().await;
        let answered = async {
            while !self.open.is_empty() {
                tokio::time::sleep(LOOKED_EVERY).await;
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS, answered).await;
    }

    /// Writes what is still to be said, for a moment.
    pub(super) async fn end(self) {
        let Talk { ends, pipe, reading, mut writing, .. } = self;
        drop((pipe, reading));
        let written = async { while writing.join_next().await.is_some() {} };
        tokio::select! {
            () = written => {}
            () = ends.gone.cancelled() => tracing::debug!("nobody reads the last answers"),
            () = tokio::time::sleep(LAST_WRITE) => tracing::debug!("nobody reads the last answers"),
        }
    }
}

#[derive(Debug)]
struct Ear {
    door: Door,
    outgoing: mpsc::Sender<Outgoing>,
    /// The caller did not read for so long that errors of ours no longer wait for it.
    stalled: AtomicBool,
    meters: Arc<Meters>,
}

async fn read<R: AsyncRead + Unpin>(mut lines: Lines<R>, ear: Ear, ends: Ends) {
    loop {
        let heard = match lines.next().await {
            Ok(Some(line)) => ear.hear(line, &ends).await,
            Ok(None) => break,
            Err(error) => {
                tracing::info!(%error, "what a caller says can no longer be read");
                break;
            }
        };
        if heard.is_err() {
            break;
        }
    }
    drop(ear);
    tokio::time::sleep(LAST_ANSWERS).await;
    ends.stop();
    tokio::time::sleep(LAST_WRITE).await;
    ends.gone.cancel();
}

impl Ear {
    async fn hear(&self, line: Line, ends: &Ends) -> Result<(), Gone> {
        let admitted = match line {
            Line::Whole(line) => self.door.admit(&line).map_err(|refused| (refused.why(), refused)),
            Line::TooLong(ends) => Err((Why::TooLarge, Refused::too_long(&ends))),
        };
        match admitted {
            Ok(None) => Ok(()),
            Ok(Some(mut message)) => {
                if let Some(hangup) = &ends.hangup {
                    message.insert_extension(Hangup(hangup.clone()));
                }
                self.door.pass_on(message).await
            }
            Err((why, refused)) => {
                self.meters.refused(why);
                self.refuse(&refused).await
            }
        }
    }

    async fn refuse(&self, refused: &Refused) -> Result<(), Gone> {
        let reply = Outgoing { json: refused.message().to_string().into_bytes(), answers: None, weight: None };
        let wait = if self.stalled.load(Ordering::Relaxed) { Duration::ZERO } else { REPLY_WAIT };
        let sent = tokio::time::timeout(wait, self.outgoing.send(reply)).await;
        self.stalled.store(sent.is_err(), Ordering::Relaxed);
        sent.unwrap_or(Ok(())).map_err(|_| Gone)
    }
}

async fn write<W: AsyncWrite + Unpin>(mut writer: W, mut said: Said, ends: Ends) {
    while let Some(Outgoing { json: mut line, answers, weight }) = said.queue.recv().await {
        line.push(b'\n');
        let written = async {
            writer.write_all(&line).await?;
            writer.flush().await
        };
        if let Err(error) = written.await {
            tracing::info!(%error, "nobody reads the answers");
            ends.stop();
            ends.gone.cancel();
            return;
        }
        drop(weight);
        if let Some(id) = answers {
            said.open.end(&id);
        }
    }
}
