use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use belljar_engine::Settings;
use belljar_testkit::fake::{Fake, Manners};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;

const WAIT: Duration = Duration::from_secs(20);

struct Server {
    fake: Arc<Fake>,
    folder: PathBuf,
    stop: CancellationToken,
    ended: JoinHandle<()>,
}

impl Server {
    /// One that takes processes of a user whose number is so far from our own.
    fn start(change: impl FnOnce(&mut UnixSettings)) -> Server {
        let mut name = [0; 8];
        getrandom::fill(&mut name).unwrap();
        let folder = std::env::temp_dir().join(format!("belljar-unix-{}", u64::from_ne_bytes(name)));
        std::fs::create_dir(&folder).unwrap();
        let own = std::fs::metadata(&folder).unwrap().uid();
        let listener = UnixListener::bind(folder.join("s")).unwrap();
        let fake = Fake::new(Manners::default());
        let engine = Engine::new(fake.clone(), Settings::default());
        let mut settings = UnixSettings::new(own, Surface::default());
        change(&mut settings);
        let stop = CancellationToken::new();
        let ended = tokio::spawn(serve_unix(engine, listener, settings, stop.clone()));
        Server { fake, folder, stop, ended }
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.folder.join("s")).await.unwrap())
    }

    async fn until(&self, what: &str, holds: impl Fn(&Fake) -> bool) {
        let since = Instant::now();
        while !holds(&self.fake) {
            assert!(since.elapsed() < WAIT, "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn say(stream: &mut BufReader<UnixStream>, message: Value) {
    stream.write_all(format!("{message}\n").as_bytes()).await.unwrap();
}

/// The next message that answers something.
async fn answer(stream: &mut BufReader<UnixStream>) -> Value {
    let answering = async {
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).await.unwrap() > 0, "the stream ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("result").is_some() || message.get("error").is_some() {
                return message;
            }
        }
    };
    timeout(WAIT, answering).await.expect("an answer in time")
}

async fn begun(server: &Server) -> BufReader<UnixStream> {
    let mut stream = server.connect().await;
    let client = json!({"name": "t", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    say(&mut stream, json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})).await;
    assert_eq!(answer(&mut stream).await["result"]["protocolVersion"], "2025-06-18");
    say(&mut stream, json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    stream
}

fn run(id: i64, code: &str) -> Value {
    let arguments = json!({"language": "python", "code": code});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "run_code", "arguments": arguments}})
}

async fn to_end(stream: &mut BufReader<UnixStream>) -> String {
    let mut rest = Vec::new();
    let _ = timeout(WAIT, stream.read_to_end(&mut rest)).await.expect("closed in time");
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn lines_and_http_are_told_apart_and_many_speak_at_once() {
    let server = Server::start(|_| {});
    let mut streams = Vec::new();
    for n in 0..8 {
        let mut stream = begun(&server).await;
        // The same id in each: they are different conversations.
        say(&mut stream, run(1, &format!("sleep 50\nprint mine {n}"))).await;
        streams.push(stream);
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        let answer = answer(stream).await;
        assert_eq!(answer["result"]["content"][0]["text"], format!("mine {n}\n"), "{answer}");
    }
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {"_meta": meta}});
    let mut stateless = server.connect().await;
    say(&mut stateless, list.clone()).await;
    assert_eq!(answer(&mut stateless).await["id"], 7);

    let body = list.to_string();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut http = server.connect().await;
    http.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let reply = to_end(&mut http).await;
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("run_code"), "{reply}");
    // A page of a browser cannot get here, and the gate would not let it.
    let mut http = server.connect().await;
    http.write_all(head.replace("localhost", "evil.test").as_bytes()).await.unwrap();
    assert!(to_end(&mut http).await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn what_is_neither_is_told_so_as_json_rpc() {
    let server = Server::start(|_| {});
    for (bytes, code) in [("[]\n", -32600), ("nonsense\n", -32700), ("\u{1}\n", -32700), ("{\"a\":\n", -32700)] {
        let mut stream = server.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        assert_eq!(answer(&mut stream).await["error"]["code"], code, "{bytes:?}");
    }
    let deep = format!("{}{}\n", "[".repeat(10_000), "]".repeat(10_000));
    let mut stream = begun(&server).await;
    stream.write_all(deep.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await["error"]["code"].is_i64());
    say(&mut stream, run(3, "print still")).await;
    assert_eq!(answer(&mut stream).await["result"]["content"][0]["text"], "still\n");
}

#[tokio::test]
async fn another_users_process_is_sent_away() {
    let server = Server::start(|settings| settings.uid += 1);
    let mut stream = server.connect().await;
    // It may be gone before it is written to.
    let _ = stream.write_all(format!("{}\n", run(1, "print no")).as_bytes()).await;
    assert_eq!(to_end(&mut stream).await, "");
    assert_eq!(server.fake.started(), 0);
}

#[tokio::test]
async fn hanging_up_ends_what_ran_and_no_other() {
    let server = Server::start(|_| {});
    let mut stays = begun(&server).await;
    let mut leaves = begun(&server).await;
    say(&mut stays, run(1, "sleep 8000\nprint stayed")).await;
    say(&mut leaves, run(1, "sleep 60000")).await;
    server.until("both run", |fake| fake.programs() == 2).await;
    drop(leaves);
    server.until("one is killed", |fake| fake.programs() == 1).await;
    assert_eq!(answer(&mut stays).await["result"]["content"][0]["text"], "stayed\n");
}

#[tokio::test]
async fn a_second_request_with_an_open_id_is_refused() {
    let server = Server::start(|_| {});
    let mut stream = begun(&server).await;
    say(&mut stream, run(5, "sleep 300\nprint first")).await;
    say(&mut stream, run(5, "print second")).await;
    let refused = answer(&mut stream).await;
    assert_eq!((refused["id"].as_i64(), refused["error"]["code"].as_i64()), (Some(5), Some(-32600)), "{refused}");
    assert_eq!(answer(&mut stream).await["result"]["content"][0]["text"], "first\n");
}

#[tokio::test]
async fn stopping_ends_conversations() {
    let server = Server::start(|_| {});
    let mut stream = begun(&server).await;
    say(&mut stream, run(1, "sleep 60000")).await;
    server.until("it runs", |fake| fake.programs() == 1).await;
    server.stop.cancel();
    to_end(&mut stream).await;
    server.until("nothing runs", |fake| fake.programs() == 0 && fake.sandboxes() == 0).await;
    let since = Instant::now();
    while !server.ended.is_finished() {
        assert!(since.elapsed() < WAIT, "it does not end");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
