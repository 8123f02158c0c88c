//! rmcp's sessions, in which no two requests have the same id at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, GetExtensions, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, SessionError,
};
use rmcp::transport::streamable_http_server::session::{EventStream, SessionId};
use tokio::sync::SetOnce;

use super::ids::{Claim, Ids};

/// In the extensions of a request, for whoever waits for its answer: which id it has that another one has, too. rmcp would call that
/// a fault of ours, to the caller and in the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Clash(Arc<SetOnce<RequestId>>);

impl Clash {
    pub(super) async fn id(&self) -> RequestId {
        self.0.wait().await.clone()
    }
}

#[derive(Debug)]
pub(super) struct Older {
    pub(super) inner: LocalSessionManager,
    ids: Mutex<HashMap<SessionId, Ids>>,
}

impl Older {
    pub(super) fn new(inner: LocalSessionManager) -> Older {
        Older { inner, ids: Mutex::default() }
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<SessionId, Ids>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ids_of(&self, session: &SessionId) -> Ids {
        self.ids().get(session).cloned().unwrap_or_default()
    }

    async fn claim(
        &self,
        session: &SessionId,
        message: &ClientJsonRpcMessage,
    ) -> Result<Option<Claim>, LocalSessionManagerError> {
        let ClientJsonRpcMessage::Request(request) = message else { return Ok(None) };
        if let Some(claim) = self.ids_of(session).claim(&request.id).await {
            return Ok(Some(claim));
        }
        let parts = request.request.extensions().get::<Parts>();
        if let Some(Clash(id)) = parts.and_then(|parts| parts.extensions.get()) {
            let _ = id.set(request.id.clone());
            // Whoever is told drops this.
            return std::future::pending().await;
        }
        Err(SessionError::DuplicatedRequestId(0).into())
    }
}

/// Between the service and rmcp's side of a session.
pub(super) struct Line<T> {
    inner: T,
    ids: Ids,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Line<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &message {
            ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
            ServerJsonRpcMessage::Error(error) => error.id.clone(),
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
        };
        let (sending, ids) = (self.inner.send(message), self.ids.clone());
        async move {
            let sent = sending.await;
            // By now the session knows no more of the request.
            if let Some(id) = answered {
                ids.end(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.inner.receive().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

#[expect(refining_impl_trait, reason = "the streams are boxed, since their trait is none that we could name")]
impl SessionManager for Older {
    type Error = LocalSessionManagerError;
    type Transport = Line<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (session, inner) = self.inner.create_session().await?;
        let ids = Ids::default();
        self.ids().insert(session.clone(), ids.clone());
        Ok((session, Line { inner, ids }))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.inner.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.inner.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.ids().remove(id);
        self.inner.close_session(id).await
    }

    async fn create_stream(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<EventStream, Self::Error> {
        let claim = self.claim(id, &message).await?;
        let stream = self.inner.create_stream(id, message).await?;
        if let Some(claim) = claim {
            claim.hand_over();
        }
        Ok(Box::pin(stream))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        if let ClientJsonRpcMessage::Notification(notification) = &message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(request) = &cancelled.params.request_id
        {
            self.ids_of(id).cancel(request);
        }
        self.inner.accept_message(id, message).await
    }

    async fn create_standalone_stream(&self, id: &SessionId) -> Result<EventStream, Self::Error> {
        Ok(Box::pin(self.inner.create_standalone_stream(id).await?))
    }

    async fn resume(&self, id: &SessionId, last_event_id: String) -> Result<EventStream, Self::Error> {
        Ok(Box::pin(self.inner.resume(id, last_event_id).await?))
    }
}
