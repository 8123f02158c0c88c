//! Upstreams of both eras and over both transports: the modern one is Belljar itself.

use serde_json::json;

use super::place::{Place, prints};

/// A program in a sandbox has another Belljar run a program in a sandbox of its own.
#[test]
fn belljar_is_an_upstream_of_belljar() {
    Place::each(|place| {
        let inner = place.user.serve_http(&[]);
        let url = format!("http://127.0.0.1:{}/mcp", inner.client.port);
        let program = place.user.command(&[]).get_program().to_str().unwrap().to_owned();
        let place = place
            .with("inner", json!({"command": program, "args": ["serve", "--no-packages"]}))
            .with("remote", json!({"url": url}))
            .mock("modern", &["--era", "both"])
            .mock("older", &["--era", "legacy"])
            .mock("strict", &["--era", "strict"]);
        let mut server = place.serve();
        let code = r#"
import tools
from tools import inner, remote
deep = inner.run_code(language="python", code="print(6 * 7)")
print(deep["stdout"].strip(), deep["ending"], remote.run_code(language="shell", code="echo far")["stdout"].strip())
sandbox = remote.create_sandbox()["sandbox_id"]
remote.write_file(sandbox_id=sandbox, path="a.txt", content="kept")
print(remote.read_file(sandbox_id=sandbox, path="a.txt")["content"])
print([getattr(tools, name).echo(text=name) for name in ("modern", "older", "strict")])
try:
    inner.run_code(language="cobol", code="x")
except tools.ToolError as error:
    print(type(error).__name__)
"#;
        let expected = "42 exited far\nkept\n['modern', 'older', 'strict']\nInvalidArguments\n";
        prints(&mut server.client, "python", code, expected);
    });
}
