//! A request on its way to a forwarded server, and everything that goes to and fro until its answer.

use std::collections::VecDeque;
use std::pin::Pin;

use belljar_gateway::error::{CallError, ErrorKind};
use belljar_gateway::upstream::{Bridge, Exchange, Step, Word};
use rmcp::ErrorData;
use rmcp::model::{
    ClientRequest, ClientResult, ErrorCode, InputRequest, InputRequests, InputResponses, RequestMetaObject,
    ServerNotification, ServerRequest, ServerResult,
};
use rmcp::service::ServiceError;
use serde::de::DeserializeOwned;

use super::{Passage, failed};

/// Questions that one request of an older client may lead to, one after the other.
const ROUNDS_MAX: usize = 10;
/// Questions that wait while another is open.
const QUESTIONS_MAX: usize = 32;

/// What a connection says of itself, and a request's own progress.
const OF_THE_CONNECTION: [&str; 3] =
    ["io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientInfo", "progressToken"];

type Asked<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Why a request has no result: the server's own error, or that it could not be asked.
#[derive(Debug)]
pub(super) enum Trouble {
    Theirs(ErrorData),
    Ours(CallError),
}

impl From<Trouble> for ErrorData {
    fn from(trouble: Trouble) -> ErrorData {
        match trouble {
            Trouble::Theirs(error) => error,
            Trouble::Ours(error) => failed(error),
        }
    }
}

impl Passage<'_> {
    /// Sends a request through, and stays for its answer.
    pub(super) async fn request(&self, server: &str, request: ClientRequest) -> Result<ServerResult, Trouble> {
        let line = self.line(server).await.map_err(Trouble::Ours)?;
        let exchange = line.request(request, self.meta(&line)).await.map_err(Trouble::Ours)?;
        self.until_answered(server, exchange).await
    }

    /// The same of a request that may end with questions. To a client that is used to be asked in the middle they are put
    /// there. `make` is given the answers so far.
    pub(super) async fn request_with_questions(
        &self,
        server: &str,
        make: impl Fn(Option<(InputResponses, Option<String>)>) -> ClientRequest,
    ) -> Result<ServerResult, Trouble> {
        let mut answered = None;
        for _ in 0..ROUNDS_MAX {
            match self.request(server, make(answered.take())).await? {
                ServerResult::InputRequiredResult(asked) if self.is_older() => {
                    let answers = self.answers(asked.input_requests.unwrap_or_default()).await;
                    answered = Some((answers.map_err(Trouble::Theirs)?, asked.request_state));
                }
                result => return Ok(result),
            }
        }
        let message = format!("`{server}` asked more than {ROUNDS_MAX} times before it answered");
        Err(Trouble::Ours(CallError::new(ErrorKind::Upstream, message)))
    }

    async fn answers(&self, questions: InputRequests) -> Result<InputResponses, ErrorData> {
        let mut answers = InputResponses::new();
        for (key, question) in questions {
            let question = match question {
                InputRequest::CreateMessage(request) => ServerRequest::from(request),
                InputRequest::Elicitation(request) => request.into(),
                InputRequest::ListRoots(request) => request.into(),
                _ => return Err(nobody()),
            };
            let answer = self.put(question).await?;
            answers.insert(key, serde_json::to_value(&answer).unwrap_or_default());
        }
        Ok(answers)
    }

    async fn until_answered(&self, server: &str, mut exchange: Exchange) -> Result<ServerResult, Trouble> {
        let patience = self.forward.gateway.patience(server);
        let mut asked: Option<Asked<'_>> = None;
        let mut waiting = VecDeque::new();
        loop {
            if asked.is_none() {
                asked = waiting.pop_front();
            }
            let is_asking = asked.is_some();
            let open = async {
                match &mut asked {
                    Some(asked) => asked.await,
                    None => tokio::time::sleep(patience).await,
                }
            };
            let step = tokio::select! {
                step = exchange.next() => step,
                () = open => {
                    if !is_asking {
                        return Err(Trouble::Ours(silent(server, patience)));
                    }
                    asked = None;
                    continue;
                }
            };
            match step {
                Step::Answer(answer) => return answer.map_err(Trouble::Ours)?.map_err(Trouble::Theirs),
                Step::Word(Word::Notice(notice)) => self.pass_on(notice).await,
                Step::Word(Word::Question(question, reply)) if waiting.len() < QUESTIONS_MAX => {
                    // In this very task, by which the protocol library knows whose stream it goes out on.
                    waiting.push_back(Box::pin(async move {
                        let _ = reply.send(self.put(question).await);
                    }));
                }
                Step::Word(Word::Question(..)) => {}
            }
        }
    }

    /// What the client says of itself, and whatever else its request has with it.
    fn meta(&self, line: &Bridge) -> RequestMetaObject {
        let mut meta = self.context.meta.clone();
        for key in OF_THE_CONNECTION {
            meta.0.0.remove(key);
        }
        // Ours, or what was sent and can be read; with one that cannot, what belongs to it goes too.
        match belljar_meters::current() {
            Some(span) => meta.set_traceparent(span.traceparent()),
            None => {
                meta.0.0.remove("traceparent");
                meta.0.0.remove("tracestate");
            }
        }
        if !line.is_older() {
            meta.set_client_capabilities(self.context.client_capabilities().unwrap_or_default());
        }
        meta
    }

    /// Asks the client.
    async fn put(&self, question: ServerRequest) -> Result<ClientResult, ErrorData> {
        match self.context.peer.send_request(question).await {
            Ok(answer) => Ok(answer),
            Err(ServiceError::McpError(error)) => Err(error),
            Err(_) => Err(nobody()),
        }
    }

    async fn pass_on(&self, notice: ServerNotification) {
        let peer = &self.context.peer;
        let _ = match notice {
            ServerNotification::ProgressNotification(progress) => {
                let Some(token) = self.context.meta.get_progress_token() else { return };
                let mut told = progress.params;
                told.progress_token = token;
                peer.notify_progress(told).await
            }
            ServerNotification::LoggingMessageNotification(_)
                if !self.is_older() && self.context.meta.log_level().is_none() =>
            {
                return;
            }
            notice => peer.send_notification(notice).await,
        };
    }
}

fn nobody() -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "the client could not be asked", None)
}

fn silent(server: &str, patience: std::time::Duration) -> CallError {
    let seconds = patience.as_secs_f64();
    let message = format!("`{server}` said nothing for {seconds} s; the call may or may not have taken effect");
    CallError { limit: Some(seconds), ..CallError::new(ErrorKind::ToolTimeout, message) }
}

/// A result as what it should be.
pub(super) fn typed<T: DeserializeOwned>(result: &ServerResult) -> Result<T, ErrorData> {
    let read = serde_json::to_value(result).and_then(serde_json::from_value);
    read.map_err(|_| ErrorData::internal_error("a forwarded server answered with something else", None))
}
