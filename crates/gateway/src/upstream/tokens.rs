//! The tokens of one server, in a file that only its owner can read.

use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::transport::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex as Turn;
use zeroize::Zeroizing;

use super::files;
use super::hidden::Hidden;

/// Named after the server's address, so that another address has other tokens.
#[derive(Debug, Clone)]
pub(super) struct Tokens {
    directory: PathBuf,
    file: String,
    /// Of the client that is being registered, until it is stored along.
    secret: Arc<Mutex<Option<Hidden>>>,
    /// One renewal at a time: a token to renew with is often good for one use.
    turn: Arc<Turn<()>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    credentials: StoredCredentials,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_secret: Option<String>,
}

type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

fn failed(error: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

impl Tokens {
    pub(super) fn new(directory: &Path, url: &str) -> Tokens {
        let file = format!("{}.json", super::hex(&Sha256::digest(url)));
        Tokens { directory: directory.to_owned(), file, secret: Arc::default(), turn: Arc::default() }
    }

    fn read(&self) -> Result<Option<Stored>, AuthError> {
        let bytes = files::read(&self.directory, &self.file).map_err(failed)?.map(Zeroizing::new);
        // What it says may be quoted in the error, so that it is not passed on.
        bytes
            .map(|bytes| serde_json::from_slice(&bytes).map_err(|_| failed("the file is damaged; log in again")))
            .transpose()
    }

    /// Of the client that the tokens were given to.
    pub(super) fn secret(&self) -> Option<Hidden> {
        self.read().ok()??.client_secret.map(Hidden::new)
    }

    pub(super) fn client(&self) -> Option<String> {
        Some(self.read().ok()??.credentials.client_id)
    }

    pub(super) fn set_secret(&self, secret: Option<Hidden>) {
        *self.secret.lock().unwrap_or_else(PoisonError::into_inner) = secret;
    }

    pub(super) fn remove(&self) -> io::Result<bool> {
        files::remove(&self.directory, &self.file)
    }

    fn write(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let secret = self.secret.lock().unwrap_or_else(PoisonError::into_inner).clone().or_else(|| self.secret());
        let stored = Stored { credentials, client_secret: secret.map(|secret| secret.reveal().to_owned()) };
        let bytes = Zeroizing::new(serde_json::to_vec(&stored).map_err(failed)?);
        files::write(&self.directory, &self.file, &bytes).map_err(failed)
    }
}

impl CredentialStore for Tokens {
    fn load<'life0, 'async_trait>(&'life0 self) -> Later<'async_trait, Option<StoredCredentials>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(ready(self.read().map(|stored| stored.map(|stored| stored.credentials))))
    }

    fn save<'life0, 'async_trait>(&'life0 self, credentials: StoredCredentials) -> Later<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(ready(self.write(credentials)))
    }

    fn clear<'life0, 'async_trait>(&'life0 self) -> Later<'async_trait, ()>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(ready(self.remove().map(drop).map_err(failed)))
    }

    fn acquire_refresh_guard<'life0, 'async_trait>(&'life0 self) -> Later<'async_trait, Option<CredentialRefreshGuard>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async { Ok(Some(CredentialRefreshGuard::new(self.turn.clone().lock_owned().await))) })
    }
}
