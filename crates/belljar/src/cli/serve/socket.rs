//! The unix socket of `--socket`: its file, which only our own user may use, and which is gone when we are.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use belljar_engine::Engine;
use belljar_server::{ServeError, Surface, UnixSettings, serve_unix};
use tokio_util::sync::CancellationToken;

use crate::complaint::Complaint;

/// Serves on the socket, if there is one, until `stop`. Its file goes with this future.
pub(super) async fn serve(
    engine: Engine,
    socket: Option<Socket>,
    surface: Surface,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let Some(mut socket) = socket else { return Ok(()) };
    let Some(listener) = socket.listener.take() else { return Ok(()) };
    let settings = UnixSettings::new(rustix::process::geteuid().as_raw(), surface);
    // Whoever started us waits for this line; without a stderr nobody does.
    let _ = writeln!(io::stderr(), "belljar: serving MCP at unix:{}", socket.file.path.display());
    serve_unix(engine, listener, settings, stop).await;
    Ok(())
}

#[derive(Debug)]
pub(super) struct Socket {
    listener: Option<tokio::net::UnixListener>,
    file: File,
}

/// The socket's file. Removed with this, unless another has taken its place.
#[derive(Debug)]
struct File {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for File {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| identity(&there) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Socket {
    /// Within a runtime.
    pub(super) fn bind(path: &Path) -> Result<Socket, Complaint> {
        let shown = path.display();
        let hint = "give --socket a path in a directory of your own, such as $XDG_RUNTIME_DIR/belljar/mcp.sock";
        let failed = |what: &str, error: io::Error| Complaint::new(format!("{what} {shown}: {error}"), hint);
        let Some(name) = path.file_name() else {
            return Err(Complaint::new(format!("{shown} is no path of a socket"), hint));
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        check_directory(directory)?;
        check_vacant(path)?;
        // Nobody can connect to it before its mode is right, and it takes the place of a dead one in one step.
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let hidden = directory.join(hidden);
        let _ = fs::remove_file(&hidden);
        let listener = UnixListener::bind(&hidden).map_err(|error| failed("cannot make the socket", error))?;
        let placed = (|| {
            fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
            let identity = identity(&fs::symlink_metadata(&hidden)?);
            fs::rename(&hidden, path)?;
            let file = File { path: path.to_owned(), identity };
            listener.set_nonblocking(true)?;
            Ok(Socket { listener: Some(tokio::net::UnixListener::from_std(listener)?), file })
        })();
        placed.map_err(|error| {
            let _ = fs::remove_file(&hidden);
            failed("cannot make the socket", error)
        })
    }
}

/// In a directory that others may write to, they could put a socket of theirs in the place of ours.
fn check_directory(directory: &Path) -> Result<(), Complaint> {
    let shown = directory.display();
    let failed = |error: io::Error| {
        let hint = "give --socket a path in a directory that you can write to";
        Complaint::new(format!("cannot use the directory {shown}: {error}"), hint)
    };
    let metadata = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).create(directory).map_err(failed)?;
            fs::metadata(directory).map_err(failed)?
        }
        found => found.map_err(failed)?,
    };
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    if ![own, 0].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
        let what = format!("other users can write to the directory {shown}, and could put a socket of theirs there");
        let hint = "give --socket a path in a directory of your own, such as one that `mkdir -m 700` made";
        return Err(Complaint::new(what, hint));
    }
    Ok(())
}

/// Nothing is there, or a socket that nobody listens on.
fn check_vacant(path: &Path) -> Result<(), Complaint> {
    let shown = path.display();
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let hint = "give --socket a path in a directory that you can read";
            return Err(Complaint::new(format!("cannot look at {shown}: {error}"), hint));
        }
        Ok(there) => there,
    };
    if !there.file_type().is_socket() {
        return Err(Complaint::new(format!("{shown} is there already, and is no socket"), "choose another path"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => {
            let what = format!("{shown} is there already, and cannot be asked whether anybody serves on it: {error}");
            Err(Complaint::new(what, "choose another path, or remove it"))
        }
        Ok(_) => {
            Err(Complaint::new(format!("another server serves on {shown}"), "stop that one, or choose another path"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_and_goes_with_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("mcp.sock");
        let socket = Socket::bind(&path).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(UnixStream::connect(&path).is_ok());
        let complaint = Socket::bind(&path).unwrap_err();
        assert!(complaint.what.starts_with("another server serves on"), "{complaint}");
        assert!(UnixStream::connect(&path).is_ok(), "the first still serves");
        drop(socket);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing is left");
    }

    #[tokio::test]
    async fn a_dead_one_is_replaced_and_the_place_of_another_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a server that was killed leaves its file");
        let socket = Socket::bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(socket);
        assert!(UnixStream::connect(&path).is_ok(), "not ours to remove");
        drop(other);
    }

    #[tokio::test]
    async fn what_is_no_socket_or_open_to_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "kept").unwrap();
        assert!(Socket::bind(&file).unwrap_err().what.contains("no socket"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(Socket::bind(&link).unwrap_err().what.contains("no socket"));
        for open in [0o777, 0o1777, 0o770] {
            fs::set_permissions(folder.path(), Permissions::from_mode(open)).unwrap();
            let complaint = Socket::bind(&folder.path().join("s")).unwrap_err();
            assert!(complaint.what.contains("other users can write"), "{open:o}: {complaint}");
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let long = folder.path().join("x".repeat(200));
        assert!(Socket::bind(&long).unwrap_err().what.contains("cannot make the socket"));
    }
}
