"""The JavaScript driver against the protocol, in real Node processes.

python3 crates/guest/tests/drivers/javascript.py. BELLJAR_TEST_NODE names another node, BELLJAR_TRANSPILE the
transpiler (without it the tests of TypeScript and import are skipped).
"""

import base64
import json
import os
import shutil
import struct
import tempfile
import time
import unittest
import zlib

from jsharness import Died, Kernel, javascript

TRANSPILE = os.environ.get("BELLJAR_TRANSPILE")
needs_transpile = unittest.skipUnless(TRANSPILE, "BELLJAR_TRANSPILE names no transpiler")


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x40\x80\xc0" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Driver(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.kernel = None

    def tearDown(self):
        if self.kernel:
            self.kernel.close()

    def start(self, first=b"wait 0 javascript\n"):
        env = {"BELLJAR_TRANSPILE": TRANSPILE} if TRANSPILE else {}
        return Kernel(javascript(), self.folder, env=env, tells_interrupt=True, first=first)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def cell(self, code, **more):
        if self.kernel is None:
            self.kernel = self.start()
        return self.kernel.run(code, **more)

    def once(self, code, **more):
        kernel = self.start()
        try:
            return kernel.run(code, last=True, **more)
        finally:
            kernel.close()

    def plain(self, code, **more):
        outcome = self.cell(code, **more)
        self.assertEqual(outcome.code, 0, outcome.error)
        return outcome.plain


class Cells(Driver):
    def test_ready_tells_the_pid(self):
        self.cell("1")
        self.assertEqual(self.kernel.told_pid, self.kernel.pid)

    def test_state_lives_between_cells(self):
        self.cell("let a = 1; const b = 2; var c = 3; d = 4; function e() { return 5 } class F { g() { return 6 } }")
        self.assertEqual(self.plain("[a, b, c, d, e(), new F().g()].join()"), "'1,2,3,4,5,6'")

    def test_any_kind_can_be_declared_again_as_any_other(self):
        kinds = [
            "let x = {}",
            "const x = {}",
            "var x = {}",
            "class x {{ static n = {} }}",
            "function x() {{ return {} }}",
        ]
        number = 0
        for first in kinds:
            for second in kinds:
                for kind in (first, second):
                    number += 1
                    outcome = self.cell(kind.format(number))
                    self.assertEqual(outcome.code, 0, (first, second, outcome.error))
                    found = self.plain("typeof x === 'function' ? x.n ?? x() : x")
                    self.assertEqual(found, str(number), (first, second))

    @needs_transpile
    def test_a_constant_is_constant_in_its_cell(self):
        for code in ["const k = 1;\nk = 2", "const k = 1; k++", "const k = 1; [k] = [3]"]:
            outcome = self.cell(code)
            self.assertEqual((outcome.code, outcome.error["value"]), (1, "Assignment to constant variable."), code)
        self.assertEqual(self.plain("let k = 5; k += 1; k"), "6")

    def test_constants_in_text_stay_as_they_are(self):
        outcome = self.cell("const a = `\nconst b = 1`;\nconst c = 'const d';\nconsole.log(a, c)")
        self.assertEqual(outcome.stdout, "\nconst b = 1 const d\n")

    def test_functions_are_hoisted_and_await_is_allowed(self):
        self.assertEqual(self.plain("later() + await Promise.resolve(1)\nfunction later() { return 41 }"), "42")
        self.assertEqual(self.plain("const v = await new Promise(r => setTimeout(r, 5, 'late')); v"), "'late'")

    def test_a_promise_is_awaited(self):
        self.assertEqual(self.plain("Promise.resolve([1])"), "[ 1 ]")
        self.assertIsNone(self.plain("(async () => {})()"))
        outcome = self.cell("(async () => { throw new RangeError('far') })()")
        self.assertEqual((outcome.code, outcome.error["name"]), (1, "RangeError"))

    def test_values(self):
        for code, shown in {
            "1 + 1": "2",
            "'a'": "'a'",
            "null": "null",
            "NaN": "NaN",
            "-0": "-0",
            "10n ** 20n": "100000000000000000000n",
            "Symbol('s')": "Symbol(s)",
            "[1, , 3]": "[ 1, <1 empty item>, 3 ]",
            "new Map([[1, { a: 2 }]])": "Map(1) { 1 => { a: 2 } }",
            "(function f() {})": "[Function: f]",
            "/a/g": "/a/g",
            "({ a: { b: { c: {} } } })": "{ a: { b: { c: {} } } }",
            "const o = { n: 1 }; o.self = o; o": "<ref *1> { n: 1, self: [Circular *1] }",
            "globalThis.x1 = 'ü😀'": "'ü😀'",
            "setTimeout(() => {}, 1)": "[Timeout]",
            "new Uint8Array(2)": "Uint8Array(2) [ 0, 0 ]",
        }.items():
            self.assertEqual(self.plain(code), shown, code)
        for code in ["undefined", "let q = 1", "void 0", "", "// nothing", ";", "if (false) 1", "console.log()"]:
            self.assertIsNone(self.plain(code), code)

    def test_plain_data_comes_as_json_too(self):
        self.assertEqual(
            self.cell("({ a: [1, 'x', null, true], b: { c: -1.5 } })").result["application/json"],
            {"a": [1, "x", None, True], "b": {"c": -1.5}},
        )
        for code in [
            "[undefined]",
            "[NaN]",
            "[() => 1]",
            "new Date(0)",
            "new Map()",
            "[1n]",
            "({ get a() { return 1 } })",
            "let c = {}; c.c = c; c",
            "new (class P { a = 1 })",
            "'text'",
            "1",
            "new Proxy([1], {})",
            "Array.from({ length: 30000 }, (_, i) => i)",
            "['x'.repeat(30000)]",
            "[[1, Symbol()]]",
        ]:
            outcome = self.cell(code)
            self.assertEqual(outcome.code, 0, outcome.error)
            self.assertNotIn("application/json", outcome.result, code)

    def named(self, code):
        return [record for record in self.cell(code).records if "names" in record]

    def test_names_are_told_when_they_change(self):
        self.assertEqual(
            self.named("let b1 = 1; var a1 = 2; c1 = 3; let _hidden = 4"), [{"names": ["a1", "b1", "c1"], "count": 3}]
        )
        self.assertEqual(self.named("b1 = 5"), [])
        self.assertEqual(
            self.named("delete globalThis.c1; function f1() {}"), [{"names": ["a1", "b1", "f1"], "count": 3}]
        )
        many = self.named("for (let i = 0; i < 150; i++) globalThis['n' + i] = i")[0]
        self.assertEqual((len(many["names"]), many["count"]), (100, 153))

    def test_require_and_friends(self):
        self.write("data.json", '{"a": 1}')
        self.write("lib.js", "exports.twice = (x) => 2 * x; exports.where = __filename")
        self.write("node_modules/pkg/index.js", "module.exports = 'packed'")
        self.write("sub/other.js", "module.exports = 'sub'")
        self.assertEqual(self.plain("require('./lib').twice(require('./data.json').a)"), "2")
        self.assertEqual(self.plain("require('./lib.js').where"), f"'{self.folder}/lib.js'")
        self.assertEqual(self.plain("require('pkg') + require('node:path').sep"), "'packed/'")
        self.assertEqual(self.plain("__dirname"), f"'{self.folder}'")
        self.assertEqual(self.plain("typeof __filename + typeof module + typeof exports"), "'undefinedobjectobject'")
        self.assertEqual(self.plain("require.main === module"), "true")
        self.assertEqual(self.plain("process.chdir('sub'); 1"), "1")
        self.assertEqual(self.plain("require('./other') + require('pkg')"), "'subpacked'")
        self.assertEqual(self.plain("__dirname"), f"'{self.folder}/sub'")

    def test_output_is_whole_and_in_order_before_done(self):
        outcome = self.cell(
            "for (let i = 0; i < 20; i++) process.stdout.write('x'.repeat(500000)); console.error('end')", timeout=60
        )
        self.assertEqual((len(outcome.stdout_bytes), outcome.stderr), (10000000, "end\n"))
        outcome = self.once("process.stdout.write('x'.repeat(10000000)); process.exit(3)", timeout=60)
        self.assertEqual((len(outcome.stdout_bytes), outcome.code), (10000000, 3))
        self.assertEqual(self.cell("console.table([{ a: 1 }])").stdout.count("\n"), 5)
        self.assertEqual(
            self.cell("console.log('%s %d', 'a', 1, { b: 2 }); console.error('e')").stdout, "a 1 { b: 2 }\n"
        )

    def test_each_cell_has_its_own_input(self):
        read = "require('fs').readFileSync(0, 'utf8')"
        self.assertEqual(self.plain(read, stdin=b"one"), "'one'")
        self.assertEqual(self.plain(read, stdin=b"second"), "'second'")
        self.assertEqual(self.plain(read), "''")
        stream = "let t = ''; for await (const part of process.stdin) t += part; t"
        self.assertEqual(self.plain(stream, stdin="ü1\n".encode()), "'ü1\\n'")
        self.assertEqual(self.plain(stream, stdin=b"again"), "'again'")
        lines = (
            "const found = []; for await (const line of require('readline').createInterface({ input: process.stdin }))"
            " found.push(line); found"
        )
        self.assertEqual(self.plain(lines, stdin=b"a\nb\n"), "[ 'a', 'b' ]")
        self.assertEqual(self.plain(lines, stdin=b"c\n"), "[ 'c' ]")
        self.assertEqual(
            self.plain(
                "require('child_process').execSync('cat', { stdio: ['inherit', 'pipe', 'pipe'] }).toString()",
                stdin=b"child",
            ),
            "'child'",
        )
        self.assertEqual(
            self.once("process.stdin.on('data', d => console.log(String(d)))", stdin=b"last").stdout, "last\n"
        )

    def test_children_have_no_control_socket(self):
        shown = "require('child_process').execSync('ls -l /proc/self/fd').toString()"
        for outcome in (self.cell(f"console.log({shown})"), self.once(f"console.log({shown})")):
            self.assertEqual(outcome.code, 0, outcome.error)
            others = [
                line
                for line in outcome.stdout.splitlines()
                if " -> " in line and line.split(" -> ")[0].split()[-1] not in "012"
            ]
            self.assertFalse([line for line in others if "socket:" in line or "memfd:" in line], others)


