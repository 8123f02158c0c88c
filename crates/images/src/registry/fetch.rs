//! Asking a registry, more than once where that may help, and writing down no more than was promised.

use std::io::{self, Seek, SeekFrom, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::OciDescriptor;
use oci_client::{Client, Reference};
use tokio::io::AsyncWrite;

use super::manifest::Descriptor;
use crate::bounds::Bounds;
use crate::error::{ImageError, ImageErrorKind};

/// Why a registry gave nothing, and whether it might the next time.
#[derive(Debug)]
pub(super) struct Refused {
    error: ImageError,
    may_pass: bool,
}

impl Refused {
    pub(super) fn slow() -> Refused {
        Refused { error: ImageError::new(ImageErrorKind::Unreachable, "the registry takes too long"), may_pass: true }
    }

    pub(super) fn of(error: &OciDistributionError, reference: &Reference) -> Refused {
        let (host, image) = (reference.resolve_registry(), reference.whole());
        let refused = |kind, may_pass, words: String| Refused { error: ImageError::new(kind, words), may_pass };
        let by_code = |code: u16| match code {
            401 | 403 => refused(ImageErrorKind::Denied, false, format!("{host} does not give {image} to us")),
            404 => refused(ImageErrorKind::NotFound, false, format!("{host} has no image {image}")),
            429 => refused(ImageErrorKind::Busy, true, format!("{host} has had too many requests from here")),
            500.. => refused(ImageErrorKind::Unreachable, true, format!("{host} failed with status {code}")),
            code => refused(ImageErrorKind::Unreachable, false, format!("{host} answered with status {code}")),
        };
        match error {
            OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => {
                by_code(401)
            }
            OciDistributionError::ServerError { code, .. } => by_code(*code),
            OciDistributionError::ImageManifestNotFoundError(_) => by_code(404),
            OciDistributionError::RegistryError { envelope, .. } => {
                match envelope.errors.first().map(|first| &first.code) {
                    Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => by_code(401),
                    Some(OciErrorCode::Toomanyrequests) => by_code(429),
                    Some(
                        OciErrorCode::ManifestUnknown
                        | OciErrorCode::NameUnknown
                        | OciErrorCode::NotFound
                        | OciErrorCode::BlobUnknown,
                    ) => by_code(404),
                    _ => refused(ImageErrorKind::Unreachable, false, format!("{host} refuses {image}: {envelope}")),
                }
            }
            // A broken cable may have done it, so once more is worth it.
            OciDistributionError::DigestError(error) => {
                refused(ImageErrorKind::Corrupt, true, format!("{host} gave something else than {image} has: {error}"))
            }
            OciDistributionError::IoError(error) => match error.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(NotAsPromised) => refused(
                    ImageErrorKind::Corrupt,
                    false,
                    format!("{host} gave more of {image} than its manifest promises"),
                ),
                None => Refused { error: ImageError::of_files("keeping a layer", error), may_pass: false },
            },
            OciDistributionError::RequestError(error) => {
                let words = format!("{host} cannot be reached: {}", innermost(error));
                refused(ImageErrorKind::Unreachable, true, words)
            }
            other => refused(ImageErrorKind::Corrupt, false, format!("{host} answered nonsense: {other}")),
        }
    }
}

/// What is at the bottom of an error: above it are only names of layers of software.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// How often something is asked for again: as the bounds allow, with longer and longer pauses, as long as the next time may be
/// better.
#[derive(Debug)]
pub(super) struct Patience {
    left: u32,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(bounds: &Bounds) -> Patience {
        Patience { left: bounds.attempts.saturating_sub(1), pause: bounds.pause }
    }

    /// Returns when it is time for another attempt, if there is one.
    pub(super) async fn after(&mut self, refused: Refused) -> Result<(), ImageError> {
        if !refused.may_pass || self.left == 0 {
            return Err(refused.error);
        }
        self.left -= 1;
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_secs(30));
        Ok(())
    }
}

/// What a blob is written to. Begins anew for each attempt.
pub(super) trait Place: Write + Send {
    fn empty(&mut self) -> io::Result<()>;
}

impl Place for Vec<u8> {
    fn empty(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}

impl Place for std::fs::File {
    fn empty(&mut self) -> io::Result<()> {
        self.set_len(0)?;
        self.seek(SeekFrom::Start(0)).map(drop)
    }
}

pub(super) async fn fetch_blob<P: Place, T: Fn(u64) + Send + Sync>(
    client: &Client,
    reference: &Reference,
    descriptor: &Descriptor,
    bounds: &Bounds,
    to: &mut P,
    tell: T,
) -> Result<(), ImageError> {
    let mut patience = Patience::new(bounds);
    loop {
        match fetch_once(client, reference, descriptor, to, &tell).await {
            Ok(()) => return Ok(()),
            Err(refused) => patience.after(refused).await?,
        }
    }
}

async fn fetch_once<P: Place, T: Fn(u64) + Send + Sync>(
    client: &Client,
    reference: &Reference,
    descriptor: &Descriptor,
    to: &mut P,
    tell: &T,
) -> Result<(), Refused> {
    let wanted = OciDescriptor {
        digest: descriptor.digest.clone(),
        size: i64::try_from(descriptor.size).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    };
    let began = to.empty().map_err(|error| ImageError::of_files("keeping a layer", &error));
    began.map_err(|error| Refused { error, may_pass: false })?;
    let mut sink = Sink { to, tell, written: 0, promised: descriptor.size };
    // Checks the digest when all is there; one that was cut short has another.
    client.pull_blob(reference, &wanted, &mut sink).await.map_err(|error| Refused::of(&error, reference))?;
    if sink.written == descriptor.size {
        return Ok(());
    }
    let words = "the registry gave less than the manifest promises";
    Err(Refused { error: ImageError::new(ImageErrorKind::Corrupt, words), may_pass: true })
}

/// More than the manifest says.
#[derive(Debug, thiserror::Error)]
#[error("more than was promised")]
struct NotAsPromised;

/// Writes at once: a file's writes go to the page cache, and a thread of its own for each would cost more.
struct Sink<'a, P, T> {
    to: &'a mut P,
    tell: &'a T,
    written: u64,
    promised: u64,
}

impl<P: Place, T: Fn(u64)> AsyncWrite for Sink<'_, P, T> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sink = &mut *self;
        if sink.written + bytes.len() as u64 > sink.promised {
            return Poll::Ready(Err(io::Error::other(NotAsPromised)));
        }
        Poll::Ready(sink.to.write(bytes).inspect(|written| {
            sink.written += *written as u64;
            (sink.tell)(sink.written);
        }))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.to.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
