//! Programs as people write them.

use super::room::Room;
use super::world::World;
use crate::Via;

const PROXY: [(&str, &str); 2] = [("HTTP_PROXY", "http://127.0.0.1:3128"), ("HTTPS_PROXY", "http://127.0.0.1:3128")];
const URLLIB: &str = "import sys, urllib.request\ntry: print(urllib.request.urlopen(sys.argv[1], timeout=10).read())\n\
                      except Exception as error: print(type(error).__name__, error)";
const FETCH: &str = "fetch(process.argv[1]).then(r => r.text()).then(console.log, e => console.log(e.cause ?? e))";

#[tokio::test(flavor = "multi_thread")]
async fn programs_reach_a_granted_host_as_they_are() {
    let world = World::new().await;
    let mut room = Room::new(&world, world.grants(&["allowed.test"])).await;
    let urls = [
        format!("http://allowed.test:{}/", world.allowed.plain),
        format!("https://allowed.test:{}/", world.allowed.tls),
    ];
    for url in &urls {
        for words in [
            &["python3", "-c", URLLIB, url][..],
            &["curl", "-sS", "-m", "10", url],
            &["curl", "-sS", "-m", "10", "--socks5", "127.0.0.1:3128", url],
            &["curl", "-sS", "-m", "10", "--socks5-hostname", "127.0.0.1:3128", url],
            &["node", "-e", FETCH, url],
        ] {
            let said = room.run(words).await;
            assert!(said.contains("ALLOWED-ZONE"), "{words:?}: {said}");
        }
        for words in [&["python3", "-c", URLLIB, url][..], &["curl", "-sS", "-m", "10", "-x", PROXY[0].1, url]] {
            let said = room.run_with(words, &PROXY).await;
            assert!(said.contains("ALLOWED-ZONE"), "{words:?}: {said}");
        }
    }
    assert!(room.served.refused().is_empty());
    let attempts = world.audit.attempts.lock().unwrap();
    let count = |via| attempts.iter().filter(|one| one.via == via).count();
    assert_eq!([Via::Transparent, Via::Socks, Via::Connect, Via::Http].map(count), [6, 4, 2, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_told_what_was_refused() {
    let world = World::new().await;
    let mut room = Room::new(&world, world.grants(&["allowed.test"])).await;
    let port = world.denied.tls;
    let url = format!("https://denied.test:{port}/");
    let words =
        format!("denied.test:{port} is not granted to this sandbox; the operator can allow it with --allow-network");
    let said = room.run_with(&["python3", "-c", URLLIB, &url], &PROXY).await;
    assert!(said.contains(&format!("Tunnel connection failed: 403 {words}")), "{said}");
    let said = room.run_with(&["curl", "-sS", "-v", &url], &PROXY).await;
    assert!(said.contains(&words), "{said}");
    assert_eq!(room.served.refused(), [format!("denied.test:{port}")]);
    let said = room.run(&["python3", "-c", URLLIB, &url]).await;
    assert!(said.contains("Name or service not known"), "{said}");
    assert_eq!(room.served.refused(), ["denied.test"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_answered_with_stand_ins_and_nothing_else() {
    let world = World::new().await;
    let mut room = Room::new(&world, world.grants(&["allowed.test", "*.allowed.test"])).await;
    let look = "import socket, sys\nfor name in sys.argv[1:]:\n  try: print(name, sorted({a[4][0] for a in socket.getaddrinfo(name, 80)}))\n  \
                except OSError as error: print(name, error)";
    let said =
        room.run(&["python3", "-c", look, "allowed.test", "lo.allowed.test", "ALLOWED.test", "denied.test"]).await;
    assert_eq!(
        said,
        "allowed.test ['198.18.0.1']\nlo.allowed.test ['198.18.0.2']\nALLOWED.test ['198.18.0.1']\n\
         denied.test [Errno -2] Name or service not known\n"
    );
    let noise = "import socket, os\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 [s.sendto(os.urandom(n % 600), ('127.0.0.1', 53)) for n in range(500)]";
    room.run(&["python3", "-c", noise]).await;
    assert!(room.run(&["python3", "-c", look, "allowed.test"]).await.contains("198.18.0.1"), "it still answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_by_another_address_than_a_stand_in_is_not_served() {
    let world = World::new().await;
    let mut room = Room::new(&world, world.grants(&["allowed.test"])).await;
    for address in ["127.0.0.1", "198.18.0.1", "198.19.255.255"] {
        let url = format!("http://{address}:{}/", world.allowed.plain);
        let said = room.run(&["curl", "-sS", "-m", "5", "-H", "Host: allowed.test", &url]).await;
        assert!(said.contains("Empty reply") || said.contains("reset by peer"), "{address}: {said}");
    }
    assert_eq!(world.allowed.seen.lock().unwrap().connections, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_in_tls_that_is_not_the_stand_ins_is_refused() {
    let world = World::new().await;
    let mut room = Room::new(&world, world.grants(&["allowed.test", "sub.allowed.test"])).await;
    let (tls, plain) = (world.allowed.tls, world.allowed.plain);
    room.run(&["curl", "-sS", "-m", "5", &format!("https://allowed.test:{tls}/")]).await;
    let resolve = format!("denied.test:{tls}:198.18.0.1");
    let said =
        room.run(&["curl", "-sS", "-m", "5", "--resolve", &resolve, &format!("https://denied.test:{tls}/")]).await;
    assert!(said.contains("alert") || said.contains("unrecognized name"), "{said}");
    let said = room
        .run(&["curl", "-sS", "-m", "5", "-H", "Host: denied.test", &format!("http://allowed.test:{plain}/")])
        .await;
    assert!(said.contains("the Host header is not allowed.test"), "{said}");
    assert_eq!(world.allowed.heads().len(), 1);
}

const WITH_SECRET: &str = "import os, ssl, sys, urllib.request\n\
    context = ssl.create_default_context(); context.verify_flags |= ssl.VERIFY_X509_STRICT\n\
    headers = {'Authorization': 'Bearer ' + os.environ['BELLJAR_SECRET_API']}\n\
    print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers), context=context).read().decode())";
const FETCH_WITH_SECRET: &str = "fetch(process.argv[1], { headers: { Authorization: 'Bearer ' + process.env.BELLJAR_SECRET_API } })\
    .then(r => r.text()).then(console.log, e => console.log(e.cause ?? e))";

#[tokio::test(flavor = "multi_thread")]
async fn programs_use_a_secret_that_they_never_see() {
    let world = World::with(|settings, origin| {
        settings.secrets.push(crate::Secret {
            name: "API".into(),
            value: crate::Hidden::new("the-value-itself".into()),
            hosts: vec![format!("allowed.test:{}", origin.tls).parse().unwrap()],
            headers: Vec::new(),
        });
    })
    .await;
    let grants = world.grants(&["allowed.test"]);
    let variables = world.egress.placeholders(&grants);
    let mut env = vec![(variables[0].0.as_str(), variables[0].1.as_str())];
    let header = format!("Authorization: Bearer {}", variables[0].1);
    let mut room = Room::new(&world, grants).await;
    let url = format!("https://allowed.test:{}/echo", world.allowed.tls);
    let programs = [
        &["python3", "-c", WITH_SECRET, &url][..],
        &["curl", "-sS", "-H", &header, &url],
        &["node", "-e", FETCH_WITH_SECRET, &url],
    ];
    for _ in 0..2 {
        for words in programs {
            let said = room.run_with(words, &env).await;
            let echoed = said.to_ascii_lowercase().contains(&format!("authorization: bearer {}", "*".repeat(16)));
            assert!(echoed && !said.contains("the-value-itself"), "{words:?}: {said}");
        }
        // And once more with the proxy that they are told of.
        env.extend(PROXY);
    }
    let heads = world.allowed.heads();
    assert_eq!(heads.len(), 6);
    assert!(heads.iter().all(|head| head.contains(": Bearer the-value-itself\r\n")), "{heads:?}");
}
