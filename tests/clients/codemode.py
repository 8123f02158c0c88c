"""What a person is asked in code mode, through the official Python SDK: forms of 2025-11-25 (elicitation), and requests that
end with a question and come again with the answer, of 2026-07-28 (MRTR); over stdio and HTTP.

The tools are those of a server that counts: what it wrote down is what was really called, and a program that ran twice would
show. Run as tests/clients/python_sdk.py is.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import mcp_types as types
from harness import LEGACY, MODERN, HttpServer, Place, Score, refused, said, structured

COUNTING = '''
import json, sys
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
TOOLS = [{"name": name, "description": "Notes a word down.", "inputSchema": WORD} for name in ("note", "mark")]
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, params = asked["method"], asked.get("params") or {}
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "c", "version": "1"}}
    elif method == "tools/list": result = {"tools": TOOLS}
    elif method == "tools/call":
        with open(sys.argv[1], "a") as notes: notes.write(params["name"] + " " + params["arguments"]["word"] + "\\n")
        result = {"content": [{"type": "text", "text": "noted " + params["arguments"]["word"]}]}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "?"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
'''

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


class Person:
    """Somebody who is asked, remembers it, and answers with what the check says, the last for all that follow."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def __call__(self, context, params):
        self.asked.append(params)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer in ("decline", "cancel"):
            return types.ElicitResult(action=answer)
        content = answer if isinstance(answer, dict) else {"decision": answer}
        return types.ElicitResult(action="accept", content=content)