class Waiting(Driver):
    def begun_with(self, code, last, behind=b""):
        """What a kernel does that was started with its first cell."""
        data = code.encode()
        kernel = self.start(b"run %d javascript %d\n%s%s" % (len(data), last, data, behind))
        try:
            return kernel.finish()
        finally:
            kernel.close()

    def test_having_waited_leaves_nothing_that_a_cell_can_see(self):
        look = """
            process.stdout; process.stderr;
            const all = (object) => Reflect.ownKeys(object).map(String).sort();
            const methods = Object.keys(console).map((name) => [name, console[name].name, console[name].length]);
            console.log(JSON.stringify([all(globalThis), all(process), all(console), methods, Object.keys(require.cache),
              process.eventNames(), process.getActiveResourcesInfo(), process._getActiveHandles().length, module.children,
              process.stdout.writableLength, process.stdout.bytesWritten, process.stdout.eventNames().length,
              new Error('x').stack, process.exitCode, process.argv, process.execArgv.slice(0, 2), global.none]))"""
        for last in (1, 0):
            fresh = self.begun_with(look, last)
            kernel = self.start()
            waited = kernel.run(look, last=bool(last))
            kernel.close()
            self.assertEqual((waited.stdout, waited.stderr, waited.code), (fresh.stdout, "", 0))
            self.assertGreater(len(fresh.stdout), 1000, fresh.stderr)

    def test_the_first_message_comes_in_any_pieces(self):
        for size in 1, 100, 16 << 10, 1 << 20:
            code = f"console.log({'x' * size!r}.length)"
            for last in (1, 0):
                self.assertEqual(self.begun_with(code, last).stdout, f"{size}\n")
        for pieces in [
            [b"wait 0 javascript\nrun 14 javascript 1\nconsole.log(2)"],
            [b"wait 0 javascript\nru", b"n 2 ", b"javascript 1\n", b"1", b"2"],
        ]:
            kernel = self.start(pieces[0])
            for piece in pieces[1:]:
                time.sleep(0.05)
                kernel.control.sendall(piece)
            self.assertEqual(kernel.finish().code, 0)
            kernel.close()

    def test_an_interrupt_right_behind_the_first_cell_is_not_lost(self):
        for _ in range(3):
            outcome = self.begun_with("for (;;) {}", 0, b"interrupt 0\n")
            self.assertEqual((outcome.code, outcome.error["name"]), (130, "Interrupted"))

    @needs_transpile
    def test_typescript(self):
        kernel = self.start(b"wait 0 typescript\n")
        outcome = kernel.run("const x: number = 2; console.log(x, typeof none)", language="typescript", last=True)
        kernel.close()
        self.assertEqual(outcome.stdout, "2 undefined\n")


