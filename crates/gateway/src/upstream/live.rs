//! A connection while it lasts, and the tasks that look after it.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, ServiceError, Subscription};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::connect::Client;
use super::failure::{challenge_of, of_call, upstream};
use super::listing::fetch;
use super::server::Server;
use crate::error::CallError;

const SUBSCRIBE_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Live {
    pub(super) peer: Peer<RoleClient>,
    /// Cancelled when the connection has ended and that was noted.
    pub(super) over: CancellationToken,
    stop: CancellationToken,
    /// Cancelled when its process, if it has one, is no more.
    gone: Option<CancellationToken>,
    /// Whether the end was our wish.
    meant: AtomicBool,
    calls: AtomicUsize,
    last: Mutex<Instant>,
    changed: Arc<Notify>,
    listed: watch::Sender<Option<Result<(), CallError>>>,
}

/// Somebody who uses a connection, so that it is not idle.
#[derive(Debug)]
pub(super) struct Use(Arc<Live>);

impl Deref for Use {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Live {
    pub(super) fn new(
        peer: Peer<RoleClient>,
        stop: CancellationToken,
        changed: Arc<Notify>,
        gone: Option<CancellationToken>,
    ) -> Live {
        Live {
            peer,
            over: CancellationToken::new(),
            stop,
            gone,
            meant: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            last: Mutex::new(Instant::now()),
            changed,
            listed: watch::Sender::new(None),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        !self.meant.load(Ordering::SeqCst) && !self.over.is_cancelled() && !self.peer.is_transport_closed()
    }

    pub(super) fn used(self: &Arc<Self>) -> Use {
        self.calls.fetch_add(1, Ordering::SeqCst);
        Use(self.clone())
    }

    /// How long nobody has used it.
    pub(super) fn idle(&self) -> Duration {
        match self.calls.load(Ordering::SeqCst) {
            0 => self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed(),
            _ => Duration::ZERO,
        }
    }

    pub(super) fn end(&self) -> bool {
        self.meant.store(true, Ordering::SeqCst);
        self.stop.cancel();
        true
    }

    pub(super) async fn gone(&self) {
        match &self.gone {
            Some(gone) => gone.cancelled().await,
            None => self.over.cancelled().await,
        }
    }

    /// Waits for the list of tools to have been asked for since the start. After a failure it is asked for again.
    pub(super) async fn listed(&self) -> Result<(), CallError> {
        let mut listed = self.listed.subscribe();
        if matches!(&*listed.borrow(), Some(Err(_))) {
            self.listed.send_replace(None);
            self.changed.notify_one();
        }
        tokio::select! {
            listed = listed.wait_for(Option::is_some) => listed.ok().and_then(|listed| listed.clone()).unwrap_or(Ok(())),
            () = self.over.cancelled() => Err(upstream("", "the server ended before its tools were known; call again")),
        }
    }

    /// Until the connection ends; notes it if that was nobody's wish.
    pub(super) async fn watch(self: Arc<Self>, server: Arc<Server>, client: Client) {
        let ended = server.ended.clone();
        let live = self.clone();
        let obey = async move {
            ended.cancelled().await;
            live.end();
            std::future::pending::<()>().await;
        };
        tokio::select! { _ = client.waiting() => {}, () = obey => {} }
        if !self.meant.load(Ordering::SeqCst) {
            let name = &server.config.name;
            server.failed(upstream(name, format!("`{name}` ended by itself")));
        }
        self.over.cancel();
    }

    /// Keeps the list of tools up to date.
    pub(super) async fn follow(self: Arc<Self>, server: Arc<Server>) {
        let over = self.over.clone();
        tokio::select! { () = self.follow_on(server) => {}, () = over.cancelled() => {} }
    }

    async fn follow_on(self: Arc<Self>, server: Arc<Server>) {
        let mut subscription = None;
        let mut first = true;
        loop {
            let begun = Instant::now();
            let result = self.refresh(&server).await;
            let took = begun.elapsed();
            self.listed.send_replace(Some(result));
            if std::mem::take(&mut first) {
                subscription = self.subscribe().await;
            }
            let told = async {
                let Some(told) = &mut subscription else { return std::future::pending().await };
                matches!(told.next().await, Ok(Some(_)))
            };
            let goes_on = tokio::select! { () = self.changed.notified() => true, goes_on = told => goes_on };
            if !goes_on {
                subscription = None;
                self.changed.notified().await;
            }
            // One of these seldom comes alone, and whoever sends them without end is not followed without end. After a quiet
            // while a change is looked at soon.
            let rest = server.settings.debounce.max(took * 4).saturating_sub(begun.elapsed());
            tokio::time::sleep(rest.max(server.settings.debounce / 6)).await;
        }
    }

    async fn refresh(&self, server: &Server) -> Result<(), CallError> {
        match fetch(&self.peer, server.settings.list_limit).await {
            Ok(fetched) => {
                server.store(fetched.listed, fetched.cut);
                Ok(())
            }
            Err(error) => {
                let name = &server.config.name;
                server.challenged(challenge_of(&error));
                let error = match error {
                    ServiceError::Timeout { timeout } => {
                        upstream(name, format!("`{name}` did not list its tools within {} s", timeout.as_secs_f64()))
                    }
                    ServiceError::TransportClosed => {
                        let _ = tokio::time::timeout(Duration::from_millis(500), self.gone()).await;
                        upstream(name, format!("`{name}` ended before its tools were known{}", server.words.clause()))
                    }
                    error => of_call(name, &error, &server.words.clause()),
                };
                server.list_failed(&error);
                Err(error)
            }
        }
    }

    /// Servers of the newer protocol tell only those who ask to be told.
    async fn subscribe(&self) -> Option<Subscription> {
        let info = self.peer.peer_info()?;
        if info.protocol_version.has_initialize() || info.capabilities.tools.as_ref()?.list_changed != Some(true) {
            return None;
        }
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        tokio::time::timeout(SUBSCRIBE_MAX, self.peer.listen(filter)).await.ok()?.ok()
    }

    /// Ends it when nobody has used it for long.
    pub(super) async fn tire(self: Arc<Self>, server: Arc<Server>) {
        loop {
            let rest = server.settings.idle.saturating_sub(self.idle()).max(Duration::from_millis(10));
            tokio::select! { () = self.over.cancelled() => return, () = tokio::time::sleep(rest) => {} }
            if server.end_if_idle(&self).await {
                tracing::debug!(server = server.config.name, "ended after a while without calls");
                return;
            }
        }
    }
}
