use tokio::io::AsyncWriteExt as _;

use super::origin::ALLOWED;
use super::world::{World, head, rest};
use crate::Via;

#[tokio::test]
async fn a_granted_host_is_reached_by_each_way() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    let port = world.allowed.plain;
    let plain =
        format!("GET http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\nConnection: close\r\n\r\n");
    assert!(proxy.say(&plain).await.ends_with("ALLOWED-ZONE\n"));
    let mut tunnel = proxy.connect("allowed.test", port).await;
    tunnel.write_all(b"GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n").await.unwrap();
    assert!(rest(&mut tunnel).await.ends_with("ALLOWED-ZONE\n"));
    let mut socks = b"\x05\x01\x00\x05\x01\x00\x03\x0callowed.test".to_vec();
    socks.extend_from_slice(&port.to_be_bytes());
    socks.extend_from_slice(b"GET / HTTP/1.0\r\nHost: allowed.test\r\n\r\n");
    let answer = proxy.say(&socks).await;
    assert!(answer.starts_with("\x05\0\x05\0\0\x01\0\0\0\0\0\0HTTP/1.1 200") && answer.ends_with("ALLOWED-ZONE\n"));
    let reached = proxy.served.reached();
    assert_eq!((reached.len(), &reached[0].host, reached[0].connections), (1, &format!("allowed.test:{port}"), 3));
    assert!(reached[0].bytes_in > 3 * 13 && reached[0].bytes_out > 3 * 20, "{reached:?}");
    let attempts = world.audit.attempts.lock().unwrap();
    let ways: Vec<_> = attempts.iter().map(|one| (one.via, one.address, one.method.clone())).collect();
    let get = Some("GET".to_owned());
    let address = Some(ALLOWED.into());
    assert_eq!(ways, [Via::Http, Via::Connect, Via::Socks].map(|via| (via, address, get.clone())));
    let ended = world.audit.ended.lock().unwrap();
    assert!(ended.iter().all(|one| one.bytes_in > 13 && one.bytes_out > 20), "{ended:?}");
}

#[tokio::test]
async fn a_refusal_names_the_host_and_the_way_to_grant_it() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    let port = world.denied.plain;
    let words = format!(
        "denied.test:{port} is not granted to this sandbox; the operator can allow it with --allow-network \
         denied.test:{port} or [network] allow"
    );
    for ask in [
        "GET http://denied.test:PORT/ HTTP/1.1\r\nHost: denied.test:PORT\r\n\r\n",
        "CONNECT denied.test:PORT HTTP/1.1\r\nHost: denied.test:PORT\r\n\r\n",
    ] {
        let answer = proxy.say(ask.replace("PORT", &port.to_string())).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 403 {words}\r\n")), "{answer}");
        assert!(answer.ends_with(&format!("{words}\n")), "{answer}");
    }
    let mut socks = b"\x05\x01\x00\x05\x01\x00\x03\x0bdenied.test".to_vec();
    socks.extend_from_slice(&port.to_be_bytes());
    assert_eq!(proxy.say(&socks).await, "\x05\0\x05\x02\0\x01\0\0\0\0\0\0");
    assert_eq!(proxy.served.refused(), [format!("denied.test:{port}")]);
    assert!(proxy.served.refused().is_empty(), "it was told");
    assert_eq!(world.refusals(), [words.clone(), words.clone(), words]);
    assert_eq!(world.denied.seen.lock().unwrap().connections, 0);
}

#[tokio::test]
async fn each_request_of_a_connection_is_looked_at() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    let mut tunnel = proxy.connect("allowed.test", world.allowed.plain).await;
    tunnel.write_all(b"GET /1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await.unwrap();
    assert!(head(&mut tunnel).await.contains("Content-Length: 13"));
    let mut zone = [0; 13];
    tokio::io::AsyncReadExt::read_exact(&mut tunnel, &mut zone).await.unwrap();
    tunnel.write_all(b"GET /2 HTTP/1.1\r\nHost: denied.test\r\n\r\n").await.unwrap();
    assert!(rest(&mut tunnel).await.starts_with("HTTP/1.1 403 the Host header is not allowed.test"));
    assert_eq!(world.allowed.heads().len(), 1);
}