class Errors(Driver):
    def test_an_error_shows_the_cells_frames_only(self):
        self.cell("1")
        outcome = self.cell("function f() {\n  throw new TypeError('bad')\n}\n\n  f()")
        self.assertEqual(outcome.code, 1)
        self.assertEqual(
            outcome.error,
            {
                "name": "TypeError",
                "value": "bad",
                "traceback": "TypeError: bad\n    at f (cell 2:2:9)\n    at cell 2:5:3",
            },
        )
        self.assertEqual(outcome.stderr, "")
        again = self.cell("const g = () => f();\ng()").error["traceback"]
        self.assertEqual(again, "TypeError: bad\n    at f (cell 2:2:9)\n    at g (cell 3:1:17)\n    at cell 3:2:1")
        self.assertEqual(
            self.once("null.x").error["traceback"],
            "TypeError: Cannot read properties of null (reading 'x')\n    at cell 1:1:6",
        )

    def test_a_stack_that_a_cell_prints_has_no_driver_in_it(self):
        for run in (self.cell, self.once):
            outcome = run("try { null.x } catch (e) { console.log(e.stack); console.error(e) }")
            self.assertEqual(
                outcome.stdout, "TypeError: Cannot read properties of null (reading 'x')\n    at cell 1:1:12\n"
            )
            self.assertEqual(outcome.stderr, outcome.stdout)

    def test_errors_of_node_keep_what_they_carry(self):
        error = self.cell("require('fs').readFileSync('/nope')").error
        self.assertEqual(error["name"], "Error")
        self.assertIn("ENOENT: no such file", error["value"])
        self.assertIn("code: 'ENOENT'", error["traceback"])
        self.assertIn("at cell 1:1:15", error["traceback"])
        self.assertNotIn("node:", error["traceback"])

    def test_causes_and_aggregates(self):
        trace = self.cell("throw new Error('outer', { cause: new TypeError('inner') })").error["traceback"]
        self.assertIn("Error: outer\n    at cell 1:1:7", trace)
        self.assertIn("[cause]: TypeError: inner", trace)
        trace = self.cell(
            "await Promise.any([Promise.reject(new Error('one')), Promise.reject(new Error('two'))])"
        ).error
        self.assertEqual(trace["name"], "AggregateError")
        self.assertIn("Error: one", trace["traceback"])
        self.assertIn("Error: two", trace["traceback"])

    def test_what_is_thrown_need_not_be_an_error(self):
        for code, shown in {
            "throw 5": "5",
            "throw 'text'": "'text'",
            "throw { a: 1 }": "{ a: 1 }",
            "throw null": "null",
            "throw undefined": "undefined",
            "await Promise.reject(7)": "7",
        }.items():
            outcome = self.cell(code)
            self.assertEqual(
                (outcome.code, outcome.error["name"], outcome.error["value"]), (1, "Uncaught", shown), code
            )

    def test_syntax_errors_show_the_line_and_a_caret(self):
        for run in (self.cell, self.once):
            error = run("let a = 1;\nlet b = (;\nlet c").error
            self.assertEqual(error["name"], "SyntaxError")
            self.assertEqual(
                error["traceback"], "cell 1:2:10\nlet b = (;\n         ^\n\nSyntaxError: Unexpected token ';'"
            )
        self.assertIn("at JSON.parse", self.cell("JSON.parse('{')").error["traceback"])
        self.assertEqual(self.cell("await (async () => { eval('let x = ;') })()").error["name"], "SyntaxError")
        self.assertEqual(self.cell("`open").code, 1)
        self.assertEqual(self.cell("/* open").code, 1)
        self.assertEqual(
            self.cell("let again; let again").error["value"], "Identifier 'again' has already been declared"
        )

    def test_what_happens_in_callbacks_does_not_kill(self):
        outcome = self.cell(
            "setTimeout(() => { throw new Error('in a timer') }, 1); await new Promise(r => setTimeout(r, 50)); 'on'"
        )
        self.assertEqual((outcome.code, outcome.plain), (0, "'on'"))
        self.assertIn("Error: in a timer\n    at Timeout._onTimeout (cell 1:1:26)", outcome.stderr)
        outcome = self.cell("Promise.reject(new Error('nobody')); await new Promise(r => setTimeout(r, 20)); 2")
        self.assertEqual(outcome.code, 0)
        self.assertIn("Error: nobody", outcome.stderr)
        self.cell("setTimeout(() => { throw 1 }, 1)")
        self.assertEqual(self.plain("await new Promise(r => setTimeout(r, 20)); 3"), "3")
        outcome = self.cell(
            "process.once('uncaughtException', e => console.log('mine', e.message)); setTimeout(() => { throw new"
            " Error('x') }, 1); await new Promise(r => setTimeout(r, 20))"
        )
        self.assertEqual((outcome.stdout, outcome.stderr), ("mine x\n", ""))


