//! What a program reaches outside: hosts that were granted, and tools of other servers.

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::wall::{Ability, Wall, is_refused};
use crate::client::Caller;
use crate::host;
use crate::network::Web;
use crate::server::folder;

const MOCK: &str = include_str!("../../../../gateway/tests/upstreams/mock.py");

const GET: &str = "import urllib.request\ndef get(url):\n    \
    try: return urllib.request.urlopen(url, timeout=10).status\n    \
    except Exception as error: return 'nothing'\n";

pub(super) fn a_granted_host_is_reached_and_no_other(wall: &Wall) {
    let web = Web::plain();
    let port = web.port;
    let mut behind = wall.serve_with(&web.configuration(), &[]);
    let granted = json!({"network": [format!("api.test:{port}")], "timeout": 40});
    let code = format!("{GET}print(get('http://api.test:{port}/'), get('http://other.test:{port}/'))");
    let answer = behind.run("python", &code, granted.clone());
    if !wall.has(Ability::Network) {
        return is_refused(&answer, &["network"]);
    }
    answer.printed("200 nothing\n");
    assert!(answer.field("refused_hosts").to_string().contains("other.test"), "{}", answer.result);
    // Programs that know of no proxy: by name, and to an address of the host's own.
    let bare = format!(
        "import os\nfor name in list(os.environ):\n    if 'proxy' in name.lower(): del os.environ[name]\n\
         {GET}print(get('http://api.test:{port}/'), get('http://127.0.10.30:{port}/'))"
    );
    behind.run("python", &bare, granted).printed("200 nothing\n");
    // Without a grant there is nothing.
    behind.run("python", &format!("{GET}print(get('http://api.test:{port}/'))"), json!({})).printed("nothing\n");
    // The one that was fetched by name, and the one that came by itself; no more.
    assert_eq!(web.seen().len(), 2, "{:?}", web.seen());
}

pub(super) fn programs_call_tools(wall: &Wall) {
    let place = folder(0o755);
    let script = place.path().join("mock.py");
    fs::write(&script, MOCK).unwrap();
    let servers = json!({"mcpServers": {"mock": {"command": "python3", "args": [script]}}});
    let upstreams = place.path().join("mcp.json");
    fs::write(&upstreams, servers.to_string()).unwrap();
    let mut behind = wall.serve_with("", &["--mcp-config", upstreams.to_str().unwrap(), "--approve", "never"]);
    host::until("the other server is known", Duration::from_secs(60), || {
        let found = behind.server.client.call("search_tools", json!({"query": "", "detail": "names", "limit": 1}));
        !found.text().contains("it is still starting")
    });
    let code = "from tools import mock\nprint(mock.echo(text='there and back'), tools.mock.echo(text='again'))";
    behind.run("python", code, json!({})).printed("there and back again\n");
    let sandbox = behind.create(json!({}));
    let here = json!({"sandbox_id": sandbox});
    behind.run("python", "from tools import mock\nfirst = mock.echo(text='kept')", here.clone());
    behind.run("python", "print(first, mock.echo(text='and more'))", here).printed("kept and more\n");
    let failing = behind.run("python", "from tools import mock\nmock.fail()", json!({}));
    assert!(failing.is_error() && failing.text().contains("mock.fail"), "{}", failing.result);
    if wall.languages().iter().any(|language| language == "javascript") {
        let code = "console.log(await tools.mock.echo({text: 'from there'}))";
        behind.run("javascript", code, json!({})).printed("from there\n");
    }
}
