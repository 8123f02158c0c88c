//! Servers that hang, crash and are given up on cost only their own calls, and nothing of them stays.

use std::time::Duration;

use serde_json::json;

use super::place::{Place, run};
use crate::client::Caller;
use crate::host;

#[test]
fn a_server_that_fails_costs_only_its_own_calls() {
    Place::each(|place| {
        let place = place.mock("good", &[]).mock("shaky", &[]).mock("absent", &["--start", "fail"]);
        let mut server = place.serve();
        let code = r#"
import tools, threading
from tools import good, shaky
def told(call, **arguments):
    try:
        return call(**arguments)
    except tools.ToolError as error:
        return f"{type(error).__name__} {error.server} {'disk on fire' in str(error) or 'no such database' in str(error)}"
print(told(shaky.crash))
print(good.echo(text="good"), told(shaky.echo, text="again"))
print(told(lambda: tools.absent.echo(text="x")).split()[0])
slow = threading.Thread(target=lambda: print(told(shaky.hang.options(timeout=2))))
slow.start()
print([good.echo(text=str(number)) for number in range(5)], slow.is_alive())
slow.join()
print(shaky.echo(text="after"))
"#;
        let expected = "Upstream shaky True\ngood again\nUpstream\n['0', '1', '2', '3', '4'] True\n\
                        ToolTimeout shaky False\nafter\n";
        run(&mut server.client, "python", code).printed(expected);
    });
}

/// More threads than questions can be open at once: who finds no place waits, and nothing is lost.
#[test]
fn many_threads_call_at_once() {
    Place::each(|place| {
        let place = place.mock("good", &[]);
        let mut server = place.serve();
        let code = r#"
from concurrent.futures import ThreadPoolExecutor
from tools import good
with ThreadPoolExecutor(32) as pool:
    answers = list(pool.map(lambda number: good.echo(text=str(number)), range(600)))
print(answers == [str(number) for number in range(600)])
"#;
        run(&mut server.client, "python", code).printed("True\n");
    });
}

/// One that never answers keeps nobody waiting, and news of the others come through.
#[test]
fn a_server_that_never_starts_is_not_waited_for() {
    Place::each(|place| {
        let place = place.mock("good", &[]).mock("silent", &["--start", "hang"]);
        let config = place.config();
        let mut server = place.user.serve_with(&["--mcp-config", &config, "--approve", "never"]);
        let code = r#"
import tools, time
from tools import good
print(good.echo(text="good"), good.change(name="broken"))
try:
    tools.silent.echo(text="x")
except tools.Upstream as error:
    print("starting" in str(error))
deadline = time.monotonic() + 10
while "good.broken" not in tools.search("broken", detail="names") and time.monotonic() < deadline:
    time.sleep(0.05)
print(time.monotonic() < deadline)
"#;
        run(&mut server.client, "python", code).printed("good changed\nTrue\nTrue\n");
    });
}

#[test]
fn cancelling_reaches_the_server() {
    Place::each(|place| {
        let logs = ["both.log", "legacy.log"].map(|name| place.write(name, ""));
        let place = place.mock("both", &["--log", &logs[0]]).mock("legacy", &["--era", "legacy", "--log", &logs[1]]);
        let mut server = place.serve();
        let client = &mut server.client;
        for (era, log) in ["both", "legacy"].iter().zip(&logs) {
            let code = format!("from tools import {era}\n{era}.hang()");
            let id = client.start("run_code", json!({"language": "python", "code": code}));
            let heard = |word: &str| std::fs::read_to_string(log).unwrap().lines().any(|line| line == word);
            host::until("the server is called", Duration::from_secs(20), || heard("hanging"));
            client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
            host::until("the server is told", Duration::from_secs(10), || heard("notifications/cancelled"));
            client.python(&format!("from tools import {era}; print({era}.echo(text='on'))")).printed("on\n");
        }
    });
}

#[test]
fn nothing_of_the_servers_stays() {
    Place::each_public(|place| {
        let place = place.everything().time().mock("mock", &[]);
        for politely in [true, false] {
            let mut server = place.serve();
            // The second has to end what runs only.
            let more =
                if politely { "everything.echo(message='x'); time.get_current_time(timezone='UTC')\n" } else { "" };
            let code = format!("from tools import everything, mock, time\n{more}print(mock.child() != '')");
            run(&mut server.client, "python", &code).printed("True\n");
            let processes = host::descendants(server.pid());
            assert!(
                processes.len() >= if politely { 5 } else { 3 },
                "servers, a child of one, sandboxes: {processes:?}"
            );
            match politely {
                true => server.client.hang_up(),
                false => host::signal(server.pid(), "TERM"),
            }
            server.wait_exit(Duration::from_secs(15));
            host::until("no process is left", Duration::from_secs(5), || !processes.iter().any(|one| one.lives()));
        }
    });
}
