//! The host that the cases try to reach: a canary file, listeners, a bystander process; and the names they go by.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use regex_lite::Regex;
use serde_json::Value;

use super::http::Tokens;
use super::upstream::Mock;
use super::zones::{self, Zones};

pub(crate) const NOBODY: u32 = 65534;
/// Where a case listens inside its sandbox; must be free on the host.
pub(crate) const SANDBOX_PORT: u16 = 47199;
const RESOURCE_SCHEME: &str = "belljar";
const LISTENER_GREETING: &[u8] = b"HTTP/1.0 200 OK\r\n\r\nSECBAT-LISTENER\n";

/// A folder that goes when its owner goes.
#[derive(Debug)]
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// Readable by everyone, so that file permissions alone never explain why a probe was stopped.
    pub(crate) fn create(parent: &str, prefix: &str) -> Result<Folder, String> {
        let path = Path::new(parent).join(format!("{prefix}{}", random_hex(6)));
        let made = fs::DirBuilder::new().mode(0o755).create(&path);
        made.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nothing sensible is left to do if this fails; the name says whose it was.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) folder: Folder,
    pub(crate) canary: PathBuf,
    canary_folder: PathBuf,
    pub(crate) secret: String,
    /// uid and gid of the canary.
    pub(crate) owner: (u32, u32),
    pub(crate) ip: IpAddr,
    pub(crate) tokens: Tokens,
    pub(crate) zones: Zones,
    /// `None` where it cannot be run.
    pub(crate) mock: Option<Mock>,
    pub(crate) port: u16,
    dns_port: u16,
    abstract_name: String,
    victim_mark: String,
    victim: Child,
    connections: Arc<AtomicUsize>,
    datagrams: Arc<AtomicUsize>,
}

impl Host {
    pub(crate) fn set_up() -> Result<Host, String> {
        let io = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
        let folder = Folder::create("/var/tmp", "secbat-")?;
        let secret = format!("SECBAT{{{}}}", random_hex(12));
        let canary_folder = folder.0.join("canary-dir");
        let canary = canary_folder.join("canary");
        fs::create_dir(&canary_folder).map_err(io("canary folder"))?;
        fs::write(&canary, format!("{secret}\n")).map_err(io("canary"))?;
        let credentials = canary_folder.join(".secbat_credentials");
        fs::write(&credentials, format!("aws_secret {secret}")).map_err(io("credentials"))?;
        fs::set_permissions(&canary, fs::Permissions::from_mode(0o600)).map_err(io("canary"))?;
        if own_uid() == 0 {
            for path in [&canary_folder, &canary, &credentials] {
                chown(path, Some(NOBODY), Some(NOBODY)).map_err(io("chown"))?;
            }
        }
        let metadata = fs::metadata(&canary).map_err(io("canary"))?;

        let connections = Arc::new(AtomicUsize::new(0));
        let datagrams = Arc::new(AtomicUsize::new(0));
        // The IPv6 wildcard also takes IPv4; a host without IPv6 has only the other.
        let tcp = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0")).map_err(io("tcp"))?;
        let port = tcp.local_addr().map_err(io("tcp"))?.port();
        count_connections(move || tcp.accept().map(|(stream, _)| stream), &connections);
        let abstract_name = format!("secbat-{}", random_hex(4));
        let address = SocketAddr::from_abstract_name(&abstract_name).map_err(io("abstract"))?;
        let listener = UnixListener::bind_addr(&address).map_err(io("abstract"))?;
        count_connections(move || listener.accept().map(|(stream, _)| stream), &connections);
        let socket = folder.0.join("host.sock");
        let listener = UnixListener::bind(&socket).map_err(io("unix socket"))?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).map_err(io("unix socket"))?;
        count_connections(move || listener.accept().map(|(stream, _)| stream), &connections);
        let udp = UdpSocket::bind("0.0.0.0:0").map_err(io("udp"))?;
        let dns_port = udp.local_addr().map_err(io("udp"))?.port();
        echo_datagrams(udp, &datagrams);

