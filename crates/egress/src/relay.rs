//! Bytes from one side to the other and back, without a look at them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::pipe::{BULK, Pipe};
use crate::serving::Meter;

const BUFFER: usize = 64 * 1024;

/// Until both sides have ended, nothing has moved for `idle`, or the sandbox has had its share.
pub(crate) async fn relay(
    client: &mut TcpStream,
    server: &mut TcpStream,
    meter: &Meter,
    idle: Duration,
) -> io::Result<()> {
    let moved = Moved { begun: Instant::now(), last: AtomicU64::new(0) };
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let out = one_way(client_read, server_write, &moved, |count| meter.sent(count));
    let back = one_way(server_read, client_write, &moved, |count| meter.received(count));
    tokio::select! {
        result = async { tokio::try_join!(out, back) } => result.map(|_| ()),
        () = moved.nothing_for(idle) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// When something last moved.
struct Moved {
    begun: Instant,
    /// Milliseconds since then.
    last: AtomicU64,
}

impl Moved {
    fn now(&self) {
        self.last.store(self.begun.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    async fn nothing_for(&self, idle: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let still = self.begun.elapsed().saturating_sub(last);
            if still >= idle {
                return;
            }
            tokio::time::sleep(idle - still).await;
        }
    }
}

async fn one_way(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    moved: &Moved,
    count: impl Fn(usize) -> io::Result<()>,
) -> io::Result<()> {
    let mut total = 0;
    let mut buffer = vec![0; BUFFER];
    while total < BULK {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        count(read)?;
        moved.now();
        total += read as u64;
    }
    let Some(pipe) = Pipe::new() else {
        return by_hand(from, to, buffer, moved, count).await;
    };
    drop(buffer);
    let (source, sink): (&TcpStream, &TcpStream) = (from.as_ref(), to.as_ref());
    loop {
        let mut held = pipe.fill(source, u64::MAX).await?;
        if held == 0 {
            return to.shutdown().await;
        }
        count(held)?;
        while held > 0 {
            held -= pipe.drain(sink, held).await?;
            moved.now();
        }
    }
}

async fn by_hand(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut buffer: Vec<u8>,
    moved: &Moved,
    count: impl Fn(usize) -> io::Result<()>,
) -> io::Result<()> {
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..read]).await?;
        count(read)?;
        moved.now();
    }
}