class Desk:
    """A server with the counting one behind it, for one transport and era."""

    def __init__(self, transport, era, *words):
        self.transport, self.era, self.words = transport, era, words
        self.folder = tempfile.TemporaryDirectory(prefix="clients-")
        folder = Path(self.folder.name)
        self.notes = folder / "notes"
        (folder / "counting.py").write_text(COUNTING)
        command = {"command": sys.executable, "args": [str(folder / "counting.py"), str(self.notes)]}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"book": command}}))
        below = {name: str(folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
        self.env = {**os.environ, **below}
        self.words = ["--mcp-config", str(folder / "mcp.json"), *words]

    def noted(self):
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    @contextlib.asynccontextmanager
    async def open(self, person=None):
        options = {"elicitation_callback": person} if person else {}
        server = HttpServer(*self.words, env=self.env) if self.transport == "http" else None
        try:
            place = Place(self.transport, self.era, server and server.url, words=self.words, env=self.env)
            async with place.connect(**options) as connection:
                yield connection
        finally:
            if server:
                server.stop()
            self.folder.cleanup()


ONE = """
import os
print("before", os.getpid())
from tools import book
print(book.note(word="one"))
"""


@check
async def a_call_is_approved_and_the_program_goes_on(transport, era):
    desk, person = Desk(transport, era), Person("approve")
    async with desk.open(person) as c:
        result = structured(await c.run("python", ONE))
        lines = result["stdout"].splitlines()
        assert len(lines) == 2 and lines[0].startswith("before ") and lines[1] == "noted one", lines
        assert desk.noted() == ["note one"], desk.noted()
        [asked] = person.asked
        assert "book.note" in asked.message and '"word": "one"' in asked.message, asked.message
        decision = asked.requested_schema["properties"]["decision"]
        assert [each["const"] for each in decision["oneOf"]] == ["approve", "approve_run", "approve_same", "deny"]
        # That was for the one call.
        structured(await c.run("python", ONE))
        assert len(person.asked) == 2 and len(desk.noted()) == 2


@check
async def a_call_is_denied_and_that_can_be_caught(transport, era):
    for no in ("deny", "decline", "cancel"):
        desk, person = Desk(transport, era), Person(no)
        async with desk.open(person) as c:
            code = ("import tools\ntry:\n    tools.book.note(word='one')\nexcept tools.ApprovalDenied as error:\n"
                    "    print('refused' in str(error), isinstance(error, tools.ToolError), error.retryable)")
            structured(await c.run("python", code), stdout="True True False\n")
            assert len(person.asked) == 1 and desk.noted() == [], desk.noted()


@check
async def a_tool_is_approved_for_the_run(transport, era):
    desk, person = Desk(transport, era), Person("approve_run")
    async with desk.open(person) as c:
        code = "from tools import book\nfor word in 'abcd': book.note(word=word)\nprint('done')"
        structured(await c.run("python", code), stdout="done\n")
        assert desk.noted() == [f"note {word}" for word in "abcd"] and len(person.asked) == 1, person.asked
        # Another tool is another question, and another run too.
        structured(await c.run("python", "from tools import book\nbook.note(word='e'); book.mark(word='f')"))
        assert len(person.asked) == 3, len(person.asked)


@check
async def exactly_this_call_is_approved_for_good(transport, era):
    desk, person = Desk(transport, era), Person("approve_same", "deny")
    async with desk.open(person) as c:
        for _ in range(3):
            structured(await c.run("python", "from tools import book\nprint(book.note(word='same'))"), stdout="noted same\n")
        assert len(person.asked) == 1 and desk.noted() == ["note same"] * 3
        await c.run("python", "from tools import book\nbook.note(word='other')")
        assert len(person.asked) == 2 and len(desk.noted()) == 3


@check
async def calls_at_once_are_one_batch(transport, era):
    desk, person = Desk(transport, era), Person({"decision": "approve", "except": "2"})
    async with desk.open(person) as c:
        code = ("from tools import book, parallel\n"
                "got = parallel(book.note, [{'word': str(n)} for n in range(5)], errors='return')\n"
                "print(sorted(type(each).__name__ for each in got))")
        result = structured(await c.run("python", code))
        # All that came together are one question. The first may have been alone.
        count = len(person.asked)
        assert 1 <= count <= 2, count
        many = person.asked[-1]
        assert "\n2. book.note\n" in many.message and "except" in many.requested_schema["properties"], many.message
        kinds = eval(result["stdout"])
        assert kinds.count("ApprovalDenied") == 1 and len(kinds) == 5, kinds
        assert len(desk.noted()) == 4, desk.noted()


@check
async def a_program_is_frozen_and_not_run_twice(transport, era):
    desk, person = Desk(transport, era), Person("approve")
    async with desk.open(person) as c:
        # Each effect once, each variable as it was, over four questions: nothing is replayed.
        code = ("import os, time\nfrom tools import book\nsteps = [(os.getpid(), time.monotonic())]\n"
                "open('trace', 'a').write('begun\\n')\n"
                "for word in ('a', 'b', 'c', 'd'):\n    book.note(word=word)\n    steps.append((os.getpid(), 0))\n"
                "print(len({pid for pid, _ in steps}), len(steps), open('trace').read().count('begun'))")
        sandbox = await c.create()
        structured(await c.run("python", code, sandbox_id=sandbox), stdout="1 5 1\n")
        assert desk.noted() == ["note a", "note b", "note c", "note d"], desk.noted()
        assert len(person.asked) == 4
        structured(await c.run("python", "print(len(steps))", sandbox_id=sandbox), stdout="5\n", state="preserved")


@check
async def nobody_to_ask_is_a_denial_with_a_hint(transport, era):
    desk = Desk(transport, era)
    async with desk.open() as c:
        code = "import tools\ntry:\n    tools.book.note(word='x')\nexcept tools.ApprovalDenied as error:\n    print(error)"
        told = structured(await c.run("python", code))["stdout"]
        for word in ("needs a person's approval", "elicitation", '"allow": ["note"]', "--approve never"):
            assert word in told, told
        assert desk.noted() == []


@check
async def a_program_itself_is_approved(transport, era):
    desk, person = Desk(transport, era, "--approve", "ask"), Person("approve", "deny")
    async with desk.open(person) as c:
        structured(await c.run("shell", "echo the very program"), stdout="the very program\n")
        [asked] = person.asked
        assert "echo the very program" in asked.message and "shell" in asked.message, asked.message
        refused(await c.run("shell", "echo another"), "did not approve this program")
        assert len(person.asked) == 2
    desk, person = Desk(transport, era, "--approve", "ask"), Person("approve")
    async with desk.open(person) as c:
        # To approve a program is not to approve its calls.
        structured(await c.run("python", "from tools import book\nprint(book.note(word='x'))"), stdout="noted x\n")
        assert len(person.asked) == 2 and "book.note" in person.asked[1].message
    desk = Desk(transport, era, "--approve", "ask")
    async with desk.open() as c:
        refused(await c.run("shell", "echo x"), "no elicitation", "--approve never")


async def main():
    score = Score(sys.argv[1:])

    async def visit(transport, era):
        for function in CHECKS:
            await score.keep(f"{transport}/{era}/{function.__name__}", lambda: function(transport, era))

    await asyncio.gather(*(visit(transport, era) for transport in ("stdio", "http") for era in (MODERN, LEGACY)))
    return score.told()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
