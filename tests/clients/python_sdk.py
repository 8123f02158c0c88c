"""Belljar as the official Python SDK sees it: over stdio, HTTP and a unix socket in both eras of the protocol, and over
the event streams of older clients.

A plain script: BELLJAR=target/debug/belljar python tests/clients/python_sdk.py [WORD...]. With words, only the checks
whose name holds one of them are run. Prints a line for each check and a count at the end; exits with 1 if one failed.
"""

import asyncio
import base64
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio
import httpx2
import jsonschema
from harness import BELLJAR, LEGACY, MODERN, HttpServer, Place, Score, connected, refused, said, structured, until
from mcp import Client, MCPError, StdioServerParameters

# The smallest picture there is.
PNG_BASE64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG = base64.b64decode(PNG_BASE64)
TOOLS = ["run_code", "create_sandbox", "exec", "job", "write_file", "read_file", "list_files", "destroy_sandbox"]

CHECKS = []


def check(function):
    """A check that holds for every transport and era. It is given a connection of its own."""
    CHECKS.append(function)
    return function


def a_mark():
    """An argument of sleep(1) that nobody else on this host uses."""
    return f"{random.randrange(90_000, 99_999)}.{os.getpid():07}{random.randrange(10**6):06}"


def marked(mark):
    """Whether a process of the host has the mark in its command line."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = line.read_bytes().split(b"\0")
            if words[0].endswith(b"sleep") and mark.encode() in words:
                return True
    return False


@check
async def prompts_are_there(c):
    names = {prompt.name for prompt in (await c.client.list_prompts()).prompts}
    assert names == {"analyse-data"}, names
    got = await c.client.get_prompt("analyse-data", {"question": "how many rows?"})
    assert "how many rows?" in got.messages[0].content.text, got


@check
async def the_handshake(c):
    client = c.client
    assert client.protocol_version == c.place.era, client.protocol_version
    assert client.server_info.name == "belljar" and client.server_info.version, client.server_info
    assert client.server_capabilities.tools is not None and client.server_capabilities.resources is not None
    assert client.server_capabilities.prompts is not None and client.server_capabilities.completions is not None
    assert "sandbox" in client.instructions, client.instructions
    if c.place.era == MODERN:
        assert {MODERN, LEGACY} <= set(client.session.discover_result.supported_versions)


@check
async def tools_list(c):
    assert list(c.tools) == TOOLS, list(c.tools)
    for tool in c.tools.values():
        assert tool.title and tool.description, tool.name
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object", tool.name
        assert tool.input_schema["additionalProperties"] is False, tool.name
        assert tool.annotations.open_world_hint is False, tool.name
        reads = tool.name in ("read_file", "list_files")
        # A hint that is left out is false for the first, and means nothing for the second where the first is true.
        assert bool(tool.annotations.read_only_hint) is reads, tool.name
        assert reads or tool.annotations.destructive_hint is (tool.name != "create_sandbox"), tool.name
    properties = c.tools["run_code"].input_schema["properties"]
    assert set(properties["language"]["enum"]) >= {"python", "javascript", "shell"}, properties["language"]
    assert c.tools["run_code"].input_schema["required"] == ["language", "code"]
    fields = {"stdout", "stderr", "exit_code", "ending", "state", "duration_ms", "usage", "isolation", "sandbox_id"}
    fields |= {"result", "shown", "error", "files", "job_id"}
    assert fields <= set(c.tools["run_code"].output_schema["properties"])


@check
async def python_runs(c):
    result = await c.run("python", "import sys; print(6 * 7); print('aside', file=sys.stderr)")
    assert not result.is_error
    got = structured(result, stdout="42\n", stderr="aside\n", exit_code=0, ending="exited", state="fresh")
    assert "42" in said(result) and "aside" in said(result), said(result)
    assert got["isolation"]["backend"] == "native" and got["isolation"]["network"].startswith("none"), got["isolation"]
    assert got["usage"]["memory_peak_bytes"] > 0 and got["duration_ms"] >= 0, got
    assert "sandbox_id" not in got, "a throw-away sandbox has no id"


@check
async def javascript_runs(c):
    structured(await c.run("javascript", "console.log([1, 2, 3].map(x => x * x).join())"), stdout="1,4,9\n")


@check
async def shell_runs(c):
    structured(await c.run("shell", "x=$(seq 3 | paste -sd+); echo $((x))"), stdout="6\n")


@check
async def standard_input_reaches_the_program(c):
    result = await c.run("python", "import sys; print(sys.stdin.read()[::-1], end='')", stdin="olleh")
    structured(result, stdout="hello", exit_code=0)


@check
async def a_failing_program_is_a_result(c):
    for language, code in [("python", "import sys; print('before'); sys.exit(3)"), ("shell", "echo before; exit 3")]:
        result = await c.run(language, code)
        assert result.is_error, "isError is not set"
        structured(result, stdout="before\n", exit_code=3, ending="exited")
        assert "[exit 3]" in said(result), said(result)
    for language, code, name, value in [
        ("python", "1 / 0", "ZeroDivisionError", "division by zero"),
        ("javascript", "throw new TypeError('no')", "TypeError", "no"),
    ]:
        result = await c.run(language, code)
        assert result.is_error, said(result)
        error = structured(result, exit_code=1, stderr="")["error"]
        assert (error["name"], error["value"]) == (name, value), error
        assert f"{name}: {value}" in error["traceback"] and f"{name}: {value}" in said(result), said(result)
    result = await c.run("shell", "kill -SEGV $$")
    assert result.is_error
    structured(result, ending="killed", exit_code=139)


@check
async def a_sandbox_from_its_making_to_its_end(c):
    made = structured(await c.call("create_sandbox", timeout=600, env={"WHO": "ann"}, limits={"memory_mb": 256}))
    sandbox = made["sandbox_id"]
    assert made["limits"]["memory_mb"] == 256 and made["idle_seconds"] == 600, made
    code = "import os; print('hi', os.environ['WHO'])\n"
    structured(await c.call("write_file", sandbox_id=sandbox, path="a/greet.py", content=code), size=len(code))
    ran = await c.call("exec", sandbox_id=sandbox, command="python3 greet.py > said.txt", cwd="a")
    structured(ran, exit_code=0, sandbox_id=sandbox)
    read = structured(await c.call("read_file", sandbox_id=sandbox, path="a/said.txt"))
    assert (read["content"], read["size"], read["more"], read["encoding"]) == ("hi ann\n", 7, False, "utf-8"), read
    listed = structured(await c.call("list_files", sandbox_id=sandbox, depth=2))
    kinds = {entry["path"]: entry["kind"] for entry in listed["entries"]}
    assert {path.removeprefix("./"): kind for path, kind in kinds.items()} == {
        "a": "directory",
        "a/greet.py": "file",
        "a/said.txt": "file",
    }, kinds
    structured(await c.call("destroy_sandbox", sandbox_id=sandbox), sandbox_id=sandbox)
    for tool, arguments in [
        ("run_code", {"language": "python", "code": "print(1)"}),
        ("exec", {"command": "true"}),
        ("read_file", {"path": "a/said.txt"}),
        ("list_files", {}),
        ("destroy_sandbox", {}),
    ]:
        refused(await c.call(tool, sandbox_id=sandbox, **arguments), "was destroyed", "create_sandbox")


@check
async def state_is_fresh_then_preserved(c):
    sandbox = await c.create()
    structured(await c.run("shell", "echo kept > note", sandbox_id=sandbox), state="fresh", sandbox_id=sandbox)
    # Files are there at once; variables are those of a language's own kernel.
    other = await c.run("python", "note = open('note').read()", sandbox_id=sandbox)
    structured(other, state="fresh", exit_code=0)
    again = await c.run("python", "print(note, end='')", sandbox_id=sandbox)
    structured(again, state="preserved", stdout="kept\n")
    structured(await c.run("shell", "cat note", sandbox_id=sandbox), state="preserved", stdout="kept\n")
    structured(await c.run("shell", "ls note"), state="fresh", exit_code=2)
    await c.call("destroy_sandbox", sandbox_id=sandbox)


@check
async def resources_are_the_files(c):
    client, sandbox = c.client, await c.create()
    await c.call("write_file", sandbox_id=sandbox, path="dir/a b.txt", content="naïve\n")
    await c.call("write_file", sandbox_id=sandbox, path="dot.png", content=PNG_BASE64, encoding="base64")
    uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
    assert f"belljar://{sandbox}/" in uris, uris
    templates = [template.uri_template for template in (await client.list_resource_templates()).resource_templates]
    assert any(template.startswith("belljar://{sandbox_id}/{+path}") for template in templates), templates
    [text] = (await client.read_resource(f"belljar://{sandbox}/dir/a%20b.txt")).contents
    assert (text.text, text.mime_type) == ("naïve\n", "text/plain"), text
    [blob] = (await client.read_resource(f"belljar://{sandbox}/dot.png")).contents
    assert base64.b64decode(blob.blob) == PNG and blob.mime_type == "image/png", blob
    [listing] = (await client.read_resource(f"belljar://{sandbox}/")).contents
    assert "dot.png" in listing.text and "dir" in listing.text, listing
    for uri in [f"belljar://{sandbox}/missing", "belljar://sb_none/x", "file:///etc/passwd"]:
        try:
            got = await client.read_resource(uri)
        except MCPError as error:
            assert error.code in (-32002, -32602), f"{uri}: {error.code} {error}"
        else:
            raise AssertionError(f"{uri} gave {got}")
    await c.call("destroy_sandbox", sandbox_id=sandbox)
    uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
    assert f"belljar://{sandbox}/" not in uris, uris


@check
async def a_picture_is_a_picture(c):
    sandbox = await c.create()
    await c.call("write_file", sandbox_id=sandbox, path="dot.png", content=PNG_BASE64, encoding="base64")
    result = await c.call("read_file", sandbox_id=sandbox, path="dot.png")
    [image] = [block for block in result.content if block.type == "image"]
    assert image.mime_type == "image/png" and base64.b64decode(image.data) == PNG
    assert structured(result)["mime_type"] == "image/png"
    as_text = structured(await c.call("read_file", sandbox_id=sandbox, path="dot.png", encoding="base64"))
    assert base64.b64decode(as_text["content"]) == PNG
    await c.call("destroy_sandbox", sandbox_id=sandbox)


@check
async def output_that_was_cut_can_be_read_whole(c):
    result = await c.run("python", "for i in range(20000): print('line', i)")
    got = structured(result, truncated=True, exit_code=0)
    assert len(got["stdout"]) < 20_000 and "bytes left out" in got["stdout"], len(got["stdout"])
    assert got["stdout"].startswith("line 0\n") and got["stdout"].endswith("line 19999\n")
    uri = got["output_uris"]["stdout"]
    assert uri in said(result), "the text does not say where the whole output is"
    [whole] = (await c.client.read_resource(uri)).contents
    assert whole.text == "".join(f"line {i}\n" for i in range(20000)), len(whole.text)


@check
async def progress_ticks_when_asked(c):
    ticks = []

    async def tick(progress, total, message):
        ticks.append((time.monotonic(), progress, total))

    started = time.monotonic()
    structured(await c.run("shell", "sleep 6; echo done", tick), stdout="done\n")
    ended = time.monotonic()
    times = [started, *(at for at, _, _ in ticks), ended]
    gaps = [after - before for before, after in zip(times, times[1:])]
    assert len(ticks) >= 2 and max(gaps) <= 5.0, f"{len(ticks)} ticks, gaps {[round(gap, 1) for gap in gaps]}"
    values = [progress for _, progress, _ in ticks]
    assert values == sorted(set(values)), f"progress does not rise: {values}"


@check
async def a_timeout_returns_what_was_printed(c):
    mark = a_mark()
    started = time.monotonic()
    result = await c.run("shell", f"echo before; trap '' TERM; sleep {mark} & sleep {mark}", timeout=1.5)
    took = time.monotonic() - started
    assert result.is_error
    got = structured(result, stdout="before\n", ending="timeout", exit_code=124)
    assert 1500 <= got["duration_ms"] <= 2000, got["duration_ms"]
    assert took < 3, f"the answer came after {took:.1f} s"
    assert "timeout after 1.5 s" in said(result), said(result)
    await until(lambda: not marked(mark), 1, "the processes are gone")


# How long a run goes on over HTTP for a caller that hung up, who may send the same request again. From 2026-07-28 on,
# to hang up is the only way to cancel over HTTP.
GRACE = 3


def to_cancel(place):
    """Seconds within which what was cancelled is gone. Over HTTP the SDK closes its stream, and says in words that it
    cancels only in the older era, and not always."""
    return 2 + (GRACE if place.transport != "stdio" else 0)


@check
async def cancelling_kills(c):
    mark = a_mark()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(c.run, "shell", f"sleep {mark} & sleep {mark}")
        await until(lambda: marked(mark), 5, "the program runs")
        tasks.cancel_scope.cancel()
    await until(lambda: not marked(mark), to_cancel(c.place), "the cancelled processes are gone")
    structured(await c.run("shell", "echo on"), stdout="on\n")


@check
async def cancelling_leaves_the_sandbox_usable(c):
    sandbox, mark = await c.create(), a_mark()
    await c.call("write_file", sandbox_id=sandbox, path="kept", content="kept")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: c.run("shell", f"sleep {mark}", sandbox_id=sandbox))
        await until(lambda: marked(mark), 5, "the program runs")
        tasks.cancel_scope.cancel()
    await until(lambda: not marked(mark), to_cancel(c.place), "the cancelled process is gone")
    structured(await c.run("shell", "cat kept", sandbox_id=sandbox), stdout="kept", state="preserved")
    await c.call("destroy_sandbox", sandbox_id=sandbox)


@check
async def a_client_that_dies_takes_its_program_with_it(c):
    mark = a_mark()
    at = c.place.url or c.place.socket or ""
    words = [sys.executable, __file__, "--victim", c.place.transport, c.place.era, at, mark]
    client = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        await until(lambda: marked(mark), 15, "the other client's program runs")
    finally:
        client.kill()
        client.wait()
    grace = GRACE if c.place.transport != "stdio" else 0
    await until(lambda: not marked(mark), 3 + grace, "the dead client's processes are gone")


async def victim(transport, era, at, mark):
    """A client in the middle of a call, for somebody to kill."""
    where = {"socket": at} if transport == "unix" else {"url": at or None}
    async with Place(transport, era, **where).connect() as c:
        await c.run("shell", f"sleep {mark} & sleep {mark}", timeout=60)


@check
async def what_is_wrong_is_said(c):
    refused(await c.run("python", "print(1)", sandbox_id="sb_0123456789abcdef"), "no such sandbox", "create_sandbox")
    refused(await c.run("cobol", "x"), "cobol", "python")
    refused(await c.run("python", " "), "empty")
    refused(await c.run("python", "1", timeout=-1), "timeout", "seconds")
    refused(await c.call("run_code", language="python", code="1", cod="x"), "unknown argument cod", "code")
    refused(await c.call("run_code", language="python"), "code is missing")
    refused(await c.call("create_sandbox", limits={"memory_mb": 10**9}), "memory_mb", "at most")
    try:
        got = await c.client.call_tool("no_such_tool", {})
    except MCPError as error:
        assert error.code == -32602 and "run_code" in str(error), error
    else:
        raise AssertionError(f"an unknown tool gave {got}")
    structured(await c.run("shell", "echo on"), stdout="on\n")


@check
async def many_at_once_do_not_mix(c):
    results = {}

    async def one(number):
        results[number] = structured(await c.run("shell", f"sleep 0.1; echo {number}"))["stdout"]

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    assert results == {number: f"{number}\n" for number in range(20)}, results


async def principals_do_not_see_each_other(era):
    with tempfile.NamedTemporaryFile("w", prefix="tokens-") as file:
        ann, bob = "ann-" + "a" * 32, "bob-" + "b" * 32
        file.write(f"ann:{ann}\nbob:{bob}\n")
        file.flush()
        server = HttpServer("--token-file", file.name)
        try:
            async with (
                Place("http", era, server.url, ann).connect() as a,
                Place("http", era, server.url, bob).connect() as b,
            ):
                sandbox = await a.create()
                await a.call("write_file", sandbox_id=sandbox, path="secret", content="ann's")
                refused(await b.run("shell", "cat secret", sandbox_id=sandbox), "no such sandbox")
                refused(await b.call("read_file", sandbox_id=sandbox, path="secret"), "no such sandbox")
                refused(await b.call("destroy_sandbox", sandbox_id=sandbox), "no such sandbox")
                assert (await b.client.list_resources()).resources == []
                try:
                    got = await b.client.read_resource(f"belljar://{sandbox}/secret")
                except MCPError as error:
                    assert "ann's" not in str(error)
                else:
                    raise AssertionError(f"bob read {got}")
                cut = structured(await a.run("python", "print('x' * 50000)"))["output_uris"]["stdout"]
                try:
                    got = await b.client.read_resource(cut)
                except MCPError:
                    pass
                else:
                    raise AssertionError(f"bob read ann's output: {str(got)[:200]}")
                structured(await a.run("shell", "cat secret", sandbox_id=sandbox), stdout="ann's")
        finally:
            server.stop()


async def without_a_token_nobody_comes_in(era):
    with tempfile.NamedTemporaryFile("w", prefix="tokens-") as file:
        file.write("ann:" + "a" * 32 + "\n")
        file.flush()
        server = HttpServer("--token-file", file.name)
        try:
            for token in (None, "b" * 32):
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with httpx2.AsyncClient(headers=headers) as http:
                    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
                    answer = await http.post(server.url, json=message)
                    assert answer.status_code == 401, answer.status_code
                    assert answer.headers["www-authenticate"].startswith("Bearer"), answer.headers
                try:
                    async with Place("http", era, server.url, token).connect():
                        pass
                except BaseExceptionGroup as group:
                    assert group.subgroup(Exception), group
                except Exception:
                    pass
                else:
                    raise AssertionError("the SDK came in")
            async with Place("http", era, server.url, "a" * 32).connect() as c:
                structured(await c.run("shell", "echo in"), stdout="in\n")
        finally:
            server.stop()


async def a_pinned_version_needs_no_discovery(server):
    async with Client(server, mode=MODERN, cache=None) as client:
        result = await client.call_tool("run_code", {"language": "shell", "code": "echo pinned"})
        structured(result, stdout="pinned\n")


async def main():
    score = Score(sys.argv[1:])
    folder = tempfile.TemporaryDirectory()
    socket = os.path.join(folder.name, "mcp.sock")
    server = HttpServer("--socket", socket)
    places = [Place(transport, era, url) for transport, url in [("stdio", None), ("http", server.url)]
              for era in (MODERN, LEGACY)]
    places += [Place("unix", era, socket=socket) for era in (MODERN, LEGACY)]
    places.append(Place("sse", LEGACY, server.url))

    async def visit(place):
        for function in CHECKS:
            await score.keep(f"{place}/{function.__name__}", lambda: connected(place, function))

    # Side by side, since most of the time is waiting.
    await asyncio.gather(*(visit(place) for place in places))
    for era in (MODERN, LEGACY):
        for function in (principals_do_not_see_each_other, without_a_token_nobody_comes_in):
            await score.keep(f"http/{era}/{function.__name__}", lambda: function(era))

    for name, at in [("stdio", StdioServerParameters(command=BELLJAR, args=["serve"])), ("http", server.url)]:
        function = a_pinned_version_needs_no_discovery
        await score.keep(f"{name}/{MODERN}/{function.__name__}", lambda: function(at))

    async def stops():
        code = server.stop()
        assert code == 0, f"the server exited with {code}"
        assert not os.listdir(folder.name), "the socket is left"

    await score.keep("http/the_server_stops_when_told", stops)
    with contextlib.suppress(ProcessLookupError):
        server.process.kill()
    return score.told()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--victim"]:
        asyncio.run(victim(*sys.argv[2:]))
    else:
        sys.exit(asyncio.run(main()))
