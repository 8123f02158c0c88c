//! An MCP client over streamable HTTP in the stateless form of 2026-07-28: every request stands alone and says in its
//! headers what its body says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::action::{Credential, HttpStep};
use super::client::{Answer, Caller, Lost, Pending, hold};
use super::wire::{connect, exchange, request_bytes};

pub(crate) use super::wire::Reply;

pub(crate) const HTTP_PROTOCOL: &str = "2026-07-28";
const META: &str = "io.modelcontextprotocol/";
/// Longer than any step may take, so that it is the step's own limit that is reported.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// The bearer tokens that the server knows.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    pub(crate) good: String,
    pub(crate) a: String,
    pub(crate) b: String,
}

impl Tokens {
    pub(crate) fn of(&self, who: Caller) -> &str {
        match who {
            Caller::Good => &self.good,
            Caller::A => &self.a,
            Caller::B => &self.b,
        }
    }

    /// The server's token file: one `NAME:TOKEN` a line.
    pub(crate) fn file(&self) -> String {
        format!("good:{}\nalice:{}\nbob:{}\n", self.good, self.a, self.b)
    }
}

#[derive(Debug)]
pub(crate) struct HttpClient {
    address: SocketAddr,
    tokens: Tokens,
    next: AtomicU64,
    /// Tool name → argument → header, from `x-mcp-header` in the tools' schemas; read once, when first needed.
    mirrored: Mutex<Option<MirroredArguments>>,
}

type MirroredArguments = HashMap<String, Vec<(String, String)>>;

