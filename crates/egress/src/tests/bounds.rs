use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::origin::{ALLOWED, parrot};
use super::world::{World, rest};

#[tokio::test]
async fn when_it_is_dropped_every_connection_ends() {
    let world = World::new().await;
    let port = parrot(ALLOWED, "hello").await;
    let proxy = world.proxy_for(vec![format!("allowed.test:{port}").parse().unwrap()]);
    let mut tunnel = proxy.connect("allowed.test", port).await;
    let mut hello = [0; 5];
    tunnel.read_exact(&mut hello).await.unwrap();
    drop(proxy.served);
    assert_eq!(timeout(Duration::from_secs(5), rest(&mut tunnel)).await.unwrap(), "");
    assert!(tokio::net::TcpStream::connect(proxy.at).await.is_err(), "and its doors are shut");
}

#[tokio::test]
async fn more_connections_than_there_is_room_for_wait() {
    let world = World::with(|settings, _| settings.bounds.connections = 2).await;
    let proxy = world.proxy(&["allowed.test"]);
    let port = world.allowed.plain;
    let held = [proxy.connect("allowed.test", port).await, proxy.connect("allowed.test", port).await];
    let ask = format!("GET http://allowed.test:{port}/ HTTP/1.0\r\n\r\n");
    let third = proxy.say(&ask);
    tokio::pin!(third);
    assert!(timeout(Duration::from_millis(300), &mut third).await.is_err(), "there is no room");
    drop(held);
    assert!(timeout(Duration::from_secs(5), third).await.unwrap().ends_with("ALLOWED-ZONE\n"));
}

#[tokio::test]
async fn a_sandbox_that_has_had_its_bytes_gets_no_more() {
    let world = World::with(|settings, _| settings.bounds.bytes = Some(100_000)).await;
    let proxy = world.proxy(&["allowed.test"]);
    let port = world.allowed.plain;
    let ask = |path: &str| format!("GET http://allowed.test:{port}{path} HTTP/1.0\r\n\r\n");
    assert!(proxy.say(ask("/")).await.ends_with("ALLOWED-ZONE\n"));
    let big = proxy.say(ask("/big")).await;
    assert!(big.len() < 200_000, "{} bytes came", big.len());
    let answer = proxy.say(ask("/")).await;
    assert!(answer.starts_with("HTTP/1.1 403 this sandbox has used up"), "{answer}");
}

#[tokio::test]
async fn a_head_has_an_end_in_bytes_and_in_time() {
    let world = World::with(|settings, _| {
        settings.bounds.first = Duration::from_millis(300);
        settings.bounds.idle = Duration::from_millis(300);
    })
    .await;
    let proxy = world.proxy(&["allowed.test"]);
    let answer = proxy.say(format!("GET /{} HTTP/1.1\r\n", "a".repeat(70_000))).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut stream = proxy.dial().await;
    stream.write_all(b"GET / HT").await.unwrap();
    assert_eq!(timeout(Duration::from_secs(5), rest(&mut stream)).await.unwrap(), "");
    let mut tunnel = proxy.connect("allowed.test", world.allowed.plain).await;
    assert_eq!(timeout(Duration::from_secs(5), rest(&mut tunnel)).await.unwrap(), "", "nothing was said");
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_ends() {
    let world = World::with(|settings, _| settings.bounds.idle = Duration::from_millis(300)).await;
    let port = parrot(ALLOWED, "").await;
    let proxy = world.proxy_for(vec![format!("allowed.test:{port}").parse().unwrap()]);
    let mut tunnel = proxy.connect("allowed.test", port).await;
    tunnel.write_all(b"ab\n").await.unwrap();
    assert_eq!(timeout(Duration::from_secs(5), rest(&mut tunnel)).await.unwrap(), "ab\nab\n");
}