class Endings(Driver):
    def test_exit_ends_the_cell_and_not_the_kernel(self):
        self.cell("let kept = 1")
        for code, status in {
            "process.exit(3)": 3,
            "process.exit()": 0,
            "process.exitCode = 5; process.exit()": 5,
            "try { process.exit(4) } catch { console.log('caught') } finally { console.log('finally') }": 4,
            "setTimeout(() => process.exit(6), 5); await new Promise(() => {})": 6,
            "await null; process.exit(7)": 7,
            "[1].map(() => process.exit(256 + 8))": 8,
        }.items():
            outcome = self.cell(code + "; console.log('after')")
            self.assertEqual((outcome.code, outcome.stdout, outcome.error), (status, "", None), code)
        self.assertEqual(self.plain("process.exitCode = undefined; kept"), "1")
        self.cell("setTimeout(() => process.exit(9), 5)")
        time.sleep(0.05)
        outcome = self.cell("await new Promise(r => setTimeout(r, 20)); kept")
        self.assertEqual((outcome.code, outcome.plain), (0, "1"))

    def test_death_is_death(self):
        for code, status in {"process.kill(process.pid, 'SIGKILL'); while (true);": -9, "process.abort()": -6}.items():
            with self.assertRaises(Died) as died:
                self.cell(code)
            self.assertEqual(died.exception.status, status)
            self.kernel.close()
            self.kernel = None

    def test_the_last_cell_waits_for_what_is_left(self):
        outcome = self.once("setTimeout(() => console.log('timer'), 60); console.log('cell'); 7")
        self.assertEqual((outcome.code, outcome.stdout, outcome.plain), (0, "cell\ntimer\n", "7"))
        server = (
            "const s = require('net').createServer(c => { c.end('hello'); s.close() }).listen(0, '127.0.0.1', () => "
            "require('net').connect(s.address().port, '127.0.0.1').on('data', d => console.log(String(d))))"
        )
        self.assertEqual(self.once(server).stdout, "hello\n")
        self.assertEqual(self.once("setTimeout(() => { process.exitCode = 9 }, 5)").code, 9)
        self.assertEqual(self.once("process.exitCode = 3; 1").code, 3)
        self.assertEqual(self.once("process.on('exit', c => { console.log('bye', c); process.exitCode = 4 })").code, 4)
        self.assertEqual(self.once("process.on('beforeExit', () => console.log('before'))").stdout, "before\n")

    def test_the_last_cell_fails_as_node_does(self):
        for code, name in {
            "throw new TypeError('x')": "TypeError",
            "setTimeout(() => { throw new RangeError('x') }, 5)": "RangeError",
            "Promise.reject(new EvalError('x')); setTimeout(() => console.log('no'), 1000)": "EvalError",
            "process.on('exit', () => { throw new URIError('x') })": "URIError",
        }.items():
            outcome = self.once(code)
            self.assertEqual((outcome.code, outcome.error["name"], outcome.stdout), (1, name, ""), code)
        outcome = self.once("process.on('exit', c => console.log('exit', c)); null.x")
        self.assertEqual((outcome.code, outcome.stdout), (1, "exit 1\n"))
        outcome = self.once("await new Promise(() => {})")
        self.assertEqual(outcome.code, 13)
        self.assertIn("can no longer happen", outcome.stderr)
        for code, status in {
            "process.exit(3)": 3,
            "setTimeout(() => process.exit(4), 5); await new Promise(() => {})": 4,
        }.items():
            self.assertEqual(self.once(code).code, status)

    def test_a_last_cell_after_others(self):
        self.cell("let n = 1; globalThis.t = setTimeout(() => console.log('timer', n), 80)")
        outcome = self.cell(
            "n = 2; display('shown'); process.on('exit', () => console.log('exit')); 'value'", last=True
        )
        self.assertEqual((outcome.code, outcome.stdout, outcome.plain), (0, "timer 2\nexit\n", "'value'"))
        self.assertEqual(len(outcome.of("show")), 1)

    def test_a_failed_last_cell_after_others(self):
        self.cell("1")
        self.assertEqual(self.cell("throw new Error('x')", last=True).code, 1)

    def test_the_end_of_the_socket_is_the_end(self):
        for code in [None, "1", "setInterval(() => {}, 1000); 1"]:
            kernel = self.start()
            if code:
                kernel.run(code)
            self.assertIn(kernel.close(), (0, -9), code)
        kernel = self.start()
        kernel.send("while (true);", "javascript")
        kernel.send("", "javascript")
        time.sleep(0.3)
        self.assertEqual(kernel.close(), -9)


class Interrupts(Driver):
    def interrupted(self, code):
        outcome = self.cell(code, interrupt_after=0.25, timeout=3)
        self.assertEqual((outcome.code, outcome.error["name"]), (130, "Interrupted"), code)
        self.assertLess(outcome.seconds, 1.25, code)
        return outcome

    def test_anything_can_be_interrupted(self):
        self.cell("let kept = 42")
        for code in [
            "while (true);",
            "try { while (true); } finally { while (true); }",
            "await new Promise(() => {})",
            "for (;;) await 0",
            "for (;;) await new Promise(r => setImmediate(r))",
            "(function f() { for (;;) { try { f() } catch {} } })()",
            "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
            "/(a+)+b/.test('a'.repeat(40))",
            "await new Promise(r => require('child_process').spawn('sleep', ['20']).on('exit', r)); while (true);",
            "setTimeout(() => { while (true); }, 5); await new Promise(() => {})",
            "process.nextTick(function f() { process.nextTick(f) }); await new Promise(() => {})",
            "({ get [Symbol.toStringTag]() { while (true); } })",
            "({ [Symbol.for('nodejs.util.inspect.custom')]() { while (true); } })",
            "({ [Symbol.for('Jupyter.display')]() { return new Promise(() => {}) } })",
        ]:
            with self.subTest(code):
                self.interrupted(code)
                self.assertEqual(self.plain("kept"), "42")

    def test_a_blocking_child_meets_the_signal_too(self):
        self.cell("let kept = 42")
        for code in [
            "require('child_process').spawnSync('sleep', ['20'])",
            "require('child_process').execSync('sleep 20')",
        ]:
            outcome = self.cell(code, interrupt_after=0.25, timeout=3)
            self.assertLess(outcome.seconds, 1.25, code)
            self.assertIn(outcome.code, (0, 1, 130))
            self.assertEqual(self.plain("kept"), "42")

    def test_an_interrupted_loop_does_not_go_on(self):
        self.cell("1")
        for code in [
            "for (;;) { await new Promise(r => setTimeout(r, 20)); console.log('tick') }",
            "for (;;) { await require('timers/promises').setTimeout(20); console.log('tick') }",
            "setInterval(() => console.log('tick'), 20); await new Promise(() => {})",
        ]:
            self.assertIn("tick", self.interrupted(code).stdout)
            self.assertEqual(self.cell("await new Promise(r => setTimeout(r, 100)); 1").stdout, "", code)
        self.cell("setInterval(() => console.log('earlier'), 20)")
        self.interrupted("while (true);")
        self.assertIn("earlier", self.cell("await new Promise(r => setTimeout(r, 100)); 1").stdout)

    def test_a_stack_that_never_comes(self):
        # The inspector itself reads it; terminated there, some releases of V8 abort, and others cannot be terminated.
        code = "const e = new Error('x'); Object.defineProperty(e, 'stack', { get() { while (true); } }); throw e"
        try:
            self.interrupted(code)
        except Died as died:
            self.assertEqual(died.status, -6)
        except TimeoutError:
            pass

    def test_an_interrupt_that_comes_late_is_nothing(self):
        for _ in range(5):
            self.cell("1")
            self.kernel.interrupt()
        self.assertEqual(self.plain("2"), "2")
        for _ in range(30):
            outcome = self.cell("let s = 0; for (let i = 0; i < 1e6; i++) s += i; s", interrupt_after=0.002)
            self.assertIn(outcome.code, (0, 130))
            self.assertEqual(self.plain("3"), "3")

    def test_output_before_the_interrupt_is_kept(self):
        outcome = self.interrupted("console.log('before'); display('shown'); let made = 1; while (true);")
        self.assertEqual(outcome.stdout, "before\n")
        self.assertEqual(len(outcome.of("show")), 1)
        self.assertEqual(self.plain("made"), "1")


