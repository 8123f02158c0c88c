//! The containers that an engine has of our servers, asked of the engine itself.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::http::Reply;

/// What the labels of a container of ours begin with.
const LABEL: &str = "belljar.sandbox";
const SERVER: &str = "belljar.server";
const PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 8 << 20;

/// Their ids, running or not.
pub(crate) fn of_servers(socket: &Path, servers: &BTreeSet<u32>) -> Result<BTreeSet<String>, String> {
    let listed = ask(socket, &format!("/containers/json?all=true&filters=%7B%22label%22%3A%5B%22{LABEL}%22%5D%7D"))?;
    Ok(ids(&listed, servers))
}

fn ask(socket: &Path, path: &str) -> Result<Value, String> {
    let told = |error: std::io::Error| format!("{}: {error}", socket.display());
    let mut stream = UnixStream::connect(socket).map_err(told)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(told)?;
    let request = format!("GET /v1.40{path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(told)?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).map_err(told)?;
    let reply = Reply::parse(&bytes)?.ok_or("the engine's answer has no end")?;
    if reply.status != 200 {
        return Err(format!("the engine answered {}: {}", reply.status, reply.text()));
    }
    serde_json::from_slice(&reply.body).map_err(|error| format!("the engine's answer: {error}"))
}

/// A server's label is its boot, its process namespace, its number and when it was started, with dots between them.
fn ids(listed: &Value, servers: &BTreeSet<u32>) -> BTreeSet<String> {
    let is_ours = |container: &&Value| {
        let label = container["Labels"][SERVER].as_str().unwrap_or_default();
        let pid = label.split('.').nth(2).and_then(|pid| pid.parse().ok());
        pid.is_some_and(|pid| servers.contains(&pid))
    };
    let containers = listed.as_array().into_iter().flatten().filter(is_ours);
    containers.filter_map(|container| container["Id"].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_containers_of_these_servers_count() {
        let labelled = |id: &str, server: &str| json!({"Id": id, "Labels": {SERVER: server, LABEL: "x"}});
        let listed = json!([labelled("a", "b00t.1.77.5"), labelled("b", "b00t.1.78.5"), {"Id": "c", "Labels": {}}]);
        assert_eq!(ids(&listed, &BTreeSet::from([77])), BTreeSet::from(["a".to_owned()]));
        assert!(ids(&json!({"message": "no"}), &BTreeSet::from([77])).is_empty());
    }
}
