//! What a server says besides its answers, heard in the order in which it said it. The protocol library hands notifications
//! to tasks of their own, where the last word on a request may come after its answer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    ClientResult, ErrorCode, ErrorData, GetMeta as _, JsonRpcMessage, ProgressToken, ServerNotification, ServerRequest,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::lines::matters;

/// Words that wait for one request. What comes beyond is dropped: a client that is so slow misses little in it.
const WORDS_MAX: usize = 256;
/// Requests that are open on one connection at once.
const LINES_MAX: usize = 256;

/// Something that a server says while a request is open.
#[derive(Debug)]
pub enum Word {
    Notice(ServerNotification),
    Question(ServerRequest, oneshot::Sender<Result<ClientResult, ErrorData>>),
}

#[derive(Debug)]
struct Line {
    number: u64,
    words: mpsc::Sender<Word>,
}

/// Who hears what.
#[derive(Debug)]
pub(super) struct Switchboard {
    lines: Mutex<Vec<Line>>,
    next: AtomicU64,
    /// What belongs to no request.
    pub(super) news: broadcast::Sender<ServerNotification>,
}

impl Default for Switchboard {
    fn default() -> Switchboard {
        Switchboard { lines: Mutex::default(), next: AtomicU64::new(0), news: broadcast::Sender::new(WORDS_MAX) }
    }
}

/// A request's line; dropping it hangs up.
#[derive(Debug)]
pub(super) struct Heard {
    board: Arc<Switchboard>,
    number: u64,
    pub(super) words: mpsc::Receiver<Word>,
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.board.lines().retain(|line| line.number != self.number);
    }
}

impl Switchboard {
    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line for a request that is about to be sent; `None` when too many are open.
    pub(super) fn open(self: &Arc<Self>) -> Option<Heard> {
        let (sender, words) = mpsc::channel(WORDS_MAX);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut lines = self.lines();
        if lines.len() >= LINES_MAX {
            return None;
        }
        lines.push(Line { number, words: sender });
        Some(Heard { board: self.clone(), number, words })
    }

    fn notice(&self, notice: &ServerNotification) {
        match notice {
            // Whose token it is only the request's own line knows.
            ServerNotification::ProgressNotification(_) => {
                for line in self.lines().iter() {
                    let _ = line.words.try_send(Word::Notice(notice.clone()));
                }
            }
            // It says of no request which one it belongs to; the youngest is the best guess.
            ServerNotification::LoggingMessageNotification(_) => {
                if let Some(line) = self.lines().last() {
                    let _ = line.words.try_send(Word::Notice(notice.clone()));
                    return;
                }
                let _ = self.news.send(notice.clone());
            }
            ServerNotification::CancelledNotification(_) => {}
            // What belongs to a subscription is told to whoever made it.
            _ if notice.get_meta().subscription_id().is_some() => {}
            _ => {
                let _ = self.news.send(notice.clone());
            }
        }
    }

    /// Hands a question to whoever has a request open.
    pub(super) async fn ask(&self, question: ServerRequest) -> Result<ClientResult, ErrorData> {
        let nobody = || ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "there is nobody here who could be asked", None);
        let (reply, answer) = oneshot::channel();
        let asked = match self.lines().last() {
            Some(line) => line.words.try_send(Word::Question(question, reply)).is_ok(),
            None => false,
        };
        if !asked {
            return Err(nobody());
        }
        answer.await.unwrap_or_else(|_| Err(nobody()))
    }
}

/// Whether nobody but those who listen here has use for it.
fn is_heard(notice: &ServerNotification) -> bool {
    matches!(notice, ServerNotification::ProgressNotification(_) | ServerNotification::LoggingMessageNotification(_))
}

pub(super) fn is_progress_of(notice: &ServerNotification, token: &ProgressToken) -> Option<bool> {
    match notice {
        ServerNotification::ProgressNotification(progress) => Some(progress.params.progress_token == *token),
        _ => None,
    }
}

/// A transport that is listened in on.
pub(super) struct Tap<T> {
    transport: T,
    board: Option<Arc<Switchboard>>,
}

impl<T> Tap<T> {
    pub(super) fn new(transport: T, board: Option<Arc<Switchboard>>) -> Tap<T> {
        Tap { transport, board }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn name() -> std::borrow::Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.transport.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.transport.receive().await?;
            let is_passed = match (&self.board, &message) {
                (Some(board), JsonRpcMessage::Notification(notice)) => {
                    board.notice(&notice.notification);
                    !is_heard(&notice.notification)
                }
                (None, message) => matters(message),
                (Some(_), _) => true,
            };
            if is_passed {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}
