"""Belljar as an interpreter, through the official Python SDK: kernels, rich output, files, jobs, lifecycle, bad input.

A plain script: BELLJAR=target/debug/belljar SCIENCE=$(scripts/science) python tests/clients/interpreter.py [WORD...].
With words, only the checks whose name holds one of them are run. Go is checked where it is in PATH. Each check has a
server of its own kind (see `servers`); those marked `http` are done over both transports.
"""

import asyncio
import base64
import contextlib
import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import warnings
import zlib
from pathlib import Path

import anyio
import httpx2
from harness import LEGACY, MODERN, HttpServer, Place, Score, refused, said, structured
from mcp import MCPDeprecationWarning, MCPError

ROOT = Path(__file__).resolve().parents[2]
SCIENCE = Path(os.environ.get("SCIENCE", ROOT / "target/science/bin/python"))
PATH = os.environ["PATH"]

# What the program says a text in one answer has at most.
TEXT_MAX = 20_000
# Memory of its own: pages of its file are the kernel's to take back, and a debug build has many.
RSS_MAX = 80 * 1024 * 1024

OWN_TEMPLATE = """
[templates.small]
env = { WHO = "template", BOTH = "template" }
limits = { memory_mb = 128, processes = 64 }
"""


def servers(config):
    """Kinds of server, by name: words for `belljar serve`, and its environment."""
    return {
        "plain": ([], {}),
        # The system's Python alone: no IPython there.
        "bare": ([], {"PATH": "/usr/bin:/bin"}),
        "science": ([], {"PATH": f"{SCIENCE.parent}:{PATH}"}),
        "yields": (["--yield-after", "1"], {}),
        "idle": (["--idle-timeout", "2"], {}),
        "own": (["--config", config], {}),
    }


CHECKS = []


def check(server="plain", http=False, when=True):
    """A check, the kind of server that it needs, and whether it is done over HTTP too."""

    def keep(function):
        if when:
            CHECKS.append((function, server, http))
        return function

    return keep


# Kernels: what stays between calls.


async def python(c, sandbox, code, /, **expected):
    return structured(await c.run("python", code, sandbox_id=sandbox), **expected)


def value(got):
    """The text of the last expression's value."""
    assert "result" in got, f"no result: {got}"
    return got["result"]["text"]


@check(http=True)
async def python_keeps_its_state(c):
    sandbox = await c.create()
    await python(c, sandbox, "import math\nx = 41\ndef inc(n): return n + 1", state="fresh", stdout="", exit_code=0)
    got = await python(c, sandbox, "x = inc(x); print(math.floor(1.5)); x", state="preserved", stdout="1\n")
    assert value(got) == "42", got
    assert value(await python(c, sandbox, "class A: pass\n'x' in globals(), A.__name__")) == "(True, 'A')"
    # Without a sandbox_id nothing stays, and another sandbox has a kernel of its own.
    assert structured(await c.run("python", "x"), state="fresh")["error"]["name"] == "NameError"
    other = await c.create()
    assert (await python(c, other, "x", state="fresh"))["error"]["name"] == "NameError"


@check(http=True)
async def the_last_expression_is_the_result(c):
    sandbox = await c.create()
    for code, expected in [
        ("1 + 1", "2"),
        ("'a' + 'b'", "'ab'"),
        ("y = 3\ny * 2", "6"),
        ("[n * n for n in range(4)]", "[0, 1, 4, 9]"),
        ("print('first')\n{'k': None}", "{'k': None}"),
    ]:
        result = await c.run("python", code, sandbox_id=sandbox)
        assert value(structured(result, exit_code=0)) == expected, code
        assert expected in said(result), said(result)
    for code in ("y = 1", "None", "print('only')", "for n in range(3): n", "y;"):
        assert "result" not in await python(c, sandbox, code, exit_code=0), code


@check()
async def await_at_the_top(c):
    sandbox = await c.create()
    await python(
        c,
        sandbox,
        ("import asyncio\nasync def twice(n):\n    await asyncio.sleep(0.01)\n    return 2 * n"),
        exit_code=0,
    )
    got = await python(c, sandbox, "a = await twice(4)\nb = await asyncio.gather(twice(1), twice(2))\n(a, b)")
    assert value(got) == "(8, [2, 4])", got
    # The loop is the same one in the next call.
    await python(c, sandbox, "later = asyncio.ensure_future(twice(50))", exit_code=0)
    assert value(await python(c, sandbox, "await later")) == "100"
    got = await python(c, sandbox, "await asyncio.wait_for(asyncio.sleep(5), 0.01)")
    assert got["error"]["name"] == "TimeoutError", got


FRAMES = """import json


def inner(n):
    return [1, 2][n]


def outer(n):
    # a line
    return inner(n)


outer(7)
"""


