//! Changes that forwarded servers tell of, for clients of the newer revision that listen.

use belljar_gateway::upstream::Bridge;
use rmcp::model::{ServerNotification, SubscriptionFilter};
use rmcp::service::SubscriptionSink;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;

use super::{Forward, Passage, Told};

/// Whether an address is for us, whoever else is forwarded.
pub(crate) fn is_own(uri: &str) -> bool {
    uri.starts_with("belljar:")
}

impl Forward {
    /// Listens to a server's lists for as long as the connection lasts.
    pub(super) async fn follow(&self, line: &Bridge, owner: &str) {
        let filter = SubscriptionFilter::builder().prompts_list_changed().resources_list_changed().build();
        let Some(mut subscription) = line.listen(filter).await else { return };
        let (news, owner) = (self.news.clone(), owner.to_owned());
        tokio::spawn(async move {
            while let Ok(Some(notice)) = subscription.next().await {
                let _ = news.send(Told { owner: owner.clone(), notice });
            }
        });
    }
}

impl Passage<'_> {
    /// Tells one that listens of what it asked for, until it is gone.
    pub(crate) async fn listen(&self, accepted: &SubscriptionFilter, sink: &SubscriptionSink) {
        let mut news = self.forward.news.subscribe();
        let uris = accepted.resource_subscriptions.iter().flatten().filter(|uri| !is_own(uri));
        let uris: Vec<String> = uris.cloned().collect();
        let mut watching = JoinSet::new();
        for server in &self.forward.servers {
            let Ok(line) = self.line(server).await else { continue };
            if uris.is_empty() {
                continue;
            }
            let filter = SubscriptionFilter::builder().resource_subscriptions(uris.clone()).build();
            let Some(mut subscription) = line.listen(filter).await else { continue };
            let sink = sink.clone();
            watching.spawn(async move {
                while let Ok(Some(notice)) = subscription.next().await {
                    if let ServerNotification::ResourceUpdatedNotification(updated) = notice
                        && sink.notify_resource_updated(updated.params.uri).await.is_err()
                    {
                        return;
                    }
                }
            });
        }
        let wants = |wanted: Option<bool>| wanted == Some(true);
        loop {
            let told = match news.recv().await {
                Ok(told) if told.owner == self.who.as_str() => told.notice,
                Ok(_) | Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return std::future::pending().await,
            };
            let sent = match told {
                ServerNotification::PromptListChangedNotification(_) if wants(accepted.prompts_list_changed) => {
                    sink.notify_prompt_list_changed().await
                }
                ServerNotification::ResourceListChangedNotification(_) if wants(accepted.resources_list_changed) => {
                    sink.notify_resource_list_changed().await
                }
                _ => Ok(()),
            };
            if sent.is_err() {
                return;
            }
        }
    }
}