impl HttpClient {
    pub(crate) fn new(address: SocketAddr, tokens: Tokens) -> Self {
        HttpClient { address, tokens, next: AtomicU64::new(1), mirrored: Mutex::new(None) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn start(&self, who: Caller, method: &str, params: Value) -> Result<Pending, String> {
        let mirrors = if method == "tools/call" { self.mirrors(&params)? } else { Vec::new() };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut headers = self.headers(method, name_in(&params), HTTP_PROTOCOL);
        headers.push(("Authorization".into(), format!("Bearer {}", self.tokens.of(who))));
        headers.extend(mirrors);
        let body = body(id, method, params, HTTP_PROTOCOL);
        let request = request_bytes("POST", "/mcp", &headers, body.to_string().as_bytes());
        let started = Instant::now();
        let stream = connect(self.address)?;
        let socket = Some(stream.try_clone().map_err(|error| error.to_string())?);
        let (sender, answer) = mpsc::channel();
        thread::spawn(move || {
            let answer = match exchange(&stream, &request, Some(id), ANSWER_WITHIN) {
                Ok(reply) => {
                    let message = reply.answer_to(id).unwrap_or_default();
                    Answer { bytes: reply.body.len(), http: Some(reply), ..Answer::new(message, 0) }
                }
                Err(_) => Answer::lost(Lost::Closed),
            };
            // The step may have given up waiting.
            let _ = sender.send(answer);
        });
        Ok(Pending { id, started, answer, socket })
    }

    /// A request as the case words it, for better or worse.
    pub(crate) fn odd(&self, step: &HttpStep, at_most: Duration) -> Result<Answer, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let protocol = step.protocol_in_meta.as_deref().unwrap_or(HTTP_PROTOCOL);
        let (method, params) = match (&step.body_call, &step.body) {
            (Some(tool), _) => {
                let arguments = json!({"language": "python", "code": "print('HTTP-RAN')"});
                ("tools/call", json!({"name": tool, "arguments": arguments}))
            }
            (None, Some(method)) => (method.as_str(), json!({})),
            (None, None) => ("", Value::Null),
        };
        let has_body = !method.is_empty();
        let mut headers = match has_body {
            true => self.headers(method, name_in(&params), HTTP_PROTOCOL),
            false => vec![("Host".into(), self.address.to_string()), ("Accept".into(), "*/*".into())],
        };
        match &step.token {
            Credential::Good => headers.push(("Authorization".into(), format!("Bearer {}", self.tokens.good))),
            Credential::Literal(token) => headers.push(("Authorization".into(), format!("Bearer {token}"))),
            Credential::Nothing => {}
        }
        for (name, value) in &step.headers {
            headers.retain(|(have, _)| !have.eq_ignore_ascii_case(name));
            headers.push((name.clone(), value.clone()));
        }
        let body = if has_body { body(id, method, params, protocol).to_string() } else { String::new() };
        let verb = step.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" });
        let path = step.path.as_deref().unwrap_or("/mcp");
        let target = format!("{path}{}", step.query.as_deref().unwrap_or_default());
        let started = Instant::now();
        let stream = connect(self.address)?;
        let reply = exchange(&stream, &request_bytes(verb, &target, &headers, body.as_bytes()), Some(id), at_most)?;
        let message = reply.answer_to(id).unwrap_or_default();
        let bytes = reply.body.len();
        Ok(Answer { took: started.elapsed(), http: Some(reply), ..Answer::new(message, bytes) })
    }

    fn headers(&self, method: &str, name: Option<&str>, protocol: &str) -> Vec<(String, String)> {
        let mut headers = vec![
            ("Host".to_owned(), self.address.to_string()),
            ("Accept".to_owned(), "application/json, text/event-stream".to_owned()),
            ("Content-Type".to_owned(), "application/json".to_owned()),
            ("MCP-Protocol-Version".to_owned(), protocol.to_owned()),
            ("Mcp-Method".to_owned(), method.to_owned()),
        ];
        headers.extend(name.map(|name| ("Mcp-Name".to_owned(), name.to_owned())));
        headers
    }

    /// The headers that repeat arguments of this call, as the tool's schema asks.
    fn mirrors(&self, params: &Value) -> Result<Vec<(String, String)>, String> {
        let mut mirrored = hold(&self.mirrored);
        let known = match &*mirrored {
            Some(known) => known,
            None => mirrored.insert(self.list_mirrors()?),
        };
        let wanted = name_in(params).and_then(|tool| known.get(tool));
        let mut headers = Vec::new();
        for (argument, header) in wanted.into_iter().flatten() {
            let value = match params.pointer(&format!("/arguments/{argument}")) {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                _ => continue,
            };
            headers.push((format!("Mcp-Param-{header}"), in_header(&value)));
        }
        Ok(headers)
    }

    fn list_mirrors(&self) -> Result<MirroredArguments, String> {
        let answer = self.start(Caller::Good, "tools/list", json!({}))?.wait(Duration::from_secs(20));
        let tools = answer.field("/tools").and_then(Value::as_array);
        let tools = tools.ok_or_else(|| format!("tools/list: {}", answer.text()))?;
        Ok(tools.iter().map(mirrors_of).collect())
    }
}

/// What a header cannot hold is said in base64.
fn in_header(value: &str) -> String {
    if value.bytes().all(|byte| byte.is_ascii_graphic()) && !value.starts_with("=?") {
        return value.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(value))
}

fn mirrors_of(tool: &Value) -> (String, Vec<(String, String)>) {
    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let properties = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
    let mirrors = properties
        .into_iter()
        .flatten()
        .filter_map(|(argument, schema)| {
            let header = schema.get("x-mcp-header").and_then(Value::as_str)?;
            Some((argument.clone(), header.to_owned()))
        })
        .collect();
    (name, mirrors)
}

/// What `Mcp-Name` repeats: a tool's name or a resource's address.
fn name_in(params: &Value) -> Option<&str> {
    params.get("name").or_else(|| params.get("uri")).and_then(Value::as_str)
}

fn body(id: u64, method: &str, mut params: Value, protocol: &str) -> Value {
    params["_meta"] = json!({
        (format!("{META}protocolVersion")): protocol,
        (format!("{META}clientInfo")): {"name": "battery", "version": "1"},
        (format!("{META}clientCapabilities")): {},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotated_arguments_are_found() {
        let tool = json!({"name": "run_code", "inputSchema": {"properties": {
            "sandbox_id": {"type": "string", "x-mcp-header": "Sandbox"}, "code": {"type": "string"}}}});
        let (name, mirrors) = mirrors_of(&tool);
        assert_eq!(name, "run_code");
        assert_eq!(mirrors, [("sandbox_id".to_owned(), "Sandbox".to_owned())]);
    }

    #[test]
    fn what_no_header_holds_is_in_base64() {
        assert_eq!(in_header("sb_1"), "sb_1");
        assert_eq!(in_header("../a b"), "=?base64?Li4vYSBi?=");
        assert_eq!(in_header("=?base64?eA==?="), "=?base64?PT9iYXNlNjQ/ZUE9PT89?=");
    }

    #[test]
    fn a_body_carries_its_metadata() {
        let body = body(3, "tools/list", json!({}), "2026-07-28");
        assert_eq!(body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(body["id"], 3);
    }
}
