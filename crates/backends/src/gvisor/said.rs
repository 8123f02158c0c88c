//! What runsc says on its standard error: somebody else's text, of which sandboxed code may have had a hand in some.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::Semaphore;

/// What is kept of it.
const KEPT_MAX: usize = 2048;

#[derive(Debug, Clone)]
pub(super) struct Said {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Closed when nothing more can come; nobody gets a permit.
    is_whole: Arc<Semaphore>,
}

impl Default for Said {
    fn default() -> Said {
        Said { kept: Arc::default(), is_whole: Arc::new(Semaphore::new(0)) }
    }
}

impl Said {
    /// Keeps the beginning of what comes, and lets the rest go by, so that whoever writes is never held up.
    pub(super) fn listen_to(&self, stderr: OwnedFd) {
        let Ok(mut stderr) = pipe::Receiver::from_owned_fd(stderr) else { return };
        let said = self.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                said.keep(&buffer[..count]);
            }
            said.is_whole.close();
        });
    }

    /// Returns when nobody is left who could say more, or after this time.
    pub(super) async fn whole(&self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.is_whole.acquire()).await;
    }

    fn keep(&self, bytes: &[u8]) {
        let mut said = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT_MAX - said.len();
        said.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// All of it in one line, without anything that a terminal would take for a command.
    pub(super) fn line(&self) -> String {
        let said = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&said);
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").chars().filter(|letter| !letter.is_control()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_one_short_line() {
        let said = Said::default();
        said.keep(b"starting container:\n\tno \x1b[31mway\x07");
        assert_eq!(said.line(), "starting container: no [31mway");
        for _ in 0..10 {
            said.keep(&[b'x'; 1000]);
        }
        assert_eq!(said.kept.lock().unwrap().len(), KEPT_MAX);
    }
}
