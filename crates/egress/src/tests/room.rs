//! A network namespace with doors in it, and programs that are run there.

use std::collections::BTreeSet;
use std::io::{IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use belljar_core::{Doors, Grant};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::world::World;
use crate::Served;

pub(super) struct Room {
    pub(super) served: Served,
    /// Where what is to be trusted lies.
    pub(super) trust: String,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _child: Child,
    _folder: tempfile::TempDir,
}

impl Room {
    pub(super) async fn new(world: &World, grants: Vec<Grant>) -> Room {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::File::create(at("trust.pem")).unwrap().write_all(world.egress.trust().as_bytes()).unwrap();
        let ports: BTreeSet<String> = grants.iter().flat_map(Grant::ports).map(|port| port.to_string()).collect();
        let listener = UnixListener::bind(at("doors")).unwrap();
        let mut child = Command::new("unshare")
            .args(["--map-root-user", "--net", "--mount", "python3", "-c", include_str!("room.py")])
            .args([at("doors"), at("resolv.conf")])
            .args(ports)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let doors = tokio::task::spawn_blocking(move || receive(&listener)).await.unwrap();
        let served = world.egress.serve(grants, doors, "room".into()).unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let stdout = BufReader::new(stdout).lines();
        Room { served, trust: at("trust.pem"), stdin, stdout, _child: child, _folder: folder }
    }

    /// What a program prints that trusts what it should, and knows of no proxy.
    pub(super) async fn run(&mut self, words: &[&str]) -> String {
        self.run_with(words, &[]).await
    }

    pub(super) async fn run_with(&mut self, words: &[&str], env: &[(&str, &str)]) -> String {
        let trust = self.trust.clone();
        let usual = ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"].map(|name| (name, trust.as_str()));
        let env: serde_json::Map<_, _> =
            usual.iter().chain(env).map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
        let mut line = serde_json::json!({ "words": words, "env": env }).to_string();
        line.push('\n');
        self.stdin.write_all(line.as_bytes()).await.unwrap();
        let line = self.stdout.next_line().await.unwrap().expect("the room stands");
        serde_json::from_str(&line).unwrap()
    }
}

fn receive(listener: &UnixListener) -> Doors {
    let (stream, _) = listener.accept().unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut messages = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut messages, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut doors: Vec<OwnedFd> = Vec::new();
    for message in messages.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            doors.extend(more);
        }
    }
    let names = doors.pop().unwrap();
    let proxy = doors.remove(0);
    Doors::Sockets { transparent: doors, proxy, names }
}