async def tracebacks(c):
    sandbox = await c.create()
    result = await c.run("python", FRAMES, sandbox_id=sandbox)
    assert result.is_error
    error = structured(result, exit_code=1, ending="exited", state="fresh")["error"]
    assert (error["name"], error["value"]) == ("IndexError", "list index out of range"), error
    frames = re.findall(r'File "(.*?)", line (\d+), in (\S+)', error["traceback"])
    assert [(int(line), where) for _, line, where in frames] == [(13, "<module>"), (10, "outer"), (5, "inner")], frames
    assert len({name for name, _, _ in frames}) == 1, f"frames of somebody else: {frames}"
    assert "return [1, 2][n]" in error["traceback"], "the line itself is not shown"
    assert "\x1b" not in error["traceback"] and error["traceback"].strip() in said(result)
    # A function of an earlier cell has that cell's lines, and its text.
    error = (await python(c, sandbox, "\n\nouter(9)"))["error"]
    frames = re.findall(r'File "(.*?)", line (\d+), in (\S+)', error["traceback"])
    assert [int(line) for _, line, _ in frames] == [3, 10, 5], frames
    assert frames[0][0] != frames[1][0] == frames[2][0] and "return inner(n)" in error["traceback"], error
    # What a library does is the library's; its frames are real files, and none of them is of the kernel.
    error = (await python(c, sandbox, "json.loads('{')"))["error"]
    assert error["name"] == "JSONDecodeError", error
    files = re.findall(r'File "(.*?)"', error["traceback"])
    assert files[0].startswith("<cell") and all("json" in name for name in files[1:]), files
    # The cause goes along.
    error = (
        await python(c, sandbox, ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e"))
    )["error"]
    assert "ZeroDivisionError" in error["traceback"] and "direct cause" in error["traceback"], error
    error = (await python(c, sandbox, "a = 1\nb = = 2"))["error"]
    assert error["name"] == "SyntaxError" and "line 2" in error["traceback"], error
    assert "in <module>" not in error["traceback"], f"a frame of the kernel: {error['traceback']}"


@check("bare")
async def tracebacks_have_only_the_callers_frames(c):
    await tracebacks(c)


@check("science")
async def tracebacks_of_ipython_have_only_the_callers_frames(c):
    await tracebacks(c)


@check(http=True)
async def input_reads_stdin(c):
    sandbox = await c.create()
    result = await c.run("python", "a = input('a? ')\nb = input()\na, b", sandbox_id=sandbox, stdin="one\ntwo\n")
    got = structured(result, exit_code=0)
    assert value(got) == "('one', 'two')" and "a? " in got["stdout"], got
    got = structured(await c.run("python", "import sys\nsys.stdin.read()", sandbox_id=sandbox, stdin="x\ny"))
    assert value(got) == "'x\\ny'", got
    # What one call left unread is not there in the next.
    await c.run("python", "input()", sandbox_id=sandbox, stdin="1\n2\n3\n")
    got = await python(c, sandbox, "input()", exit_code=1)
    assert got["error"]["name"] == "EOFError" and "stdin" in got["error"]["value"], got["error"]
    got = structured(await c.run("shell", "read a; read b; echo $b$a", sandbox_id=sandbox, stdin="x\ny\n"))
    assert got["stdout"] == "yx\n", got


async def notebook(c):
    """What is the same with and without IPython."""
    sandbox = await c.create()
    await python(c, sandbox, "name = 'world'\n!echo hello {name} > f; cat f", stdout="hello world\n", exit_code=0)
    assert value(await python(c, sandbox, "lines = !printf 'a\\nb\\n'\nlist(lines)")) == "['a', 'b']"
    got = await python(c, sandbox, "%time sum(range(10))")
    assert value(got) == "45" and "ime" in got["stdout"], got
    await python(c, sandbox, "%%bash\nx=5\nfor i in 1 2; do echo $((i * x)); done", stdout="5\n10\n")
    got = await python(c, sandbox, "%%bash\necho out; exit 4", exit_code=1, stdout="out\n")
    assert "4" in got["error"]["value"], got
    got = await python(c, sandbox, "def f(a, b=2):\n    'Adds things.'\n    return a + b\n")
    result = await c.run("python", "f?", sandbox_id=sandbox)
    assert "Adds things." in said(result) and "(a, b=2)" in said(result), said(result)
    structured(result, exit_code=0)
    got = await python(c, sandbox, "%no_such_magic", exit_code=1)
    assert "no_such_magic" in got["error"]["value"], got
    got = await python(c, sandbox, "%pip --version", exit_code=0)
    assert got["stdout"].startswith("pip "), got
    got = await python(c, sandbox, "display('a', {'b': 1})\n'last'")
    assert [shown["text"] for shown in got["shown"]] == ["'a'", "{'b': 1}"] and value(got) == "'last'", got
    # The percent sign and the exclamation mark of the language itself.
    assert value(await python(c, sandbox, "a = 7\na %4")) == "3"
    assert value(await python(c, sandbox, "a != 4")) == "True"
    # A command has the kernel's directory.
    await python(c, sandbox, "import os\nos.makedirs('sub'); os.chdir('sub')", exit_code=0)
    await python(c, sandbox, "!basename $PWD", stdout="sub\n")
    return sandbox


@check("bare")
async def notebook_syntax_without_ipython(c):
    sandbox = await notebook(c)
    # An import would bring it in.
    assert value(await python(c, sandbox, "import importlib.util\nimportlib.util.find_spec('IPython') is None")) == "True"


@check("science")
async def notebook_syntax_with_ipython(c):
    sandbox = await notebook(c)
    assert value(await python(c, sandbox, "type(get_ipython()).__mro__[1].__module__.split('.')[0]")) == "'IPython'"
    await python(c, sandbox, "%%writefile made.txt\nsome text", exit_code=0)
    await python(c, sandbox, "%cd -q /tmp\n%pwd", exit_code=0)
    got = await python(c, sandbox, "%%capture kept\nprint('hidden')", stdout="")
    await python(c, sandbox, "print(kept.stdout, end='')", stdout="hidden\n")
    await python(c, sandbox, "%env WHO=ann\n!echo $WHO", exit_code=0)
    got = await python(
        c,
        sandbox,
        ("from IPython.core.magic import register_line_magic\n@register_line_magic\ndef twice(line): return 2 * line"),
    )
    assert value(await python(c, sandbox, "%twice ab")) == "'abab'"
    got = structured(await c.run("python", "len??", sandbox_id=sandbox), exit_code=0)
    assert "container" in json.dumps(got["shown"]), got
    assert value(await python(c, sandbox, "6 * 7")) == "42"
    assert value(await python(c, sandbox, "_ + 1")) == "43", "the last value is not in _"


@check("science")
async def the_science_environment_is_the_default_python(c):
    got = structured(await c.run("python", "import sys\nsys.prefix"))
    assert value(got) == repr(str(SCIENCE.parent.parent)), got
    # In a shell it is the same one.
    sandbox = await c.create()
    got = structured(await c.call("exec", sandbox_id=sandbox, command="python3 -c 'import sys; print(sys.prefix)'"))
    assert got["stdout"] == f"{SCIENCE.parent.parent}\n", got


@check(http=True)
async def the_shell_keeps_its_state(c):
    sandbox = await c.create()

    async def shell(code, **expected):
        return structured(await c.run("shell", code, sandbox_id=sandbox), **expected)

    await shell("mkdir -p d; cd d; x=5; export Y=6; f() { echo f$1; }; alias ll='ls -l'", state="fresh", exit_code=0)
    await shell("basename \"$PWD\"; echo $x; sh -c 'echo $Y'; f 1", state="preserved", stdout="d\n5\n6\nf1\n")
    await shell("a=(1 2 3); set -o noglob", exit_code=0)
    await shell("echo ${a[2]} *", stdout="3 *\n")
    await shell("false", exit_code=1, state="preserved")
    await shell("no_such_command_x", exit_code=127)
    # Of other languages it has the files, and nothing else.
    await python(c, sandbox, "x = 1; open('from_python', 'w').write('p')", exit_code=0)
    await shell("cd; cat /workspace/from_python; echo $x", stdout="p5\n")
    # `exit` ends the cell, as a script's; whatever it does to the shell is said.
    got = await shell("echo before; exit 3", exit_code=3, stdout="before\n")
    after = await shell("echo ${x:-gone}")
    expected = {"preserved": ("preserved", "5\n"), "lost": ("reset", "gone\n")}[got["state"]]
    assert (after["state"], after["stdout"]) == expected, (got, after)


RUST = 'fn main() {\n    let n: u64 = (1..=5).product();\n    println!("{n}");\n    eprintln!("aside");\n}\n'


@check()
async def rust_compiles_and_runs(c):
    sandbox = await c.create()

    async def rust(code, **more):
        return structured(await c.run("rust", code, sandbox_id=sandbox, timeout=60, **more))

    got = await rust(RUST)
    assert (got["stdout"], got["stderr"], got["exit_code"]) == ("120\n", "aside\n", 0), got
    code = (
        "fn main() {\n    let mut line = String::new();\n    std::io::stdin().read_line(&mut line).unwrap();\n"
        "    std::process::exit(line.trim().parse().unwrap())\n}\n"
    )
    assert (await rust(code, stdin="7\n"))["exit_code"] == 7
    result = await c.run("rust", 'fn main() {\n    let x: u8 = "no";\n}', sandbox_id=sandbox, timeout=60)
    assert result.is_error and "mismatched types" in said(result) and "main.rs:2" in said(result), said(result)
    got = await rust('fn main() { panic!("so"); }')
    assert got["exit_code"] == 101 and "so" in got["stderr"] and "main.rs" in got["stderr"], got
    # One-off, too.
    structured(await c.run("rust", RUST, timeout=60), stdout="120\n", state="fresh")


GO = """package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Println(6 * 7)
	fmt.Fprintln(os.Stderr, "aside")
}
"""


@check(when=shutil.which("go") is not None)
async def go_compiles_and_runs(c):
    sandbox = await c.create(limits={"disk_mb": 1024, "memory_mb": 2048})

    async def go(code, **more):
        started = time.monotonic()
        got = structured(await c.run("go", code, sandbox_id=sandbox, timeout=120, **more))
        return got, time.monotonic() - started

    got, first = await go(GO)
    assert (got["stdout"], got["stderr"], got["exit_code"]) == ("42\n", "aside\n", 0), got
    got, second = await go(GO.replace("6 * 7", "6 * 8"))
    assert got["stdout"] == "48\n", got
    # A library that was compiled ahead makes the first as quick; else the second is much quicker.
    assert second < max(first / 2, 3), f"{first:.1f} s, then {second:.1f} s"
    result = await c.run("go", "package main\nfunc main() {\n\tx := 1\n}", sandbox_id=sandbox, timeout=60)
    assert result.is_error and "declared and not used" in said(result) and "main.go:3" in said(result), said(result)
    got, _ = await go('package main\nimport "os"\nfunc main() { os.Exit(5) }')
    assert got["exit_code"] == 5, got


@check()
async def javascript_keeps_its_state(c):
    sandbox = await c.create()

    async def js(code, language="javascript", **expected):
        return structured(await c.run(language, code, sandbox_id=sandbox), **expected)

    await js(
        ("const a = 1; let b = [a]; class C { who() { return 'c' } }\nfunction f() { return b.length }"),
        state="fresh",
        exit_code=0,
    )
    assert value(await js("b.push(2); f() + a", state="preserved")) == "3"
    # Each may be declared again.
    assert (
        value(await js(("const a = 10; let b = 'new'; class C { who() { return 'd' } }\n[a, b, new C().who()].join()")))
        == "'10,new,d'"
    )
    assert value(await js("await new Promise(done => setTimeout(() => done(5), 10))")) == "5"
    assert value(await js("const { x, y: [z] } = await Promise.resolve({ x: 1, y: [2] }); x + z")) == "3"
    got = await js("import { basename } from 'node:path'\nimport os from 'os'\nbasename('/a/b.txt') + typeof os.cpus")
    assert value(got) == "'b.txtfunction'", got
    assert value(await js("const { join } = require('path'); join('a', 'b') + basename('/c/d')")) == "'a/bd'"
    assert value(await js("const m = await import('node:url'); typeof m.URL")) == "'function'"
    await js("console.log('out'); console.error('err')", stdout="out\n", stderr="err\n")
    got = await js("({ k: [1, { deep: true }] })")
    assert "deep" in value(got), got
    assert "result" not in await js("const quiet = 1") and "result" not in await js("undefined")
    got = await js("\n\nnull.x", exit_code=1, state="preserved")
    assert got["error"]["name"] == "TypeError" and re.search(r":3\b", got["error"]["traceback"]), got
    assert "node:" not in got["error"]["traceback"], f"frames of somebody else: {got['error']['traceback']}"
    got = await js("const = 5", exit_code=1)
    assert got["error"]["name"] == "SyntaxError", got
    assert value(await js("a")) == "10", "an error took a variable"
    structured(await c.run("javascript", "a"), state="fresh", exit_code=1)


@check()
async def typescript_shares_the_state_of_javascript(c):
    sandbox = await c.create()

    async def ts(code, language="typescript", **expected):
        return structured(await c.run(language, code, sandbox_id=sandbox), **expected)

    await ts(
        (
            "interface P { name: string; age?: number }\n"
            "const p: P = { name: 'ann' }\nfunction id<T>(x: T): T { return x }"
        ),
        exit_code=0,
    )
    assert value(await ts("id<string>(p.name) as string")) == "'ann'"
    assert value(await ts("enum Colour { Red, Green = 5, Blue }\nColour.Blue + Colour[5]")) == "'6Green'"
    assert (
        value(
            await ts(
                (
                    "class Q { constructor(public n: number, private s = 'x') {} all() { return this.s + this.n } }\n"
                    "new Q(3).all()"
                )
            )
        )
        == "'x3'"
    )
    assert value(await ts("namespace N { export const v = 9 }\nN.v")) == "9"
    assert value(await ts("const later: number = await Promise.resolve<number>(8); later!")) == "8"
    assert value(await ts("p.name + new Q(1).n", language="javascript")) == "'ann1'"
    got = await ts("const a: = 5", exit_code=1)
    assert got["error"]["name"] == "SyntaxError", got
    got = await ts("type T = {\n  a: number\n}\nconst t: T = { a: 1 }\nnull!.x", exit_code=1)
    assert re.search(r":5\b", got["error"]["traceback"]), f"another line: {got['error']['traceback']}"
    assert (await ts("p.name"))["state"] == "preserved"


# Kernels that die, and those that are saved.

DEATHS = {
    "segfault": "import ctypes; ctypes.string_at(0)",
    "exit": "import os; os._exit(7)",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}
# No interrupt reaches it: it holds the interpreter's lock in a call that waits, with every signal held back.
STUBBORN = "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); ctypes.PyDLL(None).sleep(60)"
# Interrupts that come close together may end this one.
HALF_STUBBORN = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"


async def dies(c, sandbox, code, /, **arguments):
    """A cell that the kernel does not survive; everything that is then to be told and to be true."""
    await python(c, sandbox, "treasure = 1; silver = 2\nopen('runs', 'a').write('before\\n')\nNone", exit_code=0)
    result = await c.run("python", f"open('runs', 'a').write('deadly\\n')\n{code}", sandbox_id=sandbox, **arguments)
    assert result.is_error, said(result)
    got = structured(result, state="lost")
    for name in ("treasure", "silver"):
        assert name in said(result), f"{name} is not among what was lost: {said(result)}"
        assert name in got["lost"], got
    result = await c.run(
        "python",
        ("print(sorted(n for n in ('treasure', 'silver') if n in globals()))\nprint(open('runs').read())"),
        sandbox_id=sandbox,
    )
    after = structured(result, state="reset", exit_code=0)
    assert after["stdout"].startswith("[]\n"), f"variables came back: {after['stdout']}"
    assert "kernel" in said(result), f"the text does not say that the kernel is new: {said(result)}"
    lines = after["stdout"].split()[1:]
    assert lines.count("deadly") == 1, f"not once: {lines}"
    await python(c, sandbox, "again = 1", state="preserved")
    assert value(await python(c, sandbox, "again", state="preserved")) == "1"
    await c.call("exec", sandbox_id=sandbox, command="rm runs")
    return got


@check(http=True)
async def a_dead_kernel_is_told_and_replaced(c):
    sandbox = await c.create()
    await c.run("shell", "here=1", sandbox_id=sandbox)
    got = await dies(c, sandbox, DEATHS["segfault"])
    assert (got["ending"], got["exit_code"]) == ("killed", 139), got
    got = await dies(c, sandbox, DEATHS["exit"])
    assert (got["ending"], got["exit_code"]) == ("exited", 7), got
    got = await dies(c, sandbox, DEATHS["killed"])
    assert (got["ending"], got["exit_code"]) == ("killed", 137), got
    # Those of other languages are as they were.
    structured(await c.run("shell", "echo $here", sandbox_id=sandbox), state="preserved", stdout="1\n")


@check()
async def a_kernel_that_takes_too_much_memory_is_lost(c):
    sandbox = await c.create(limits={"memory_mb": 96, "disk_mb": 16})
    got = await dies(c, sandbox, "hog = []\nwhile True: hog.append(bytearray(4 << 20))")
    assert got["ending"] == "memory", got


@check()
async def an_interrupt_at_the_timeout_keeps_the_state(c):
    sandbox = await c.create()
    await python(c, sandbox, "x = 1", state="fresh")
    started = time.monotonic()
    result = await c.run("python", "x = 2\nprint('on')\nimport time\ntime.sleep(60)", sandbox_id=sandbox, timeout=1)
    assert time.monotonic() - started < 4 and result.is_error
    got = structured(result, ending="timeout", state="preserved", stdout="on\n", exit_code=124)
    assert "timeout after 1 s" in said(result) and "lost" not in said(result), said(result)
    assert value(await python(c, sandbox, "x", state="preserved")) == "2"
    # Also in a busy loop, in a function of C's that gives way, and where the code cleans up.
    result = await c.run("python", "n = 0\nwhile True: n += 1", sandbox_id=sandbox, timeout=0.5)
    structured(result, ending="timeout", state="preserved")
    code = "try:\n    time.sleep(60)\nfinally:\n    cleaned = True"
    structured(await c.run("python", code, sandbox_id=sandbox, timeout=0.5), ending="timeout", state="preserved")
    assert value(await python(c, sandbox, "cleaned, n > 0, x", state="preserved")) == "(True, True, 2)"
    # The other kernels.
    await c.run("shell", "y=4", sandbox_id=sandbox)
    got = structured(await c.run("shell", "y=5; sleep 60", sandbox_id=sandbox, timeout=0.5), ending="timeout")
    after = structured(await c.run("shell", "echo ${y:-gone}", sandbox_id=sandbox))
    expected = {"preserved": ("preserved", "5\n"), "lost": ("reset", "gone\n")}[got["state"]]
    assert (after["state"], after["stdout"]) == expected, (got, after)
    await c.run("javascript", "let z = 6", sandbox_id=sandbox)
    got = structured(
        await c.run("javascript", "z = 7; while (true) {}", sandbox_id=sandbox, timeout=0.5), ending="timeout"
    )
    after = structured(await c.run("javascript", "typeof z === 'undefined' ? 'gone' : z", sandbox_id=sandbox))
    expected = {"preserved": ("preserved", "7"), "lost": ("reset", "'gone'")}[got["state"]]
    assert (after["state"], value(after)) == expected, (got, after)
    assert got["state"] == "preserved", "a busy loop of JavaScript could be interrupted"


@check()
async def a_stubborn_cell_takes_its_kernel_with_it(c):
    sandbox = await c.create()
    started = time.monotonic()
    got = await dies(c, sandbox, f"print('on', flush=True)\n{STUBBORN}", timeout=1)
    assert time.monotonic() - started < 10
    assert (got["ending"], got["exit_code"], got["stdout"]) == ("timeout", 124, "on\n"), got
    # Of one that only catches the interrupt, the kernel may be saved or not: what is told is so.
    await python(c, sandbox, "before = 1", exit_code=0)
    got = structured(await c.run("python", HALF_STUBBORN, sandbox_id=sandbox, timeout=1), ending="timeout")
    after = await python(c, sandbox, "'before' in globals()")
    expected = {"preserved": ("preserved", "True"), "lost": ("reset", "False")}[got["state"]]
    assert (after["state"], value(after)) == expected, (got, after)


# Rich output.


def png(data):
    """Width, height and rows of (red, green, blue) of a PNG with 8 bits for each channel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", data[:8]
    at, pixels, header, palette = 8, b"", None, None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0], (
            "a wrong checksum"
        )
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        elif kind == b"PLTE":
            palette = [tuple(body[n : n + 3]) for n in range(0, length, 3)]
        elif kind == b"IDAT":
            pixels += body
        at += 12 + length
    width, height, depth, colour, _, _, interlaced = header
    assert depth == 8 and not interlaced, header
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    raw, stride, before, rows = zlib.decompress(pixels), width * channels, bytes(width * channels), []
    assert len(raw) == height * (stride + 1), "not as many pixels as it says"
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for i in range(stride if kind else 0):
            left = line[i - channels] if i >= channels else 0
            up, corner = before[i], before[i - channels] if i >= channels else 0
            if kind == 4:
                guess = left + up - corner
                near = min((abs(guess - left), 0, left), (abs(guess - up), 1, up), (abs(guess - corner), 2, corner))[2]
            else:
                near = (0, left, up, (left + up) // 2)[kind]
            line[i] = (line[i] + near) & 255
        before = bytes(line)
        cells = [before[x : x + channels] for x in range(0, stride, channels)]
        if colour == 3:
            rows.append([palette[cell[0]] for cell in cells])
        else:
            rows.append([tuple(cell[:3]) if channels > 2 else (cell[0],) * 3 for cell in cells])
    return width, height, rows


def pictures(result):
    return [block for block in result.content if block.type == "image"]


def colours(rows):
    return {pixel for row in rows for pixel in row}


def form(thing, mime_type):
    """One form of a value: its content, or where it is."""
    [found] = [form for form in thing.get("forms", []) if form["mime_type"] == mime_type] or [None]
    assert found, f"no {mime_type} in {[form['mime_type'] for form in thing.get('forms', [])]}"
    return found


async def content(c, thing, mime_type):
    found = form(thing, mime_type)
    if "content" in found:
        return found["content"]
    read = await c.read(found["uri"])
    return read.text if hasattr(read, "text") else base64.b64decode(read.blob)


@check("science", http=True)
async def a_figure_is_a_picture_with_real_pixels(c):
    sandbox = await c.create()
    code = (
        "import matplotlib.pyplot as plt\n"
        "plt.plot([0, 1, 2], [0, 4, 1], color='red', linewidth=6, label='up')\n"
        "plt.title('Height')\nplt.xlabel('day');"
    )
    result = await c.run("python", code, sandbox_id=sandbox)
    got = structured(result, exit_code=0)
    [block] = pictures(result)
    assert block.mime_type == "image/png", block.mime_type
    width, height, rows = png(base64.b64decode(block.data))
    assert width > 100 and height > 100, (width, height)
    [shown] = got["shown"]
    assert (shown["width"], shown["height"]) == (width, height), shown
    red = sum(row.count((255, 0, 0)) for row in rows)
    assert len(colours(rows)) > 2 and red > width, f"{len(colours(rows))} colours, {red} red pixels"
    assert sum(row.count((255, 255, 255)) for row in rows) > width * height / 2, "no white ground"
    # The line goes from the lower left to its top in the middle: so does what is red.
    top = next(y for y, row in enumerate(rows) if (255, 0, 0) in row)
    at = rows[top].index((255, 0, 0)) / width
    assert 0.35 < at < 0.65, f"the top of the line is at {at:.2f} of the width"
    # Data of the chart, and the picture as a resource.
    chart = await content(c, shown, "application/vnd.belljar.chart+json")
    assert chart["type"] == "line" and chart["title"] == "Height" and chart["x_label"] == "day", chart
    assert chart["elements"] == [{"label": "up", "points": [[0, 0], [1, 4], [2, 1]]}], chart["elements"]
    assert await content(c, shown, "image/png") == base64.b64decode(block.data)
    # It is not shown again by the next cell, and show() shows it once.
    result = await c.run("python", "1", sandbox_id=sandbox)
    assert not pictures(result) and "shown" not in structured(result)
    result = await c.run("python", "plt.plot([1, 2]); plt.show(); plt.plot([2, 1]); plt.show()", sandbox_id=sandbox)
    assert len(pictures(result)) == 2, [block.type for block in result.content]
    # One that the failing cell drew is there too.
    result = await c.run("python", "plt.plot([1, 2]); 1 / 0", sandbox_id=sandbox)
    assert len(pictures(result)) == 1 and result.is_error
    # Without a sandbox.
    result = await c.run("python", code)
    assert len(pictures(result)) == 1


@check("science")
async def seaborn_draws(c):
    code = (
        "import seaborn as sns, pandas as pd\n"
        "df = pd.DataFrame({'k': ['a', 'b', 'a'], 'v': [1, 2, 3]})\n"
        "sns.barplot(df, x='k', y='v', color='#00ff00', saturation=1, errorbar=None)"
    )
    result = await c.run("python", code, timeout=60)
    got = structured(result, exit_code=0)
    [block] = pictures(result)
    width, height, rows = png(base64.b64decode(block.data))
    green = sum(row.count((0, 255, 0)) for row in rows)
    assert width > 100 and height > 100 and green > width * height / 10, f"{green} of {width}x{height} are green"
    chart = await content(c, got["shown"][0], "application/vnd.belljar.chart+json")
    assert chart["type"] == "bar" and [bar["value"] for bar in chart["elements"]] == [2, 2], chart
    assert value(got).startswith("<Axes:"), got


@check("science")
async def plotly_comes_as_json_and_html(c):
    code = "import plotly.graph_objects as go\ngo.Figure(go.Bar(x=['a', 'b'], y=[1, 20]))"
    result = await c.run("python", code)
    got = structured(result, exit_code=0)
    figure = await content(c, got["result"], "application/vnd.plotly.v1+json")
    figure = json.loads(figure) if isinstance(figure, str) else figure
    [bar] = figure["data"]
    assert bar["type"] == "bar" and bar["x"] == ["a", "b"], bar
    html = await content(c, got["result"], "text/html")
    assert "<div" in html and "plotly" in html.lower(), html[:200]
    assert len(said(result)) < 2000, "the figure's JSON is in the text"
    got = structured(await c.run("python", code.replace("go.Figure", "fig = go.Figure") + "\nfig.show()"))
    assert await content(c, got["shown"][0], "application/vnd.plotly.v1+json"), got


@check("science")
async def a_frame_is_a_table_with_shape_and_types(c):
    sandbox = await c.create()
    code = (
        "import pandas as pd\n"
        "df = pd.DataFrame({'n': range(1000), 'half': [i / 2 for i in range(1000)], 'word': 'x'})\n"
        "df"
    )
    result = await c.run("python", code, sandbox_id=sandbox)
    got = structured(result, exit_code=0)
    assert "[1000 rows x 3 columns]" in value(got) and "999" in value(got), value(got)
    assert len(value(got).splitlines()) < 70, f"not compact: {len(value(got).splitlines())} lines"
    table = await content(c, got["result"], "application/vnd.belljar.table+json")
    assert table["shape"] == [1000, 3], table
    assert [name for name, _ in table["columns"]] == ["n", "half", "word"], table
    assert [kind for _, kind in table["columns"]][:2] == ["int64", "float64"], table
    assert "<table" in await content(c, got["result"], "text/html")
    got = await python(c, sandbox, "df.head(2)")
    assert "[2 rows x 3 columns]" in value(got), value(got)
    got = await python(c, sandbox, "df['half'].describe()")
    assert "mean" in value(got) and "float64" in value(got), value(got)
    # A client that shows only the text has the types too.
    for word in ("int64", "float64"):
        assert word in said(result), f"the text does not have the types: {said(result)[-200:]}"


@check("science")
async def objects_show_themselves_in_their_forms(c):
    sandbox = await c.create()
    code = """
class Rich:
    def __repr__(self): return 'plain rich'
    def _repr_html_(self): return '<b>html</b>'
    def _repr_markdown_(self): return '**md**'
    def _repr_latex_(self): return '$x^2$'
    def _repr_svg_(self): return '<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"><circle r="2"/></svg>'
    def _repr_json_(self): return {'k': [1, None]}
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'bundled', 'text/html': '<i>b</i>'}
class Broken:
    def __repr__(self): return 'still here'
    def _repr_html_(self): raise RuntimeError('no html')
