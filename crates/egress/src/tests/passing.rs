use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::origin::{ALLOWED, parrot};
use super::world::{World, rest};

/// TLS as a program inside speaks it, which trusts what it was given.
pub(super) async fn tls(stream: TcpStream, name: &str, trust: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(trust.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

#[tokio::test]
async fn tls_goes_through_untouched_where_nothing_needs_a_look() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    let tunnel = proxy.connect("allowed.test", world.allowed.tls).await;
    // The origin's own certificate: ours is not among those that are trusted here.
    let mut stream = tls(tunnel, "allowed.test", &world.authority.pem()).await.unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.ends_with("ALLOWED-ZONE\n"));
}

#[tokio::test]
async fn a_name_in_tls_that_is_not_the_connections_is_refused() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test", "sub.allowed.test"]);
    for name in ["denied.test", "sub.allowed.test", "127.0.10.10"] {
        let tunnel = proxy.connect("allowed.test", world.allowed.tls).await;
        let error = tls(tunnel, name, &world.authority.pem()).await.unwrap_err();
        assert!(error.to_string().contains("UnrecognisedName"), "{name}: {error}");
    }
    assert_eq!(world.refusals().len(), 3);
    assert!(world.allowed.heads().is_empty());
}

#[tokio::test]
async fn a_server_that_speaks_first_is_heard() {
    let world = World::new().await;
    let port = parrot(ALLOWED, "hello, who is there?").await;
    let proxy = world.proxy_for(vec![format!("allowed.test:{port}").parse().unwrap()]);
    let mut tunnel = proxy.connect("allowed.test", port).await;
    let mut greeting = [0; 20];
    tunnel.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello, who is there?");
    tunnel.write_all(&[0, 1, 2]).await.unwrap();
    let mut twice = [0; 6];
    tunnel.read_exact(&mut twice).await.unwrap();
    assert_eq!(twice, [0, 1, 2, 0, 1, 2]);
}

#[tokio::test]
async fn a_client_of_another_protocol_is_heard_where_the_port_was_named() {
    let world = World::new().await;
    let port = parrot(ALLOWED, "").await;
    let proxy = world.proxy_for(vec![format!("allowed.test:{port}").parse().unwrap()]);
    for said in [&b"PING\r\n"[..], b"no line end", &[0, 0, 0, 8, 4, 210, 22, 47]] {
        let mut tunnel = proxy.connect("allowed.test", port).await;
        tunnel.write_all(said).await.unwrap();
        let mut twice = vec![0; said.len() * 2];
        tunnel.read_exact(&mut twice).await.unwrap();
        assert_eq!(twice, [said, said].concat());
    }
    // And what is HTTP there is looked at as everywhere.
    let mut tunnel = proxy.connect("allowed.test", port).await;
    tunnel.write_all(b"GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n").await.unwrap();
    assert!(rest(&mut tunnel).await.starts_with("HTTP/1.1 403 the Host header is not allowed.test"));
}

#[tokio::test]
async fn on_the_webs_ports_only_the_web_is_spoken() {
    let world = World::with(|settings, _| settings.private.push("127.0.0.0/8".parse().unwrap())).await;
    // A port that nobody named, of a host that has methods: other protocols cannot be told there.
    let proxy = world.proxy_for(vec![format!("GET allowed.test:{}", world.allowed.plain).parse().unwrap()]);
    let mut tunnel = proxy.connect("allowed.test", world.allowed.plain).await;
    tunnel.write_all(&[0, 0, 0, 8, 4, 210]).await.unwrap();
    assert_eq!(rest(&mut tunnel).await, "");
    assert!(world.refusals()[0].contains("neither HTTP nor TLS"), "{:?}", world.refusals());
}

#[tokio::test]
async fn tls_is_opened_to_see_the_method_where_only_some_are_granted() {
    let world = World::new().await;
    let proxy = world.proxy_for(vec![format!("GET allowed.test:{}", world.allowed.tls).parse().unwrap()]);
    for (method, answer) in [("GET", "HTTP/1.1 200 "), ("POST", "HTTP/1.1 403 POST allowed.test")] {
        let tunnel = proxy.connect("allowed.test", world.allowed.tls).await;
        let mut stream = tls(tunnel, "allowed.test", &world.egress.trust()).await.unwrap();
        stream.write_all(format!("{method} / HTTP/1.0\r\nHost: allowed.test\r\n\r\n").as_bytes()).await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.starts_with(answer), "{said}");
    }
    assert_eq!(world.allowed.heads().len(), 1);
}

#[tokio::test]
async fn the_proxy_of_the_host_is_asked_by_name() {
    let world = World::new().await;
    // Ours stands in for it: it knows the name, and the second one does not.
    let theirs = world.proxy(&["allowed.test"]);
    let upstream = crate::UpstreamProxy::parse(&format!("http://{}", theirs.at), "denied.test").unwrap();
    let behind = World::with(|settings, _| {
        settings.pinned.clear();
        settings.pinned.push(("denied.test".into(), vec![[127, 0, 10, 20].into()]));
        settings.pinned.push(("inside.test".into(), vec![[10, 0, 0, 1].into()]));
        settings.upstream = Some(upstream);
    })
    .await;
    let (there, here) = (world.allowed.plain, behind.denied.plain);
    let grants = [format!("allowed.test:{there}"), format!("denied.test:{here}"), format!("inside.test:{there}")];
    let proxy = behind.proxy_for(grants.iter().map(|text| text.parse().unwrap()).collect());
    let get = |host: &str, port: u16| format!("GET http://{host}:{port}/ HTTP/1.0\r\n\r\n");
    assert!(proxy.say(get("allowed.test", there)).await.ends_with("ALLOWED-ZONE\n"));
    assert!(
        proxy.say(get("denied.test", here)).await.ends_with("DENIED-ZONE\n"),
        "it is excepted, and dialled from here"
    );
    assert!(proxy.say(get("inside.test", there)).await.starts_with("HTTP/1.1 403 "));
    let attempts = world.audit.attempts.lock().unwrap();
    assert_eq!(attempts.iter().map(|one| one.host.as_str()).collect::<Vec<_>>(), ["allowed.test"]);
}
