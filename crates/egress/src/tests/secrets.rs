use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::AsyncWriteExt as _;

use super::passing::tls;
use super::world::{Proxy, World, rest};
use crate::{Credential, Hidden, Over, Secret};

const VALUE: &str = "sk-tr0ub4dor/and+3";
const PASSWORD: &str = "correct-horse-battery";

async fn world() -> World {
    World::with(|settings, origin| {
        let ports = [origin.plain, origin.tls];
        settings.secrets.push(Secret {
            name: "API".into(),
            value: Hidden::new(VALUE.into()),
            hosts: ports.map(|port| format!("allowed.test:{port}").parse().unwrap()).to_vec(),
            headers: vec!["authorization".into()],
        });
        settings.credentials.push(Credential {
            host: format!("sub.allowed.test:{}", origin.tls).parse().unwrap(),
            header: "Authorization".into(),
            value: Hidden::new(format!("Basic {}", STANDARD.encode(format!("me:{PASSWORD}")))),
            over: Over::Tls,
            below: "/".into(),
        });
    })
    .await
}

async fn ask(world: &World, proxy: &Proxy, host: &str, request: &str) -> String {
    let tunnel = proxy.connect(host, world.allowed.tls).await;
    let mut stream = tls(tunnel, host, &world.egress.trust()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    rest(&mut stream).await
}

fn placeholder(world: &World) -> String {
    let mut variables = world.egress.placeholders(&world.grants(&["allowed.test"]));
    assert_eq!(variables.len(), 1);
    let (name, stands) = variables.remove(0);
    assert_eq!(name, "BELLJAR_SECRET_API");
    stands
}

#[tokio::test]
async fn the_host_gets_the_value_and_the_sandbox_never_sees_it() {
    let world = world().await;
    let proxy = world.proxy(&["allowed.test"]);
    let stands = placeholder(&world);
    let basic = STANDARD.encode(format!("user:{stands}"));
    for authorization in [format!("Bearer {stands}"), format!("Basic {basic}")] {
        let request = format!(
            "GET /echo HTTP/1.1\r\nHost: allowed.test\r\nAuthorization: {authorization}\r\nAccept-Encoding: gzip\r\n\
             Connection: close\r\n\r\n"
        );
        let answer = ask(&world, &proxy, "allowed.test", &request).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("***"), "{answer}");
        assert!(!answer.contains(VALUE) && !answer.contains(&STANDARD.encode(VALUE)[..10]), "{answer}");
        // Its chunks apart, to see what no chunk's border hides.
        let flat: String = answer.lines().filter(|line| line.len() > 2).collect();
        assert!(!flat.contains("tr0ub4dor"), "{flat}");
    }
    let heads = world.allowed.heads();
    assert!(heads[0].contains(&format!("Authorization: Bearer {VALUE}\r\n")), "{}", heads[0]);
    assert!(heads[0].contains("Accept-Encoding: identity\r\n") && !heads[0].contains("gzip"));
    assert!(heads[1].contains(&STANDARD.encode(format!("user:{VALUE}"))), "{}", heads[1]);
    let told = format!("{:?} {:?}", world.audit.attempts.lock().unwrap(), world.egress);
    assert!(!told.contains(VALUE) && !told.contains("/echo"), "{told}");
}

#[tokio::test]
async fn a_placeholder_elsewhere_is_only_text() {
    let world = world().await;
    let proxy = world.proxy(&["allowed.test", "denied.test"]);
    let stands = placeholder(&world);
    // Another header, another host, and in the clear.
    let request = format!("GET / HTTP/1.0\r\nHost: allowed.test\r\nX-Other: {stands}\r\n\r\n");
    ask(&world, &proxy, "allowed.test", &request).await;
    let tunnel = proxy.connect("denied.test", world.denied.tls).await;
    let mut stream = tls(tunnel, "denied.test", &world.authority.pem()).await.unwrap();
    stream
        .write_all(format!("GET / HTTP/1.0\r\nHost: denied.test\r\nAuthorization: {stands}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    rest(&mut stream).await;
    let port = world.allowed.plain;
    proxy.say(format!("GET http://allowed.test:{port}/ HTTP/1.0\r\nAuthorization: {stands}\r\n\r\n")).await;
    let (allowed, denied) = (world.allowed.heads(), world.denied.heads());
    assert_eq!((allowed.len(), denied.len()), (2, 1));
    for head in allowed.iter().chain(&denied) {
        assert!(head.contains(&stands) && !head.contains(VALUE), "{head}");
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_looked_through_is_not_passed_on() {
    let world = world().await;
    let proxy = world.proxy(&["allowed.test"]);
    let answer = ask(&world, &proxy, "allowed.test", "GET /gzip HTTP/1.0\r\nHost: allowed.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("compressed"), "{answer}");
}

#[tokio::test]
async fn a_body_goes_along_and_a_connection_is_used_again() {
    let world = world().await;
    let proxy = world.proxy(&["allowed.test"]);
    let request = "POST /a HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\nhello\
                   GET /b HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n";
    let answer = ask(&world, &proxy, "allowed.test", request).await;
    assert_eq!(answer.matches("ALLOWED-ZONE").count(), 2, "{answer}");
    let heads = world.allowed.heads();
    assert!(heads[0].starts_with("POST /a ") && heads[1] == "hello" && heads[2].starts_with("GET /b "), "{heads:?}");
    assert_eq!(world.allowed.seen.lock().unwrap().connections, 1);
}

#[tokio::test]
async fn a_credential_is_put_in_where_nobody_asked_for_it() {
    let world = world().await;
    let proxy = world.proxy(&["sub.allowed.test"]);
    let answer = ask(&world, &proxy, "sub.allowed.test", "GET /echo HTTP/1.0\r\nHost: sub.allowed.test\r\n\r\n").await;
    assert!(answer.contains("X-Echo: ****") && !answer.contains(&STANDARD.encode(PASSWORD)[..8]), "{answer}");
    let post = "POST / HTTP/1.0\r\nHost: sub.allowed.test\r\nContent-Length: 0\r\n\r\n";
    ask(&world, &proxy, "sub.allowed.test", post).await;
    let heads = world.allowed.heads();
    assert!(heads[0].contains(&STANDARD.encode(format!("me:{PASSWORD}"))), "{}", heads[0]);
    assert!(!heads[1].contains("Basic"), "{}", heads[1]);
}