display(Bundle())
display(Broken())
Rich()
"""
    result = await c.run("python", code, sandbox_id=sandbox)
    got = structured(result, exit_code=0)
    assert value(got) == "plain rich" and "plain rich" in said(result), got
    for mime_type, expected in [
        ("text/html", "<b>html</b>"),
        ("text/markdown", "**md**"),
        ("text/latex", "$x^2$"),
        ("application/json", {"k": [1, None]}),
    ]:
        assert await content(c, got["result"], mime_type) == expected, mime_type
    assert "<circle" in await content(c, got["result"], "image/svg+xml")
    bundle, broken = got["shown"]
    assert bundle["text"] == "bundled" and await content(c, bundle, "text/html") == "<i>b</i>", bundle
    assert broken["text"] == "still here" and not broken.get("forms"), broken
    got = await python(c, sandbox, "import sympy\nsympy.sqrt(sympy.Symbol('x')) / 2")
    assert value(got) == "sqrt(x)/2" and "\\frac" in await content(c, got["result"], "text/latex"), got
    # A repr that fails is an error of the cell, or a note in its place: never the end of the kernel.
    got = await python(
        c, sandbox, ("class Bad:\n    def __repr__(self): raise ValueError('no repr')\nBad()"), state="preserved"
    )
    assert "no repr" in json.dumps(got), got


@check("science")
async def what_ipython_shows_can_be_read_in_the_text_too(c):
    code = (
        "from IPython.display import Markdown, JSON, Latex, HTML, SVG, display\n"
        "display(Markdown('# Heading'), Latex('$e^x$'), JSON({'key': [1]}))"
    )
    result = await c.run("python", code)
    shown = structured(result, exit_code=0)["shown"]
    assert await content(c, shown[0], "text/markdown") == "# Heading", shown
    assert await content(c, shown[2], "application/json") == {"key": [1]}, shown
    # A client shows the text or the structured content: an object's address in the one is not what was shown.
    for words in ("# Heading", "$e^x$"):
        assert words in said(result), f"{words!r} is not in the text {said(result)!r}"


@check("science")
async def pil_images_are_pictures(c):
    code = (
        "from PIL import Image\n"
        "picture = Image.new('RGB', (120, 80), (0, 128, 255))\n"
        "picture.paste((255, 255, 0), (0, 0, 60, 80))\npicture"
    )
    result = await c.run("python", code)
    got = structured(result, exit_code=0)
    [block] = pictures(result)
    width, height, rows = png(base64.b64decode(block.data))
    assert (width, height) == (120, 80) and rows[5][5] == (255, 255, 0) and rows[5][100] == (0, 128, 255), rows[5][:3]
    assert (got["result"]["width"], got["result"]["height"]) == (120, 80), got


@check("science")
async def a_large_picture_is_made_smaller_and_kept_whole(c):
    sandbox = await c.create()
    # Noise does not compress: 2400 x 1800 x 3 bytes of it are 13 MB.
    code = (
        "import numpy as np\nfrom PIL import Image\n"
        "Image.fromarray(np.random.default_rng(1).integers(0, 255, (1800, 2400, 3), dtype=np.uint8))"
    )
    result = await c.run("python", code, sandbox_id=sandbox, timeout=60)
    got = structured(result, exit_code=0)
    [block] = pictures(result)
    assert len(block.data) <= 700_000, f"{len(block.data)} characters of base64"
    side = max(got["result"]["width"], got["result"]["height"])
    assert side <= 1568 and base64.b64decode(block.data)[:3] in (b"\xff\xd8\xff", b"\x89PN"), got["result"]
    # It is longer than one answer may be, so it is read in parts.
    [file] = got["files"]
    parts = [
        await c.read(f"{got['result']['original']}?offset={at}&length=4194304")
        for at in range(0, file["size"], 4194304)
    ]
    whole = b"".join(base64.b64decode(part.blob) for part in parts)
    assert len(whole) == file["size"] and zlib.crc32(whole[-8:-4]) == struct.unpack(">I", whole[-4:])[0], len(whole)
    assert struct.unpack(">II", whole[16:24]) == (2400, 1800), whole[:24]
    # A plain one of the same size is small as a file, and still not larger than models look at.
    result = await c.run("python", "Image.new('RGB', (3000, 100), (9, 9, 9))", sandbox_id=sandbox)
    got = structured(result)["result"]
    assert max(got["width"], got["height"]) <= 1568 and "original" in got, got
    width, _, _ = png(base64.b64decode((await c.read(got["original"])).blob))
    assert width == 3000, width


# Files.


def files(got):
    return {file["name"]: file for file in got.get("files", [])}


def links(result):
    return {str(block.uri): block for block in result.content if block.type == "resource_link"}


@check(http=True)
async def files_that_a_run_made_are_told(c):
    sandbox = await c.create()
    await c.call("write_file", sandbox_id=sandbox, path="old.txt", content="old")
    await c.call("write_file", sandbox_id=sandbox, path="kept.txt", content="kept")
    code = (
        "import json, os\nos.makedirs('out/deep')\n"
        "json.dump([1], open('out/deep/a b.json', 'w'))\n"
        "open('old.txt', 'a').write('er')\n"
        "open('t.csv', 'w').write('a,b\\n')\nNone"
    )
    result = await c.run("python", code, sandbox_id=sandbox)
    got = files(structured(result, exit_code=0))
    assert set(got) == {"out/deep/a b.json", "old.txt", "t.csv"}, list(got)
    assert {name: (file["mime_type"], file["size"]) for name, file in got.items()} == {
        "out/deep/a b.json": ("application/json", 3),
        "old.txt": ("text/plain", 5),
        "t.csv": ("text/csv", 4),
    }, got
    linked = links(result)
    for file in got.values():
        assert file["uri"].startswith(f"belljar://{sandbox}/"), file
        assert linked[file["uri"]].size == file["size"] and linked[file["uri"]].mime_type == file["mime_type"]
        assert file["uri"] in said(result), said(result)
    assert (await c.read(got["out/deep/a b.json"]["uri"])).text == "[1]"
    assert (await c.read(got["old.txt"]["uri"])).text == "older"
    # What nobody touched is not told again; what exec and the shell make is.
    assert not files(await python(c, sandbox, "open('kept.txt').read()"))
    result = await c.call("exec", sandbox_id=sandbox, command="printf x > by_exec; rm t.csv")
    assert set(files(structured(result))) == {"by_exec"}, structured(result)
    assert set(files(structured(await c.run("shell", "echo > by_shell", sandbox_id=sandbox)))) == {"by_shell"}


@check(http=True)
async def files_of_a_one_off_run_can_be_read_after_it(c):
    code = (
        "import os\nos.makedirs('d')\nopen('d/r.txt', 'w').write('result')\n"
        "open('b.bin', 'wb').write(bytes(range(256)))\nNone"
    )
    result = await c.run("python", code)
    got = files(structured(result, state="fresh"))
    assert set(got) == {"d/r.txt", "b.bin"}, got
    assert all(file["uri"].startswith("belljar://runs/") for file in got.values()), got
    assert (await c.read(got["d/r.txt"]["uri"])).text == "result"
    assert base64.b64decode((await c.read(got["b.bin"]["uri"])).blob) == bytes(range(256))
    assert set(links(result)) == {file["uri"] for file in got.values()}


@check()
async def files_are_listed_with_limits(c):
    sandbox = await c.create()
    await c.run("shell", "mkdir -p a/b/c; touch top a/one a/b/two a/b/c/three; ln -s top link", sandbox_id=sandbox)

    async def listed(**arguments):
        got = structured(await c.call("list_files", sandbox_id=sandbox, **arguments))
        return {entry["path"].removeprefix("./"): entry for entry in got["entries"]}, got["truncated"]

    entries, truncated = await listed()
    assert set(entries) == {"a", "top", "link"} and not truncated, entries
    assert entries["a"]["kind"] == "directory" and entries["link"]["kind"] == "symlink", entries
    entries, truncated = await listed(depth=10)
    assert {"a/one", "a/b/two", "a/b/c/three", "a/b/c"} <= set(entries) and not truncated, list(entries)
    entries, truncated = await listed(depth=10, limit=3)
    assert len(entries) == 3 and truncated, entries
    entries, _ = await listed(path="a/b", depth=2)
    assert {Path(path).name for path in entries} == {"two", "c", "three"}, list(entries)
    refused(await c.call("list_files", sandbox_id=sandbox, path="nowhere"), "no such file or directory")


@check()
async def files_are_read_in_parts(c):
    sandbox = await c.create()
    text = "".join(f"line {n}\n" for n in range(1, 101))
    await c.call("write_file", sandbox_id=sandbox, path="f", content=text)

    async def read(**arguments):
        return structured(await c.call("read_file", sandbox_id=sandbox, path="f", **arguments))

    got = await read(lines="10-12")
    assert got["content"] == "line 10\nline 11\nline 12\n" and got["more"] is True, got
    assert (await read(lines="99-200"))["content"] == "line 99\nline 100\n"
    assert (await read(lines="100"))["more"] is False
    got = await read(offset=5, length=9)
    assert got["content"] == text[5:14] and got["more"] is True and got["size"] == len(text), got
    got = await read(offset=len(text) - 4)
    assert got["content"] == text[-4:] and got["more"] is False, got
    refused(await c.call("read_file", sandbox_id=sandbox, path="f", lines="5-2"), "lines")
    refused(await c.call("read_file", sandbox_id=sandbox, path="missing"), "no such file or directory", "list_files")
    # The resource has the same parts.
    assert (await c.read(f"belljar://{sandbox}/f?lines=10-12")).text.startswith("line 10\nline 11\nline 12")
    found = (await c.read(f"belljar://{sandbox}/f?grep=line%205")).text
    assert "line 5" in found and "line 50" in found and "line 60" not in found, found


@check(http=True)
async def files_are_written_as_text_bytes_and_archives(c):
    sandbox = await c.create(files={"src/main.py": "print('from files')", "dot.bin": "data:;base64,AAEC/w=="})
    structured(
        await c.call("exec", sandbox_id=sandbox, command="python3 src/main.py; od -An -tx1 dot.bin"),
        stdout="from files\n 00 01 02 ff\n",
    )
    raw = bytes(random.Random(1).randbytes(5000))
    await c.call(
        "write_file", sandbox_id=sandbox, path="deep/er/raw", content=base64.b64encode(raw).decode(), encoding="base64"
    )
    assert base64.b64decode((await c.read(f"belljar://{sandbox}/deep/er/raw?raw")).blob) == raw
    got = structured(await c.call("read_file", sandbox_id=sandbox, path="deep/er/raw"))
    assert got["encoding"] == "base64" and base64.b64decode(got["content"]) == raw, got["encoding"]
    for packed in ("w", "w:gz"):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode=packed) as tar:
            for name, data in [("one.txt", b"1"), ("d/two.bin", b"\0\xff"), ("d/three", b"3" * 1000)]:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        directory = f"in-{packed[-1]}"
        got = structured(
            await c.call(
                "write_file",
                sandbox_id=sandbox,
                path=directory,
                encoding="tar",
                content=base64.b64encode(archive.getvalue()).decode(),
            )
        )
        assert got["files"] == 3 and got["size"] == 1003, got
        command = f"cd {directory}; cat one.txt; od -An -tx1 d/two.bin; wc -c < d/three"
        structured(await c.call("exec", sandbox_id=sandbox, command=command), stdout="1 00 ff\n1000\n")
    refused(await c.call("write_file", sandbox_id=sandbox, path="x", content="no base64!", encoding="base64"), "base64")
    refused(await c.call("write_file", sandbox_id=sandbox, path="x", content="AAAA", encoding="tar"), "tar")
    structured(await c.call("exec", sandbox_id=sandbox, command="ls x"), exit_code=2)


async def a_subscriber_hears_of_changes(place):
    """In the older era by resources/subscribe, in the newer by a stream of events."""
    heard = []

    async def hear(message):
        heard.append(message)

    async with place.connect(message_handler=hear) as c:
        sandbox = await c.create()
        await c.call("write_file", sandbox_id=sandbox, path="watched", content="1")
        uri = f"belljar://{sandbox}/watched"

        async def touch_and_hear(what, touching):
            await touching
            with anyio.fail_after(5):
                while not any(uri in str(message) for message in heard):
                    await anyio.sleep(0.02)
            heard.clear()

        async def touch():
            await touch_and_hear("write_file", c.call("write_file", sandbox_id=sandbox, path="watched", content="2"))
            await touch_and_hear("run_code", c.run("python", "open('watched', 'w').write('3')", sandbox_id=sandbox))
            await c.call("write_file", sandbox_id=sandbox, path="other", content="x")
            await anyio.sleep(0.2)
            assert not heard, f"heard of what was not subscribed: {heard}"

        if place.era == LEGACY:
            # What the newer era has no longer, and says so.
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await c.client.subscribe_resource(uri)
            await touch()
            await c.client.unsubscribe_resource(uri)
            await c.call("write_file", sandbox_id=sandbox, path="watched", content="4")
            await anyio.sleep(0.2)
            assert not heard, f"heard after unsubscribing: {heard}"
        else:
            async with c.client.listen(resource_subscriptions=[uri]) as events:

                async def listen():
                    async for event in events:
                        heard.append(event)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(listen)
                    await touch()
                    tasks.cancel_scope.cancel()


# Jobs.


async def begin(c, sandbox, command, **arguments):
    got = structured(await c.call("exec", sandbox_id=sandbox, command=command, background=True, **arguments))
    assert got["ending"] == "running" and "exit_code" not in got, got
    return got["job_id"]


async def job(c, job_id, action="poll", /, **arguments):
    return structured(await c.call("job", job_id=job_id, action=action, **arguments))


async def ended(c, job_id):
    """What a job came to and all that it said, however often one has to wait: a wait is over when a run would yield."""
    with anyio.fail_after(20):
        while (await job(c, job_id, "wait", timeout=10))["ending"] == "running":
            pass
    return await job(c, job_id, offset=0)


@check(http=True)
async def a_dev_server_stays_up(c):
    sandbox = await c.create()
    await c.call("write_file", sandbox_id=sandbox, path="site/index.html", content="<h1>served</h1>")
    server = await begin(c, sandbox, "python3 -u -m http.server 8123 --bind 127.0.0.1 -d site")
    fetch = (
        "import urllib.request, time\nfor _ in range(100):\n    try:\n"
        "        page = urllib.request.urlopen('http://127.0.0.1:8123/').read().decode(); break\n"
        "    except OSError: time.sleep(0.05)\npage"
    )
    assert value(await python(c, sandbox, fetch)) == "'<h1>served</h1>'"
    talk = "exec 3<>/dev/tcp/127.0.0.1/8123; printf 'GET /none HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3 | cut -c10-12"
    got = structured(await c.call("exec", sandbox_id=sandbox, command=f'bash -c "{talk}"'))
    assert got["stdout"] == "404\n", got
    got = await job(c, server)
    assert got["ending"] == "running" and "GET / HTTP/1.1" in got["stderr"] + got["stdout"], got
    await job(c, server, "signal", signal="TERM")
    got = await job(c, server, "wait", timeout=5)
    assert got["ending"] in ("killed", "exited") and got["exit_code"] == 143, got
    # And it is really gone.
    got = await python(c, sandbox, "urllib.request.urlopen('http://127.0.0.1:8123/')", exit_code=1)
    assert got["error"]["name"] == "URLError", got


@check(http=True)
async def a_job_is_polled_from_an_offset(c):
    sandbox = await c.create()
    started = time.monotonic()
    number = await begin(c, sandbox, "echo one; read x; echo two $x; read y; echo err $y >&2; exit 5")
    assert time.monotonic() - started < 2
    await until_said(c, number, "one\n")
    got = await job(c, number, offset=0)
    assert got["stdout"] == "one\n" and got["next_offset"] == 4, got
    # Without an offset, what is new since the last look.
    assert (await job(c, number))["stdout"] == ""
    await job(c, number, "stdin", stdin="A\n")
    await until_said(c, number, "one\ntwo A\n")
    assert (await job(c, number, offset=4))["stdout"] == "two A\n"
    # A wait that is not long enough comes back, and the job goes on.
    started = time.monotonic()
    got = await job(c, number, "wait", timeout=0.5)
    assert got["ending"] == "running" and 0.4 < time.monotonic() - started < 3, got
    await job(c, number, "stdin", stdin="B\n", eof=True)
    result = await c.call("job", job_id=number, action="wait", timeout=10, offset=0)
    got = structured(result, ending="exited", exit_code=5, stdout="one\ntwo A\n", stderr="err B\n")
    assert result.is_error, "a job that failed is not an error"
    # Its end can be asked for again.
    assert (await job(c, number))["exit_code"] == 5
    # End of input without any.
    number = await begin(c, sandbox, "cat; echo end")
    await job(c, number, "stdin", stdin="", eof=True)
    assert (await job(c, number, "wait", timeout=10, offset=0))["stdout"] == "end\n"


async def until_said(c, number, words):
    """Waits until a job has said so much."""
    with anyio.fail_after(10):
        while (await job(c, number, offset=0))["stdout"] != words:
            await anyio.sleep(0.02)


@check(http=True)
async def a_job_is_signalled(c):
    sandbox = await c.create()
    number = await begin(c, sandbox, "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done")
    await until_said(c, number, "ready\n")
    await job(c, number, "signal")
    got = await job(c, number, "wait", timeout=5, offset=0)
    assert (got["stdout"], got["exit_code"]) == ("ready\ncaught\n", 9), got
    number = await begin(c, sandbox, "trap '' TERM; echo ready; sleep 600")
    await until_said(c, number, "ready\n")
    await job(c, number, "signal", signal="KILL")
    got = await job(c, number, "wait", timeout=5)
    assert (got["ending"], got["exit_code"]) == ("killed", 137), got
    number = await begin(c, sandbox, "sleep 600")
    refused(await c.call("job", job_id=number, action="signal", signal="NOSUCH"), "signal must be one of", "TERM")
    # The end of the sandbox is the end of its jobs.
    await c.call("destroy_sandbox", sandbox_id=sandbox)
    result = await c.call("job", job_id=number)
    assert result.is_error or structured(result)["ending"] != "running", said(result)


@check()
async def code_in_the_background_is_a_job(c):
    sandbox = await c.create()
    result = await c.run(
        "python",
        ("import time\nprint('begun', flush=True)\ntime.sleep(1.5)\nleft = 5\n'value'"),
        sandbox_id=sandbox,
        background=True,
    )
    number = structured(result, ending="running")["job_id"]
    assert number in said(result), said(result)
    # The kernel has one thing to do at a time, and says what that is; everything else of the sandbox goes on.
    refused(await c.run("python", "1", sandbox_id=sandbox), number, "job")
    structured(await c.call("exec", sandbox_id=sandbox, command="echo beside"), stdout="beside\n")
    structured(await c.run("shell", "echo beside", sandbox_id=sandbox), stdout="beside\n")
    got = await job(c, number, "wait", timeout=10, offset=0)
    assert got["ending"] == "exited" and got["stdout"] == "begun\n" and value(got) == "'value'", got
    assert value(await python(c, sandbox, "left", state="preserved")) == "5"
    # An interrupt is the way out of one that takes too long; the kernel lives on.
    number = structured(
        await c.run("python", "print('in', flush=True)\ntime.sleep(600)", sandbox_id=sandbox, background=True)
    )["job_id"]
    await until_said(c, number, "in\n")
    await job(c, number, "signal", signal="INT")
    got = await job(c, number, "wait", timeout=5)
    assert got["error"]["name"] == "KeyboardInterrupt" and got["state"] == "preserved", got
    assert value(await python(c, sandbox, "left", state="preserved")) == "5"
    # Without a sandbox_id.
    number = structured(await c.run("shell", "sleep 0.3; echo alone", background=True))["job_id"]
    assert (await job(c, number, "wait", timeout=10, offset=0))["stdout"] == "alone\n"


@check()
async def nobody_queues_behind_a_job_that_waits_for_its_kernel(c):
    sandbox = await c.create()
    await python(c, sandbox, "import time", exit_code=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: c.run("python", "open('first', 'w').close()\ntime.sleep(1.5)", sandbox_id=sandbox))
        with anyio.fail_after(5):
            while structured(await c.call("exec", sandbox_id=sandbox, command="test -e first"))["exit_code"]:
                await anyio.sleep(0.02)
        number = structured(await c.run("python", "time.sleep(600)", sandbox_id=sandbox, background=True))["job_id"]
        # The first cell runs, the job waits for it: whoever comes now would wait for hours.
        with anyio.move_on_after(5) as waited:
            refused(await c.run("python", "1", sandbox_id=sandbox), number)
        assert not waited.cancelled_caught, "it queued behind a job that had not begun"
    await job(c, number, "signal", signal="INT")
    assert (await ended(c, number))["error"]["name"] == "KeyboardInterrupt"


@check("yields", http=True)
async def a_run_that_takes_long_becomes_a_job(c):
    sandbox = await c.create()
    started = time.monotonic()
    code = "import time\nprint('early', flush=True)\ntime.sleep(2.5)\nprint('late')\nkept = 7\nkept"
    result = await c.run("python", code, sandbox_id=sandbox)
    assert 0.9 < time.monotonic() - started < 2.2, f"{time.monotonic() - started:.1f} s"
    got = structured(result, ending="running", stdout="early\n")
    assert not result.is_error and got["job_id"] in said(result) and "early" in said(result), said(result)
    refused(await c.run("python", "1", sandbox_id=sandbox), got["job_id"])
    new = await job(c, got["job_id"], offset=got["next_offset"])
    assert new["stdout"] == "", f"told again: {new}"
    end = await ended(c, got["job_id"])
    assert end["ending"] == "exited" and end["stdout"] == "early\nlate\n" and value(end) == "7", end
    assert value(await python(c, sandbox, "kept", state="preserved")) == "7"
    got = structured(await c.call("exec", sandbox_id=sandbox, command="sleep 1.5; echo slow"), ending="running")
    assert (await ended(c, got["job_id"]))["stdout"] == "slow\n"
    # Its own timeout holds for it as a job too.
    got = structured(await c.run("python", "time.sleep(60)", sandbox_id=sandbox, timeout=2), ending="running")
    end = await ended(c, got["job_id"])
    assert end["ending"] == "timeout" and end["state"] == "preserved", end


async def a_dropped_request_attaches_when_sent_again(era, same_id=False):
    """What is asked for once is done once, though the connection broke in between.

    A client that asks again does so under a new id; one below it that repeats the request sends the very same bytes.
    """
    server = HttpServer()
    try:
        async with Place("http", era, server.url).connect() as c:
            sandbox = await c.create()
            await python(c, sandbox, "import time\nruns = 0")
            code = "runs += 1\nopen('effects', 'a').write('x')\ntime.sleep(2)\nprint('done', runs)"
        # A client of its own, so that hanging up is all that it does.
        arguments = {"language": "python", "code": code, "sandbox_id": sandbox}
        message = raw_call(era, "run_code", arguments)
        headers = raw_headers(era, "run_code", sandbox)
        async with httpx2.AsyncClient(timeout=30) as http:
            if era == LEGACY:
                headers["mcp-session-id"] = await raw_session(http, server.url)
            with contextlib.suppress(httpx2.TimeoutException):
                await http.post(server.url, json=message, headers=headers, timeout=1)
                raise AssertionError("it answered before the time")
            started = time.monotonic()
            message["id"] += not same_id
            answer = await http.post(server.url, json=message, headers=headers)
            took = time.monotonic() - started
        assert answer.status_code == 200, answer.text
        assert "done 1" in answer.text, answer.text[:500]
        assert took < 1.8, f"the second took {took:.1f} s, as if it had begun again"
        async with Place("http", era, server.url).connect() as c:
            got = structured(await c.call("exec", sandbox_id=sandbox, command="cat effects"))
            assert got["stdout"] == "x", f"it ran {len(got['stdout'])} times"
            assert value(await python(c, sandbox, "runs", state="preserved")) == "1"
            # The same words sent on purpose, after the answer, are another run.
            structured(await c.run("python", code, sandbox_id=sandbox), stdout="done 2\n")
    finally:
        server.stop()


def raw_call(era, tool, arguments):
    params = {"name": tool, "arguments": arguments}
    if era == MODERN:
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def raw_headers(era, tool, sandbox):
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
    if era == MODERN:
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool, "Mcp-Param-Sandbox": sandbox}
    return headers


async def raw_session(http, url):
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    headers = {"Accept": "application/json, text/event-stream"}
    answer = await http.post(
        url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}, headers=headers
    )
    session = answer.headers["mcp-session-id"]
    headers |= {"mcp-session-id": session, "MCP-Protocol-Version": LEGACY}
    await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    return session


async def jobs_belong_to_who_began_them():
    with tempfile.NamedTemporaryFile("w", prefix="tokens-") as file:
        ann, bob = "ann-" + "a" * 32, "bob-" + "b" * 32
        file.write(f"ann:{ann}\nbob:{bob}\n")
        file.flush()
        server = HttpServer("--token-file", file.name)
        try:
            async with (
                Place("http", MODERN, server.url, ann).connect() as a,
                Place("http", MODERN, server.url, bob).connect() as b,
            ):
                sandbox = await a.create()
                number = await begin(a, sandbox, "read x; echo $x; sleep 60")
                for action in ({}, {"action": "wait"}, {"action": "stdin", "stdin": "x"}, {"action": "signal"}):
                    refused(await b.call("job", job_id=number, **action), "no such job")
                refused(await b.call("job", job_id="run_" + "0" * 32), "no such job")
                made = structured(await a.run("python", "open('f.txt', 'w').write('secret')"))["files"][0]["uri"]
                try:
                    got = await b.read(made)
                except MCPError as error:
                    assert "secret" not in str(error)
                else:
                    raise AssertionError(f"bob read {got}")
                assert (await a.read(made)).text == "secret"
                assert (await job(a, number))["ending"] == "running", "bob's signal came through"
        finally:
            server.stop()


# Output.


def rss(pid):
    [kib] = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kib) * 1024


async def much_output_is_cut_kept_and_cheap():
    """10 MB, at the server's end and at the client's."""
    server = HttpServer()
    try:
        async with Place("http", MODERN, server.url).connect() as c:
            sandbox = await c.create(limits={"output_kb": 16384})
            peak, running = 0, True

            async def watch():
                nonlocal peak
                while running:
                    peak = max(peak, rss(server.process.pid))
                    await anyio.sleep(0.01)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch)
                line = "f'{i:07} ' + 'x' * 91"
                result = await c.run(
                    "python",
                    f"for i in range(100_000): print({line})\nprint('needle here')",
                    sandbox_id=sandbox,
                    timeout=60,
                )
                running = False
            got = structured(result, exit_code=0, truncated=True)
            text = said(result)
            assert len(text) <= TEXT_MAX and len(got["stdout"]) <= TEXT_MAX, (len(text), len(got["stdout"]))
            size = len(json.dumps(got))
            assert size <= TEXT_MAX + 4000, f"{size} characters of structured content"
            for said_so in (text, got["stdout"]):
                assert "0000000 xx" in said_so and "0099999 xx" in said_so and "needle here" in said_so, "head and tail"
                assert "left out" in said_so and "belljar://runs/" in said_so, (
                    "not said what was left out, and where it is"
                )
            uri = got["output_uris"]["stdout"]
            part = (await c.read(f"{uri}?lines=50001-50003")).text
            assert re.findall(r"^(\d{7}) x", part, re.M) == ["0050000", "0050001", "0050002"], part[:300]
            assert "needle here" in (await c.read(f"{uri}?lines=-1")).text
            found = (await c.read(f"{uri}?grep=needle")).text
            assert "needle here" in found and len(found) < 1000, found[:300]
            found = (await c.read(f"{uri}?grep=00777[01]%20&regex=1")).text
            assert len(re.findall(r"00777[01]\d? x", found)) >= 2 and len(found) < 5000, found[:300]
            part = (await c.read(f"{uri}?offset=1000&length=100")).text
            assert "0000010 x" in part and len(part) < 400, part
            after = rss(server.process.pid)
            assert peak < RSS_MAX and after < RSS_MAX, f"{peak >> 20} MiB at most, {after >> 20} MiB after"
            # Ten times over, what is kept has bounds too.
            for _ in range(8):
                await c.run("python", f"for i in range(100_000): print({line})", sandbox_id=sandbox, timeout=60)
            after = rss(server.process.pid)
            assert after < RSS_MAX, f"{after >> 20} MiB after nine runs of 10 MB"
    finally:
        server.stop()


@check()
async def progress_bars_are_folded(c):
    code = (
        "import sys\n"
        "for i in range(101): print(f'\\rdone {i}%', end='', file=sys.stderr)\n"
        "print(file=sys.stderr)\n"
        "print('\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07plain')\n"
        "print('abc\\b\\bX')\nprint('1\\n2\\x1b[1A\\x1b[2Kup')"
    )
    for sandbox in ({}, {"sandbox_id": await c.create()}):
        result = await c.run("python", code, **sandbox)
        got = structured(result, exit_code=0)
        assert got["stderr"] == "done 100%\n", got["stderr"][:200]
        assert got["stdout"].startswith("red plain\naXc\n"), got["stdout"]
        assert "\x1b" not in said(result) + json.dumps(got), said(result)
    # The exact bytes are there for who wants them.
    result = await c.run("python", "print('\\x1b[31m' + 'y' * 30000)")
    uri = structured(result)["output_uris"]["stdout"]
    raw = await c.read(uri + "?raw")
    raw = raw.text.encode() if hasattr(raw, "text") else base64.b64decode(raw.blob)
    assert raw.startswith(b"\x1b[31myyy") and len(raw) == 30006, raw[:50]


@check()
async def text_and_structured_content_stand_alone(c):
    sandbox = await c.create()
    code = (
        "import sys\nprint('to stdout')\nprint('to stderr', file=sys.stderr)\n"
        "open('made.txt', 'w').write('x')\ndisplay('was shown')\n'the value'"
    )
    result = await c.run("python", code, sandbox_id=sandbox)
    got = structured(result, exit_code=0)
    for words in ("to stdout", "to stderr", "was shown", "the value", "made.txt", f"belljar://{sandbox}/made.txt"):
        assert words in said(result), f"{words!r} is not in the text"
        assert words in json.dumps(got), f"{words!r} is not in the structured content"
        assert said(result).count(words) <= 2, f"{words!r} is said {said(result).count(words)} times"
    # Everything large at once: still within the budget, in both.
    code = (
        "import sys\nprint('o' * 50000)\nprint('e' * 50000, file=sys.stderr)\n"
        "for i in range(40): display('s' * 3000)\n"
        "for i in range(40): open(f'{i}' * 60, 'w').write('x')\n"
        "raise ValueError('v' * 50000)"
    )
    result = await c.run("python", code, sandbox_id=sandbox)
    got = structured(result, exit_code=1)
    assert len(said(result)) <= TEXT_MAX, len(said(result))
    assert len(json.dumps(got)) <= TEXT_MAX + 8000, len(json.dumps(got))
    assert "ValueError" in said(result) and got["error"]["name"] == "ValueError"


@check()
async def usage_is_measured_in_every_run(c):
    sandbox = await c.create()
    for _ in range(4):
        for language, code in [("python", "b = bytearray(30 << 20)"), ("shell", "true"), ("python", "1 / 0")]:
            for where in ({}, {"sandbox_id": sandbox}):
                got = structured(await c.run(language, code, **where))
                assert got["usage"]["memory_peak_bytes"] > 0, f"{language} {code}: {got['usage']}"
    got = structured(await c.run("python", "sum(range(3_000_000))", sandbox_id=sandbox))
    assert got["usage"]["cpu_ms"] > 10, got["usage"]


# Lifecycle.


@check("idle", http=True)
async def an_expired_sandbox_says_so(c):
    made = structured(await c.call("create_sandbox"))
    assert made["idle_seconds"] == 2 and made["expires_in_seconds"] <= 2, made
    sandbox = made["sandbox_id"]
    # Use keeps it.
    for _ in range(3):
        await anyio.sleep(1)
        structured(await c.run("python", "1", sandbox_id=sandbox), exit_code=0)
    # And so does a run that takes longer.
    structured(await c.run("python", "import time; time.sleep(2.6); kept = 1", sandbox_id=sandbox), exit_code=0)
    assert value(await python(c, sandbox, "kept", state="preserved")) == "1"
    await anyio.sleep(4)
    for tool, arguments in [
        ("run_code", {"language": "python", "code": "1"}),
        ("exec", {"command": "true"}),
        ("list_files", {}),
    ]:
        refused(await c.call(tool, sandbox_id=sandbox, **arguments), "expired", "2 s", "create_sandbox", "gone")
    # One with a longer life of its own.
    sandbox = await c.create(timeout=60)
    await anyio.sleep(2.6)
    got = structured(await c.run("python", "1", sandbox_id=sandbox), exit_code=0)
    assert 55 <= got["expires_in_seconds"] <= 60, got


@check()
async def templates_choose_the_interpreter(c):
    described = c.tools["create_sandbox"].input_schema["properties"]["template"]["description"]
    names = re.findall(r"python-3\.\d+", described)
    assert names, described
    for name in dict.fromkeys(names):
        sandbox = await c.create(template=name)
        got = await python(c, sandbox, "import sys\n'python-%d.%d' % sys.version_info[:2]", exit_code=0)
        assert value(got) == repr(name), got
        got = structured(await c.call("exec", sandbox_id=sandbox, command="python3 --version; python --version"))
        assert all(line.startswith(f"Python {name.removeprefix('python-')}.") for line in got["stdout"].splitlines()), (
            got
        )
        await c.call("destroy_sandbox", sandbox_id=sandbox)
    major = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.split(".")[0].removeprefix("v")
    sandbox = await c.create(template=f"node-{major}")
    assert (
        value(structured(await c.run("javascript", "process.version.split('.')[0]", sandbox_id=sandbox)))
        == f"'v{major}'"
    )
    sandbox = await c.create(template="rust")
    structured(await c.run("rust", RUST, sandbox_id=sandbox, timeout=60), stdout="120\n")
    result = await c.call("create_sandbox", template="cobol-85")
    refused(result, "cobol-85", "python-3.", f"node-{major}", "rust")


@check()
async def each_sandbox_has_its_own_environment_and_limits(c):
    sandbox = await c.create(
        env={"WHO": "ann"}, limits={"memory_mb": 128, "processes": 20, "open_files": 64, "disk_mb": 8, "output_kb": 64}
    )
    assert value(await python(c, sandbox, "import os\nos.environ['WHO']")) == "'ann'"
    structured(await c.run("shell", "echo $WHO", sandbox_id=sandbox), stdout="ann\n")
    structured(
        await c.call("exec", sandbox_id=sandbox, command="echo $WHO $MORE", env={"MORE": "bob"}), stdout="ann bob\n"
    )
    got = structured(await c.call("exec", sandbox_id=sandbox, command="head -c 20M /dev/zero > big"))
    assert got["exit_code"] != 0 and "space" in got["stderr"].lower() + said_of(got), got
    await c.call("exec", sandbox_id=sandbox, command="rm -f big")
    got = structured(await c.call("exec", sandbox_id=sandbox, command="yes"))
    assert got["ending"] == "output" and got["truncated"], got["ending"]
    got = structured(await c.call("exec", sandbox_id=sandbox, command="ulimit -n"))
    assert got["stdout"] == "64\n", got
    got = structured(
        await c.call("exec", sandbox_id=sandbox, command="for i in $(seq 40); do sleep 5 & done", timeout=3)
    )
    assert "resource" in got["stderr"].lower() or "fork" in got["stderr"].lower(), got
    other = await c.create()
    assert value(await python(c, other, "import os\n'WHO' in os.environ")) == "False"
    structured(await c.run("shell", "echo ${WHO-none}", sandbox_id=other), stdout="none\n")


def said_of(got):
    return json.dumps(got).lower()


@check("own")
async def a_template_of_the_configuration(c):
    assert "small" in c.tools["create_sandbox"].input_schema["properties"]["template"]["description"]
    made = structured(await c.call("create_sandbox", template="small", env={"BOTH": "caller"}))
    assert made["limits"]["memory_mb"] == 128 and made["limits"]["processes"] == 64, made
    sandbox = made["sandbox_id"]
    structured(await c.run("shell", "echo $WHO $BOTH", sandbox_id=sandbox), stdout="template caller\n")
    got = await python(c, sandbox, "b = bytearray(300 << 20)")
    assert got["ending"] == "memory" or got["error"]["name"] == "MemoryError", got
    refused(await c.call("create_sandbox", template="large"), "large", "small")


# Bad input.

INVALID = {
    "python": ("def f(:\n    pass", "SyntaxError"),
    "javascript": ("function ( {", "SyntaxError"),
    "typescript": ("const x: = 3;", "SyntaxError"),
    "shell": ("if true; then echo", "syntax error"),
    "rust": ("fn main( {", "error"),
    "go": ("package main\nfunc main( {", "syntax error"),
}


@check()
async def invalid_code_is_a_clear_answer_in_each_language(c):
    offered = c.tools["run_code"].input_schema["properties"]["language"]["enum"]
    sandbox = await c.create(limits={"disk_mb": 700})
    assert set(offered) <= set(INVALID), offered
    for language in offered:
        code, words = INVALID[language]
        for where in ({}, {"sandbox_id": sandbox}):
            result = await c.run(language, code, timeout=60, **where)
            assert result.is_error and words in said(result), f"{language}: {said(result)}"
            got = structured(result, ending="exited")
            assert got["exit_code"] != 0 and got["state"] in ("fresh", "preserved"), f"{language}: {got}"
    await python(c, sandbox, "x = 5", exit_code=0)
    await python(c, sandbox, "x = = 6", exit_code=1, state="preserved")
    assert value(await python(c, sandbox, "x", state="preserved")) == "5"
    got = structured(await c.run("shell", "echo alive", sandbox_id=sandbox), stdout="alive\n")


async def a_missing_language_says_what_to_install():
    """With a PATH that has nothing but a shell and Python."""
    with tempfile.TemporaryDirectory(prefix="path-") as directory:
        for name in ("bash", "sh", "python3"):
            os.symlink(f"/usr/bin/{name}", f"{directory}/{name}")
        async with Place("stdio", MODERN, env={"PATH": directory}).connect() as c:
            offered = c.tools["run_code"].input_schema["properties"]["language"]["enum"]
            assert "javascript" not in offered and "python" in offered, offered
            for language, words in [("javascript", "node"), ("typescript", "node"), ("go", "go"), ("rust", "rust")]:
                result = await c.run(language, "1")
                refused(result, f"{language} is not available", "python", "install")
                assert words in said(result).split("install", 1)[1].lower(), said(result)
            structured(await c.run("python", "print(1)"), stdout="1\n")


@check()
async def binary_output_breaks_nothing(c):
    sandbox = await c.create()
    for where in ({}, {"sandbox_id": sandbox}):
        result = await c.run(
            "python",
            ("import sys\nsys.stdout.buffer.write(bytes(range(256)) * 4)\nsys.stdout.buffer.flush()\nprint('\\nend')"),
            **where,
        )
        got = structured(result, exit_code=0)
        assert got["stdout"].endswith("end\n") and "\0" not in said(result), got["stdout"][-20:]
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", got["stdout"]), repr(got["stdout"][:100])
    # The same each time: there are bytes that lead a terminal's cursor away from the last line.
    noise = "import random, sys; sys.stdout.buffer.write(random.Random(1).randbytes(300_000))"
    got = structured(await c.call("exec", sandbox_id=sandbox, command=f"python3 -c '{noise}'; echo; echo end"))
    assert got["stdout"].endswith("end\n") and len(got["stdout"]) <= TEXT_MAX, len(got["stdout"])
    got = await python(c, sandbox, "'\\ud800 lone', 'nul \\0', '\\u202e hidden'", exit_code=0)
    assert "lone" in value(got), got
    # Surrogates on the way out.
    got = await python(c, sandbox, "print('\\ud800')")
    assert got["state"] == "preserved", got
    assert value(await python(c, sandbox, "6 * 7", state="preserved")) == "42"


@check("science")
async def a_picture_of_50_mb_is_survived(c):
    sandbox = await c.create(limits={"memory_mb": 2048, "disk_mb": 512})
    code = (
        "import numpy as np\nfrom PIL import Image\n"
        "Image.fromarray(np.random.default_rng(1).integers(0, 255, (4100, 4100, 3), dtype=np.uint8))"
    )
    result = await c.run("python", code, sandbox_id=sandbox, timeout=60)
    got = structured(result, exit_code=0)
    [block] = pictures(result)
    assert len(block.data) <= 700_000 and max(got["result"]["width"], got["result"]["height"]) <= 1568, got["result"]
    [file] = got["files"]
    assert file["size"] > 45_000_000 and file["uri"] == got["result"]["original"], file
    # As a file that somebody made: read in part, and refused or cut as a whole, never sent.
    got = structured(
        await c.call("read_file", sandbox_id=sandbox, path=file["name"], offset=0, length=24, encoding="base64")
    )
    assert struct.unpack(">II", base64.b64decode(got["content"])[16:24]) == (4100, 4100), got
    result = await c.call("read_file", sandbox_id=sandbox, path=file["name"])
    assert len(result.model_dump_json()) < 2_000_000, len(result.model_dump_json())
    # A picture in base64 that a hostile object says it is.
    code = "class Huge:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n' + bytes(50 << 20)\nHuge()"
    result = await c.run("python", code, sandbox_id=sandbox, timeout=60)
    assert len(result.model_dump_json()) < 2_000_000, len(result.model_dump_json())
    assert structured(result)["state"] == "preserved", said(result)
    assert value(await python(c, sandbox, "1 + 1", state="preserved")) == "2"


@check()
async def ten_thousand_files_are_counted(c):
    sandbox = await c.create()
    started = time.monotonic()
    code = "import os\nos.makedirs('many')\nfor i in range(10_000): open(f'many/{i:05}.txt', 'w').write(str(i))"
    result = await c.run("python", code, sandbox_id=sandbox, timeout=60)
    got = structured(result, exit_code=0)
    told = len(got["files"])
    assert 1 <= told <= 50 and told + got["files_more"] == 10_000, (told, got.get("files_more"))
    assert str(got["files_more"]) in said(result) and len(said(result)) <= TEXT_MAX, said(result)[-200:]
    assert len(links(result)) == told
    listed = structured(await c.call("list_files", sandbox_id=sandbox, path="many"))
    assert listed["truncated"] is True and 100 <= len(listed["entries"]) < 10_000, len(listed["entries"])
    assert (await c.read(f"belljar://{sandbox}/many/09999.txt")).text == "9999"
    got = await python(c, sandbox, "1", state="preserved")
    assert "files" not in got, "told again"
    # One-off: bounded, too.
    result = await c.run("python", code, timeout=60)
    got = structured(result, exit_code=0)
    assert len(got["files"]) + got["files_more"] == 10_000 and len(said(result)) <= TEXT_MAX, got.get("files_more")
    assert time.monotonic() - started < 40


@check()
async def jobs_that_are_not_there(c):
    sandbox, other = await c.create(), await c.create()
    number = await begin(c, sandbox, "sleep 60")
    await c.call("destroy_sandbox", sandbox_id=other)
    refused(await c.call("job", job_id="run_" + "1" * 32), "no such job")
    refused(await c.call("job", job_id=""), "job")
    refused(await c.call("job", job_id=sandbox), "no such job")
    refused(await c.call("job", job_id=number, action="dance"), "poll", "wait")
    refused(await c.call("job", job_id=number, offset=-1), "offset")
    got = await job(c, number, offset=10**12)
    assert got["stdout"] == "" and got["ending"] == "running", got
    await job(c, number, "signal", signal="KILL")
    assert (await job(c, number, "wait", timeout=5))["ending"] == "killed"


@check()
async def huge_stdin_is_taken_or_refused(c):
    sandbox = await c.create()
    text = "x" * 999 + "\n"
    for megabytes in (1, 4):
        result = await c.run(
            "python", "import sys\nlen(sys.stdin.read())", sandbox_id=sandbox, stdin=text * 1000 * megabytes, timeout=30
        )
        if result.structured_content is None:
            refused(result, "stdin", "write_file")
        else:
            assert value(structured(result)) == str(megabytes * 1_000_000), said(result)
    result = await c.run("python", "1", sandbox_id=sandbox, stdin=text * 20_000)
    refused(result, "stdin", "write_file")
    # One that does not read it is not held up by it.
    started = time.monotonic()
    structured(await c.run("python", "print('unread')", sandbox_id=sandbox, stdin=text * 1000), stdout="unread\n")
    structured(await c.call("exec", sandbox_id=sandbox, command="echo unread", stdin=text * 1000), stdout="unread\n")
    assert time.monotonic() - started < 5
    assert value(await python(c, sandbox, "1", state="preserved")) == "1"


@check(http=True)
async def a_message_that_is_too_long_is_answered(c):
    try:
        with anyio.fail_after(10):
            result = await c.run("python", "1", stdin="x" * 40_000_000)
    except MCPError as error:
        # Of a refusal by HTTP status the SDK keeps no words.
        assert "long" in str(error) or "error response" in str(error), error
    else:
        refused(result, "long")
    structured(await c.run("python", "print(1)"), stdout="1\n")


async def done(place, function):
    async with place.connect() as connection:
        await function(connection)


async def main():
    score = Score(sys.argv[1:], seconds=90)
    started = time.monotonic()
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write(OWN_TEMPLATE)
        config.flush()
        kinds = servers(config.name)
        for function, kind, http in CHECKS:
            words, env = kinds[kind]
            name = function.__name__
            await score.keep(f"stdio/{name}", lambda: done(Place("stdio", MODERN, words=words, env=env), function))
            if not http or not score.wants(f"http/{name}"):
                continue
            server = HttpServer(*words, env=env)
            try:
                await score.keep(f"http/{name}", lambda: done(Place("http", LEGACY, server.url), function))
            finally:
                server.stop()
    for place in (Place("stdio", LEGACY), Place("stdio", MODERN)):
        await score.keep(f"{place}/a_subscriber_hears_of_changes", lambda: a_subscriber_hears_of_changes(place))
    if score.wants("http/a_subscriber_hears_of_changes"):
        server = HttpServer()
        for era in (LEGACY, MODERN):
            await score.keep(
                f"http/{era}/a_subscriber_hears_of_changes",
                lambda: a_subscriber_hears_of_changes(Place("http", era, server.url)),
            )
        server.stop()
    for era in (LEGACY, MODERN):
        function = a_dropped_request_attaches_when_sent_again
        await score.keep(f"http/{era}/{function.__name__}", lambda: function(era))
        await score.keep(f"http/{era}/{function.__name__}_as_the_same_bytes", lambda: function(era, same_id=True))
    for function in (jobs_belong_to_who_began_them, much_output_is_cut_kept_and_cheap):
        await score.keep(f"http/{function.__name__}", function)
    await score.keep("stdio/a_missing_language_says_what_to_install", a_missing_language_says_what_to_install)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return score.told()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
