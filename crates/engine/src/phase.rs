//! What a run is at, in words for whoever waits for it.

use std::sync::Arc;

use tokio::sync::watch;

/// Before a program runs, its packages may have to come. Cheap to clone; all clones tell the same.
#[derive(Debug, Clone)]
pub struct Phase(Arc<watch::Sender<String>>);

impl Default for Phase {
    fn default() -> Self {
        Phase(Arc::new(watch::Sender::new(String::new())))
    }
}

impl Phase {
    /// An empty one is the program itself.
    pub fn now(&self) -> String {
        self.0.borrow().clone()
    }

    /// Returns when it is another.
    pub async fn changed(&self) {
        // It fails only when the sender is gone, which is ours.
        let _ = self.0.subscribe().changed().await;
    }

    /// It is this from now on.
    pub fn is(&self, words: &str) {
        self.0.send_if_modified(|now| {
            let differs = now != words;
            if differs {
                words.clone_into(now);
            }
            differs
        });
    }
}
