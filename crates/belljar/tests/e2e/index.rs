//! A package index of our own on loopback, and a server that uses it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tempfile::TempDir;

use crate::client::StdioClient;
use crate::server::{NOBODY, Server, User, folder};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/index.py");
pub(crate) const CANARY: &str = "what-only-the-host-knows";

/// The version of uv that Belljar brings in where there is none. The index has it, from the registry, as any mirror would.
const UV: &str = "uv==0.13.7";

/// A directory with its wheel, which stays for the next time.
fn uv() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uv");
        if fs::read_dir(&folder).map_or(0, Iterator::count) == 0 {
            let words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", UV, "--dest"];
            assert!(Command::new("python3").args(words).arg(&folder).status().unwrap().success());
        }
        folder
    })
}

#[derive(Debug)]
pub(crate) struct Index {
    process: Child,
    folder: TempDir,
    pub(crate) port: u16,
    visits: Arc<AtomicUsize>,
}

impl Index {
    pub(crate) fn start() -> Index {
        let folder = folder(0o755);
        let canary = folder.path().join("canary");
        fs::write(&canary, CANARY).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host_port = listener.local_addr().unwrap().port().to_string();
        let visits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&visits);
        std::thread::spawn(move || {
            listener.incoming().for_each(|_| {
                counted.fetch_add(1, Ordering::SeqCst);
            })
        });
        let mut process = Command::new("python3")
            .arg(SCRIPT)
            .args([folder.path(), &canary])
            .arg(host_port)
            .arg(uv())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Index { process, folder, port: port.trim().parse().unwrap(), visits }
    }

    /// Paths that were asked for and begin so, with their authorization.
    pub(crate) fn requests(&self, begin: &str) -> Vec<String> {
        let all = fs::read_to_string(self.folder.path().join("requests")).unwrap_or_default();
        all.lines().filter(|line| line.starts_with(begin)).map(str::to_owned).collect()
    }

    /// Lets go of what it holds back.
    pub(crate) fn release(&self) {
        fs::write(self.folder.path().join("release"), "").unwrap();
    }

    /// How often somebody came to a port of the host that no sandbox may reach.
    pub(crate) fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A store of layers for a user's servers.
#[derive(Debug)]
pub(crate) struct Store {
    folder: TempDir,
}

impl Store {
    pub(crate) fn new(user: &User) -> Store {
        let folder = folder(0o755);
        if user.name == "nobody" {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Store { folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.cache().join("belljar/layers")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Everything in it, but for what is there before anything is built.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path())
            .map(|entries| entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect())
            .unwrap_or_default();
        names.sort();
        names
    }

    /// Layers that are finished.
    pub(crate) fn layers(&self) -> Vec<String> {
        let is_layer = |name: &String| name.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.names().into_iter().filter(is_layer).collect()
    }

    /// What a build that did not come to its end has left.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with("building-") || name.starts_with("removing-")).collect()
    }

    pub(crate) fn configuration(&self, more: &str) -> PathBuf {
        let path = self.folder.path().join("config.toml");
        let cache = self.cache();
        let hosts = "[network.hosts]\n\"index.test\" = \"127.0.0.1\"";
        fs::write(&path, format!("{more}\n{hosts}\n[packages]\ncache = {:?}\n", cache.display().to_string())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// A server whose packages come from this index.
    pub(crate) fn serve(&self, user: &mut User, index: &Index, more: &str) -> Server<StdioClient> {
        point_at(user, index, "");
        let config = self.configuration(more);
        user.serve_with(&["--config", config.to_str().unwrap()])
    }
}

/// Sets the host's own settings to this index, with a name and password if there are any.
pub(crate) fn point_at(user: &mut User, index: &Index, credentials: &str) {
    user.env.retain(|(name, _)| name != "PIP_INDEX_URL");
    user.env.push(("PIP_INDEX_URL".into(), format!("http://{credentials}index.test:{}/simple/", index.port)));
}

/// How many there are below a directory of files with this name.
pub(crate) fn found(directory: &Path, name: &str) -> usize {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let below = |entry: fs::DirEntry| {
        let here = usize::from(entry.file_name().to_str() == Some(name));
        here + if entry.file_type().is_ok_and(|kind| kind.is_dir()) { found(&entry.path(), name) } else { 0 }
    };
    entries.flatten().map(below).sum()
}
