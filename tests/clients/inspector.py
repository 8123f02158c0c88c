"""Belljar as the MCP Inspector's command line sees it: over stdio and HTTP, in both eras of the protocol.

A plain script, for which scripts/clients sets BELLJAR and PATH: python3 tests/clients/inspector.py [WORD...]. With
words, only the checks whose name holds one of them are run. Prints a line for each check and a count at the end; exits
with 1 if one failed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

BELLJAR = os.path.abspath(os.environ.get("BELLJAR", "target/debug/belljar"))
TOKEN = "ann-0123456789abcdef0123456789abcdef"
TOOLS = ["run_code", "create_sandbox", "exec", "job", "write_file", "read_file", "list_files", "destroy_sandbox"]
# What the Inspector exits with when a tool's result has isError.
TOOL_ERROR = 5


class Answer:
    def __init__(self, ran):
        self.code, self.stderr = ran.returncode, ran.stderr
        self.shown = f"exit {ran.returncode}, stdout {ran.stdout[:300]!r}, stderr {ran.stderr[:500]!r}"
        self.result = json.loads(ran.stdout)["result"] if ran.stdout.strip() else None

    def done(self):
        """The result of a request that must succeed, and without a word of complaint."""
        assert self.code == 0 and not self.stderr.strip(), self.shown
        return self.result


class Inspector:
    """The Inspector, pointed at a server: a command or a URL."""

    def __init__(self, folder, era, *target):
        self.era, self.target = era, target
        program = shutil.which("mcp-inspector") or sys.exit("error: no mcp-inspector\nhint: run scripts/clients")
        self.command = [shutil.which("node"), os.path.realpath(program), "--cli"]
        # It keeps its servers and tokens in the home directory, of which this is none.
        self.env = os.environ | {
            "MCP_CATALOG_PATH": f"{folder}/catalog.json",
            "MCP_CLIENT_CONFIG_PATH": f"{folder}/client.json",
            "MCP_STORAGE_DIR": folder,
        }

    def ask(self, method, *words):
        command = [*self.command, *self.target, "--protocol-era", self.era, "--format", "json", "--method", method]
        ran = subprocess.run([*command, *words], env=self.env, capture_output=True, text=True, timeout=60,
                             stdin=subprocess.DEVNULL)
        return Answer(ran)

    def call(self, tool, *words, **arguments):
        return self.ask("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments), *words)


def the_schemas_suit_every_client(inspector):
    """The lint has nothing to say, not even a warning."""
    listed = inspector.ask("tools/list", "--strict").done()
    assert [tool["name"] for tool in listed["tools"]] == TOOLS, listed
    for tool in listed["tools"]:
        assert tool["inputSchema"]["type"] == tool["outputSchema"]["type"] == "object", tool["name"]


def programs_run(inspector):
    for language, code, stdout in [
        ("python", "print(6 * 7)", "42\n"),
        ("javascript", "console.log(6 * 7)", "42\n"),
        ("shell", "echo $((6 * 7))", "42\n"),
    ]:
        result = inspector.call("run_code", language=language, code=code).done()
        assert result["structuredContent"]["stdout"] == stdout and result["isError"] is False, result
        assert result["content"][0] == {"type": "text", "text": stdout}, result["content"]


def a_failing_program_is_a_tool_error(inspector):
    answer = inspector.call("run_code", language="python", code="import sys; print('before'); sys.exit(3)")
    assert answer.code == TOOL_ERROR, answer.shown
    content = answer.result["structuredContent"]
    assert (content["stdout"], content["exit_code"], content["ending"]) == ("before\n", 3, "exited"), content
    answer = inspector.call("run_code", language="cobol", code="x")
    assert answer.code == TOOL_ERROR and "python" in answer.result["content"][0]["text"], answer.shown


def resources_can_be_listed(inspector):
    assert isinstance(inspector.ask("resources/list").done()["resources"], list)
    templates = inspector.ask("resources/templates/list").done()["resourceTemplates"]
    shapes = [template["uriTemplate"] for template in templates]
    assert any(shape.startswith("belljar://{sandbox_id}/{+path}") for shape in shapes), templates


def a_small_load_is_carried(inspector):
    words = ["--load", "--load-requests", "60", "--load-concurrency", "6"]
    load = inspector.call("run_code", *words, language="shell", code="echo load").done()
    assert (load["requests"], load["ok"], load["errors"], load["toolErrors"]) == (60, 60, 0, 0), load


def a_sandbox_outlives_its_connection(inspector):
    """Each request of the Inspector is a connection of its own; over HTTP the sandbox stays between them."""
    sandbox = inspector.call("create_sandbox").done()["structuredContent"]["sandbox_id"]
    inspector.call("write_file", sandbox_id=sandbox, path="a.txt", content="kept\n").done()
    ran = inspector.call("exec", sandbox_id=sandbox, command="cat a.txt").done()
    assert ran["structuredContent"]["stdout"] == "kept\n", ran
    uris = [resource["uri"] for resource in inspector.ask("resources/list").done()["resources"]]
    assert f"belljar://{sandbox}/" in uris, uris
    [content] = inspector.ask("resources/read", "--uri", f"belljar://{sandbox}/a.txt").done()["contents"]
    assert content["text"] == "kept\n", content
    inspector.call("destroy_sandbox", sandbox_id=sandbox).done()
    answer = inspector.call("exec", sandbox_id=sandbox, command="true")
    assert answer.code == TOOL_ERROR and "was destroyed" in answer.result["content"][0]["text"], answer.shown


def a_token_is_needed_where_there_are_some(inspector):
    answer = inspector.ask("tools/list", "--stored-auth-only")
    assert answer.code != 0 and answer.result is None, answer.shown
    answer = inspector.ask("tools/list", "--header", f"Authorization: Bearer {TOKEN}")
    assert len(answer.done()["tools"]) == len(TOOLS), answer.shown


EVERYWHERE = [
    the_schemas_suit_every_client,
    programs_run,
    a_failing_program_is_a_tool_error,
    resources_can_be_listed,
    a_small_load_is_carried,
]


class HttpServer:
    """`belljar serve --http` on a free port, its address read from what it says."""

    def __init__(self, *words):
        command = [BELLJAR, "serve", "--http", "127.0.0.1:0", *words]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", line):
                self.url = found.group()
                # What else it says is not kept, and must not fill the pipe.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                break
        else:
            raise RuntimeError(f"the server ended with {self.process.wait()} before it listened")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(10)


def attempt(name, check, inspector):
    """Whether the check held."""
    try:
        check(inspector)
    except Exception as error:
        print(f"FAIL {name}: {' '.join(f'{type(error).__name__}: {error}'.split())[:700]}", flush=True)
        return False
    return True


def main(only):
    with tempfile.TemporaryDirectory() as folder:
        tokens = os.path.join(folder, "tokens")
        with open(os.open(tokens, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"ann:{TOKEN}\n")
        with HttpServer() as open_to_all, HttpServer("--token-file", tokens) as guarded:
            checks = []
            for era in ("modern", "legacy"):
                stdio = Inspector(folder, era, BELLJAR, "serve")
                http = Inspector(folder, era, open_to_all.url)
                checks += [(f"stdio/{era}/{check.__name__}", check, stdio) for check in EVERYWHERE]
                checks += [(f"http/{era}/{check.__name__}", check, http)
                           for check in [*EVERYWHERE, a_sandbox_outlives_its_connection]]
                check = a_token_is_needed_where_there_are_some
                checks.append((f"http/{era}/{check.__name__}", check, Inspector(folder, era, guarded.url)))
            checks = [check for check in checks if not only or any(word in check[0] for word in only)]
            with ThreadPoolExecutor(3) as pool:
                held = list(pool.map(lambda check: attempt(*check), checks))
    print(f"{held.count(True)} passed, {held.count(False)} failed")
    return 0 if held and all(held) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