class Shows(Driver):
    def shows(self, code):
        outcome = self.cell(code)
        self.assertEqual(outcome.code, 0, outcome.error)
        return [show["data"] for show in outcome.of("show")]

    def test_display(self):
        self.assertEqual(
            self.shows(
                "display({ a: 1 }); display('x'); display.html('<b>'); display.md('# t'); display.svg('<svg/>');"
                " display.json([1]); display.text('p')"
            ),
            [
                {"text/plain": "{ a: 1 }", "application/json": {"a": 1}},
                {"text/plain": "'x'"},
                {"text/html": "<b>"},
                {"text/markdown": "# t"},
                {"image/svg+xml": "<svg/>"},
                {"application/json": [1], "text/plain": "[ 1 ]"},
                {"text/plain": "p"},
            ],
        )
        self.assertEqual(
            self.shows("display({ 'text/html': '<i>', 'application/vnd.x+json': { a: 1 } }, { raw: true })"),
            [{"text/html": "<i>", "application/vnd.x+json": {"a": 1}}],
        )
        self.assertEqual(self.cell("display.json(() => 1)").error["name"], "TypeError")

    def test_values_that_know_how_to_be_shown(self):
        self.assertEqual(
            self.cell(
                "({ [Symbol.for('Jupyter.display')]() { return { 'text/html': '<p>', 'text/plain': 'p' } } })"
            ).result,
            {"text/html": "<p>", "text/plain": "p"},
        )
        self.assertEqual(
            self.cell("({ async [Symbol.for('Jupyter.display')]() { return { 'text/markdown': '*' } } })").result,
            {"text/markdown": "*"},
        )
        self.assertEqual(self.cell("({ toHtml() { return '<u>' } })").result["text/html"], "<u>")
        self.assertEqual(self.cell("({ [Symbol.for('Jupyter.display')]() { throw 1 }, a: 1 })").code, 0)
        self.assertEqual(self.shows("await display({ toHtml: () => '<u>' })")[0]["text/html"], "<u>")

    def test_pictures(self):
        picture = png(3, 2)
        self.write("p.png", "")
        with open(os.path.join(self.folder, "p.png"), "wb") as file:
            file.write(picture)
        outcome = self.cell("require('fs').readFileSync('p.png')")
        self.assertEqual(base64.b64decode(outcome.result["image/png"]), picture)
        self.assertEqual([outcome.of("result")[0][side] for side in ("width", "height")], [3, 2])
        self.assertEqual(
            base64.b64decode(self.shows("display.image(require('fs').readFileSync('p.png'))")[0]["image/png"]), picture
        )
        with open(os.path.join(self.folder, "large.png"), "wb") as file:
            file.write(png(2000, 10))
        outcome = self.cell("require('fs').readFileSync('large.png')")
        self.assertNotIn("image/png", outcome.result)
        self.assertIn("2000 x 10 pixels", outcome.plain)
        self.assertEqual(outcome.of("result")[0]["original"]["mime_type"], "image/png")
        self.assertEqual(self.cell("display.image(Buffer.from('no'))").error["name"], "TypeError")

    def test_bounds(self):
        self.assertLess(len(self.plain("'x'.repeat(1e8)", timeout=60)), 100200)
        self.assertLess(len(self.plain("Array.from({ length: 1e6 }, () => 'y'.repeat(100))")), 100200)
        shows = self.shows("for (let i = 0; i < 100; i++) display(i)")
        self.assertEqual(len(shows), 65)
        self.assertIn("36", shows[-1]["text/plain"])
        self.assertLess(len(self.shows("display.html('x'.repeat(3e6))")[0]["text/html"]), 1000200)
        self.assertLess(len(self.cell("throw new Error('m'.repeat(1e7))").error["traceback"]), 100200)
        self.assertEqual(len(self.shows("display(1)")), 1)


