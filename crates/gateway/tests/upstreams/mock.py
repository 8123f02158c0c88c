"""A small MCP server over stdio for the tests, with every bad habit that a server can have.

Without dependencies, and of both protocol eras. Options are on the command line; habits that concern a single call are tools.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

options = argparse.ArgumentParser()
options.add_argument("--era", choices=["both", "legacy", "strict", "mute"], default="both")
options.add_argument("--many", type=int, default=0, help="so many tools besides")
options.add_argument("--pages", choices=["one", "endless", "circle"], default="one")
options.add_argument("--extra", help="a file with names of more tools, read at each list")
options.add_argument("--log", help="a file that every method heard is appended to")
options.add_argument("--start", choices=["well", "hang", "fail"], default="well")
options.add_argument("--noise", action="store_true", help="lines on stderr, and on stdout lines that are no messages")
options.add_argument("--odd", action="store_true", help="a tool without a schema")
options = options.parse_args()

turn = threading.Lock()
added = []
deaf = threading.Event()
waiting = {}


def send(message):
    line = json.dumps({"jsonrpc": "2.0", **message})
    with turn:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def note(text):
    if options.log:
        with open(options.log, "a") as log:
            log.write(text + "\n")


def tool(name, **properties):
    return {"name": name, "description": f"The tool {name}.", "inputSchema": {"type": "object", "properties": properties}}


def tools():
    names = ["echo", "slow", "hang", "crash", "big", "environment", "change", "ask", "fail", "input", "child", "pid"]
    found = [tool(name) for name in names + added] + [tool(f"many_{n}") for n in range(options.many)]
    if options.extra and os.path.exists(options.extra):
        with open(options.extra) as extra:
            found += [tool(name) for name in extra.read().split()]
    if options.odd:
        found.append({"name": "odd", "vendor": 1})
    return found


def page(cursor):
    if options.pages == "one":
        return {"tools": tools()}
    number = int(cursor or 0)
    if options.pages == "circle":
        return {"tools": [tool(f"page_{number}")], "nextCursor": str((number + 1) % 3)}
    return {"tools": [tool(f"page_{number}")], "nextCursor": str(number + 1)}


def ask(method, params):
    """Asks the client, and waits for what it says."""
    number = f"ask-{method}"
    waiting[number] = threading.Event()
    send({"id": number, "method": method, "params": params})
    event = waiting[number]
    event.wait(10)
    return getattr(event, "answer", "none")


def text(value):
    return {"content": [{"type": "text", "text": value if isinstance(value, str) else json.dumps(value)}]}


def call(number, name, given, meta):
    if name == "meta":
        return text(meta)
    if name == "echo":
        return text(given.get("text", ""))
    if name == "slow":
        time.sleep(given["seconds"])
        return text("done")
    if name == "hang":
        note("hanging")
        threading.Event().wait()
    if name == "crash":
        sys.stderr.write(given.get("last", "\x1b[31mdisk on fire\x1b[0m") + "\n")
        sys.stderr.flush()
        os._exit(given.get("code", 3))
    if name == "big":
        if given.get("last"):
            with turn:
                sys.stdout.write('{"result": {"content": [{"type": "text", "text": "')
                for _ in range(given["mb"]):
                    sys.stdout.write("x" * 1024 * 1024)
                sys.stdout.write('"}]}, "jsonrpc": "2.0", "id": %d}\n' % number)
                sys.stdout.flush()
            return None
        return text("x" * int(given["mb"] * 1024 * 1024))
    if name == "environment":
        return text(dict(os.environ))
    if name == "change":
        added.append(given["name"])
        for _ in range(5):
            send({"method": "notifications/tools/list_changed"})
        return text("changed")
    if name == "ask":
        return text({
            "sampling": ask("sampling/createMessage", {"messages": [], "maxTokens": 1}),
            "roots": ask("roots/list", {}),
            "elicitation": ask("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
            "other": ask("vendor/other", {}),
        })
    if name == "fail":
        send({"id": number, "error": {key: given[key] for key in ("code", "message", "data") if key in given}})
        return None
    if name == "input":
        request = {"method": "elicitation/create", "params": given["params"]}
        return {"resultType": "input_required", "inputRequests": {"one": request}, "requestState": "s"}
    if name == "child":
        return text(str(subprocess.Popen(["sleep", "1000"]).pid))
    if name == "deaf":
        deaf.set()
        return text("what?")
    if name == "pid":
        return text(str(os.getpid()))
    if name == "broken":
        return {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    send({"id": number, "error": {"code": -32602, "message": f"Unknown tool: {name}"}})
    return None


def answer(number, method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "mock", "version": "1"},
            "instructions": "Use it for tests.",
        }
    if method == "server/discover" and options.era == "both":
        return {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {"listChanged": True}},
            "instructions": "Use it for tests.",
            "ttlMs": 0,
            "cacheScope": "private",
        }
    if method == "tools/list":
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **page(params.get("cursor"))}
    if method == "tools/call":
        return call(number, params["name"], params.get("arguments") or {}, params.get("_meta") or {})
    if method == "resources/read":
        inner = {"uri": params["uri"], "text": "key " + os.environ["API_KEY"]}
        return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "contents": [inner]}
    send({"id": number, "error": {"code": -32601, "message": "Method not found"}})
    return None


def serve(number, method, params):
    result = answer(number, method, params)
    if result is not None:
        send({"id": number, "result": result})


def subscribe(number):
    """Acknowledges, and from then on words of change carry the number of the subscription."""
    meta = {"io.modelcontextprotocol/subscriptionId": number}
    send({"method": "notifications/subscriptions/acknowledged",
          "params": {"notifications": {"toolsListChanged": True}, "_meta": meta}})
    plain = globals()["send"]

    def marked(message):
        if message.get("method") == "notifications/tools/list_changed":
            message = {**message, "params": {"_meta": meta}}
        plain(message)

    globals()["send"] = marked


note("start")
if options.noise:
    sys.stderr.write("starting up\n" * 1000 + "y" * 100_000 + "\n")
    print("Welcome to the mock server!\n\n{}\n[1, 2]\n{\"jsonrpc\": \"2.0\"}", flush=True)
if options.start == "hang":
    threading.Event().wait()
if options.start == "fail":
    sys.stderr.write("no such database\n")
    sys.exit(2)

first = True
for line in sys.stdin:
    if deaf.is_set():
        threading.Event().wait()
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    note(method or "answer")
    if options.era == "strict" and first and method != "initialize":
        sys.stderr.write("expected initialize\n")
        sys.exit(1)
    first = False
    if method is None:
        if number in waiting:
            waiting[number].answer = message.get("error", {}).get("code") or message.get("result")
            waiting[number].set()
    elif method == "server/discover" and options.era == "mute":
        pass
    elif method == "subscriptions/listen":
        subscribe(number)
    elif number is not None:
        threading.Thread(target=serve, args=(number, method, message.get("params") or {}), daemon=True).start()
note("end")
