//! What of this host must not be seen from inside: a file, a listening socket, processes.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use tempfile::NamedTempFile;

/// Each lasts as long as this, and leaves nothing.
#[derive(Debug)]
pub(super) struct Facts {
    /// Readable for everyone, so that only a wall is in the way.
    canary: NamedTempFile,
    /// What the canary says; nobody could guess it.
    pub(super) song: String,
    /// Nobody accepts: a connection that is made at all is one too many.
    listener: TcpListener,
    /// The command lines of this server and of the host's first process.
    pub(super) lines: Vec<Vec<u8>>,
}

impl Facts {
    pub(super) fn look() -> io::Result<Facts> {
        let named = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix("belljar-canary-");
            builder
        };
        // A directory of temporary files that was named for a while, and is gone, is no reason to run nothing.
        let mut canary = named().tempfile().or_else(|_| named().tempfile_in("/tmp"))?;
        canary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        // The random part of a name that did not exist before.
        let name = canary.path().file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let song = format!("{name}-{:x}", std::process::id());
        canary.write_all(song.as_bytes())?;
        canary.flush()?;
        let lines = ["self", "1"].map(|process| fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default());
        Ok(Facts {
            canary,
            song,
            listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
            lines: lines.into_iter().filter(|line| !line.is_empty()).collect(),
        })
    }

    pub(super) fn path(&self) -> String {
        self.canary.path().to_string_lossy().into_owned()
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }
}
