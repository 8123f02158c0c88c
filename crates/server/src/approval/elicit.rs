//! A form on its way to a client and back, while the request that it is for is open.

use std::sync::Arc;

use belljar_gateway::approval::Pending;
use rmcp::model::{ClientResult, ElicitRequest, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle};
use rmcp::{RoleServer, ServiceError};
use tokio::sync::OwnedMutexGuard;

use super::PATIENCE;
use super::form::{self, Decision, Titles};
use super::held::{self, Held};

/// A form at a client.
pub(super) struct Form {
    asked: Vec<u64>,
    sent: Result<RequestHandle<RoleServer>, ServiceError>,
}

impl Form {
    /// In the task of the request that it belongs to: by that the transport knows the stream to send it on.
    pub(super) async fn send(peer: &Peer<RoleServer>, titles: Titles, pending: &[Pending]) -> Form {
        let asked = pending.iter().map(|pending| pending.id).collect();
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(form::form(pending, titles)));
        let options = PeerRequestOptions::with_timeout(PATIENCE);
        Form { asked, sent: peer.send_request_with_option(request, options).await }
    }

    /// What the person says. A client that fails, or answers nothing in time, denies.
    pub(super) async fn decision(self) -> Decision {
        let answer = match self.sent {
            Ok(handle) => handle.await_response().await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(ClientResult::ElicitResult(answer)) => Decision::of(&answer, &self.asked),
            other => {
                tracing::warn!(?other, "a client could not ask its user; what was asked is denied");
                Decision::deny(&self.asked)
            }
        }
    }

    /// The same, put into effect, for as long as the occasion lasts.
    pub(super) fn decide(
        self,
        held: &Arc<Held>,
        floor: OwnedMutexGuard<()>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (approvals, owner, occasion) = (held.approvals.clone(), held.owner.clone(), held.occasion);
        let gone = held.gone.clone();
        async move {
            if let Some(decision) = gone.run_until_cancelled(self.decision()).await {
                held::decide(&approvals, &owner, occasion, &decision);
            }
            drop(floor);
        }
    }
}
