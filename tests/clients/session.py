"""A long session of random cells in one sandbox, through the official Python SDK, against a model of what is true.

A plain script: BELLJAR=target/debug/belljar python tests/clients/session.py [--seed N]... [--calls N] [--http]. State
changes, errors, timeouts that are heeded and not, crashes, cancelled calls, files, jobs and commands beside. Every cell
first tells which variables it finds, so that each `state` is held against what is really there, before and after. The
same seed is the same session. A seed fails at the first thing that was told and is not so, with the calls before it.
"""

import argparse
import asyncio
import base64
import json
import os
import random
import sys
import time
from collections import Counter

import anyio
from harness import LEGACY, MODERN, HttpServer, Place, reason, refused, said, structured

NAMES = ["a", "b", "c", "d", "e", "f"]
FILES = ["one.txt", "two.txt", "sub/three.txt", "sub/deep/four.txt"]
# What a heeded timeout is given, and a stubborn one. Long enough for a kernel to start and to run what comes first, on a machine
# that is busy.
TIMEOUT = 1.0
# No interrupt reaches it: it holds the interpreter's lock in a call that waits, with every signal held back.
STUBBORN = "import ctypes, signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); ctypes.PyDLL(None).sleep(60)"
# This may be ended by interrupts that come close together: then the kernel lives, and that is to be told.
HALF_STUBBORN = "import time\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        pass"

# The first line of every cell: what is there.
PYTHON_PROBE = f"import json as _json; print(_json.dumps({{n: globals()[n] for n in {NAMES} if n in globals()}}))"
SHELL_PROBE = " ".join(f'printf "%s=%s " {name} "${{{name}-}}";' for name in NAMES) + ' echo "$PWD"'
JAVASCRIPT_PROBE = (
    "console.log(JSON.stringify(Object.fromEntries(["
    + ", ".join(f"typeof {name} === 'undefined' ? ['', 0] : ['{name}', {name}]" for name in NAMES)
    + "].filter(([name]) => name))))"
)


class Kernel:
    """What a kernel must have, if there is one."""

    def __init__(self):
        self.variables, self.cwd, self.alive, self.died = {}, "/workspace", False, False

    def before(self):
        """The state that a call is to tell if the kernel survives it."""
        if self.alive:
            return "preserved"
        return "reset" if self.died else "fresh"

    def begins(self):
        if not self.alive:
            self.variables, self.cwd, self.alive = {}, "/workspace", True

    def dies(self):
        self.alive, self.died, self.variables = False, True, {}


