//! QEMU's own protocol: a line of JSON for each command, one for its answer, and lines for what happens in between.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use belljar_core::BackendError;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::{setup, sys};

/// No answer that we ask for is as long.
const LINE_MAX: u64 = 1 << 20;

/// A QEMU that does not answer a command by then hangs.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Qmp {
    stream: Mutex<BufReader<UnixStream>>,
}

impl Qmp {
    /// Takes the greeting, and agrees on what both can.
    pub(super) async fn greet(stream: UnixStream) -> Result<Qmp, BackendError> {
        let qmp = Qmp { stream: Mutex::new(BufReader::new(stream)) };
        let greeting = in_time(async { line(&mut *qmp.stream.lock().await).await }).await?;
        if greeting.get("QMP").is_none() {
            return Err(setup("greeting QEMU", &"it speaks another protocol"));
        }
        qmp.ask("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    pub(super) async fn ask(&self, command: &str, arguments: Value) -> Result<Value, BackendError> {
        self.ask_with(command, arguments, &[]).await
    }

    /// With descriptors, for a command that takes some.
    pub(super) async fn ask_with(
        &self,
        command: &str,
        arguments: Value,
        fds: &[BorrowedFd<'_>],
    ) -> Result<Value, BackendError> {
        let mut stream = self.stream.lock().await;
        in_time(async {
            let text = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
            let failed = |error: std::io::Error| setup(command, &error);
            if fds.is_empty() {
                stream.write_all(text.as_bytes()).await.map_err(failed)?;
            } else {
                let inner = stream.get_ref();
                inner.writable().await.map_err(failed)?;
                // Short enough that the socket takes it at once: nothing else is on its way there.
                sys::send(inner.as_fd(), text.as_bytes(), fds).map_err(failed)?;
            }
            loop {
                let mut answer = line(&mut stream).await?;
                if let Some(error) = answer.get("error") {
                    let why = error.get("desc").and_then(Value::as_str).unwrap_or("it did not say why");
                    return Err(setup(command, &why));
                }
                if let Some(value) = answer.get_mut("return") {
                    return Ok(value.take());
                }
            }
        })
        .await
    }

    /// Waits for a migration, which is what QEMU calls the making and the taking of a snapshot.
    pub(super) async fn migrated(&self, patience: Duration) -> Result<(), BackendError> {
        let until = tokio::time::Instant::now() + patience;
        loop {
            let state = self.ask("query-migrate", json!({})).await?;
            match state.get("status").and_then(Value::as_str) {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    let why = state.get("error-desc").and_then(Value::as_str).unwrap_or("it did not say why");
                    return Err(setup("taking a snapshot", &why));
                }
                _ if tokio::time::Instant::now() > until => {
                    return Err(setup("taking a snapshot", &"it took too long"));
                }
                // It tells of changes too, but not of each on every way to the end.
                _ => tokio::time::sleep(Duration::from_millis(3)).await,
            }
        }
    }
}

async fn in_time<T>(work: impl Future<Output = Result<T, BackendError>>) -> Result<T, BackendError> {
    let late = |_| Err(setup("asking QEMU", &"it does not answer"));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(late)
}

async fn line(stream: &mut BufReader<UnixStream>) -> Result<Value, BackendError> {
    let mut text = String::new();
    let read = stream.take(LINE_MAX).read_line(&mut text).await.map_err(|error| setup("listening to QEMU", &error))?;
    if read == 0 {
        return Err(setup("listening to QEMU", &"it has ended"));
    }
    serde_json::from_str(&text).map_err(|error| setup("listening to QEMU", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays QEMU: says each of these, the first by itself and the others each after a line that came.
    async fn played(says: &'static [&'static str]) -> (Qmp, tokio::task::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let playing = tokio::spawn(async move {
            let (read, mut write) = theirs.into_split();
            let mut lines = BufReader::new(read).lines();
            let mut heard = Vec::new();
            for (number, said) in says.iter().enumerate() {
                if number > 0 {
                    heard.push(lines.next_line().await.unwrap().unwrap());
                }
                write.write_all(format!("{said}\r\n").as_bytes()).await.unwrap();
            }
            heard
        });
        (Qmp::greet(ours).await.unwrap(), playing)
    }

    #[tokio::test]
    async fn events_are_passed_over_and_errors_are_told() {
        let (qmp, playing) = played(&[
            r#"{"QMP": {"version": {}}}"#,
            r#"{"return": {}}"#,
            "{\"event\": \"STOP\"}\n{\"return\": {\"running\": true}}",
            r#"{"error": {"class": "GenericError", "desc": "no such drive"}}"#,
        ])
        .await;
        let status = qmp.ask("query-status", json!({})).await.unwrap();
        assert_eq!(status, json!({"running": true}));
        let error = qmp.ask("blockdev-del", json!({"node-name": "x"})).await.unwrap_err();
        assert!(error.to_string().contains("no such drive"), "{error}");
        let heard = playing.await.unwrap();
        assert!(heard[0].contains("qmp_capabilities") && heard[2].contains(r#""node-name":"x""#), "{heard:?}");
        // It has ended, and that is no hang.
        assert!(matches!(qmp.ask("quit", json!({})).await, Err(BackendError::Setup { .. })));
    }
}