class Hostile(Driver):
    def test_the_driver_needs_nothing_that_a_cell_can_take_away(self):
        for code in [
            (
                "for (const k of ['Promise', 'JSON', 'process', 'Buffer', 'Object', 'Array', 'Error', 'setTimeout',"
                " 'require', 'console', 'Symbol', 'Reflect', 'Map', 'Set', 'String', 'RegExp']) delete globalThis[k]"
            ),
            "Object.prototype.toJSON = () => 'no'; Object.prototype.then = 1; Array.prototype.toJSON = () => 'no'",
            (
                "Object.defineProperty(Object.prototype, 'data', { get() { throw 1 }, set() { throw 2 }, configurable:"
                " true })"
            ),
            (
                "Array.prototype[Symbol.iterator] = () => { throw 1 }; Array.prototype.push = Array.prototype.map ="
                " Array.prototype.join = () => { throw 1 }"
            ),
            (
                "String.prototype.replace = String.prototype.split = RegExp.prototype.exec = RegExp.prototype.test = ()"
                " => { throw 1 }"
            ),
            "Promise.prototype.then = () => { throw 1 }; Promise.resolve = () => { throw 1 }",
            (
                "JSON.stringify = JSON.parse = () => { throw 1 }; Function.prototype.call = Function.prototype.apply ="
                " () => { throw 1 }"
            ),
            (
                "for (const o of [Object, Array, Promise, Function, String, Error, RegExp]) { Object.freeze(o);"
                " Object.freeze(o.prototype) }"
            ),
            "Object.freeze(process); Object.freeze(console)",
            "Error.prepareStackTrace = () => { throw 1 }",
            "Error.stackTraceLimit = 0",
            "require('util').inspect = () => { throw 1 }",
            "process.on = process.listenerCount = process.exit = () => { throw 1 }",
            "require('fs').writeSync = require('fs').readSync = () => { throw 1 }",
            "globalThis.globalThis = null; globalThis = null",
            "require('util').inspect.defaultOptions.depth = 0",
        ]:
            for run in ("cell", "once"):
                with self.subTest(code, run=run):
                    if run == "once":
                        outcome = self.once(code + "\n;41 + 1")
                        self.assertEqual((outcome.code, outcome.plain), (0, "42"), outcome.error)
                        continue
                    if self.kernel:
                        self.kernel.close()
                        self.kernel = None
                    self.cell(code)
                    self.assertEqual(self.plain("40 + 2"), "42")
                    self.assertEqual(self.cell("[1, { a: 2 }]").code, 0)
                    outcome = self.cell("null.x")
                    self.assertEqual((outcome.code, outcome.error["name"]), (1, "TypeError"))
                    self.assertEqual(self.cell("let q = (").error["name"], "SyntaxError")

    def test_values_that_fight_back(self):
        for code in [
            (
                "new Proxy({}, { get() { throw 1 }, ownKeys() { throw 2 }, getPrototypeOf() { throw 3 }, has() { throw"
                " 4 }, getOwnPropertyDescriptor() { throw 5 } })"
            ),
            "new Proxy(function () {}, { get() { throw 1 } })",
            "({ get a() { throw 1 }, toString() { throw 2 } })",
            "({ [Symbol.toPrimitive]() { throw 1 } })",
            "Object.create(null)",
            "const c = {}; c.c = { c }; c",
            "({ toJSON() { throw 1 } })",
            "({ [Symbol.for('nodejs.util.inspect.custom')]() { throw 1 } })",
            "({ get [Symbol.toStringTag]() { throw 1 } })",
            "({ then(r) { r(5) } })",
            "({ get then() { throw 1 } })",
            "let d = {}; let e = d; for (let i = 0; i < 1e5; i++) e = e.x = {}; d",
            "class A { static [Symbol.hasInstance]() { throw 1 } }; A",
            "const p = Proxy.revocable({}, {}); p.revoke(); p.proxy",
            "Object.defineProperty([], 'length', { writable: false })",
            "new (class extends Array { map() { throw 1 } })(3)",
            (
                "(() => { const o = []; o[0] = 1; Object.defineProperty(o, 1, { get() { throw 1 }, enumerable: true });"
                " return o })()"
            ),
        ]:
            with self.subTest(code):
                outcome = self.cell(code)
                self.assertEqual(outcome.code, 0, outcome.error)
                self.assertIsInstance(outcome.plain, str)
        for code in [
            "throw new Proxy({}, { get() { throw 1 } })",
            "throw { get stack() { while (true); }, toString() { while (true); } }",
            "throw new Proxy(new Error('x'), { get() { throw 1 } })",
            "throw Object.defineProperty(new Error('x'), 'message', { get() { throw 1 } })",
            "throw Object.defineProperty(new Error('x'), 'stack', { value: { toString() { throw 1 } } })",
            "throw Object.defineProperty(new Error('x'), 'name', { value: Symbol() })",
            "throw Object.create(null)",
            "const loop = new Error('x'); loop.cause = loop; throw loop",
        ]:
            with self.subTest(code):
                outcome = self.cell(code)
                self.assertEqual(outcome.code, 1)
                self.assertIsNotNone(outcome.error)
        self.assertEqual(self.plain("'alive'"), "'alive'")

    def test_large_code(self):
        self.assertEqual(self.plain("'" + "x" * (1 << 20) + "'.length"), str(1 << 20))
        self.assertEqual(self.once("'" + "ü" * (1 << 19) + "'.length").plain, str(1 << 19))


