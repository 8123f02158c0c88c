//! The event streams of older clients: what is sent goes one way, and what is answered comes another.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{Http, Reply};

#[derive(Debug)]
pub(crate) struct Events {
    http: Http,
    stream: TcpStream,
    pub(crate) heard: String,
    /// Where to send.
    pub(crate) target: String,
    next_id: u64,
}

impl Events {
    /// Below `path`, which is `/sse` with whatever is asked for.
    pub(crate) fn open(http: &Http, path: &str) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", http.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let token = authorization(http);
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}Accept: text/event-stream\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let (heard, target) = (String::new(), String::new());
        let mut events = Events { http: http.clone(), stream, heard, target, next_id: 1 };
        events.hear("event: endpoint\ndata: ");
        events.hear("\n\n");
        let (_, rest) = events.heard.split_once("event: endpoint\ndata: ").expect("where to send");
        events.target = rest.lines().next().unwrap().to_owned();
        events
    }

    /// Opens one, and shakes hands.
    pub(crate) fn begin(http: &Http, path: &str) -> Events {
        let mut events = Events::open(http, path);
        let client = json!({"name": "old", "version": "1"});
        let params = json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client});
        assert_eq!(events.ask("initialize", params)["result"]["protocolVersion"], "2024-11-05");
        events.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        events
    }

    #[track_caller]
    pub(crate) fn hear(&mut self, wanted: &str) {
        while !self.heard.contains(wanted) {
            self.hear_more();
        }
    }

    #[track_caller]
    fn hear_more(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the stream ended: {}", self.heard);
        self.heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }

    #[track_caller]
    pub(crate) fn send(&self, message: &Value) {
        let reply = self.post(&self.http, message);
        assert_eq!(reply.status, 202, "{reply:?}");
    }

    /// A message for this session, by whoever that is.
    pub(crate) fn post(&self, who: &Http, message: &Value) -> Reply {
        let (body, token) = (message.to_string(), authorization(who));
        let request = format!(
            "POST {} HTTP/1.1\r\nHost: localhost\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.target,
            body.len()
        );
        who.raw(request.as_bytes())
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params})
    }

    /// The answer to a request that is let in.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = self.request(method, params);
        self.send(&request);
        loop {
            if let Some(answer) = self.answer_to(&request["id"]) {
                return answer;
            }
            self.hear_more();
        }
    }

    fn answer_to(&self, id: &Value) -> Option<Value> {
        let messages = self.heard.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut messages = messages.filter_map(|message| serde_json::from_str::<Value>(message).ok());
        messages.find(|message| message["id"] == *id && message.get("method").is_none())
    }
}

fn authorization(http: &Http) -> String {
    http.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
}