        let mock = Mock::set_up(&folder.0, port, &canary)?;
        let victim_mark = format!("victim-{}", random_hex(4));
        let victim = start_victim(&victim_mark).map_err(io("victim"))?;
        Ok(Host {
            owner: (metadata.uid(), metadata.gid()),
            ip: outward_ip(),
            tokens: Tokens { good: random_hex(20), a: random_hex(20), b: random_hex(20) },
            folder,
            canary,
            canary_folder,
            secret,
            zones: Zones::open()?,
            mock,
            port,
            dns_port,
            abstract_name,
            victim_mark,
            victim,
            connections,
            datagrams,
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn datagrams(&self) -> usize {
        self.datagrams.load(Ordering::SeqCst)
    }

    pub(crate) fn victim_lives(&mut self) -> bool {
        matches!(self.victim.try_wait(), Ok(None))
    }

    /// After a case killed it, so that the next case has one to spare.
    pub(crate) fn replace_victim(&mut self) -> Result<(), String> {
        self.victim = start_victim(&self.victim_mark).map_err(|error| format!("victim: {error}"))?;
        Ok(())
    }

    pub(crate) fn restore_canary(&self) -> std::io::Result<()> {
        fs::write(&self.canary, format!("{}\n", self.secret))?;
        fs::set_permissions(&self.canary, fs::Permissions::from_mode(0o600))?;
        chown(&self.canary, Some(self.owner.0), Some(self.owner.1))
    }

    /// Secrets in the server's own environment, where programs must not find them.
    pub(crate) fn planted_secrets(&self) -> Vec<(String, String)> {
        let names = ["SECBAT_SECRET", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"];
        names.map(|name| (name.to_owned(), self.secret.clone())).into()
    }

    /// What `@@NAME@@` stands for. `SESSION` is not here: it is known only while the case runs.
    pub(crate) fn names(&self, mark: &str, orphan_seconds: &str, server_port: u16) -> Vec<(&'static str, String)> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let shown = |path: &Path| path.display().to_string();
        vec![
            ("CANARY_PATH", shown(&self.canary)),
            ("CANARY_DIR", shown(&self.canary_folder)),
            ("CANARY_TOKEN", self.secret.clone()),
            ("HOST_HOME", shown(&self.canary_folder)),
            ("HOST_PORT", self.port.to_string()),
            ("HOST_IP", self.ip.to_string()),
            ("HOST_UNIX", shown(&self.folder.0.join("host.sock"))),
            ("HOST_ABSTRACT", self.abstract_name.clone()),
            ("HOST_PID", self.victim.id().to_string()),
            ("VICTIM_MARK", self.victim_mark.clone()),
            ("MARK", mark.to_owned()),
            ("ORPHAN_SLEEP", orphan_seconds.to_owned()),
            ("DNS_PORT", self.dns_port.to_string()),
            ("SANDBOX_PORT", SANDBOX_PORT.to_string()),
            ("INOTIFY_MAX", read("/proc/sys/fs/inotify/max_user_instances")),
            ("HOST_NAME", read("/proc/sys/kernel/hostname")),
            ("HOST_MACHINE_ID", read("/etc/machine-id")),
            // The server keeps no state on disk; the name only has to be one that never appears.
            ("SERVER_STATE_DIR", "/nonexistent-state".into()),
            ("EGRESS_IP_ALLOWED", zones::ALLOWED.to_string()),
            ("EGRESS_IP_DENIED", zones::DENIED.to_string()),
            ("EGRESS_PORT", zones::PORT.to_string()),
            ("EGRESS_TLS_PORT", zones::TLS_PORT.to_string()),
            ("EGRESS_ALLOWED", zones::ALLOWED_NAME.into()),
            ("EGRESS_DENIED", zones::DENIED_NAME.into()),
            ("EGRESS_REBIND", "rebind.test".into()),
            ("TOOL_EXEC", super::tools::RUN.into()),
            ("GOOD_TOKEN", self.tokens.good.clone()),
            ("RES_SCHEME", RESOURCE_SCHEME.into()),
            ("SERVER_PORT", server_port.to_string()),
        ]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Both fail only if a case already killed it.
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// Waits on its stdin without any child of its own, so it also ends when the driver does.
fn start_victim(mark: &str) -> std::io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "read forever", mark]).stdin(Stdio::piped()).stdout(Stdio::null()).current_dir("/");
    if own_uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.spawn()
}

fn count_connections<S: Write>(
    mut accept: impl FnMut() -> std::io::Result<S> + Send + 'static,
    count: &Arc<AtomicUsize>,
) {
    let count = Arc::clone(count);
    thread::spawn(move || {
        loop {
            match accept() {
                Ok(mut stream) => {
                    count.fetch_add(1, Ordering::SeqCst);
                    // The probe looks for this text; whether it gets it is its own affair.
                    let _ = stream.write_all(LISTENER_GREETING);
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    });
}

fn echo_datagrams(socket: UdpSocket, count: &Arc<AtomicUsize>) {
    let count = Arc::clone(count);
    thread::spawn(move || {
        let mut datagram = [0; 2000];
        loop {
            match socket.recv_from(&mut datagram) {
                Ok((length, from)) => {
                    count.fetch_add(1, Ordering::SeqCst);
                    let _ = socket.send_to(&datagram[..length], from);
                }
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        }
    });
}

/// The address that the host would use towards the outside. Connecting a UDP socket sends nothing.
fn outward_ip() -> IpAddr {
    let found = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("203.0.113.1:9")?;
        socket.local_addr()
    });
    found.map_or(IpAddr::from([127, 0, 0, 1]), |address| address.ip())
}

pub(crate) fn own_uid() -> u32 {
    // Every process owns its own folder in /proc; asking there needs no unsafe call.
    fs::metadata("/proc/self").map_or(u32::MAX, |metadata| metadata.uid())
}

pub(crate) fn random_hex(bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    let filled = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut buffer));
    if filled.is_err() {
        // Uniqueness is all that is needed here, and the clock gives that.
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        buffer = nanos.to_le_bytes().into_iter().cycle().take(bytes).collect();
    }
    buffer.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces `@@NAME@@` in every text of a case. The name of a placeholder that is left over is an error.
pub(crate) fn fill_in(value: &mut Value, names: &[(&'static str, String)]) -> Result<(), String> {
    match value {
        Value::String(text) => {
            if text.contains("@@") {
                for (name, stands_for) in names {
                    *text = text.replace(&format!("@@{name}@@"), stands_for);
                }
                let left = Regex::new("@@[A-Z_]+@@").map_err(|error| error.to_string())?;
                if let Some(found) = left.find_iter(text).find(|found| found.as_str() != "@@SESSION@@") {
                    return Err(format!("driver has no value for {}", found.as_str()));
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| fill_in(item, names)),
        Value::Object(map) => map.values_mut().try_for_each(|item| fill_in(item, names)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    #[test]
    fn every_placeholder_of_every_case_has_a_value() {
        let host = Host::set_up().unwrap();
        let names = host.names("mk1", "70000.5", 1);
        for line in crate::battery::case::lines() {
            let mut line = line.unwrap();
            fill_in(&mut line, &names).unwrap();
        }
        let mut unknown = json!({"a": ["@@NO_SUCH_NAME@@"]});
        assert!(fill_in(&mut unknown, &names).is_err());
    }

    #[test]
    fn a_visit_is_counted_and_the_canary_can_be_restored() {
        let mut host = Host::set_up().unwrap();
        let mut greeting = String::new();
        TcpStream::connect(("127.0.0.1", host.port)).unwrap().read_to_string(&mut greeting).unwrap();
        assert!(greeting.contains("SECBAT-LISTENER"));
        let address = SocketAddr::from_abstract_name(&host.abstract_name).unwrap();
        UnixStream::connect_addr(&address).unwrap().read_to_string(&mut greeting).unwrap();
        assert_eq!(host.connections(), 2);
        assert!(host.victim_lives());
        fs::write(&host.canary, "PWNED").unwrap();
        host.restore_canary().unwrap();
        assert_eq!(fs::read_to_string(&host.canary).unwrap(), format!("{}\n", host.secret));
        let folder = host.folder.0.clone();
        drop(host);
        assert!(!folder.exists());
    }
}