@needs_transpile
class Transpiled(Driver):
    def test_imports(self):
        self.write("lib.mjs", "export const one = 1; export default 'd'; export { one as 'a-b' }")
        self.write("c.cjs", "const o = { zed: 5 }; module.exports = Object.assign({}, o)")
        self.write("data.json", '{"a": 1}')
        self.write("node_modules/pkg/package.json", '{"name": "pkg", "type": "module", "exports": "./i.js"}')
        self.write("node_modules/pkg/i.js", "export default 'packed'")
        self.assertEqual(
            self.plain(
                "import d, { one as uno, 'a-b' as ab } from './lib.mjs'\nimport * as ns from './lib.mjs'\n[d, uno, ab,"
                " ns.one]"
            ),
            "[ 'd', 1, 1, 1 ]",
        )
        self.assertEqual(
            self.plain(
                "import { zed } from './c.cjs'; import pkg from 'pkg'; import j from './data.json'; [zed, pkg, j.a]"
            ),
            "[ 5, 'packed', 1 ]",
        )
        self.assertEqual(self.plain("import j2 from './data.json' with { type: 'json' }; j2.a"), "1")
        self.assertEqual(self.plain("const { one } = await import('./lib.mjs'); one"), "1")
        self.assertEqual(
            self.plain("import fs from 'node:fs'; import { join } from 'path'; join(typeof fs.readFileSync, 'x')"),
            "'function/x'",
        )
        self.assertEqual(self.plain("import './lib.mjs'"), None)
        self.assertEqual(self.plain("import('./lib.mjs') instanceof Promise"), "true")
        self.assertEqual(
            self.plain(
                "[import.meta.dirname, import.meta.url.startsWith('file:///'), import.meta.resolve('./lib.mjs')]"
            ),
            f"[ '{self.folder}', true, 'file://{self.folder}/lib.mjs' ]",
        )
        error = self.cell("import { nothing } from './lib.mjs'").error
        self.assertEqual(error["value"], "The requested module './lib.mjs' does not provide an export named 'nothing'")
        self.assertIn("nope", self.cell("import x from 'nope'").error["value"])
        self.assertEqual(self.once("import { one } from './lib.mjs'; one").plain, "1")
        self.assertEqual(self.plain("const s = 'import a from b'; s.length"), "15")

    def package(self, name, about, folder="node_modules", **files):
        self.write(f"{folder}/{name}/package.json", json.dumps({"name": name, **about}))
        for file, text in files.items():
            self.write(f"{folder}/{name}/{file.replace('_', '.')}", text)

    def packages(self):
        self.package("esm", {"type": "module", "exports": "./i.js"}, i_js="export default 'esm'; export const one = 1")
        self.package("cjs", {"main": "lib.js"}, lib_js="module.exports = { kind: 'cjs', two: 2 }")
        exports = {"./sub": {"import": "./s.mjs", "require": "./s.cjs"}, ".": "./s.cjs"}
        self.package("@scope/both", {"exports": exports}, s_mjs="export default 'import'", s_cjs="module.exports = 'require'")

    def test_npm_specifiers_are_the_packages_names(self):
        self.packages()
        for code, expected in [
            ("import e, { one } from 'npm:esm@1'; [e, one]", "[ 'esm', 1 ]"),
            ("import * as ns from 'npm:esm@^1.2.3'; ns.one", "1"),
            ("import { two } from 'npm:cjs'; two", "2"),
            ("import sub from 'npm:@scope/both@1/sub'; sub", "'import'"),
            ("import whole from 'npm:@scope/both'; whole", "'require'"),
            ("require('npm:@scope/both@latest/sub')", "'require'"),
            ("require('npm:cjs@2').two", "2"),
            ("require.resolve('npm:cjs@2').endsWith('cjs/lib.js')", "true"),
            ("(await import('npm:esm@1')).default", "'esm'"),
            ("const wanted = 'npm:/esm@1'; (await import(wanted)).default", "'esm'"),
            ("import.meta.resolve('npm:cjs@1').endsWith('cjs/lib.js')", "true"),
            ("export { one } from 'npm:esm'; export * from 'npm:esm'; 3", "3"),
        ]:
            with self.subTest(code):
                self.assertEqual(self.plain(code), expected)
                self.assertEqual(self.once(code).plain, expected)
        self.assertEqual(self.plain("import e, { one } from 'npm:esm@1'; [e, one] as any[]", language="typescript"),
                         "[ 'esm', 1 ]")
        self.assertEqual(self.plain("import c = require('npm:cjs@1'); c.two", language="typescript"), "2")

    def test_npm_specifiers_in_files(self):
        self.packages()
        self.write("deep.mjs", "export { default, one } from 'npm:esm@1'; export const late = () => import('npm:cjs')")
        self.write("top.mjs", "export * from './deep.mjs'; export { default } from './deep.mjs'")
        self.write("old.cjs", "module.exports = require('npm:cjs@1').two")
        self.write("typed.ts", "import e from 'npm:esm@1'\nexport const v: string = e")
        self.assertEqual(self.plain("import d, { one, late } from './top.mjs'; [d, one, (await late()).default.two]"),
                         "[ 'esm', 1, 2 ]")
        self.assertEqual(self.plain("import o from './old.cjs'; o"), "2")
        self.assertEqual(self.plain("import { v } from './typed.ts'; v", language="typescript"), "'esm'")
        self.assertEqual(self.once("import d from './top.mjs'; d").plain, "'esm'")

    def test_a_package_that_comes_later_is_found(self):
        self.write("user.mjs", "export default async (name) => (await import(name)).default")
        self.write("user.cjs", "module.exports = (name) => require(name)")
        asks = [
            ("import v from 'esm'; v", "'esm'"),
            ("import v from 'npm:cjs@1'; v.two", "2"),
            ("require('cjs').two", "2"),
            ("require('npm:@scope/both/sub')", "'require'"),
            ("import v from '@scope/both/sub'; v", "'import'"),
            ("import f from './user.mjs'; await f('esm')", "'esm'"),
            ("import f from './user.cjs'; f('cjs').two", "2"),
        ]
        for code, _ in asks:
            self.assertEqual(self.cell(code).code, 1, code)
        self.packages()
        for code, expected in asks:
            self.assertEqual(self.plain(code), expected, code)

    def test_a_package_that_comes_later_is_found_with_hooks_too(self):
        self.write("typed.ts", "export const load = async (name: string) => (await import(name)).default")
        code = "import { load } from './typed.ts'; await load('%s')"
        for name in "npm:esm@2", "cjs", "@scope/both/sub":
            self.assertEqual(self.cell(code % name, language="typescript").code, 1)
        self.packages()
        self.assertEqual(self.plain(code % "npm:esm@2", language="typescript"), "'esm'")
        self.assertEqual(self.plain(code % "@scope/both/sub", language="typescript"), "'import'")
        self.assertEqual(self.plain(code % "cjs", language="typescript"), "{ kind: 'cjs', two: 2 }")

    def test_the_workspaces_own_comes_before_what_is_above_it(self):
        self.folder = os.path.join(self.folder, "workspace")
        os.mkdir(self.folder)
        for name, folder in ("both", "node_modules"), ("both", "../node_modules"), ("above", "../node_modules"):
            self.package(name, {"main": "i.js"}, folder, i_js=f"module.exports = '{folder}'")
        self.assertEqual(self.plain("import b from 'both'; import a from 'above'; [a, b, require('above')]"),
                         "[ '../node_modules', 'node_modules', '../node_modules' ]")

    def test_what_is_not_there_is_told_without_the_driver(self):
        for code in "import x from 'npm:nope@1'", "require('nope')", "import x from '@nope/nope/sub'":
            error = self.cell(code).error
            self.assertIn("nope", error["value"])
            self.assertNotIn("belljar", error["traceback"])
        self.assertEqual(self.plain("import fs from 'fs'; import p from 'node:path'; require('fs') === fs && p.sep"), "'/'")
        # A package may ask for itself.
        self.write("package.json", '{"name": "me", "exports": "./me.cjs"}')
        self.write("me.cjs", "module.exports = 'myself'")
        self.write("asks.cjs", "module.exports = require('me')")
        self.assertEqual(self.once("require('./asks.cjs')").plain, "'myself'")

    def test_a_changed_file_is_read_again(self):
        self.write("lib.mjs", "export default 1")
        self.assertEqual(self.plain("import v from './lib.mjs'; v"), "1")
        self.write("lib.mjs", "export default 2")
        os.utime(os.path.join(self.folder, "lib.mjs"), (1, 1))
        self.assertEqual(self.plain("import v from './lib.mjs'; v"), "2")

    def test_exports(self):
        self.assertEqual(
            self.plain(
                "export const a = 1; export function f() { return 2 }\nexport class C {}\nexport { a as b }\na + f()"
            ),
            "3",
        )
        self.assertEqual(self.plain("export default { v: a }"), "{ v: 1 }")
        self.assertEqual(self.plain("export default function () {}"), "[Function (anonymous)]")

    def ts(self, code, **more):
        return self.plain(code, language="typescript", **more)

    def test_typescript(self):
        self.assertEqual(
            self.ts(
                "const x: number = 41; interface I { a: string }\ntype T = I & { b?: 1 };\nlet i = { a: 'b' } satisfies"
                " I as T; x + i!.a.length"
            ),
            "42",
        )
        self.assertEqual(
            self.ts(
                "enum E { A, B = 5, C, S = 's', D = A | 8, F = E.C }\n[E.A, E[5], E.C, E.S, E.D, E.F].join() +"
                " Object.keys(E).length"
            ),
            "'0,B,6,s,8,610'",
        )
        self.assertEqual(
            self.ts(
                "namespace N { let n = 1; export let v = 1; export function inc() { v++; return n } export namespace M"
                " { export const deep = 'd' } export enum K { Q = 3 } }\nN.inc(); [N.v, N.M.deep, N.K.Q]"
            ),
            "[ 2, 'd', 3 ]",
        )
        self.assertEqual(
            self.ts(
                "namespace A1.B1 { export const z = 1 }\nnamespace A1.B1 { export const y = 2 }\n[A1.B1.z, A1.B1.y]"
            ),
            "[ 1, 2 ]",
        )
        self.assertEqual(
            self.ts(
                "abstract class P { constructor(protected p: number) {} abstract m(): number }\nclass Q extends P {"
                " constructor(private readonly q: number, public r = 3) { super(1); } m(): number { return this.p +"
                " this.q + this.r } }\nnew Q(2).m()"
            ),
            "6",
        )
        self.assertEqual(
            self.ts(
                "function f<T extends object>(this: any, a?: T, ...r: number[]): r is any { return r.length"
                " }\nf.call(null, {}, 1, 2)"
            ),
            "2",
        )
        self.assertEqual(self.ts("const g = async <T,>(v: T): Promise<\n  T\n> => v; await g<string>('s')"), "'s'")
        self.assertEqual(
            self.ts(
                "import type { X } from './nowhere'; import { type Y } from './nowhere'; import { sep, type Z } from"
                " 'path'; sep"
            ),
            "'/'",
        )
        self.assertEqual(self.ts("E.B as number"), "5")
        self.assertEqual(self.ts("import fs = require('fs'); typeof fs.existsSync"), "'function'")

    def test_lines_stay(self):
        code = (
            "interface A {\n  b: string\n}\nenum E {\n  X,\n  Y,\n}\nimport {\n  sep,\n} from 'path'\nfunction f(a: A):"
            " never {\n  throw new Error('here' as string)\n}\nf(null!)"
        )
        trace = self.cell(code, language="typescript").error["traceback"]
        self.assertEqual(trace, "Error: here\n    at f (cell 1:12:9)\n    at cell 1:14:1")

    def test_typescript_files(self):
        self.write(
            "lib.ts",
            "import type { Q } from './types'\nimport { helper, Unused } from './helper'\nexport enum Color { Red,"
            " Green }\nexport const v: number = helper(2)\nexport interface Foo {}",
        )
        self.write(
            "helper.ts", "export interface Unused {}\nexport function helper(x: number): number { return x * 21 }"
        )
        self.write("types.ts", "export interface Q {}")
        for specifier in ("./lib", "./lib.ts", "./lib.js"):
            self.assertEqual(
                self.ts(f"import {{ v, Color, Foo }} from '{specifier}'; const foo: Foo = {{}}; [v, Color.Green]"),
                "[ 42, 1 ]",
            )
        self.write("bad.ts", "let x: = 1")
        self.assertIn("bad.ts: SyntaxError", self.cell("import './bad.ts'", language="typescript").error["value"])

    def test_syntax_errors(self):
        error = self.cell("let a = 1\nlet x: = 1", language="typescript").error
        self.assertEqual((error["name"], error["traceback"].split("\n")[0]), ("SyntaxError", "cell 1:2:8"))
        self.assertEqual(error["traceback"].split("\n")[1:3], ["let x: = 1", "       ^"])
        self.assertEqual(self.cell("import { from 'x'").error["name"], "SyntaxError")
        self.assertIn("decorators", self.cell("@d class A {}", language="typescript").error["value"])
        deep = self.cell("(" * 500000 + "import('x')", timeout=60)
        self.assertEqual((deep.code, deep.error["name"]), (1, "SyntaxError"))
        self.assertEqual(self.cell("let n = " + "[" * 300000, language="typescript", timeout=60).code, 1)
        self.assertEqual(self.plain("1"), "1")


if __name__ == "__main__":
    unittest.main()