#[tokio::test]
async fn what_is_smuggled_behind_a_body_is_a_request_like_others() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    let smuggled = "GET /x HTTP/1.1\r\nHost: denied.test\r\n\r\n";
    for (framing, body) in [
        ("Content-Length: 3", format!("abc{smuggled}")),
        ("Transfer-Encoding: chunked", format!("3\r\nabc\r\n0\r\n\r\n{smuggled}")),
        ("Content-Length: 0\r\nTransfer-Encoding: chunked", format!("0\r\n\r\n{smuggled}")),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", format!("0\r\n\r\n{smuggled}")),
        ("Transfer-Encoding : chunked", format!("0\r\n\r\n{smuggled}")),
        ("X: y\n\nGET /x HTTP/1.1\nHost: denied.test", String::new()),
    ] {
        let port = world.allowed.plain;
        let ask = format!(
            "POST http://allowed.test:{port}/ HTTP/1.1\r\nHost: allowed.test:{port}\r\n{framing}\r\n\r\n{body}"
        );
        let answer = proxy.say(&ask).await;
        assert!(!answer.contains("DENIED-ZONE"), "{framing}: {answer}");
        assert!(answer.contains("HTTP/1.1 400 ") || answer.contains("HTTP/1.1 403 "), "{framing}: {answer}");
    }
    assert!(world.allowed.heads().iter().all(|head| !head.contains("denied.test")), "{:?}", world.allowed.heads());
}

#[tokio::test]
async fn a_host_that_could_be_read_differently_is_none() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    for host in [
        "allowed.test@denied.test",
        "denied.test%00.allowed.test",
        "denied.test#allowed.test",
        "denied.test\\@allowed.test",
        "127.1",
        "0x7f000001",
        "2130706433",
    ] {
        let port = world.allowed.plain;
        for ask in [
            format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n"),
            format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n"),
        ] {
            let answer = proxy.say(&ask).await;
            assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 403 "), "{ask}: {answer}");
        }
    }
    let answer = proxy.say(b"\x05\x01\x00\x05\x01\x00\x03\x18denied.test\0allowed.test\x00\x50").await;
    assert_eq!(answer, "\x05\0\x05\x02\0\x01\0\0\0\0\0\0");
    assert_eq!(proxy.say(b"\x04\x01\x00\x50\x7f\x00\x00\x01me\0").await, "\0[\0\0\0\0\0\0", "SOCKS4");
    assert_eq!(world.allowed.seen.lock().unwrap().connections + world.denied.seen.lock().unwrap().connections, 0);
}

#[tokio::test]
async fn a_granted_name_that_leads_inside_is_refused() {
    let world = World::new().await;
    let proxy = world.proxy(&["*.allowed.test"]);
    let port = world.allowed.plain;
    for name in ["lo", "meta", "priv", "mapped6"] {
        let answer =
            proxy.say(format!("CONNECT {name}.allowed.test:{port} HTTP/1.1\r\n\r\n").replace("1.1", "1.0")).await;
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("its address is not a public one"), "{answer}");
    }
}

#[tokio::test]
async fn methods_that_were_not_granted_are_refused() {
    let world = World::new().await;
    let proxy = world.proxy_for(vec![format!("GET allowed.test:{}", world.allowed.plain).parse().unwrap()]);
    let port = world.allowed.plain;
    let ask = |method: &str| format!("{method} http://allowed.test:{port}/ HTTP/1.0\r\n\r\n");
    assert!(proxy.say(ask("GET")).await.ends_with("ALLOWED-ZONE\n"));
    let answer = proxy.say(ask("POST")).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 403 POST allowed.test:{port} is not granted")), "{answer}");
    assert_eq!(world.allowed.heads().len(), 1);
}

#[tokio::test]
async fn a_host_that_is_not_there_is_said_so() {
    let world = World::with(|settings, _| settings.pinned.push(("gone.test".into(), vec![ALLOWED.into()]))).await;
    let proxy = world.proxy_for(vec!["gone.test:9".parse().unwrap()]);
    let answer = proxy.say("CONNECT gone.test:9 HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 gone.test:9 could not be reached: connection refused\r\n"), "{answer}");
}

#[tokio::test]
async fn a_websocket_is_not_opened() {
    let world = World::new().await;
    let proxy = world.proxy(&["allowed.test"]);
    let ask = "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut tunnel = proxy.connect("allowed.test", world.allowed.plain).await;
    tunnel.write_all(ask.as_bytes()).await.unwrap();
    assert!(rest(&mut tunnel).await.starts_with("HTTP/1.1 501 "));
    assert!(world.allowed.heads().is_empty());
}
