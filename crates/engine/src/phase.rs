//! What a run is at, in words for whoever waits for it.

use std::sync::Arc;

use tokio::sync::watch;

/// Before a program runs, it may have to wait for its turn, and its packages may have to come. Cheap to clone; all clones
/// tell the same.
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

    /// For whoever must not miss a change between two looks.
    pub fn listen(&self) -> Listener {
        Listener(self.0.subscribe())
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

#[derive(Debug)]
pub struct Listener(watch::Receiver<String>);

impl Listener {
    /// What it is, which counts as heard.
    pub fn now(&mut self) -> String {
        self.0.borrow_and_update().clone()
    }

    /// Returns when it is another than was last heard; never, once nobody is left to say so.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
