//! What a program prints, told as it prints it to clients that asked for log messages: those of the older revisions by a
//! level for their connection, newer ones by a level in the request. Nobody else hears any.

#![expect(deprecated, reason = "the protocol is about to drop this; older clients still ask")]

use std::sync::{Mutex, PoisonError};

use belljar_core::Stream;
use belljar_engine::Piece;
use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::{Peer, RequestContext};
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::clean;
use crate::hide::Hider;

/// A line that is longer is told in pieces.
const LINE_BYTES_MAX: usize = 8 * 1024;

/// The level that a connection set. A clone is for another connection, which has set none.
#[derive(Debug, Default)]
pub(crate) struct Level(Mutex<Option<LoggingLevel>>);

impl Clone for Level {
    fn clone(&self) -> Level {
        Level::default()
    }
}

impl Level {
    pub(crate) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }

    pub(crate) fn get(&self) -> Option<LoggingLevel> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        _ => 4,
    }
}

fn level_of(stream: Stream) -> LoggingLevel {
    match stream {
        Stream::Stdout => LoggingLevel::Info,
        Stream::Stderr => LoggingLevel::Warning,
    }
}

/// Where to tell what is printed, if anybody asked.
#[derive(Debug)]
pub(crate) struct Log {
    told: Option<(Peer<RoleServer>, LoggingLevel)>,
    hider: Option<Hider>,
}

impl Log {
    pub(crate) fn of(context: &RequestContext<RoleServer>, session: &Level, hider: Option<Hider>) -> Log {
        let is_older = context.protocol_version().is_none_or(|version| version.has_initialize());
        let level = if is_older { session.get() } else { context.meta.log_level() };
        let level = level.filter(|level| rank(*level) <= rank(LoggingLevel::Warning));
        Log { told: level.map(|level| (context.peer.clone(), level)), hider }
    }

    #[cfg(test)]
    pub(crate) fn unwanted() -> Log {
        Log { told: None, hider: None }
    }

    /// A way for what is printed, if anybody wants to hear it.
    pub(crate) fn channel(&self) -> (Option<UnboundedSender<Piece>>, Option<UnboundedReceiver<Piece>>) {
        match &self.told {
            Some(_) => {
                let (sender, receiver) = mpsc::unbounded_channel();
                (Some(sender), Some(receiver))
            }
            None => (None, None),
        }
    }

    /// Awaits `work`, and tells meanwhile what comes. All that was printed before its end is told before its end.
    pub(crate) async fn during<W: Future>(&self, heard: Option<UnboundedReceiver<Piece>>, work: W) -> W::Output {
        let (Some((peer, level)), Some(mut heard)) = (&self.told, heard) else { return work.await };
        let mut teller =
            Teller { peer, level: *level, hider: self.hider.as_ref(), run: String::new(), rest: <_>::default() };
        let mut work = std::pin::pin!(work);
        let output = loop {
            tokio::select! {
                biased;
                output = &mut work => break output,
                Some(printed) = heard.recv() => teller.tell(printed).await,
            }
        };
        while let Ok(printed) = heard.try_recv() {
            teller.tell(printed).await;
        }
        teller.end().await;
        output
    }
}

struct Teller<'a> {
    peer: &'a Peer<RoleServer>,
    level: LoggingLevel,
    hider: Option<&'a Hider>,
    run: String,
    /// The begun line of each stream.
    rest: [Vec<u8>; 2],
}

impl Teller<'_> {
    async fn tell(&mut self, printed: Piece) {
        let Piece { run, stream, bytes, is_last } = printed;
        if self.run.is_empty() {
            self.run = run.as_str().to_owned();
        }
        let rest = &mut self.rest[at(stream)];
        rest.extend(bytes);
        if let Some(text) = lines(rest) {
            self.say(stream, text).await;
        }
        if is_last {
            self.rest = <_>::default();
            self.say(stream, "[more was printed; the answer has it]".to_owned()).await;
        }
    }

    /// What has no end of a line.
    async fn end(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut self.rest[at(stream)]);
            if !rest.is_empty() {
                self.say(stream, clean::clean(&rest)).await;
            }
        }
    }

    async fn say(&self, stream: Stream, mut text: String) {
        if rank(level_of(stream)) < rank(self.level) {
            return;
        }
        if let Some(hider) = self.hider {
            hider.text(&mut text);
        }
        let logger = match stream {
            Stream::Stdout => "belljar.stdout",
            Stream::Stderr => "belljar.stderr",
        };
        let message = LoggingMessageNotificationParam::new(level_of(stream), json!({"run_id": self.run, "text": text}));
        let _ = self.peer.notify_logging_message(message.with_logger(logger)).await;
    }
}

fn at(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Takes the lines that are whole, as one text, and what is too long to wait for its end.
fn lines(rest: &mut Vec<u8>) -> Option<String> {
    let end = match rest.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => at + 1,
        None if rest.len() >= LINE_BYTES_MAX => rest.len(),
        None => return None,
    };
    let whole: Vec<u8> = rest.drain(..end).collect();
    Some(clean::clean(whole.strip_suffix(b"\n").unwrap_or(&whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_whole() {
        let mut rest = b"one\ntwo\nthr".to_vec();
        assert_eq!(lines(&mut rest).as_deref(), Some("one\ntwo"));
        assert_eq!(rest, b"thr");
        assert_eq!(lines(&mut rest), None);
        rest.extend(vec![b'x'; LINE_BYTES_MAX]);
        assert!(lines(&mut rest).is_some() && rest.is_empty());
    }

    #[test]
    fn a_level_is_of_one_connection() {
        let level = Level::default();
        level.set(LoggingLevel::Info);
        assert_eq!((level.get(), level.clone().get()), (Some(LoggingLevel::Info), None));
    }
}
