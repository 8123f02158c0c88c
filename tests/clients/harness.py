"""What the checks of the official Python SDK share: servers, connections, what answers are held against, the score.

Checks are functions in a list; each is given a connection of its own. A script prints a line for each and a count at
the end, and exits with 1 if one failed. BELLJAR is the program to test; TRACE=1 shows where a check failed.
"""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import threading
import time
import traceback

import anyio
import httpx2
import jsonschema
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

BELLJAR = os.path.abspath(os.environ.get("BELLJAR", "target/debug/belljar"))
MODERN, LEGACY = "2026-07-28", "2025-11-25"


class Connection:
    """A client, and the tools' schemas to hold every answer against."""

    def __init__(self, client, tools, place):
        self.client, self.tools, self.place = client, tools, place

    async def call(self, tool, progress=None, /, **arguments):
        result = await self.client.call_tool(tool, arguments, progress_callback=progress)
        if result.structured_content is not None:
            jsonschema.validate(result.structured_content, self.tools[tool].output_schema)
        else:
            assert result.is_error, f"{tool} succeeded without structured content"
        assert result.content and result.content[0].type == "text", "no text beside the structured content"
        return result

    async def run(self, language, code, progress=None, /, **arguments):
        return await self.call("run_code", progress, language=language, code=code, **arguments)

    async def create(self, **arguments):
        return structured(await self.call("create_sandbox", **arguments))["sandbox_id"]

    async def read(self, uri):
        """The one content of a resource: its text, or what its base64 stands for."""
        [content] = (await self.client.read_resource(uri)).contents
        return content


class Place:
    """A transport and an era. For HTTP, `url` is that of a running server; for stdio, `words` and `env` start one.

    `sse` is the pair of the first revisions, on the same server; `unix` is HTTP on the unix socket `socket`.
    """

    def __init__(self, transport, era, url=None, token=None, words=(), env=None, socket=None):
        self.transport, self.era, self.url, self.token, self.socket = transport, era, url, token, socket
        self.words, self.env = list(words), env

    def __str__(self):
        return f"{self.transport}/{self.era}"

    @contextlib.asynccontextmanager
    async def connect(self, **options):
        mode = "auto" if self.era == MODERN else "legacy"
        async with contextlib.AsyncExitStack() as stack:
            if self.transport == "stdio":
                server = StdioServerParameters(command=BELLJAR, args=["serve", *self.words], env=self.env)
            elif self.transport == "sse":
                server = sse_client(self.url.removesuffix("/mcp") + "/sse", headers=self.headers(), timeout=60)
            else:
                at = httpx2.AsyncHTTPTransport(uds=self.socket) if self.transport == "unix" else None
                url = "http://localhost/mcp" if self.transport == "unix" else self.url
                http = httpx2.AsyncClient(headers=self.headers(), timeout=60, transport=at)
                http = await stack.enter_async_context(http)
                server = streamable_http_client(url, http_client=http)
            leaving = stack.enter_context(Leaving())
            client = await stack.enter_async_context(Client(server, mode=mode, cache=None, **options))
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            yield Connection(client, tools, self)
            leaving.begun = self.transport == "sse"

    def headers(self):
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class Leaving:
    """The SDK's reader of event streams fails when something comes for a client that is just leaving, as the news of other
    clients' sandboxes may. That is no failure of a check which has come to its end; before it, it is one."""

    begun = False

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, BaseExceptionGroup):
            _, error = error.split(anyio.BrokenResourceError)
            return self.begun and error is None
        return self.begun and isinstance(error, anyio.BrokenResourceError)


class HttpServer:
    """`belljar serve --http` on a free port, its address read from what it says."""

    def __init__(self, *words, env=None):
        command = [BELLJAR, "serve", "--http", "127.0.0.1:0", *words]
        env = {**os.environ, **(env or {})}
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+/mcp", line):
                self.url = found.group()
                # What else it says is not kept, and must not fill the pipe.
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                break
        else:
            raise RuntimeError(f"the server ended with {self.process.wait()} before it listened")

    def stop(self):
        """The exit code after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(10)


def structured(result, **expected):
    """The structured content, of which some fields are known."""
    got = result.structured_content
    assert got is not None, f"no structured content: {said(result)}"
    for name, value in expected.items():
        is_there = f"{name} is {got.get(name)!r}, not {value!r}; text: {said(result)}"
        assert name in got and got[name] == value, is_there
    return got


def said(result):
    return "\n".join(block.text for block in result.content if block.type == "text")


def refused(result, *words):
    """Our own failure: an error with a sentence, and no structured content that would pass for a run."""
    text = said(result)
    assert result.is_error and result.structured_content is None, f"not refused: {text}"
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


async def until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


class Score:
    """Runs checks, telling of those that fail. With words, only those whose name holds one of them.

    A check talks to a server under load on a machine that others use, and some have to be in time: one that fails is made
    once more, and told of. More than a few of those is a failure too.
    """

    SECOND_MAX = 3

    def __init__(self, only=(), seconds=60):
        self.only, self.seconds = only, seconds
        self.passed, self.second, self.failed = 0, [], []

    def wants(self, name):
        return not self.only or any(word in name for word in self.only)

    async def keep(self, name, check):
        if not self.wants(name):
            return
        first = await self.made(name, check)
        if first is not None:
            again = await self.made(name, check)
            told = f"{name}: {reason(first)}"
            if again is not None:
                self.failed.append(f"FAIL {told}; again: {reason(again)}")
                print(self.failed[-1], flush=True)
                return
            self.second.append(f"at the second try {told}")
            print(self.second[-1], flush=True)
        self.passed += 1

    async def made(self, name, check):
        """What was wrong, or nothing."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(self.seconds):
                await check()
        except (Exception, BaseExceptionGroup) as error:
            if os.environ.get("TRACE"):
                traceback.print_exception(error)
            return error
        if os.environ.get("TRACE"):
            print(f"ok {name} ({time.monotonic() - started:.1f} s)", flush=True)

    def told(self):
        """The exit code, after all that was wrong and a line with the count."""
        for line in [*self.second, *self.failed]:
            print(line)
        print(f"{self.passed} passed, {len(self.second)} of them at the second try; {len(self.failed)} failed")
        return 1 if self.failed or not self.passed or len(self.second) > self.SECOND_MAX else 0


def reason(error):
    """The first cause, in a line. Task groups wrap theirs."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error).split("\n\nFailed validating")[0]
    return " ".join(f"{type(error).__name__}: {text}".split())[:500]


async def connected(place, function):
    async with place.connect() as connection:
        await function(connection)
