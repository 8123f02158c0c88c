"""The Python kernel's driver: python3 python.py [--zygote] [--python PATH]... [--science PATH] [unittest's arguments].

Without --python it is tested with this interpreter and with /usr/bin/python3. --science names a Python with the
packages of scripts/science; without it the tests of rich output are skipped. With --zygote the kernels are forked.
"""

import argparse
import base64
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import forks
import harness


def pixels(png):
    """Width, height and the set of colours of an 8-bit PNG without interlacing."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, width = 8, b"", 0
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and not interlace
        if kind == b"IDAT":
            data += body
        at += length + 12
    size = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    data, rows, above = zlib.decompress(data), set(), bytearray(width * size)
    for row in range(height):
        start = row * (width * size + 1)
        kind, line = data[start], bytearray(data[start + 1:start + 1 + width * size])
        for i in range(len(line)):
            a, b, c = line[i - size] if i >= size else 0, above[i], above[i - size] if i >= size else 0
            if kind == 1:
                line[i] = line[i] + a & 255
            elif kind == 2:
                line[i] = line[i] + b & 255
            elif kind == 3:
                line[i] = line[i] + (a + b) // 2 & 255
            elif kind == 4:
                p = a + b - c
                pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
                line[i] = line[i] + (a if pa <= pb and pa <= pc else b if pb <= pc else c) & 255
        rows.update(bytes(line[i:i + size]) for i in range(0, len(line), size))
        above = line
    return width, height, rows


class Case(unittest.TestCase):
    interpreter = sys.executable
    options = ("-s", "-X", "utf8")
    # Of each interpreter, if kernels are to be forked.
    zygotes = None

    def setUp(self):
        self.kernel = self.begin(self.interpreter)

    def begin(self, interpreter):
        if self.zygotes is None:
            kernel = harness.python(interpreter, self.options)
        else:
            if "-u" in self.options:
                self.skipTest("a zygote is never started with -u")
            if interpreter not in self.zygotes:
                self.zygotes[interpreter] = forks.Zygote(interpreter)
            kernel = self.zygotes[interpreter].fork()
        self.addCleanup(kernel.close)
        return kernel

    def run_ok(self, code, **how):
        answer = self.kernel.run(code, **how)
        self.assertEqual(answer.code, 0, answer)
        return answer

    def result(self, code, **how):
        answer = self.run_ok(code, **how)
        return answer.result

    def error(self, code, name=None, **how):
        answer = self.kernel.run(code, **how)
        self.assertIsNotNone(answer.error, answer)
        if name:
            self.assertEqual(answer.error["name"], name, answer)
        self.assertNotIn("belljar", answer.error["traceback"])
        self.assertEqual(answer.code, 130 if name == "KeyboardInterrupt" else 1)
        return answer.error

    def works(self):
        self.assertEqual(self.result("20 + 22"), "42")
        self.assertEqual(self.run_ok("print('still')").stdout, "still\n")


class State(Case):
    def test_names_live(self):
        self.run_ok("x = 5\ndef f(a):\n    return a + x\nimport math")
        self.assertEqual(self.result("f(1)"), "6")
        self.assertEqual(self.result("math.floor(2.5)"), "2")

    def test_last_expression(self):
        for code, expected in [("1 + 1", "2"), ("a = 1; a", "1"), ("a = 1\n(a +\n 2)", "3"), ("max(\n3,\n4\n)", "4"),
                               ("'''\nx = 1\n'''", repr("\nx = 1\n")), ("if True:\n    x = 1\nx  # said", "1"),
                               ("5\n# the end\n", "5"), ("x = [\n1,\n]\nx", "[1]"), ("f = lambda: 1\nf()", "1"),
                               ("foo = 'é'; foo", "'é'"), ("x == 1", "True"), ("5 if x else 6\n\n\n", "5"),
                               ("x = \\\n2\nx", "2"), ("dict(\na=1\n)", "{'a': 1}"), ("'a;b'", "'a;b'")]:
            with self.subTest(code):
                self.assertEqual(self.result("x = 1") or self.result(code), expected)

    def test_no_value(self):
        for code in ["None", "x = 5", "1;", "1 ;  # quiet", "x = 5; x;", "", "   \n", "# only this", "def f():\n"
                                                                                                     "    return 1",
                     "for i in range(2):\n    i", "import os", "'''a''';", "print", ]:
            with self.subTest(code):
                answer = self.run_ok(code)
                self.assertEqual([key for record in answer.records for key in record if key == "result"],
                                 ["result"] if code == "print" else [])

    def test_real_main_module(self):
        self.run_ok("import pickle, dataclasses, typing, sys\nclass A:\n    b: int\n    def __init__(self): self.v = 3")
        self.assertEqual(self.result("pickle.loads(pickle.dumps(A())).v"), "3")
        self.assertEqual(self.result("typing.get_type_hints(A)"), "{'b': <class 'int'>}")
        self.assertEqual(self.result("@dataclasses.dataclass\nclass P:\n    x: int = 1\nP()"), "P(x=1)")
        self.assertEqual(self.result("__name__, '__file__' in globals(), sys.argv, sys.path[0]"),
                         "('__main__', False, ['main.py'], '')")
        self.assertEqual(self.result("sys.modules['__main__'].A is A"), "True")
        self.assertEqual(self.result("import unittest\nclass T(unittest.TestCase):\n    def test(self): pass\n"
                                     "loader = unittest.defaultTestLoader\n"
                                     "len(list(loader.loadTestsFromModule(sys.modules['__main__'])))"),
                         "1")

    def test_multiprocessing(self):
        self.assertEqual(self.result("import multiprocessing\ndef sq(x): return x * x\n"
                                     "with multiprocessing.get_context('fork').Pool(2) as pool: r = pool.map(sq, [1, "
                                     "2, 3])\n"
                                     "r"), "[1, 4, 9]")

    def test_underscore(self):
        self.run_ok("41")
        self.assertEqual(self.result("_ + 1"), "42")
        self.assertEqual(self.result("__"), "41")

    def test_lines_of_cells(self):
        self.run_ok("def first():\n    'said'\n    return 1\n")
        self.assertIn("return 1", self.result("import inspect\ninspect.getsource(first)"))
        self.assertIn("    1 / 0", self.run_ok(
            "import traceback\ntry:\n    1 / 0\nexcept Exception: traceback.print_exc()").stderr)
        answer = self.run_ok("import warnings\nwarnings.warn('careful')")
        self.assertIn("UserWarning: careful", answer.stderr)
        self.assertIn("warnings.warn('careful')", answer.stderr)

    def test_future_in_the_only_cell(self):
        self.assertEqual(self.result("from __future__ import annotations\ndef g(a: nothing): pass\ng.__annotations__",
                                     last=True), "{'a': 'nothing'}")

    def test_future_persists(self):
        self.run_ok("from __future__ import annotations")
        self.assertEqual(self.result("def g(a: nothing): pass\ng.__annotations__"), "{'a': 'nothing'}")

    def test_names_are_told_when_changed(self):
        answer = self.run_ok("b = 1; a = 2; _c = 3\nimport os")
        self.assertEqual(answer.one("names"), ["a", "b"])
        self.assertEqual(answer.records[-1]["count"], 2)
        self.assertIsNone(self.run_ok("a = 3").one("names"))
        self.assertEqual(self.run_ok("del b").one("names"), ["a"])
        answer = self.run_ok("for i in range(300): globals()['n%03d' % i] = i")
        self.assertEqual((len(answer.one("names")), answer.records[-1]["count"]), (100, 302))

    def test_logging(self):
        self.assertIn("watch out", self.run_ok("import logging\nlogging.warning('watch out')").stderr)

    def test_descriptors(self):
        self.assertEqual(self.result("f = open('x', 'w')\nf.fileno()"), "3")
        listing = self.run_ok("import subprocess\n"
                              "subprocess.run('ls /proc/self/fd', shell=True, close_fds=False)").stdout
        self.assertLessEqual(set(listing.split()), {"0", "1", "2", "3"})


class Await(Case):
    def test_top_level(self):
        self.assertEqual(self.result("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 3\n"
                                     "await f()"), "3")
        self.assertEqual(self.result("x = await f()\nx + 1"), "4")
        self.assertEqual(self.result("async def g():\n    yield 1\n    yield 2\n[i async for i in g()]"), "[1, 2]")
        self.assertEqual(self.run_ok("async for i in g():\n    print(i)").stdout, "1\n2\n")
        self.assertEqual(self.result("class C:\n    async def __aenter__(self): return 7\n"
                                     "    async def __aexit__(self, *a): pass\nasync with C() as c:\n    pass\nc"), "7")

    def test_tasks_persist(self):
        self.run_ok("import asyncio\nseen = []\nasync def work():\n    for i in range(3):\n        seen.append(i)\n"
                    "        await asyncio.sleep(0.01)\n    return 'over'\ntask = asyncio.create_task(work())")
        self.assertEqual(self.result("await task"), "'over'")
        self.assertEqual(self.result("seen"), "[0, 1, 2]")

    def test_asyncio_run(self):
        self.run_ok("import asyncio\nawait asyncio.sleep(0)")
        self.assertEqual(self.result("async def main():\n    t = asyncio.create_task(asyncio.sleep(0, 5))\n"
                                     "    return await t\nasyncio.run(main())"), "5")
        self.assertEqual(self.result("await asyncio.sleep(0, 6)"), "6")

    def test_error_has_own_frames(self):
        error = self.error("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    1 / 0\nawait f()",
                           "ZeroDivisionError")
        self.assertEqual(error["traceback"].count("File"), 2, error["traceback"])
        self.assertIn("await f()", error["traceback"])
        self.assertEqual(self.kernel.run("import sys\nawait asyncio.sleep(0)\nsys.exit(5)").code, 5)
        self.works()

    def test_interrupt(self):
        self.kernel.start("import asyncio\nprint('go', flush=True)\nawait asyncio.sleep(30)")
        self.kernel.until(b"go")
        self.kernel.interrupt()
        answer = self.kernel.finish(5)
        self.assertEqual((answer.code, answer.error["name"]), (130, "KeyboardInterrupt"))
        self.kernel.start("async def f():\n    print('go', flush=True)\n    await asyncio.sleep(30)\nawait f()")
        self.kernel.until(b"go")
        self.kernel.asleep()
        self.kernel.interrupt()
        answer = self.kernel.finish(5)
        self.assertEqual((answer.code, answer.error["name"]), (130, "KeyboardInterrupt"))
        self.assertIn("line 3, in f", answer.error["traceback"])
        self.assertEqual(self.result("await asyncio.sleep(0, 8)"), "8")
        self.kernel.start("async def f():\n    print('go', flush=True)\n    while True: pass\nawait f()")
        self.kernel.until(b"go")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish(5).code, 130)
        self.assertEqual(self.result("await asyncio.sleep(0, 8)"), "8")


class Errors(Case):
    def test_traceback(self):
        error = self.error("def f(n):\n    return g(n)\ndef g(n):\n    return 1 / n\n\nf(0)", "ZeroDivisionError")
        self.assertEqual(error["value"], "division by zero")
        lines = error["traceback"].split("\n")
        self.assertEqual(lines[0], "Traceback (most recent call last):")
        self.assertIn('File "<cell 1>", line 6, in <module>', lines[1])
        self.assertIn("return 1 / n", error["traceback"])
        self.assertEqual(lines[-1], "ZeroDivisionError: division by zero")
        self.assertEqual(error["traceback"].count("File"), 3)

    def test_library_frames_stay(self):
        error = self.error("import json\njson.loads('{')", "JSONDecodeError")
        self.assertIn("decoder.py", error["traceback"])

    def test_not_on_stderr(self):
        answer = self.kernel.run("1/0")
        self.assertEqual((answer.out, answer.err), (b"", b""))

    def test_syntax(self):
        error = self.error("x = 1\n\ny z\n", "SyntaxError")
        self.assertIn("line 3", error["traceback"])
        self.assertIn("^", error["traceback"])
        self.assertNotIn("Traceback", error["traceback"])
        self.error("  x = 1", "IndentationError")
        self.error("'\\ud800' + chr(0", "SyntaxError")
        answer = self.kernel.run("x = '\0'")
        self.assertIn(answer.error["name"], ("SyntaxError", "ValueError"))

    def test_chains(self):
        text = self.error("try:\n    1/0\nexcept Exception as e:\n"
                          "    raise KeyError('k') from e", "KeyError")["traceback"]
        self.assertIn("direct cause", text)
        self.assertIn("ZeroDivisionError", text)
        text = self.error("try:\n    1/0\nexcept Exception:\n    {}['k']", "KeyError")["traceback"]
        self.assertIn("During handling", text)

    def test_group(self):
        if self.result("import sys\nsys.version_info >= (3, 11)") == "False":
            self.skipTest("Python before 3.11 has no exception groups")
        text = self.error("def f():\n    1/0\ntry:\n    f()\nexcept Exception as e:\n"
                          "    raise ExceptionGroup('many', [e, ValueError('v')])", "ExceptionGroup")["traceback"]
        self.assertIn("ValueError: v", text)
        self.assertIn("in f", text)

    def test_bounds(self):
        error = self.error("raise Exception('x' * 10_000_000)", "Exception")
        self.assertLessEqual(len(error["value"]), 20100)
        self.assertLessEqual(len(error["traceback"]), 20100)
        error = self.error("def f(n): return g(n)\ndef g(n): return f(n + 1)\nf(0)", "RecursionError")
        self.assertLessEqual(len(error["traceback"]), 20100)
        self.assertIn("line 3", error["traceback"])
        self.works()

    def test_hostile_objects(self):
        self.error("class E(Exception):\n    def __str__(self): raise ValueError('no')\nraise E()", "E")
        self.error("class E(Exception):\n    def __str__(self): return self.__str__()\nraise E()", "E")
        self.error("class E(Exception):\n    __class__ = property(lambda self: 1/0)\n    def __repr__(self): 1/0\n"
                   "raise E()", "E")
        self.error("class M(type):\n    def __getattribute__(c, n): raise BaseException('meta')\n"
                   "class E(Exception, metaclass=M): pass\nraise E('x')", "E")
        self.error("class E(BaseException): pass\nraise E('x')", "E")
        self.error("class E(Exception):\n    @property\n    def __traceback__(self): 1/0\nraise E('x')", "E")
        self.error("import traceback\ntraceback.TracebackException = None\n1/0", "ZeroDivisionError")
        self.error("class E(SystemExit):\n    code = property(lambda s: 1/0)\ntry: raise E()\nexcept SystemExit: {}[1]",
                   "KeyError")
        self.works()

    def test_hostile_values(self):
        for code in ["class A:\n    def __repr__(self): raise ValueError('no')\nA()",
                     "class A:\n    def __repr__(self): return 5\nA()", "[A()]",
                     "class A:\n    def __getattr__(self, n): return lambda *a, **k: 1/0\nA()",
                     "class A:\n    def __getattribute__(self, n): raise ValueError\nA()",
                     "class A:\n    __class__ = property(lambda s: 1/0)\nA()",
                     "class M(type):\n    __module__ = 5\n    def __instancecheck__(c, i): 1/0\n"
                     "    def __eq__(c, o): 1/0\n"
                     "    __hash__ = None\nclass A(metaclass=M): pass\nA()",
                     "class S(str):\n    def __getitem__(self, i): 1/0\n    def encode(self, *a): return b'x'\n"
                     "class A:\n    def __repr__(self): return S('sub')\nA()",
                     "class A:\n    def _repr_html_(self): 1/0\n    def _repr_png_(self): return 'not base64'\nA()",
                     "class A:\n"
                     "    def _repr_mimebundle_(self, **k): return {'text/html': 5, 7: 8, 'a/json': {1: "
                     "float('nan')}}\nA()"]:
            with self.subTest(code):
                answer = self.kernel.run(code)
                self.assertIsNotNone(answer.one("result"), answer)
        self.works()

    def test_exit_codes(self):
        for code, expected, said in [("exit()", 0, ""), ("import sys\n"
                                                         "sys.exit(3)", 3, ""), ("sys.exit('why')", 1, "why\n"),
                                     ("sys.exit(-1)", 255, ""), ("sys.exit(True)", 1, ""), ("sys.exit(2**70)", 255, ""),
                                     ("raise SystemExit([1])", 1, "[1]\n"), ("quit(4)", 4, "")]:
            with self.subTest(code):
                answer = self.kernel.run(code)
                self.assertEqual((answer.code, answer.stderr, answer.error), (expected, said, None))
        self.works()


class Hostile(Case):
    def survives(self, code, **how):
        with self.subTest(code):
            answer = self.kernel.run(code, **how)
            self.works()
            return answer

    def test_builtins(self):
        self.survives("del __builtins__")
        self.survives("import builtins\nkept = dict(builtins.__dict__)\n"
                      "for n in ['len', 'repr', 'type', 'str', 'isinstance', 'eval', 'compile', 'list', 'sorted', "
                      "'getattr']:\n"
                      "    delattr(builtins, n)")
        self.survives("builtins.__dict__.update(kept)")

    def test_globals_cleared(self):
        self.survives("globals().clear()")

    def test_streams(self):
        self.survives("import sys, os")
        self.survives("sys.stdin.close()")
        self.survives("os.close(2)")
        self.survives("sys.stdout.close()")
        self.survives("os.close(1)")
        self.survives("os.dup2(os.open('/dev/null', os.O_WRONLY), 1)")
        answer = self.kernel.run("import io\nreal, sys.stdout = sys.stdout, io.StringIO()\nprint('hidden')")
        self.assertEqual((answer.code, answer.out), (0, b""))
        self.assertEqual(self.result("sys.stdout.getvalue()"), repr("hidden\n"))
        self.run_ok("sys.stdout = real")
        self.works()
        self.kernel.run("print = open = None; del sys.stderr")
        self.assertEqual(self.result("5"), "5")

    def test_tracing(self):
        self.survives("import sys\nsys.settrace(lambda *a: 1/0)")
        self.survives("sys.settrace(None)\nsys.setprofile(lambda *a: None)")
        self.survives("sys.setprofile(None)")

    def test_recursion_limit(self):
        self.run_ok("import sys\nsys.setrecursionlimit(30)")
        answer = self.kernel.run("def f(n): return n and f(n - 1)\nf(100)")
        self.assertEqual(answer.error["name"], "RecursionError", answer)
        self.assertEqual(self.kernel.run("sys.setrecursionlimit(1000)").code, 0)
        self.works()

    def test_deep_source(self):
        answer = self.kernel.run("(" * 5000 + ")" * 5000)
        self.assertEqual(answer.code, 1)
        self.works()

    def test_fork(self):
        answer = self.run_ok("import os\nprint('before')\npid = os.fork()\nif pid: print(os.waitpid(pid, 0)[1])\n"
                             "'end', pid > 0")
        self.assertEqual(answer.stdout, "before\n0\n")
        self.assertEqual(len(answer.all("result")), 1)
        answer = self.run_ok("pid = os.fork()\nif not pid: raise ValueError('in the child')\nos.waitpid(pid, 0)[1]")
        self.assertEqual(answer.result, "256")
        self.assertIn("ValueError: in the child", answer.stderr)
        self.assertEqual(self.result("pid = os.fork()\nif not pid: exit(3)\nos.waitpid(pid, 0)[1] >> 8"), "3")
        answer = self.run_ok("pid = os.fork()\nif not pid: display('from the child')\nelse: os.waitpid(pid, 0)\n")
        self.assertEqual(answer.all("show"), [])
        self.works()

    def test_shadowed_modules(self):
        self.run_ok("for n in 'traceback', 'linecache', 'json', 'asyncio', 'subprocess':\n"
                    "    open(n + '.py', 'w').write('raise RuntimeError(1)')")
        self.assertIn("line 1", self.error("1/0", "ZeroDivisionError")["traceback"])

    def test_signals(self):
        self.survives("import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1/0)\n"
                      "signal.setitimer(signal.ITIMER_REAL, 0.05)")
        self.kernel.run("import time\ntime.sleep(0.1)")
        self.works()

    def test_interpreter(self):
        self.survives("import sys, os")
        self.run_ok("sys.stdout = 5")
        self.survives("sys.stdout = sys.__stdout__")
        self.survives("sys.meta_path.clear()")
        self.survives("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')")
        self.error("1/0", "ZeroDivisionError")
        self.survives("sys.path = None")
        self.error("1/0", "ZeroDivisionError")
        self.survives("class D:\n    def __del__(self): 1/0\nD()")
        self.survives("import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start()\nt.join()")
        self.survives("sys.modules.clear()")
        self.error("{}[1]", "KeyError")

    def test_warnings_once(self):
        answer = self.run_ok("class A: pass\na = A()\nx = 5\nx is 5\na.b = 3")
        self.assertLessEqual(answer.stderr.count("SyntaxWarning"), 1)

    def test_garbage(self):
        self.survives("import gc\ngc.freeze()")
        self.survives("gc.disable()")


class Input(Case):
    def test_input(self):
        self.assertEqual(self.result("a = input(); b = input()\na, b", stdin=b"one\ntwo\nthree\n"), "('one', 'two')")
        error = self.error("input()", "EOFError")
        self.assertIn("stdin", error["value"])
        self.assertEqual(self.result("import sys\nsys.stdin.read()", stdin=b"all\nof it"), repr("all\nof it"))
        self.assertEqual(self.result("sys.stdin.read()"), "''")
        self.assertEqual(self.result("[line for line in sys.stdin]", stdin="é\nb".encode()), repr(["é\n", "b"]))
        self.assertEqual(self.result("open(0, closefd=False).read()", stdin=b"zero"), "'zero'")
        self.assertEqual(self.result("input()", stdin=b"again\n"), "'again'")

    def test_prompt(self):
        self.assertEqual(self.run_ok("x = input('Name: ')", stdin=b"n\n").stdout, "Name: ")

    def test_children_read_it(self):
        self.assertEqual(self.run_ok("import subprocess\n"
                                     "subprocess.run('cat')", stdin=b"passed on").stdout, "passed on")


class Interrupt(Case):
    def interrupted(self, code):
        self.kernel.start("print('go', flush=True)\n" + code)
        self.kernel.until(b"go")
        if "time.sleep(30)" in code:
            self.kernel.asleep()
        self.kernel.interrupt()
        begun = time.monotonic()
        answer = self.kernel.finish(5)
        self.assertLess(time.monotonic() - begun, 1.5, code)
        self.assertEqual((answer.code, answer.error["name"]), (130, "KeyboardInterrupt"), answer)
        # Frames of the driver; a directory of ours may be named by what was interrupted.
        self.assertNotIn("<belljar", answer.error["traceback"])
        self.works()
        return answer

    def test_interrupts(self):
        self.run_ok("kept = 'here'")
        for code in ["import time\ntime.sleep(30)", "while True: pass", "import subprocess\n"
                                                                        "subprocess.run(['sleep', '30'])",
                     "import threading\nthreading.Event().wait(30)", "def f():\n    while True:\n"
                                                                     "        sum(range(1000))\nf()",
                     "class A:\n    def __repr__(self):\n        while True: pass\nA()"]:
            with self.subTest(code):
                answer = self.interrupted(code)
                if "time.sleep" in code:
                    self.assertIn("line 3", answer.error["traceback"])
        self.assertEqual(self.result("kept"), "'here'")

    def test_while_the_error_is_told(self):
        self.kernel.start("class E(Exception):\n    def __str__(self):\n        print('go', flush=True)\n"
                          "        while True: pass\nraise E()")
        self.kernel.until(b"go")
        self.kernel.interrupt()
        answer = self.kernel.finish(5)
        self.assertEqual((answer.code, answer.error["name"]), (130, "E"))
        self.assertIn("line 5", answer.error["traceback"])
        self.works()

    def test_caught(self):
        self.interrupted("import time\nwhile True:\n    try:\n        time.sleep(0.01)\n"
                         "    except KeyboardInterrupt:\n        pass")
        self.interrupted("def f():\n    while True:\n        try:\n            g()\n        except BaseException:\n"
                         "            continue\ndef g():\n    while True:\n        try:\n            len('')\n"
                         "        except:\n            pass\nf()")

    def test_caught_and_ended(self):
        self.kernel.start("import time\ntry:\n    print('go', flush=True)\n    time.sleep(30)\n"
                          "except KeyboardInterrupt:\n    display(1)\n    x = 'cleaned'")
        self.kernel.until(b"go")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish(5).code, 0)
        self.assertEqual(self.result("x"), "'cleaned'")

    def test_idle_and_late(self):
        for _ in range(20):
            self.kernel.interrupt()
        self.works()
        # As fast as cells come: each ends as itself or as interrupted, and the kernel goes on.
        stop = threading.Event()

        def storm():
            while not stop.is_set():
                self.kernel.interrupt()
                time.sleep(0.0007)

        thread = threading.Thread(target=storm)
        thread.start()
        try:
            for count in range(300):
                answer = self.kernel.run("x = %d\nx + 1" % count)
                self.assertIn(answer.code, (0, 130), answer)
                if answer.code == 0:
                    self.assertEqual(answer.result, str(count + 1))
        finally:
            stop.set()
            thread.join()
        self.works()

    def test_own_handler(self):
        self.run_ok("import signal\nseen = []\nold = signal.signal(signal.SIGINT, lambda *a: seen.append(1))")
        self.kernel.start("import time\nprint('go', flush=True)\nend = time.time() + 5\n"
                          "while not seen and time.time() < end: time.sleep(0.01)\nseen")
        self.kernel.until(b"go")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish(6).result, "[1]")
        self.run_ok("x = signal.signal(signal.SIGINT, old)")
        self.interrupted("while True: pass")


class Output(Case):
    def test_many_lines(self):
        answer = self.run_ok("for i in range(100000): print(i)")
        self.assertEqual(answer.out.count(b"\n"), 100000)

    def test_lines_come_at_once(self):
        self.kernel.start("import time\nprint('a', 'b')\ntime.sleep(30)")
        self.assertIn(b"a b\n", self.kernel.until(b"\n", 5))
        self.kernel.interrupt()
        self.kernel.finish(5)

    def test_surrogates(self):
        self.assertEqual(self.run_ok("print('\\ud800')").stdout, "\\ud800\n")
        self.assertEqual(self.result("'\\ud800\\x01\"\\n'"), repr("\ud800\x01\"\n"))

    def test_pretty(self):
        text = self.result("list(range(1000))")
        self.assertLessEqual(max(map(len, text.split("\n"))), 100)
        self.assertEqual(eval(text), list(range(1000)))
        text = self.result("{'key%d' % i: list(range(i)) for i in range(30)}")
        self.assertEqual(eval(text), {"key%d" % i: list(range(i)) for i in range(30)})
        self.assertIn("more", self.result("list(range(10**6))"))
        self.assertLessEqual(len(self.result("'x' * 10**7")), 100_000)
        self.assertIn("[...]", self.result("a = [1] * 50\na.append(a)\na"))
        self.assertEqual(eval(self.result("(('x' * 99,), {1}, frozenset([2]), set(), b'b', [None] * 40)")),
                         (("x" * 99,), {1}, frozenset([2]), set(), b"b", [None] * 40))

    def test_display(self):
        answer = self.run_ok("class A:\n    def _repr_html_(self): return '<b>'\n"
                             "    def _repr_latex_(self): return '$x$', {}\n"
                             "    def _repr_json_(self): return {'a': float('inf')}\n"
                             "    def __repr__(self): return 'an A'\n"
                             "h = display(A(), 5, display_id='i')\nA()")
        self.assertEqual([bundle["data"]["text/plain"] for bundle in answer.all("show")], ["an A", "5"])
        data = answer.one("result")["data"]
        self.assertEqual(data, {"text/html": "<b>", "text/latex": "$x$", "application/json": {"a": None},
                                "text/plain": "an A"})
        self.assertEqual([bundle["data"]["text/plain"] for bundle in
                          self.run_ok("h.update(6); h.update(7)").all("show")], ["7"])
        self.assertEqual(self.run_ok("class B:\n    def _ipython_display_(self): print('itself')\n"
                                     "B()").stdout, "itself\n")

    def test_shows_are_bounded(self):
        shows = self.run_ok("for i in range(200): display(i)").all("show")
        self.assertEqual(len(shows), 65)
        self.assertIn("136 more", shows[-1]["data"]["text/plain"])

    def test_large_bundles(self):
        answer = self.run_ok("class A:\n    def _repr_html_(self): return 'h' * 3_000_000\n"
                             "    def _repr_json_(self): return ['j' * 2_000_000]\n"
                             "    def __repr__(self): return 't' * 300_000\nA()")
        data = answer.one("result")["data"]
        self.assertLessEqual(len(data["text/html"]), 1_000_000)
        self.assertLessEqual(len(data["text/plain"]), 100_000)
        self.assertNotIn("application/json", data)

    def test_large_picture_without_pillow(self):
        answer = self.run_ok("import zlib, struct\n"
                             "def chunk(k, d): return struct.pack('>I', len(d)) + k + d + struct.pack("
                             "'>I', zlib.crc32(k + d))\nclass A:\n    def _repr_png_(self):\n"
                             "        return b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', "
                             "4000, 4000, 8, 0, 0, 0, 0))"
                             " + chunk(b'IDAT', zlib.compress(b'\\0' * 4001 * 4000, 0)) + chunk(b'IEND', b'')\n"
                             "import sys\nsys.modules['PIL'] = None\nA()")
        bundle = answer.one("result")
        self.assertIn("4000 x 4000", bundle["data"]["text/plain"])
        self.assertNotIn("image/png", bundle["data"])

    def test_threads(self):
        answer = self.run_ok("import threading\ndef f(i):\n    for j in range(5): display((i, j, 'x' * 1000))\n"
                             "ts = [threading.Thread(target=f, args=(i,)) for i in range(8)]\n"
                             "for t in ts: t.start()\nfor t in ts: t.join()")
        self.assertEqual(len(answer.all("show")), 40)


class Last(Case):
    def test_as_a_script_ends(self):
        answer = self.run_ok("import atexit, threading, time\natexit.register(print, 'at exit')\n"
                             "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
                             "class A:\n    def __del__(self): print('finalized')\na = A(); a.me = a\n"
                             "f = open('left', 'w'); f.write('written'); print('cell', end='')", last=True)
        self.assertEqual(answer.stdout, "cellthread\nat exit\nfinalized\n")
        with open(os.path.join(self.kernel.home, "left")) as file:
            self.assertEqual(file.read(), "written")
        self.assertEqual(self.kernel.close(), 0)

    def test_error_and_result(self):
        answer = self.kernel.run("1/0", last=True)
        self.assertEqual((answer.code, answer.error["name"]), (1, "ZeroDivisionError"))

    def test_result(self):
        self.assertEqual(self.run_ok("[1]", last=True).result, "[1]")

    def test_interrupt(self):
        for code in "while True: pass", "display(1)\nimport time\ntime.sleep(30)":
            kernel = self.begin(self.interpreter)
            kernel.interrupt()
            kernel.start("print('go', flush=True)\n" + code, last=True)
            kernel.until(b"go")
            kernel.interrupt()
            answer = kernel.finish(5)
            self.assertEqual((answer.code, answer.error["name"]), (130, "KeyboardInterrupt"), answer)

    def test_what_is_left_behind(self):
        for code, out, shows, expected in [
                ("display(5)", "", 1, 0), ("import sys\ndel sys.stdout", "", 0, 0),
                ("import os\nif not os.fork(): print('child')\nelse: os.wait()", "child\n", 0, 0),
                ("import sys\nsys.setrecursionlimit(30)\ndisplay(1)", "", 1, 0),
                ("import sys\nsys.settrace(lambda *a: 1/0)", "", 0, 0), ("exit(3)", "", 0, 3),
                ("import threading\nt = threading.Thread(target=display, args=(1,))\nt.start()\nt.join()", "", 1, 0),
                ("def f(): pass\nclass A:\n    def __del__(self): display(1)\na = A()", "", 1, 0),
                ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n1", "", 0, 0),
                ("x = 1  # " + "long " * 20000 + "\nprint(x)", "1\n", 0, 0), ("", "", 0, 0)]:
            with self.subTest(code[:60]):
                kernel = self.begin(self.interpreter)
                answer = kernel.run(code, last=True)
                self.assertEqual((answer.code, answer.stdout, len(answer.all("show"))), (expected, out, shows), answer)
                self.assertEqual(kernel.close(), 0)

    def test_interrupted_threads(self):
        self.kernel.start("import threading, time\nthreading.Thread(target=time.sleep, args=(30,)).start()\n"
                          "print('go')",
                          last=True)
        self.kernel.until(b"go")
        self.kernel.asleep()
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish(5).code, 130)

    def test_tasks(self):
        answer = self.run_ok("import asyncio\nasync def f():\n    try:\n        await asyncio.sleep(30)\n"
                             "    finally:\n        print('cancelled')\nt = asyncio.create_task(f())\n"
                             "await asyncio.sleep(0)",
                             last=True)
        self.assertEqual((answer.stdout, answer.stderr), ("cancelled\n", ""))

    def test_eof_ends_the_kernel(self):
        self.assertEqual(self.kernel.close(), 0)


class Unbuffered(Output):
    options = ("-u", "-X", "utf8")


class Magics(Case):
    """Without IPython, which is hidden where it is there."""

    def setUp(self):
        super().setUp()
        self.kernel.run("import sys\nclass No:\n    def find_spec(self, name, path=None, target=None):\n"
                        "        if name.split('.')[0] == 'I' + 'Python': raise ImportError(name)\n"
                        "sys.meta_path.insert(0, No())")

    def test_commands(self):
        answer = self.run_ok("x = 3\n!echo $x {x + 1}; echo problem >&2")
        self.assertEqual((answer.stdout, answer.stderr), ("3 4\n", "problem\n"))
        self.assertEqual(self.result("y = !echo a; echo b\ny"), "['a', 'b']")
        self.assertEqual(self.run_ok("for i in range(2):\n    !echo $i\ns = '''\n!no\n'''").stdout, "0\n1\n")
        self.run_ok("!exit 4")
        self.assertEqual(self.result("_exit_code"), "4")

    def test_lines(self):
        self.assertIn("wall time", self.run_ok("%time x = 1").stdout)
        self.assertIn("per loop", self.run_ok("%timeit -n 10 -r 2 1 + 1").stdout)
        answer = self.run_ok("%%time\nz = 1\nz + 1")
        self.assertEqual((answer.result, "wall time" in answer.stdout), ("2", True))
        self.assertEqual(self.run_ok("%%bash\necho from bash").stdout, "from bash\n")
        self.run_ok("%%writefile f.txt\nhello\n")
        self.assertEqual(self.result("open('f.txt').read()"), repr("hello\n"))
        self.assertEqual(self.run_ok("%cd /\n%pwd").result, "'/'")
        self.assertEqual(self.result("%env KEY=v\nimport os\nos.environ['KEY']"), "'v'")
        self.run_ok("%matplotlib inline\n%load_ext autoreload\n%autoreload 2")
        self.assertIn("z", self.run_ok("%who").stdout)
        self.assertIn("number of items", self.run_ok("len?").one("show")["data"]["text/plain"])
        self.assertIn("pip", self.run_ok("%pip --version").stdout)

    def test_failures(self):
        self.assertIn("%timeit", self.error("%nosuch", "UsageError")["value"])
        self.error("%%nosuch\nx", "UsageError")
        self.error("%%bash\nexit 3", "CalledProcessError")
        self.assertIn("1 / 0", self.error("x = 1\n!true\n1 / 0", "ZeroDivisionError")["traceback"])
        self.error("x = = 2\n!true", "SyntaxError")


class Science(Case):
    science = None

    def setUp(self):
        if not self.science:
            self.skipTest("no --science PATH_TO_PYTHON: see scripts/science")
        self.kernel = self.begin(self.science)

    def picture(self, bundle):
        width, height, colours = pixels(base64.b64decode(bundle["data"]["image/png"]))
        self.assertEqual((bundle["width"], bundle["height"]), (width, height))
        return colours

    def test_figures(self):
        answer = self.run_ok("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n"
                             "ax.plot([1, 2, 3], [4, 5, 6], color='#ff0000', linewidth=5, label='up')\n"
                             "ax.set(title='T', xlabel='time (s)', ylabel='y')\nfig.savefig('saved.png')\n"
                             "print('drawn')")
        shows = answer.all("show")
        self.assertEqual(len(shows), 1)
        colours = self.picture(shows[0])
        self.assertIn(b"\xff\0\0\xff", colours)
        self.assertIn(b"\xff\xff\xff\xff", colours)
        chart = shows[0]["data"]["application/vnd.belljar.chart+json"]
        self.assertEqual((chart["type"], chart["title"], chart["x_unit"]), ("line", "T", "s"))
        self.assertEqual(chart["elements"], [{"label": "up", "points": [[1, 4], [2, 5], [3, 6]]}])
        self.assertEqual(self.run_ok("1").all("show"), [])
        answer = self.run_ok("fig, ax = plt.subplots()\nax.bar(['a', 'b'], [1, 2])\nfig")
        self.assertEqual(len(answer.all("show")), 0)
        self.assertEqual(answer.one("result")["data"]["application/vnd.belljar.chart+json"]["elements"],
                         [{"label": "a", "group": "", "value": 1.0}, {"label": "b", "group": "", "value": 2.0}])
        answer = self.run_ok("plt.plot([1]); plt.show(); display('between'); plt.plot([2]); plt.plot([3]); "
                             "plt.gcf().show(); 0")
        self.assertEqual(["image/png" in show["data"] for show in answer.all("show")], [True, False, True])
        self.assertEqual(answer.stderr, "")
        answer = self.kernel.run("plt.plot([1]); plt.figure(); plt.plot([2])\n1/0")
        self.assertEqual((len(answer.all("show")), answer.code), (2, 1))
        self.assertEqual(self.run_ok("plt.plot([1]); plt.close(); plt.figure();").all("show"), [])
        self.assertEqual(len(self.run_ok("plt.plot([1]); display(plt.gcf()); plt.plot([2]); 0").all("show")), 2)
        self.assertEqual(len(self.run_ok("plt.plot([1]); display(plt.gcf()); 0").all("show")), 1)
        self.assertIn("image/png", self.run_ok("from matplotlib.figure import Figure\nf = Figure()\n"
                                               "f.subplots().plot([1])\nf"
                                               ).one("result")["data"])
        self.assertEqual(self.run_ok("import os, sys, subprocess\nprint(subprocess.run([sys.executable, '-c', "
                                     "'import matplotlib; print(matplotlib.get_backend())'], "
                                     "stdout=-1).stdout.decode())"
                                     ).stdout.strip().lower(), "agg")

    def test_charts(self):
        answer = self.run_ok("import matplotlib.pyplot as plt, datetime\nfig, ax = plt.subplots(2, 2)\n"
                             "ax[0, 0].pie([1, 3], labels=['p', 'q'])\nax[0, 1].boxplot([[1, 2, 3, 10]])\n"
                             "ax[1, 0].scatter([1, 2], [3, 4])\n"
                             "ax[1, 1].plot([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)], [1, 2])")
        chart = answer.all("show")[0]["data"]["application/vnd.belljar.chart+json"]
        self.assertEqual(chart["type"], "superchart")
        pie, box, scatter, line = chart["elements"]
        self.assertEqual(pie["elements"][1], {"label": "q", "angle": 270.0, "radius": 1.0})
        self.assertEqual((box["type"], box["elements"][0]["median"], box["elements"][0]["outliers"]),
                         ("box_and_whisker", 2.5, [10.0]))
        self.assertEqual((scatter["type"], scatter["elements"][0]["points"]), ("scatter", [[1, 3], [2, 4]]))
        self.assertEqual(line["elements"][0]["points"][0][0][:10], "2024-01-01")
        answer = self.run_ok("plt.plot(range(5000)); 0")
        self.assertNotIn("application/vnd.belljar.chart+json", answer.all("show")[0]["data"])

    def test_seaborn(self):
        answer = self.run_ok("import seaborn as sns, pandas as pd\n"
                             "sns.barplot(x=['a', 'b'], y=[1, 2]);")
        self.assertEqual(len(answer.all("show")), 1)
        self.picture(answer.all("show")[0])

    def test_frames(self):
        answer = self.run_ok("import pandas as pd\ndf = pd.DataFrame({'a': range(1000), 'b': 0.5})\ndf")
        data = answer.one("result")["data"]
        self.assertTrue(data["text/plain"].endswith("[1000 rows x 2 columns]"), data["text/plain"])
        self.assertLessEqual(len(data["text/plain"].split("\n")), 25)
        self.assertEqual(data["application/vnd.belljar.table+json"],
                         {"shape": [1000, 2], "columns": [["a", "int64"], ["b", "float64"]]})
        self.assertIn("<table", data["text/html"])
        wide = self.result("pd.DataFrame([[j * 1.5 for j in range(200)]] * 3, columns=['c%d' % i for i in range(200)])")
        self.assertLessEqual(max(map(len, wide.split("\n"))), 160)
        self.assertIn("Name: b", self.result("df.b"))
        self.assertIn("...", self.result("df.a"))
        self.run_ok("pd.DataFrame()")
        self.run_ok("pd.DataFrame(columns=['a'])")
        self.assertRegex(self.result("import numpy as np\n"
                                     "np.arange(5000).reshape(50, 100)"), r"array\(\[\[ +0, .*\.\.\.")
        self.assertIn("[2 rows x 2 columns]", self.run_ok("display(df.head(2))").one("show")["data"]["text/plain"])

    def test_plotly(self):
        answer = self.run_ok("import plotly.graph_objects as go\nf = go.Figure(go.Bar(x=['a'], y=[float('nan')]))\n"
                             "f.update_layout(title='P')\nf.show()\nf")
        for bundle in answer.all("show") + answer.all("result"):
            self.assertEqual(bundle["data"]["application/vnd.plotly.v1+json"]["data"][0]["type"], "bar")
            self.assertLess(len(bundle["data"]["text/html"]), 100_000)
            self.assertIn("bar", bundle["data"]["text/plain"])
        self.assertEqual((len(answer.all("show")), len(answer.all("result"))), (1, 1))

    def test_pictures(self):
        answer = self.run_ok("from PIL import Image\nImage.new('RGB', (30, 20), '#00ff00')")
        self.assertEqual(self.picture(answer.one("result")), {b"\0\xff\0"})
        bundle = self.run_ok("Image.new('RGB', (3000, 2000), '#00ff00')").one("result")
        self.assertEqual((self.picture(bundle), max(bundle["width"], bundle["height"])), ({b"\0\xff\0"}, 1568))
        original = base64.b64decode(bundle["original"]["data"])
        self.assertEqual(struct.unpack(">II", original[16:24]), (3000, 2000))
        bundle = self.run_ok("Image.effect_noise((4200, 4200), 90)").one("result")
        shown = base64.b64decode(bundle["data"]["image/jpeg"])
        self.assertLessEqual(len(shown), 512 << 10)
        self.assertGreater(os.path.getsize(bundle["original_path"]), 6 << 20)
        for mode in "1", "L", "P", "RGBA", "CMYK", "I", "F", "LA", "I;16":
            with self.subTest(mode):
                self.assertIn("image/png", self.run_ok("Image.new(%r, (9, 9))" % mode).one("result")["data"])

    def test_picture_of_50_megabytes(self):
        answer = self.run_ok("import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
                             "from PIL import Image\nimport io\nf = io.BytesIO()\n"
                             "Image.effect_noise((8000, 8000), 200).save(f, 'PNG', compress_level=1)\n"
                             "class A:\n    def _repr_png_(self): return f.getvalue()\nprint(f.tell())\nA()")
        self.assertGreater(int(answer.stdout), 45 << 20)
        bundle = answer.one("result")
        self.assertTrue({"image/png", "image/jpeg"} & set(bundle["data"]), bundle)
        self.assertGreater(os.path.getsize(bundle["original_path"]), 45 << 20)

    def test_interrupt_in_capture(self):
        self.run_ok("import matplotlib.pyplot as plt, time\nfrom matplotlib.artist import Artist\n"
                    "class Slow(Artist):\n    def draw(self, r):\n        print('go', flush=True)\n"
                    "        time.sleep(30)")
        self.kernel.start("plt.gca().add_artist(Slow()); 0")
        self.kernel.until(b"go")
        self.kernel.interrupt()
        answer = self.kernel.finish(5)
        self.assertEqual((answer.code, answer.error["name"]), (130, "KeyboardInterrupt"))
        self.works()
        self.assertEqual(self.run_ok("1").all("show"), [])

    def test_sympy(self):
        data = self.run_ok("import sympy\nx = sympy.Symbol('x')\nx ** 2 / 3").one("result")["data"]
        self.assertIn("\\frac{x^{2}}{3}", data["text/latex"])
        self.assertEqual(data["text/plain"], "x**2/3")

    def test_ipython(self):
        self.assertEqual(self.result("import sys\n'I' + 'Python' in sys.modules"), str(self.zygotes is not None))
        answer = self.run_ok("x = 3\n!echo $x {x + 1}; echo problem >&2")
        self.assertEqual((answer.stdout, answer.stderr), ("3 4\n", "problem\n"))
        self.assertEqual(self.result("'I' + 'Python' in sys.modules"), "True")
        self.assertEqual(self.result("y = !echo a\nlist(y)"), "['a']")
        self.assertEqual(self.result("import threading\nthreading.active_count()"), "1")
        answer = self.run_ok("from IPython.display import HTML, Markdown, Latex, SVG, JSON, Javascript, "
                             "clear_output, display, "
                             "update_display, ProgressBar\ndisplay(HTML('<b>'))\nclear_output()\n"
                             "display(1, display_id='d')\n"
                             "update_display(2, display_id='d')\nupdate_display(3, display_id='d')\nMarkdown('# m')")
        self.assertEqual([show["data"].get("text/html") or show["data"]["text/plain"] for show in answer.all("show")],
                         ["<b>", "1", "3"])
        self.assertEqual(answer.one("result")["data"]["text/markdown"], "# m")
        self.assertEqual(answer.one("names"), sorted("HTML Markdown Latex SVG JSON Javascript clear_output display "
                                                     "update_display ProgressBar x y".split()))
        self.assertIn("per loop", self.run_ok("%timeit -n 10 -r 2 1 + 1").stdout)
        self.assertEqual(self.result("%%time\nz = 1\nz + 1"), "2")
        self.assertEqual(self.run_ok("%%bash\necho from bash; echo e >&2").stdout, "from bash\n")
        self.run_ok("%%writefile s.py\nrun = 'yes'\n")
        self.assertEqual(self.result("%run s.py\nrun"), "'yes'")
        self.assertIn("number of items", self.run_ok("len?").one("show")["data"]["text/plain"])
        self.error("%nosuch", "UsageError")
        text = self.error("%%time\n1/0", "ZeroDivisionError")["traceback"]
        self.assertNotIn("interactiveshell", text)
        self.assertEqual(self.result("_ = 0\n7") and self.result("_"), "7")
        answer = self.run_ok("%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1]); 0")
        self.assertEqual(len(answer.all("show")), 1)
        answer = self.run_ok("import pandas as pd\ndisplay(pd.DataFrame({'a': [1]}))")
        self.assertIn("application/vnd.belljar.table+json", answer.one("show")["data"])
        self.assertEqual(self.result("await __import__('asyncio').sleep(0, 4)"), "4")
        self.assertEqual(self.result("get_ipython().user_ns is globals()"), "True")

    def test_ipython_autoreload_and_pip(self):
        self.run_ok("%load_ext autoreload\n%autoreload 2\nopen('mod.py', 'w').write('v = 1')\nimport mod")
        self.run_ok("import os\nopen('mod.py', 'w').write('v = 22')\nos.utime('mod.py', (1, 2**31 - 1))")
        self.assertEqual(self.result("mod.v"), "22")
        answer = self.kernel.run("%pip install --no-index no-such-package-here")
        self.assertIn("No matching distribution", answer.stderr)
        self.assertEqual(answer.code, 1)


class Packages(Case):
    """A layer of packages, in place of the one that a sandbox has at /belljar/packages."""

    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="belljar-layers-")
        self.addCleanup(shutil.rmtree, self.home)
        self.root = os.path.join(self.home, "packages")
        self.count = 0
        version = subprocess.run([self.interpreter, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                                 stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        self.inner = "lib/python%s/site-packages" % version
        self.site = os.path.join(self.root, self.inner)
        os.rename(self.layer({}), self.root)
        self.kernel = self.begin(self.interpreter)

    def begin(self, interpreter, around=()):
        if self.zygotes is None or around:
            kernel = harness.python(interpreter, packages=self.root, around=around)
        else:
            zygote = forks.Zygote(interpreter, packages=self.root)
            self.addCleanup(zygote.close)
            kernel = zygote.fork()
        self.addCleanup(kernel.close)
        return kernel

    def layer(self, files):
        """All of the same age: what goes by the time of change sees no difference."""
        self.count += 1
        folder = os.path.join(self.home, "layer%d" % self.count)
        os.makedirs(os.path.join(folder, self.inner))
        for name, text in files.items():
            path = os.path.join(folder, self.inner, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        for path, _, _ in os.walk(folder):
            os.utime(path, (1, 1))
        return folder

    def put(self, files):
        self.count += 1
        os.rename(self.root, os.path.join(self.home, "old%d" % self.count))
        os.rename(self.layer(files), self.root)

    def test_they_come_after_pythons_own_and_before_the_interpreters(self):
        self.put({"json.py": "", "first.py": "v = 1"})
        paths = eval(self.run_ok("import sys, json, first\nprint(sys.path)").stdout)
        self.assertEqual(paths.count(self.site), 1)
        at = paths.index(self.site)
        self.assertTrue(any(path.endswith("lib-dynload") for path in paths[:at]), paths)
        self.assertFalse(any(path.endswith("-packages") for path in paths[:at]), paths)
        self.assertIn("dumps", self.result("dir(json)"))

    def test_what_comes_while_the_kernel_lives(self):
        self.run_ok("x = 1")
        self.error("import some", "ModuleNotFoundError")
        self.error("import some.part", "ModuleNotFoundError")
        self.put({"some/__init__.py": "v = 2", "some/part.py": "w = 3"})
        self.assertEqual(self.result("import some.part\nsome.v, some.part.w, x"), "(2, 3, 1)")
        self.put({"some/__init__.py": "v = 9", "some/part.py": "", "more.py": "v = 4"})
        self.assertEqual(self.result("import some, more\nsome.v, more.v"), "(2, 4)")
        self.assertEqual(self.result("import importlib.util\nimportlib.util.find_spec('gone')"), None)

    def test_in_the_midst_of_a_cell(self):
        new = self.layer({"some.py": "v = 2"})
        swap = "import os\nos.rename(%r, %r)\nos.rename(%r, %r)\n" % (self.root, self.home + "/was", new, self.root)
        self.assertEqual(self.result("try:\n    import some\nexcept ImportError:\n    print('none')\n" + swap
                                     + "import some\nsome.v"), "2")

    def test_a_package_in_several_places(self):
        self.put({"space/one.py": "v = 1"})
        self.run_ok("import os, sys, space.one\nos.makedirs('here/space')\nopen('here/space/two.py', 'w').close()\n"
                    "sys.path.append('here')\nimport space.two")
        self.put({"space/one.py": "v = 1", "space/three.py": "v = 3"})
        self.assertEqual(self.result("import space.three\nspace.three.v"), "3")

    def test_a_pth_file_is_heeded_once(self):
        note = "import sys; sys.note = getattr(sys, 'note', '') + %r\n"
        self.put({"a.pth": note % "a" + "extra\n", "extra/deep.py": "v = 5"})
        self.assertEqual(self.result("import sys, deep\nsys.note, deep.v"), "('a', 5)")
        paths = eval(self.run_ok("import sys\nprint(sys.path)").stdout)
        at = paths.index(os.path.join(self.site, "extra"))
        self.assertFalse(any(path.endswith("-packages") and path != self.site for path in paths[:at]), paths)
        self.assertEqual(self.result("sys.note"), "'a'")
        self.put({"b.pth": note % "b"})
        self.assertEqual(self.result("sys.note"), "'ab'")
        # Of a kernel that begins with them.
        kernel = self.begin(self.interpreter)
        self.assertEqual(kernel.run("import sys\nsys.note").result, "'b'")

    def test_versions_are_told_of_as_they_are_now(self):
        told = "import importlib.metadata\nimportlib.metadata.version('some')"
        self.put({"some-1.0.dist-info/METADATA": "Name: some\nVersion: 1.0\n"})
        self.assertEqual(self.result(told), "'1.0'")
        self.put({"some-2.0.dist-info/METADATA": "Name: some\nVersion: 2.0\n"})
        self.assertEqual(self.result(told), "'2.0'")

    def test_a_module_that_was_loaded_stays_and_that_is_told(self):
        self.put({"some.py": "__version__ = '1.0'", "some-1.0.dist-info/METADATA": ""})
        self.run_ok("import some")
        self.put({"some.py": "__version__ = '2.0'", "some-2.0.dist-info/METADATA": ""})
        answer = self.run_ok("some.__version__")
        self.assertEqual(answer.result, "'1.0'")
        self.assertIn("some 1.0 is loaded in this kernel already", answer.stderr)
        self.assertEqual(self.run_ok("1").stderr, "")

    def test_an_only_cell(self):
        self.put({"some.py": "v = 2"})
        self.assertEqual(self.run_ok("import some\nprint(some.v)", last=True).stdout, "2\n")

    def test_a_place_that_is_not_there(self):
        shutil.rmtree(self.root)
        self.assertEqual(self.result("import json\n1"), "1")
        self.error("import some", "ModuleNotFoundError")
        os.rename(self.layer({"some.py": "v = 2"}), self.root)
        self.assertEqual(self.result("import some\nsome.v"), "2")

    def test_a_layer_that_is_mounted(self):
        tried = subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.PIPE)
        if tried.returncode:
            self.skipTest("no mounts: " + tried.stderr.decode().strip())
        kernel = self.begin(self.interpreter, around=["unshare", "--mount"])
        self.assertEqual(kernel.run("import some").error["name"], "ModuleNotFoundError")
        for version in 1, 2:
            layer = self.layer({"some.py": "", "part%d.py" % version: "v = %d" % version})
            subprocess.run(["nsenter", "--mount", "--target", str(kernel.pid), "mount", "--bind", layer, self.root],
                           check=True)
            answer = kernel.run("import some, part%d as part\npart.v" % version)
            self.assertEqual(answer.result, str(version), answer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", action="append")
    parser.add_argument("--science")
    parser.add_argument("--zygote", action="store_true")
    options, rest = parser.parse_known_args()
    pythons = options.python or sorted({sys.executable, "/usr/bin/python3"})
    Science.science = options.science
    if options.zygote:
        Case.zygotes = {}
    fine = True
    for count, path in enumerate(pythons):
        Case.interpreter = path
        version = subprocess.run([path, "-V"], stdout=subprocess.PIPE).stdout.decode().strip()
        print("%s (%s)" % (version, path), file=sys.stderr, flush=True)
        if count:
            Science.science = None
        if not Science.science:
            print("rich output is skipped: no --science", file=sys.stderr)
        program = unittest.main(argv=[sys.argv[0], *rest], exit=False)
        fine = fine and program.result.wasSuccessful()
    for zygote in (Case.zygotes or {}).values():
        zygote.close()
    sys.exit(not fine)


if __name__ == "__main__":
    main()
