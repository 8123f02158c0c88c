//! A sandbox's network: doors that are served from outside, and nothing else.

#![expect(clippy::unwrap_used, reason = "a check that fails is a panic of its test")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::{Backend, Doors, Exit, Language, Network, Program, Sandbox, Spec};
use belljar_testkit::contract::{code, command, run};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);

fn native(trust: Option<&str>) -> Arc<dyn Backend> {
    let host = Host {
        path: std::env::var_os("PATH").unwrap_or_default(),
        home: std::env::var_os("HOME").map(Into::into),
        layers: None,
        trust: trust.map(str::to_owned),
        ..Host::default()
    };
    choose(Choice::Native, &host, Preload::No)
}

fn granted(texts: &[&str]) -> Spec {
    let grants = texts.iter().map(|text| text.parse().unwrap()).collect();
    Spec { network: Network::Granted(grants), ..Spec::default() }
}

fn listener(fd: OwnedFd) -> tokio::net::TcpListener {
    tokio::net::TcpListener::from_std(TcpListener::from(fd)).unwrap()
}

fn python(text: &str) -> Program {
    code(Language::Python, text)
}

struct Sockets {
    transparent: Vec<OwnedFd>,
    proxy: OwnedFd,
    names: OwnedFd,
}

async fn open(backend: &dyn Backend, texts: &[&str]) -> (Box<dyn Sandbox>, Sockets) {
    let sandbox = backend.open(&granted(texts)).await.unwrap();
    let Some(Doors::Sockets { transparent, proxy, names }) = sandbox.doors() else { panic!("no sockets") };
    let doors = Sockets { transparent, proxy, names };
    assert!(sandbox.doors().is_none(), "they are given once");
    (sandbox, doors)
}

