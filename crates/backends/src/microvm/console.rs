//! The last lines of a machine's console, for the error should it not come up.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

/// What is kept of it.
const KEPT: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Console(Arc<Mutex<Vec<u8>>>);

impl Console {
    /// Listens until the other end is gone. Everything is read, so that no machine waits for us.
    pub(super) fn of(mut stream: impl AsyncRead + Send + Unpin + 'static) -> Console {
        let console = Console::default();
        let kept = console.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                kept.add(&buffer[..count]);
            }
        });
        console
    }

    pub(super) fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let many = kept.len().saturating_sub(KEPT);
        kept.drain(..many);
    }

    /// The last lines, without what only a terminal understands.
    pub(super) fn last(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let lines = text.lines().map(|line| line.chars().filter(|c| !c.is_control()).collect::<String>());
        let lines: Vec<String> = lines.filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_no_more_than_that() {
        let console = Console::default();
        for number in 0..2000 {
            console.add(format!("line {number}\r\n\x1b[0m\n").as_bytes());
        }
        assert_eq!(console.last(), "[0m; line 1998; [0m; line 1999; [0m".replacen("[0m; ", "line 1997; [0m; ", 1));
        assert!(console.0.lock().unwrap().len() <= KEPT);
    }
}