class Session:
    def __init__(self, connection, seed, calls):
        self.c, self.calls, self.random = connection, calls, random.Random(seed)
        self.kernels = {language: Kernel() for language in ("python", "shell", "javascript")}
        self.files, self.log, self.states, self.actions = {}, [], Counter(), Counter()
        self.made = 0

    # --- calls

    async def tool(self, tool, /, **arguments):
        self.log.append((tool, arguments))
        result = await self.c.call(tool, sandbox_id=self.sandbox, **arguments)
        self.log.append(("->", said(result)[:600]))
        self.made += 1
        return result

    def probe(self, language):
        return {"python": PYTHON_PROBE, "shell": SHELL_PROBE, "javascript": JAVASCRIPT_PROBE}[language]

    def found(self, language, line):
        """The variables that a cell told it found."""
        if language != "shell":
            return json.loads(line), None
        *pairs, cwd = line.split(" ")
        variables = {name: int(text) for name, _, text in (pair.partition("=") for pair in pairs) if text}
        return variables, cwd

    async def cell(self, language, body="", /, outcome="survives", writes=None, probed=True, **arguments):
        """Runs a cell and holds all that is told against the model. Returns what came, without the probe's line.

        The outcome is "survives", "dies", or "either": then what is told is believed, and the next cell shows it.
        """
        kernel = self.kernels[language]
        before = dict(kernel.variables) if kernel.alive else {}
        cwd = kernel.cwd if kernel.alive else "/workspace"
        code = "\n".join(part for part in (self.probe(language) if probed else "", body) if part)
        result = await self.tool("run_code", language=language, code=code, **arguments)
        got = structured(result)
        if outcome == "either":
            outcome = "dies" if got["state"] == "lost" else "survives"
        expected = "lost" if outcome == "dies" else kernel.before()
        assert got["state"] == expected, f"state is {got['state']}, and {expected} is true: {said(result)}"
        self.states[got["state"]] += 1
        kernel.begins()
        if probed:
            line, _, rest = got["stdout"].partition("\n")
            variables, where = self.found(language, line)
            assert variables == before, f"{language} has {variables}, told {got['state']}; {before} is true"
            assert where in (None, cwd), f"the shell is in {where}, not in {cwd}"
            got = {**got, "stdout": rest}
        if outcome == "dies":
            for name in before:
                assert name in got["lost"].replace(",", " ").split(), f"{name} was lost, and is not told: {got['lost']}"
            kernel.dies()
        else:
            assert "lost" not in got, f"told as lost: {got['lost']}"
        self.files.update(writes or {})
        told = {file["name"] for file in got.get("files", [])}
        assert told == set(writes or {}), f"files told: {told}; {set(writes or {})} is true"
        return got, result

    # --- what can happen

    def name(self):
        return self.random.choice(NAMES)

    def number(self):
        return self.random.randrange(1, 10**6)

    def content(self):
        # Never as long as another, so that a change shows whatever the clock's grain.
        return "".join(self.random.choices("abcdef \n", k=self.random.randrange(1, 400)))

    def assign(self, language, name, number):
        return {"python": f"{name} = {number}", "shell": f"{name}={number}", "javascript": f"var {name} = {number}"}[
            language
        ]

    async def set(self, language=None):
        language, name, number = language or self.random.choice(list(self.kernels)), self.name(), self.number()
        got, _ = await self.cell(language, self.assign(language, name, number))
        assert got["exit_code"] == 0, got
        self.kernels[language].variables[name] = number

    async def set_python(self):
        await self.set("python")

    async def look(self):
        await self.cell(self.random.choice(list(self.kernels)))

    async def delete(self):
        kernel, name = self.kernels["python"], self.name()
        got, _ = await self.cell("python", f"del {name}")
        if name in kernel.variables:
            assert got["exit_code"] == 0, got
            del kernel.variables[name]
        else:
            assert got["error"]["name"] == "NameError", got

    async def compute(self):
        kernel, name, other = self.kernels["python"], self.name(), self.name()
        values = kernel.variables if kernel.alive else {}
        got, _ = await self.cell("python", f"{name} + {other}")
        if name in values and other in values:
            assert got["result"]["text"] == str(values[name] + values[other]), got
        else:
            assert got["error"]["name"] == "NameError", got

    async def print_much(self):
        lines = self.random.randrange(1, 3000)
        got, _ = await self.cell("python", f"for i in range({lines}): print('line', i)")
        assert got["stdout"].endswith(f"line {lines - 1}\n"), got["stdout"][-100:]

    async def error(self):
        language = self.random.choice(list(self.kernels))
        name, number = self.name(), self.number()
        raising = {
            "python": "raise ValueError('as asked')",
            "shell": "(exit 9)",
            "javascript": "throw new RangeError('as asked')",
        }
        got, result = await self.cell(language, f"{self.assign(language, name, number)}\n{raising[language]}")
        assert result.is_error and got["exit_code"] == (9 if language == "shell" else 1), got
        # What came before the error is done.
        self.kernels[language].variables[name] = number

    async def bad_syntax(self):
        language = self.random.choice(list(self.kernels))
        code = {"python": f"{self.name()} = 5\ndef (", "shell": "a=5; if", "javascript": "var a = 5; function ("}[
            language
        ]
        _, result = await self.cell(language, code, probed=False)
        assert result.is_error, said(result)
        if language == "shell":
            # A shell reads as it runs; whether the first part was done is its own affair, so the model asks.
            got, _ = await self.cell(language, "a=7")
            self.kernels[language].variables["a"] = 7

    async def leave(self):
        """sys.exit is no crash."""
        got, _ = await self.cell(
            "python", (f"{(name := self.name())} = {(number := self.number())}\nimport sys; sys.exit(4)")
        )
        assert got["exit_code"] == 4, got
        self.kernels["python"].variables[name] = number

    async def heeded_timeout(self):
        name, number = self.name(), self.number()
        body = self.random.choice(
            ["import time; time.sleep(60)", "while True: pass", "try:\n    while True: pass\nfinally:\n    pass"]
        )
        got, result = await self.cell("python", f"{name} = {number}\n{body}", timeout=TIMEOUT)
        assert got["ending"] == "timeout" and result.is_error, got
        self.kernels["python"].variables[name] = number

    async def half_stubborn_timeout(self):
        name, number = self.name(), self.number()
        got, _ = await self.cell("python", f"{name} = {number}\n{HALF_STUBBORN}", outcome="either", timeout=TIMEOUT)
        assert got["ending"] == "timeout", got
        if got["state"] != "lost":
            self.kernels["python"].variables[name] = number

    async def stubborn_timeout(self):
        got, _ = await self.cell("python", f"{self.name()} = 1\n{STUBBORN}", outcome="dies", timeout=TIMEOUT)
        assert got["ending"] == "timeout", got

    async def crash(self):
        code, ending = self.random.choice(
            [
                ("import ctypes; ctypes.string_at(0)", "killed"),
                ("import os; os._exit(3)", "exited"),
                ("import os; os.kill(os.getpid(), 9)", "killed"),
                ("import os; os.abort()", "killed"),
            ]
        )
        got, result = await self.cell("python", f"import sys; sys.stdout.flush()\n{code}", outcome="dies")
        assert got["ending"] == ending and result.is_error, got

    async def crash_of_another(self):
        language, code = self.random.choice(
            [("shell", "kill -9 $$"), ("javascript", "process.kill(process.pid, 'SIGKILL')")]
        )
        got, _ = await self.cell(language, code, outcome="dies")
        assert got["ending"] == "killed", got

    async def out_of_memory(self):
        got, _ = await self.cell("python", "hog = []\nwhile True: hog.append(bytearray(8 << 20))", outcome="dies")
        assert got["ending"] == "memory", got

    async def child_dies(self):
        """A child's end is not the kernel's."""
        code = "import os\npid = os.fork()\nif pid == 0: os._exit(9)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])"
        got, _ = await self.cell("python", code)
        assert got["result"]["text"] == "9", got

    async def stdin(self):
        name, number = self.name(), self.number()
        await self.cell("python", f"{name} = int(input())", stdin=f"{number}\nunread\n")
        self.kernels["python"].variables[name] = number

    async def write_in_a_cell(self):
        path, content = self.random.choice(FILES), self.content()
        if self.files.get(path) == content:
            return
        body = (
            f"import os; os.makedirs(os.path.dirname('/workspace/{path}'), exist_ok=True)\n"
            f"_ = open('/workspace/{path}', 'w').write({content!r})"
        )
        await self.cell("python", body, writes={path: content})

    async def write_by_tool(self):
        path, content = self.random.choice(FILES), self.content()
        encoded = self.random.random() < 0.5
        sent = (
            {"content": base64.b64encode(content.encode()).decode(), "encoding": "base64"}
            if encoded
            else {"content": content}
        )
        structured(await self.tool("write_file", path=path, **sent), size=len(content))
        self.files[path] = content

    async def read_all(self):
        for path in FILES:
            result = await self.tool("read_file", path=path)
            if path in self.files:
                assert structured(result)["content"] == self.files[path], path
            else:
                refused(result, "no such file")
        entries = structured(await self.tool("list_files", depth=5))["entries"]
        listed = {entry["path"].removeprefix("./") for entry in entries if entry["kind"] == "file"}
        assert listed == set(self.files), f"listed {listed}; {set(self.files)} is true"

    async def command(self):
        path, content = self.random.choice(FILES), self.content()
        command = f"mkdir -p $(dirname {path}) && cat > {path} && wc -c < {path}"
        got = structured(await self.tool("exec", command=command, stdin=content, cwd="/workspace"))
        assert got["stdout"].strip() == str(len(content)), got
        self.files[path] = content

    async def change_directory(self):
        kernel = self.kernels["shell"]
        await self.cell("shell", "mkdir -p /tmp/x/y; cd /tmp/x/y")
        kernel.cwd = "/tmp/x/y"

    async def beside(self):
        """A command while a cell runs: neither disturbs the other."""
        name, number = self.name(), self.number()
        results = {}

        async def command():
            result = await self.tool("exec", command="sleep 0.1; echo beside")
            results["exec"] = structured(result)["stdout"]

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(command)
            got, _ = await self.cell("python", f"import time; time.sleep(0.2); {name} = {number}")
        assert results["exec"] == "beside\n" and got["exit_code"] == 0, (results, got)
        self.kernels["python"].variables[name] = number

    async def job(self):
        """A cell in the background; the kernel is busy until it is over."""
        kernel, name, number = self.kernels["python"], self.name(), self.number()
        expected = kernel.before()
        body = f"print('in', flush=True); import time; time.sleep(0.6); {name} = {number}"
        got = structured(await self.tool("run_code", language="python", code=body, background=True), ending="running")
        # It may have to wait for one that was just cancelled.
        with anyio.fail_after(10):
            while not structured(await self.c.call("job", job_id=got["job_id"], offset=0))["stdout"]:
                await anyio.sleep(0.02)
        refused(await self.tool("run_code", language="python", code="1"), got["job_id"])
        self.made += 1
        result = await self.c.call("job", job_id=got["job_id"], action="wait", timeout=20)
        self.log.append(("job ->", said(result)))
        end = structured(result, ending="exited", exit_code=0)
        assert end["state"] == expected, f"state is {end['state']}, and {expected} is true: {said(result)}"
        self.states[end["state"]] += 1
        kernel.begins()
        kernel.variables[name] = number

    async def cancelled(self):
        """A call that is given up: what it did until then is done, and the next call tells whether the kernel lives."""
        kernel, name, number = self.kernels["python"], self.name(), self.number()
        stubborn = self.random.random() < 0.4
        mark = f"/tmp/mark{self.made}"
        code = f"{name} = {number}\nopen('{mark}', 'w').close()\n" + (
            STUBBORN if stubborn else "import time; time.sleep(60)"
        )
        self.log.append(("run_code, then cancelled", code))
        self.made += 1
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: self.c.run("python", code, sandbox_id=self.sandbox))
                while structured(await self.c.call("exec", sandbox_id=self.sandbox, command=f"test -e {mark}"))[
                    "exit_code"
                ]:
                    await anyio.sleep(0.02)
                tasks.cancel_scope.cancel()
        kernel.begins()
        kernel.variables[name] = number
        if stubborn:
            kernel.dies()

    # How often each happens.
    WEIGHTS = {
        "set": 10,
        "set_python": 14,
        "look": 6,
        "delete": 5,
        "compute": 8,
        "print_much": 3,
        "error": 8,
        "bad_syntax": 4,
        "leave": 3,
        "heeded_timeout": 5,
        "stubborn_timeout": 2,
        "half_stubborn_timeout": 2,
        "crash": 6,
        "crash_of_another": 3,
        "out_of_memory": 2,
        "child_dies": 3,
        "stdin": 4,
        "write_in_a_cell": 6,
        "write_by_tool": 4,
        "read_all": 2,
        "command": 5,
        "change_directory": 2,
        "beside": 3,
        "job": 3,
        "cancelled": 4,
    }

    async def play(self):
        self.sandbox = await self.c.create(limits={"memory_mb": 400, "disk_mb": 64})
        names, weights = list(self.WEIGHTS), list(self.WEIGHTS.values())
        while self.made < self.calls:
            [action] = self.random.choices(names, weights)
            self.log.append(("#", action))
            self.actions[action] += 1
            async with asyncio.timeout(60):
                await getattr(self, action)()
        # At the end everything once more.
        for language in self.kernels:
            await self.cell(language)
        await self.read_all()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--http", action="store_true")
    options = parser.parse_args()
    failed = 0
    for seed in options.seed or [1, 2, 3]:
        started = time.monotonic()
        server = HttpServer() if options.http else None
        # Over HTTP in the older era, where a call can be cancelled without hanging up.
        place = Place("http", LEGACY, server.url) if server else Place("stdio", MODERN)
        session = None
        try:
            async with place.connect() as connection:
                session = Session(connection, seed, options.calls)
                await session.play()
        except (Exception, BaseExceptionGroup) as error:
            failed += 1
            print(f"FAIL seed {seed} after {session.made if session else 0} calls: {reason(error)}")
            for entry in (session.log if session else [])[-int(os.environ.get("TAIL", "14")) :]:
                print("    ", *entry)
        else:
            states = ", ".join(f"{count} {state}" for state, count in sorted(session.states.items()))
            print(f"ok seed {seed}: {session.made} calls, {states}; {time.monotonic() - started:.0f} s", flush=True)
        finally:
            if server:
                server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