#[tokio::test]
async fn who_connects_to_a_stand_in_is_met_at_the_door() {
    let backend = native(None);
    assert!(backend.capabilities().network);
    let (sandbox, Sockets { transparent, .. }) = open(&*backend, &["a.test", "b.test:8443"]).await;
    assert_eq!(sandbox.isolation().network, "granted: a.test, b.test:8443");
    let ports: Vec<u16> =
        transparent.iter().map(|fd| TcpListener::from(fd.try_clone().unwrap()).local_addr().unwrap().port()).collect();
    assert_eq!(ports, [80, 443, 8443]);
    let doors: Vec<_> = transparent.into_iter().map(listener).collect();
    for (door, address) in doors.iter().zip(["198.18.0.5:80", "198.19.255.254:443", "198.18.77.1:8443"]) {
        let (host, port) = address.split_once(':').unwrap();
        let talk = format!(
            "import socket\ns = socket.create_connection(('{host}', {port}), 10)\ns.sendall(b'ping')\nprint(s.recv(9))"
        );
        let serve = async {
            let (mut stream, peer) = timeout(PATIENCE, door.accept()).await.unwrap().unwrap();
            assert_eq!(stream.local_addr().unwrap(), address.parse::<SocketAddr>().unwrap(), "from {peer}");
            let mut heard = [0; 4];
            stream.read_exact(&mut heard).await.unwrap();
            stream.write_all(b"pong").await.unwrap();
            heard
        };
        let (heard, ran) = tokio::join!(serve, run(&*sandbox, python(&talk)));
        assert_eq!((heard, ran.stdout.as_str()), (*b"ping", "b'pong'\n"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn the_proxy_and_the_names_are_where_programs_look() {
    let backend = native(None);
    let (sandbox, doors) = open(&*backend, &[]).await;
    assert!(doors.transparent.is_empty());
    let proxy = listener(doors.proxy);
    let names = tokio::net::UdpSocket::from_std(UdpSocket::from(doors.names)).unwrap();
    let ask = "import os, socket, urllib.parse\nfor name in ('HTTP_PROXY', 'https_proxy'):\n    \
        url = urllib.parse.urlparse(os.environ[name])\n    socket.create_connection((url.hostname, url.port), 10).close()\n\
        try: socket.getaddrinfo('granted.test', 80)\nexcept OSError: pass\nprint(open('/etc/resolv.conf').readline())";
    let serve = async {
        for _ in 0..2 {
            timeout(PATIENCE, proxy.accept()).await.unwrap().unwrap();
        }
        let mut query = [0; 512];
        let (length, from) = timeout(PATIENCE, names.recv_from(&mut query)).await.unwrap().unwrap();
        // Its own query back with the bits of an answer that says "no such name".
        query[2] = 0x81;
        query[3] = 0x83;
        names.send_to(&query[..length], from).await.unwrap();
        query[..length].windows(7).any(|part| part == b"granted")
    };
    let (asked, ran) = tokio::join!(serve, run(&*sandbox, python(ask)));
    assert!(asked);
    assert_eq!(ran.stdout.trim(), "nameserver 127.0.0.1", "{}", ran.stderr);
}

/// Tries each address and says which of them took a connection.
const REACH: &str = r#"
import errno, socket
for host, port in [("198.18.0.5", 22), ("198.17.255.255", 443), ("198.20.0.1", 443), ("10.0.0.1", 443), ("1.1.1.1", 443),
        ("169.254.169.254", 80), ("192.168.0.1", 80), ("127.0.0.1", 22)]:
    try:
        socket.create_connection((host, port), 2)
        print("reached", host, port)
    except OSError as error: print(errno.errorcode.get(error.errno))
for family, kind, protocol in [(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP), (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP),
        (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW), (socket.AF_PACKET, socket.SOCK_RAW, 3), (socket.AF_INET6, socket.SOCK_RAW, 58)]:
    try:
        socket.socket(family, kind, protocol)
        print("made", family, kind, protocol)
    except OSError: pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for host in "1.1.1.1", "10.0.0.1", "169.254.169.254":
    try:
        s.sendto(b"x", (host, 53))
        print("sent to", host)
    except OSError: pass
"#;

#[tokio::test]
async fn nothing_else_is_reachable() {
    let backend = native(None);
    let (sandbox, _doors) = open(&*backend, &["a.test"]).await;
    let ran = run(&*sandbox, python(REACH)).await;
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(ran.finish.exit, Exit::Code(0), "{}", ran.stderr);
    assert_eq!(lines[0], "ECONNREFUSED", "a stand-in at a port that was not granted");
    assert!(lines[1..7].iter().all(|line| *line == "ENETUNREACH"), "{}", ran.stdout);
    assert_eq!(lines[7..], ["ECONNREFUSED"], "{}", ran.stdout);
}

/// Tries to take what the doors hold, in every way that a socket can be shared.
const TAKE: &str = r#"
import socket
taken = []
for kind, port in [(socket.SOCK_STREAM, 80), (socket.SOCK_STREAM, 443), (socket.SOCK_STREAM, 8443), (socket.SOCK_STREAM, 3128), (socket.SOCK_DGRAM, 53)]:
    for host in ("", "127.0.0.1", "127.0.0.2", "198.18.0.5") if port != 3128 else ("", "127.0.0.1"):
        for options in [], [socket.SO_REUSEADDR], [socket.SO_REUSEPORT], [socket.SO_REUSEADDR, socket.SO_REUSEPORT]:
            s = socket.socket(socket.AF_INET, kind)
            try:
                for option in options: s.setsockopt(socket.SOL_SOCKET, option, 1)
                s.bind((host, port))
                if kind == socket.SOCK_STREAM: s.listen()
                taken.append((host, port, options))
            except OSError: pass
            s.close()
    s = socket.socket(socket.AF_INET6, kind)
    try:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(("::ffff:127.0.0.1", port)); s.listen()
        taken.append(("v4 in v6", port))
    except OSError: pass
print(taken)
"#;

#[tokio::test]
async fn what_a_door_holds_nobody_inside_can_bind() {
    let backend = native(None);
    let (sandbox, _doors) = open(&*backend, &["a.test", "b.test:8443"]).await;
    let ran = run(&*sandbox, python(TAKE)).await;
    assert_eq!(ran.stdout.trim(), "[]", "{}", ran.stderr);
    // Other ports are the programs' own.
    let ran =
        run(&*sandbox, python("import socket\ns = socket.create_server(('127.0.0.1', 8000))\nprint('mine')")).await;
    assert_eq!(ran.stdout.trim(), "mine", "{}", ran.stderr);
}

#[tokio::test]
async fn without_a_network_there_is_no_door() {
    let backend = native(Some("a certificate"));
    let sandbox = backend.open(&Spec::default()).await.unwrap();
    assert!(sandbox.doors().is_none());
    assert_eq!(sandbox.isolation().network, "none");
    let ran =
        run(&*sandbox, command("env; cat /proc/net/route | wc -l; cat /proc/net/tcp /proc/net/udp | grep -vc local"))
            .await;
    assert!(!ran.stdout.to_lowercase().contains("proxy=http"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("SSL_CERT_FILE"), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\n1\n0\n"), "{}", ran.stdout);
    let ran = run(&*sandbox, python(&REACH.replace("\"198.18.0.5\", 22", "\"198.18.0.5\", 443"))).await;
    assert!(ran.stdout.starts_with("ENETUNREACH\n") && !ran.stdout.contains("reached"), "{}", ran.stdout);
    let began = std::time::Instant::now();
    let ran = run(&*sandbox, python("import socket\nsocket.getaddrinfo('a.test', 80)")).await;
    assert!(ran.stderr.contains("gaierror") && began.elapsed() < Duration::from_secs(2), "{}", ran.stderr);
}

#[tokio::test]
async fn what_is_trusted_is_a_file_that_programs_are_told_of() {
    // Larger than a datagram.
    let pem = "-----BEGIN CERTIFICATE-----\n".repeat(20_000);
    let backend = native(Some(&pem));
    let (sandbox, _doors) = open(&*backend, &["a.test"]).await;
    let ran = run(
        &*sandbox,
        command("wc -c < $SSL_CERT_FILE; echo x > /belljar/ca.pem; echo $NODE_EXTRA_CA_CERTS $no_proxy"),
    )
    .await;
    assert_eq!(ran.stdout, format!("{}\n/belljar/ca.pem localhost,127.0.0.1,::1\n", pem.len()), "{}", ran.stderr);
    let (sandbox, _doors) = open(&*native(None), &["a.test"]).await;
    assert_eq!(run(&*sandbox, command("ls /belljar/ca.pem; echo =$SSL_CERT_FILE")).await.stdout, "=\n");
}

#[tokio::test]
async fn doors_outlive_nothing_and_hold_nothing_up() {
    let backend = native(None);
    let (sandbox, doors) = open(&*backend, &["a.test"]).await;
    timeout(PATIENCE, sandbox.close()).await.unwrap().unwrap();
    // Still ours, in a network that nobody is in any more.
    let local = TcpListener::from(doors.proxy).local_addr().unwrap();
    assert_eq!(local.ip(), Ipv4Addr::LOCALHOST);
    let many: Vec<String> = (1..=33).map(|port| format!("a.test:{port}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(backend.open(&granted(&many)).await.is_err());
    assert!(backend.open(&granted(&many[..32])).await.is_ok());
}
