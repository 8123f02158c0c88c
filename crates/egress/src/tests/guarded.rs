use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use belljar_core::{
    Backend, Capabilities, Content, Doors, Isolation, Later, Listing, Network, Probe, Program, Range, Running, Sandbox,
    Spec,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::world::{World, rest};
use crate::guard;

/// A backend whose places are their doors, and nothing else.
#[derive(Debug, Default)]
struct Doorsteps {
    opened: Mutex<Vec<Spec>>,
    at: Mutex<Option<std::net::SocketAddr>>,
}

#[derive(Debug)]
struct Doorstep(Mutex<Option<Doors>>);

impl Backend for Doorsteps {
    fn name(&self) -> &'static str {
        "doorsteps"
    }

    fn probe(&self) -> Probe {
        Probe { walls: Vec::new(), languages: Vec::new() }
    }

    fn capabilities(&self) -> Capabilities {
        unreachable!("nobody asks")
    }

    fn open<'a>(&'a self, spec: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        self.opened.lock().unwrap().push(spec.clone());
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        proxy.set_nonblocking(true).unwrap();
        *self.at.lock().unwrap() = Some(proxy.local_addr().unwrap());
        let names = UdpSocket::bind("127.0.0.1:0").unwrap();
        names.set_nonblocking(true).unwrap();
        let doors = Doors::Sockets { transparent: Vec::new(), proxy: proxy.into(), names: names.into() };
        let sandbox: Box<dyn Sandbox> = Box::new(Doorstep(Mutex::new(Some(doors))));
        Box::pin(std::future::ready(Ok(sandbox)))
    }
}

impl Sandbox for Doorstep {
    fn isolation(&self) -> &Isolation {
        unreachable!("nobody asks")
    }

    fn start(&self, _: Program) -> Later<'_, Box<dyn Running>> {
        unreachable!("nobody asks")
    }

    fn read<'a>(&'a self, _: &'a str, _: Range) -> Later<'a, Content> {
        unreachable!("nobody asks")
    }

    fn write<'a>(&'a self, _: &'a str, _: Vec<u8>) -> Later<'a, ()> {
        unreachable!("nobody asks")
    }

    fn list<'a>(&'a self, _: &'a str, _: u32, _: u32) -> Later<'a, Listing> {
        unreachable!("nobody asks")
    }

    fn doors(&self) -> Option<Doors> {
        self.0.lock().unwrap().take()
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn close(self: Box<Self>) -> Later<'static, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_guarded_sandbox_has_its_doors_served_and_its_placeholders_set() {
    let world = World::with(|settings, _| {
        settings.secrets.push(crate::Secret {
            name: "API".into(),
            value: crate::Hidden::new("a-value-to-hide".into()),
            hosts: vec!["allowed.test".parse().unwrap()],
            headers: Vec::new(),
        });
    })
    .await;
    let doorsteps = Arc::new(Doorsteps::default());
    let backend = guard(doorsteps.clone(), world.egress.clone());
    let spec = Spec { network: Network::Granted(world.grants(&["allowed.test"])), ..Spec::default() };
    let sandbox = backend.open(&spec).await.unwrap();
    let env = doorsteps.opened.lock().unwrap()[0].env.clone();
    assert_eq!(env, world.egress.placeholders(&world.grants(&["allowed.test"])));
    assert!(sandbox.doors().is_none(), "they are taken");
    let at = doorsteps.at.lock().unwrap().unwrap();
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"CONNECT denied.test:443 HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(rest(&mut stream).await.starts_with("HTTP/1.1 403 "));
    assert_eq!(sandbox.refused(), ["denied.test:443"]);
    sandbox.close().await.unwrap();
    // The listener goes with the task that has it, at its next turn.
    while TcpStream::connect(at).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_sandbox_without_a_network_is_left_as_it_is() {
    let world = World::new().await;
    let doorsteps = Arc::new(Doorsteps::default());
    let sandbox = guard(doorsteps.clone(), world.egress.clone()).open(&Spec::default()).await.unwrap();
    assert_eq!(doorsteps.opened.lock().unwrap()[0], Spec::default());
    assert!(sandbox.doors().is_some());
}
