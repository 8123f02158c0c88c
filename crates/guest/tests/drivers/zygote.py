"""Forked Python kernels: python3 zygote.py [--python PATH] [--science PATH] [--measure] [unittest's arguments].

What a kernel does is tested by `python.py --zygote`; here is what is special about one that was forked. --science names
a Python with the packages of scripts/science. --measure prints times and memory instead.
"""

import argparse
import ast
import builtins
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import forks
import harness

# All that code can see of its interpreter, but for the modules that are loaded.
SELF = r"""
import sys, builtins, gc, inspect, locale, logging, os, posix, signal, threading, time, warnings
def stream(each):
    return (each.name, each.mode, each.encoding, each.errors, each.newlines, each.line_buffering, each.write_through,
        each.isatty(), each.seekable(), type(each), type(each.buffer), each.buffer.name, each.buffer.raw.name,
        each.buffer.raw.mode, each.buffer.raw.closefd, each.buffer.raw.seekable())
seen = {
    'names': sorted(set(globals()) - {'seen'}), 'main': [getattr(sys.modules['__main__'], name, 0) for name in
        ('__name__', '__doc__', '__package__', '__loader__', '__spec__', '__annotations__')],
    'path': sys.path, 'argv': sys.argv, 'flags': sys.flags, 'prefix': sys.prefix, 'executable': sys.executable,
    'orig_argv': getattr(sys, 'orig_argv', 0), 'xoptions': sys._xoptions, 'warnoptions': sys.warnoptions,
    'limit': sys.getrecursionlimit(), 'interval': sys.getswitchinterval(), 'bytecode': sys.dont_write_bytecode,
    'hooks': [getattr(sys, name) is getattr(sys, '__' + name + '__') for name in
        ('displayhook', 'excepthook', 'unraisablehook', 'stdin', 'stdout', 'stderr')],
    'trace': (sys.gettrace(), sys.getprofile()), 'last': [name for name in dir(sys) if name.startswith('last_')],
    'finders': [type(each).__name__ + getattr(each, '__name__', '') for each in sys.meta_path][:4],
    'builtins': sorted(vars(builtins)), 'encoding': (sys.getdefaultencoding(), sys.getfilesystemencoding()),
    'locale': locale.setlocale(locale.LC_ALL), 'zone': (time.tzname, time.timezone),
    'folder': os.getcwd(), 'environment': dict(os.environ), 'bytes': posix.environ, 'order': list(os.environ),
    'mask': [os.umask(18), os.umask(18)], 'signals': [signal.getsignal(each) for each in range(1, 65) if each != 2],
    'blocked': signal.pthread_sigmask(signal.SIG_BLOCK, []), 'timer': signal.getitimer(signal.ITIMER_REAL),
    'gc': (gc.isenabled(), gc.get_threshold(), gc.garbage, gc.callbacks, gc.get_debug()),
    'logging': (logging.getLogger().handlers, logging.getLogger().level, logging.root.manager.disable,
        type(logging.lastResort).__name__,
        time.time() - logging._startTime / (1e9 if logging._startTime > 1e12 else 1) < 5),
    'thread': (threading.current_thread() is threading.main_thread(), threading.active_count(),
        threading.main_thread().native_id == os.getpid(), threading.main_thread().ident == threading.get_ident(),
        threading.main_thread().name),
    'process': (os.getsid(0) == os.getpid(), len(os.listdir('/proc/self/task'))),
    'descriptors': sorted(os.listdir('/proc/self/fd'))[:-1] and [fd for fd in map(int, os.listdir('/proc/self/fd'))
        if fd < 900 and os.path.exists('/proc/self/fd/%d' % fd)],
    'streams': [stream(each) for each in (sys.stdin, sys.stdout, sys.stderr)],
    'registry': [name for name, module in sys.modules.items()
        if '__warningregistry__' in getattr(module, '__dict__', ())],
    'once': len(getattr(warnings, 'onceregistry', ())), 'show': warnings.showwarning.__name__,
    'depth': len(inspect.stack(0)),
}
print({key: repr(value) for key, value in seen.items()})
"""
FILTERS = "import warnings\nprint([(each[0], str(each[1]), each[2].__name__, str(each[3])) " \
    "for each in warnings.filters])"
DRIVER = "import sys\nframe = sys._getframe()\nwhile frame.f_code.co_name != 'serve_cells': frame = frame.f_back\n" \
    "driver = frame.f_globals\n"
CHANCE = r"""
import random, secrets, uuid, tempfile, os, hashlib, ssl, multiprocessing, sys
print([random.random(), random.Random().random(), random.getrandbits(64), secrets.token_hex(8), uuid.uuid4().hex,
    uuid.uuid1().hex, next(tempfile._get_candidate_names()), os.urandom(8).hex(), ssl.RAND_bytes(8).hex(),
    multiprocessing.current_process().authkey.hex(), random.SystemRandom().random()])
"""
NUMBERS = r"""
import gc, numpy, random, sys
import numpy.random
found = [numpy.random.rand(), numpy.random.randint(2 ** 60), numpy.random.default_rng().random(),
    numpy.random.RandomState().rand(), numpy.random.MT19937().random_raw(), numpy.random.mtrand._rand.rand(),
    numpy.random.mtrand._rand._bit_generator._seed_seq.spawn(1)[0].generate_state(1)[0]]
import pandas, sympy.core.random
found += [pandas.Series(range(10 ** 6)).sample(1).iloc[0], sympy.core.random.rng.random()]
found += [each.random() for each in gc.get_objects() if isinstance(each, random.Random)]
print([float(each) for each in found])
"""


def memory(pid):
    with open("/proc/%d/smaps_rollup" % pid) as file:
        return {line.split()[0][:-1]: int(line.split()[1]) for line in file.read().split("\n")[1:] if line}


def dirty(pid):
    return memory(pid)["Private_Dirty"] + memory(pid)["Shared_Dirty"]


def tasks(pid):
    return len(os.listdir("/proc/%d/task" % pid))


class Case(unittest.TestCase):
    python = sys.executable
    zygote = None
    science_python = None
    science = None

    @classmethod
    def setUpClass(cls):
        if Case.zygote is None:
            Case.zygote = forks.Zygote(cls.python)
        if Case.science is None and Case.science_python:
            Case.science = forks.Zygote(cls.science_python)

    def fork(self, **more):
        kernel = self.zygote.fork(**more)
        self.addCleanup(kernel.close)
        return kernel

    def run_ok(self, kernel, code, **how):
        answer = kernel.run(code, **how)
        self.assertEqual(answer.code, 0, answer)
        return answer

    def only(self, code, **more):
        return self.run_ok(self.fork(**more), code, last=True)

    def value(self, code, **more):
        return ast.literal_eval(self.only(code, **more).stdout)


class Science(Case):
    def setUp(self):
        if self.science is None:
            self.skipTest("no --science PATH_TO_PYTHON: see scripts/science")
        self.zygote = self.science


class Same(Case):
    """As one that was started, in all that code can see."""

    def started(self):
        kernel = harness.python(self.zygote.interpreter, env=self.zygote.env)
        self.addCleanup(kernel.close)
        return kernel

    def compare(self, last):
        one, other = self.started(), self.fork()
        code = "import calendar, json, re, subprocess, typing\n" + SELF
        one, other = [ast.literal_eval(self.run_ok(each, code, last=last).stdout.replace(each.home, "FOLDER"))
                      for each in (one, other)]
        for key in one:
            with self.subTest(key):
                self.assertEqual(one[key], other[key])

    def test_only_cell(self):
        self.compare(True)

    def test_first_of_many(self):
        self.compare(False)

    def test_filters(self):
        one, other = [ast.literal_eval(self.run_ok(each, FILTERS).stdout) for each in (self.started(), self.fork())]
        # Those of packages are about their own.
        self.assertEqual([each for each in other if each in one], one)
        for each in other:
            general = each[1] == each[3] == "None" and each[2] in dir(builtins)
            self.assertTrue(each in one or not general, each)

    def test_second_cell(self):
        kernel = self.fork()
        self.run_ok(kernel, "x = 1")
        self.assertEqual(self.run_ok(kernel, "x + 1").result, "2")
        self.assertEqual(self.run_ok(kernel, "import sys\nsys.modules['__main__'].x").result, "1")

    def test_imports_come_from_the_folder(self):
        kernel = self.fork()
        for name in "own", "turtle":
            with open(os.path.join(kernel.home, name + ".py"), "w") as file:
                file.write("here = 'yes'")
        self.assertEqual(self.run_ok(kernel, "import own, turtle\nprint(own.here, turtle.here)").stdout, "yes yes\n")

    def test_lines_in_tracebacks_and_warnings(self):
        code = "import traceback, warnings, inspect\ndef f(): 1 / 0\ntry: f()\n" \
            "except Exception: traceback.print_exc()\nwarnings.warn('careful')\nprint(inspect.getsource(f))"
        answer = self.only(code)
        self.assertIn("def f(): 1 / 0", answer.stdout)
        self.assertIn("def f(): 1 / 0", answer.stderr)
        self.assertIn("warnings.warn('careful')", answer.stderr)
        error = self.fork().run("def f():\n    raise ValueError('v')\nf()", last=True).error
        self.assertIn("raise ValueError('v')", error["traceback"])
        self.assertEqual(error["traceback"].count("File"), 2)

    def test_modules(self):
        modules = set(self.value("import sys\nprint(sorted(sys.modules))"))
        self.assertLessEqual({"json", "re", "datetime", "random", "pathlib", "subprocess", "csv", "tempfile"}, modules)
        self.assertEqual([name for name in modules if "belljar" in name or "zygote" in name], [])

    def test_driver_is_compiled(self):
        kernel = self.fork()
        self.run_ok(kernel, DRIVER + "real, texts = compile, []\ndef noting(text, name, *rest):\n"
                                     "    texts.append(name)\n    return real(text, name, *rest)\n"
                                     "driver['compile'] = noting")
        self.run_ok(kernel, "display(1)\n{'a': 1}")
        kernel.run("1 / 0")
        kernel.run("x = = 1")
        self.run_ok(kernel, "import sys\nsys.stdin.close()")
        names = self.run_ok(kernel, "print(texts)").stdout
        self.assertNotIn("belljar", names)
        self.assertIn("<cell 3>", names)


class SameWithPackages(Science, Same):
    def test_modules(self):
        modules = set(self.value("import sys\nprint(sorted(sys.modules))"))
        self.assertLessEqual({"numpy", "pandas", "matplotlib.pyplot", "seaborn", "sympy", "PIL.Image", "plotly.express",
                              "IPython.core.interactiveshell"}, modules)
        self.assertEqual([name for name in modules if "belljar" in name or "zygote" in name], [])


class Chance(Case):
    """No two forks share any."""

    def distinct(self, code, count=12):
        drawn = [self.value(code) for _ in range(count)]
        for place, column in enumerate(zip(*drawn)):
            self.assertEqual(len(set(column)), count, (place, column))

    def test_python(self):
        self.distinct(CHANCE)

    def test_files(self):
        self.distinct("import os, tempfile\n"
                      "print([os.path.basename(each) for each in (tempfile.mktemp(), tempfile.mkdtemp(dir='.'))])")


class ChanceOfPackages(Science, Chance):
    def test_numbers(self):
        self.distinct(NUMBERS)

    def test_seeds_still_count(self):
        code = "import random, numpy\nrandom.seed(1); numpy.random.seed(1)\n" \
            "print([random.random(), float(numpy.random.rand()), float(numpy.random.default_rng(1).random())])"
        self.assertEqual(self.value(code), self.value(code))


class Environment(Case):
    ASK = "import os, posix, subprocess\n" \
        "print([dict(os.environ), subprocess.run(['env', '-0'], stdout=-1).stdout.decode()," \
        "{key.decode(): value.decode() for key, value in posix.environ.items()}])"

    def asked(self, exact):
        python, native, raw = self.value(self.ask(), exact=exact)
        self.assertEqual(list(python.items()), list(exact.items()))
        self.assertEqual(native, "".join("%s=%s\0" % each for each in exact.items()))
        self.assertEqual(raw, exact)

    def ask(self):
        return self.ASK.replace("'env'", repr(shutil.which("env")))

    def test_as_given(self):
        self.asked(dict(self.zygote.env))
        self.asked(dict(self.zygote.env, TOKEN="a=b", EMPTY="", ACCENT="é"))
        base = {key: self.zygote.env[key] for key in ("LANG", "MPLBACKEND")}
        self.asked(dict(base, ONLY="this"))
        self.asked(base)

    def test_time_zone(self):
        code = "import time, datetime\nprint([time.tzname, datetime.datetime.now().astimezone().utcoffset().seconds])"
        for zone, name in ("UTC", "UTC"), ("XYZ-5", "XYZ"), ("UTC", "UTC"):
            self.assertEqual(self.value(code, env={"TZ": zone})[0][0], name)

    def test_home(self):
        self.assertEqual(self.only("import os, site\nprint(os.path.expanduser('~'), site.getuserbase())",
                                   env={"HOME": "/somewhere"}).stdout, "/somewhere /somewhere/.local\n")

    def test_what_is_read_at_the_start(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        with open(os.path.join(folder, "json.py"), "w") as file:
            file.write("here = 'other'")
        kernel = self.fork(env={"PYTHONPATH": folder})
        self.assertEqual(self.run_ok(kernel, "import json, os, sys\nprint(json.here, sys.argv, "
                                             "os.listdir('/proc/self/fd')[:3])").stdout,
                         "other ['main.py'] ['0', '1', '2']\n")
        self.assertEqual(self.run_ok(kernel, "1 + 1", last=True).result, "2")
        hashes = {self.only("print(hash('x'))", env={"PYTHONHASHSEED": "7"}).stdout for _ in range(2)}
        self.assertEqual(len(hashes), 1)
        self.assertNotIn(self.only("print(hash('x'))").stdout, hashes)
        code = "import locale\nprint([locale.setlocale(locale.LC_ALL)])"
        self.assertEqual(self.value(code, env={"LC_ALL": "C"}), ["C"])


class Layers(Case):
    """Layers of packages, which are there when the zygote starts, or only where it is forked to."""

    def layer(self, files, python):
        folder = tempfile.mkdtemp(prefix="belljar-layer-")
        self.addCleanup(shutil.rmtree, folder, True)
        version = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"],
                                 stdout=subprocess.PIPE, check=True).stdout.decode().strip()
        inner = os.path.join(folder, "lib/python3.%s/site-packages" % version)
        os.makedirs(inner)
        for name, text in files.items():
            with open(os.path.join(inner, name), "w") as file:
                file.write(text)
        return folder

    def start(self, python, root):
        zygote = forks.Zygote(python, packages=root)
        self.addCleanup(zygote.close)
        self.zygote = zygote
        return zygote

    def test_what_is_there_is_loaded_ahead(self):
        root = self.layer({"openpyxl.py": "v = 'layer'", "bs4.py": "v = 'layer'", "a.pth": "import sys; sys.note = 1"},
                          self.python)
        loaded = self.start(self.python, root).ready["preloaded"]
        self.assertEqual([name for name in loaded if name in ("bs4", "openpyxl")], ["bs4", "openpyxl"])
        self.assertEqual(self.only("import sys\nprint('bs4' in sys.modules, sys.note)\nimport bs4\nprint(bs4.v)").stdout,
                         "True 1\nlayer\n")
        # And what the layer says that it is there for.
        with open(os.path.join(root, "preload"), "w") as file: file.write("own\nnot/a.name\nmissing\n" + "x\n" * 50)
        with open(os.path.join(site_of(root), "own.py"), "w") as file: file.write("v = 1")
        ready = self.start(self.python, root).ready
        self.assertIn("own", ready["preloaded"])
        self.assertEqual(self.only("import sys\nprint('own' in sys.modules)").stdout, "True\n")
        # Where it is not there, nothing of it is.
        shutil.rmtree(root)
        self.assertEqual(self.fork().run("import bs4").error["name"], "ModuleNotFoundError")

    def test_generators_of_modules_are_renewed(self):
        if not self.science_python:
            self.skipTest("takes numpy: no --science")
        root = self.layer({"chance.py": "import numpy\nrng = numpy.random.default_rng()\nown = numpy.random.default_rng(7)"},
                          self.science_python)
        with open(os.path.join(root, "preload"), "w") as file: file.write("chance\n")
        self.assertIn("chance", self.start(self.science_python, root).ready["preloaded"])
        code = "import sys\nprint('chance' in sys.modules)\nimport chance\nprint(chance.rng.random(), chance.own.random())"
        one, two = [self.only(code).stdout.split() for _ in range(2)]
        self.assertEqual((one[0], one[2]), ("True", two[2]))
        self.assertNotEqual(one[1], two[1])

    def test_a_layer_of_the_sandboxs_own(self):
        if not self.science_python:
            self.skipTest("takes packages that are loaded ahead: no --science")
        root = self.layer({}, self.science_python)
        self.start(self.science_python, root)
        for files, kept in ({"own.py": "v = 'own'"}, True), ({"own.py": "v = 'own'", "numpy.py": "v = 1"}, False):
            shutil.rmtree(root)
            shutil.copytree(self.layer(files, self.science_python), root)
            told = self.only("import sys\nprint('numpy' in sys.modules)\nimport own, numpy\n"
                             "print(own.v, hasattr(numpy, 'array'), %r in sys.path[1:])" % site_of(root)).stdout
            self.assertEqual(told, "%s\nown %s True\n" % (kept, kept))


def site_of(root):
    return os.path.join(root, "lib", os.listdir(os.path.join(root, "lib"))[0], "site-packages")


class Resources(Case):
    def test_descriptors_and_threads(self):
        kernel = self.fork()
        listed = set(map(int, os.listdir("/proc/%d/fd" % kernel.pid)))
        self.assertEqual({fd for fd in listed if fd < 900}, {0, 1, 2})
        self.assertEqual(len(listed), 7)
        self.assertEqual(tasks(kernel.pid), 1)
        self.assertEqual(tasks(self.zygote.pid), 1)
        self.assertEqual(set(os.listdir("/proc/%d/fd" % self.zygote.pid)), {"0", "1", "2", "3"})

    def test_a_thousand_forks(self):
        count = 1000 if self.zygote is Case.zygote else 100
        for _ in range(50):
            self.fork().close()
        before = dirty(self.zygote.pid)
        for place in range(count):
            kernel = self.zygote.fork()
            if place % 50 == 0:
                self.assertEqual(kernel.run("print(1 + 1)", last=True).stdout, "2\n")
            kernel.close()
        self.assertLess(dirty(self.zygote.pid) - before, 200)
        self.assertEqual(set(os.listdir("/proc/%d/fd" % self.zygote.pid)), {"0", "1", "2", "3"})
        self.assertEqual(self.only("print('still')").stdout, "still\n")

    def test_memory_stays_shared(self):
        kernels = [self.fork() for _ in range(4)]
        for kernel in kernels:
            self.assertLess(memory(kernel.pid)["Private_Dirty"], 5000 if self.zygote is Case.zygote else 8000)

    def test_a_fork_that_crashes_is_alone(self):
        kernel, other = self.fork(), self.fork()
        with self.assertRaises(harness.Lost):
            kernel.run("import os\nos.kill(os.getpid(), 11)")
        self.assertEqual(kernel.close() & 127, 11)
        self.assertEqual(self.run_ok(other, "print(1)").stdout, "1\n")
        self.assertEqual(self.only("print(2)").stdout, "2\n")

    def test_writes_are_not_shared(self):
        one, other = self.fork(), self.fork()
        self.run_ok(one, "import json\njson.changed = True\njson.decoder.JSONDecoder.mark = 1")
        self.assertEqual(self.run_ok(other, "import json\nprint(hasattr(json, 'changed'), "
                                            "hasattr(json.decoder.JSONDecoder, 'mark'))").stdout, "False False\n")
        self.assertEqual(self.only("import json\nprint(hasattr(json, 'changed'))").stdout, "False\n")


class ResourcesOfPackages(Science, Resources):
    def test_threads_again(self):
        code = "import numpy, os\na = numpy.ones((1500, 1500))\nb = a @ a\n" \
            "print([len(os.listdir('/proc/self/task')), float(b[0, 0])])"
        found = self.value(code)
        self.assertEqual(found[1], 1500)
        self.assertEqual(found[0], max(1, min(len(os.sched_getaffinity(0)), 64)))


class Ends(Case):
    def test_flushed(self):
        kernel = self.fork()
        answer = self.run_ok(kernel, "import sys\nsys.stdout.write('no newline')\n"
                                     "f = open('left', 'w'); f.write('written')", last=True)
        self.assertEqual(answer.stdout, "no newline")
        with open(os.path.join(kernel.home, "left")) as file:
            self.assertEqual(file.read(), "written")
        self.assertEqual(kernel.close(), 0)

    def test_handlers(self):
        self.assertEqual(self.only("import atexit\natexit.register(print, 'at exit')").stdout, "at exit\n")
        self.assertEqual(self.only(
            "import logging, logging.handlers, sys\nkeeper = logging.handlers.MemoryHandler(100, flushLevel=100, "
            "target=logging.StreamHandler(sys.stdout))\nlogging.getLogger().addHandler(keeper)\nlogging.error('kept')"
        ).stdout, "kept\n")
        self.assertEqual(self.only("import weakref\nclass A: pass\na = A()\n__builtins__.keep = a\n"
                                   "f = weakref.finalize(a, print, 'finalized')").stdout, "finalized\n")
        kernel = self.fork()
        answer = self.run_ok(kernel, "import tempfile\nt = tempfile.TemporaryDirectory(dir='.')\nimport sys\n"
                                     "sys.keep = t\nprint(t.name)", last=True)
        self.assertFalse(os.path.exists(os.path.join(kernel.home, answer.stdout.strip())))

    def test_nothing_is_said(self):
        for code in "pass", "1", "import logging", "import logging\nlogging.getLogger('a').info('b')":
            answer = self.only(code)
            self.assertEqual((answer.out, answer.err), (b"", b""))

    def test_interrupt(self):
        kernel = self.fork()
        kernel.interrupt()
        kernel.start("print('go', flush=True)\nwhile True: pass", last=True)
        kernel.until(b"go")
        kernel.interrupt()
        self.assertEqual(kernel.finish(5).code, 130)


class EndsWithPackages(Science, Ends):
    def test_figures(self):
        for last in True, False:
            answer = self.run_ok(self.fork(), "import matplotlib.pyplot as plt\nplt.plot([1, 2]); print('drawn')",
                                 last=last)
            self.assertEqual(["image/png" in show["data"] for show in answer.all("show")], [True])
            self.assertEqual(answer.stdout, "drawn\n")
            for code in ("import pandas as pd\npd.Series([1, 2]).plot();",
                         "import matplotlib.pyplot as plt\nplt.plot([1]); plt.show(); plt.close('all')",
                         "import plotly.express as px\npx.line(x=[1], y=[2]).show()"):
                self.assertEqual(len(self.run_ok(self.fork(), code, last=last).all("show")), 1, code)
        answer = self.fork().run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0", last=True)
        self.assertEqual((len(answer.all("show")), answer.error["name"]), (1, "ZeroDivisionError"))
        self.assertEqual(self.value("import matplotlib.pyplot as plt\nprint([plt.get_fignums(), plt.figure().number])\n"
                                    "plt.close()"), [[], 1])

    def test_magics(self):
        answer = self.only("x = !echo hi\nprint(x)\n%time y = 1")
        self.assertIn("['hi']", answer.stdout)
        kernel = self.fork()
        self.assertEqual(self.run_ok(kernel, "'get_' + 'ipython' in dir(__builtins__), 'In' in globals()").result,
                         "(False, False)")
        self.run_ok(kernel, "%timeit -n 1 -r 1 1")
        self.assertEqual(self.run_ok(kernel, "get_ipython().user_ns is globals()").result, "True")

    def test_plain_cells_do_not_look_at_figures(self):
        kernel = self.fork()
        self.run_ok(kernel, DRIVER + "seen = []\ndriver['last_shows'] = lambda error: seen.append(1) or error")
        self.run_ok(kernel, "print(1)")
        self.assertEqual(self.run_ok(kernel, "seen").result, "[]")


class Packages(Case):
    """Packages that do what no fork can have, by the names that are looked for."""

    def environment(self, packages):
        folder = tempfile.mkdtemp(prefix="belljar-packages-")
        self.addCleanup(shutil.rmtree, folder)
        for name, text in packages.items():
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "__init__.py"), "w") as file:
                file.write(text)
        return {"PYTHONPATH": folder}

    def start(self, packages, seconds=None):
        parts, env = forks.library(), self.environment(packages)
        if seconds:
            assert b"SECONDS_MAX = 20" in parts["preload"]
            parts["preload"] = parts["preload"].replace(b"SECONDS_MAX = 20", b"SECONDS_MAX = %d" % seconds)
        zygote = forks.Zygote(self.python, env=env, parts=parts)
        self.addCleanup(zygote.close)
        self.zygote = zygote
        return zygote

    def test_failing(self):
        ready = self.start({
            "numpy": "fine = 1",
            "pandas": "raise RuntimeError('broken ' * 1000)",
            "matplotlib": "import os\nos._exit(3)",
            "seaborn": "import sys\nsys.exit('no')",
            "scipy": "import numpy.nothing",
            "sklearn": "import posix\ntry:\n    posix._exit(0)\nexcept Exception:\n    pass",
            "sympy": "raise KeyboardInterrupt",
            "plotly": "x = = 1",
            "bs4": "class E(BaseException):\n    def __str__(self): 1 / 0\nraise E",
            "openpyxl": "fine = 1"}).ready
        self.assertEqual(ready["preloaded"], ["numpy", "openpyxl"])
        self.assertEqual(set(ready["skipped"]),
                         {"pandas", "matplotlib", "seaborn", "scipy", "sklearn", "sympy", "plotly", "bs4"})
        self.assertIn("os._exit", ready["skipped"]["matplotlib"])
        self.assertIn("broken", ready["skipped"]["pandas"])
        self.assertLessEqual(max(map(len, ready["skipped"].values())), 200)
        # In a kernel they do what they do.
        self.assertEqual(self.fork().run("import pandas").error["name"], "RuntimeError")
        with self.assertRaises(harness.Lost):
            self.fork().run("import matplotlib")
        self.assertEqual(self.only("import numpy, openpyxl\nprint(numpy.fine)").stdout, "1\n")
        self.assertEqual(set(self.value("import sys\nprint(list(sys.modules))")) & set(ready["skipped"]), set())

    def test_one_that_kills(self):
        with self.assertRaisesRegex(harness.Lost, "status 9 before"):
            self.start({"numpy": "import os\nos.kill(os.getpid(), 9)"})

    def test_what_is_left_behind(self):
        ready = self.start({
            "numpy": "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()",
            "pandas": "import atexit\natexit.register(print, 'surprise')",
            "matplotlib": "file = open('/dev/null')",
            "seaborn": "import os, sys\nos.write(1, b'x' * (1 << 23))\nprint('y' * (1 << 23), file=sys.stderr)\n"
                       "print('z' * 9999)",
            "scipy": "import os, sys\npid = os.fork()\nif not pid: os._exit(0)\nos.waitpid(pid, 0)",
            "requests": "import sys\nassert sys.stdin.read() == ''"}).ready
        self.assertEqual(ready["preloaded"], ["scipy", "seaborn", "requests"])
        for name, why in ("numpy", "thread"), ("pandas", "exit handler"), ("matplotlib", "descriptor"):
            self.assertIn(why, ready["skipped"][name])
        answer = self.only("print(1)")
        self.assertEqual((answer.stdout, answer.stderr), ("1\n", ""))
        Resources.test_descriptors_and_threads(self)

    def test_what_is_changed(self):
        self.start({"numpy": """
import builtins, gc, locale, logging, os, signal, sys, warnings, random, threading, io
sys.path.insert(0, '/nowhere'); sys.setrecursionlimit(5000); sys.excepthook = print; sys.stdout = io.StringIO()
sys.argv = ['changed']; sys.setswitchinterval(1); gc.set_threshold(1); gc.disable()
warnings.simplefilter('error'); warnings.showwarning = print; logging.basicConfig(level=1); logging.disable(50)
signal.signal(signal.SIGTERM, print); signal.signal(signal.SIGINT, print); builtins.added = 1; builtins.print = len
os.environ['ADDED'] = '1'; os.environ['LANG'] = 'changed'; os.chdir('/tmp'); os.umask(0); random.seed(1)
sys.modules['__main__'].left = 1; sys.settrace(lambda *a: None); sys.last_value = 1
"""})
        Same.compare(self, True)
        Same.compare(self, False)
        Chance.distinct(self, CHANCE)
        Environment.test_as_given(self)

    started = Same.started
    asked, ask, ASK = Environment.asked, Environment.ask, Environment.ASK

    def test_too_slow(self):
        begun = time.monotonic()
        ready = self.start({
            "numpy": "import time\ntime.sleep(0.1)",
            "pandas": "import time\nwhile True:\n    try: time.sleep(60)\n    except Exception: pass",
            "matplotlib": "while True:\n    try:\n        while True: pass\n    except ValueError: pass",
            "openpyxl": "fine = 1"}, seconds=2).ready
        self.assertLess(time.monotonic() - begun, 15)
        self.assertEqual(ready["preloaded"], ["numpy"])
        self.assertEqual(set(ready["skipped"]), {"pandas", "matplotlib", "openpyxl"})
        self.assertEqual(self.only("print(1)").stdout, "1\n")

    def test_not_from_the_folder_it_starts_in(self):
        zygote = forks.Zygote(self.python, cwd=self.environment({"numpy": "raise SystemExit"})["PYTHONPATH"])
        self.addCleanup(zygote.close)
        self.assertEqual((zygote.ready["preloaded"], zygote.ready["skipped"]), ([], {}))

    def test_missing_native_module(self):
        with self.assertRaisesRegex(harness.Lost, "FileNotFoundError|ImportError"):
            forks.Zygote(self.python, native="/nowhere/zygote.so")


def measure(zygote, code, count=100):
    times, readies, faults = [], [], []
    for _ in range(count):
        kernel = zygote.fork()
        readies.append(kernel.seconds * 1e3)
        time.sleep(0.05)
        before = page_faults(kernel.pid)
        message = b"run %d python 1\n%s" % (len(code), code)
        begun = time.perf_counter()
        kernel.control.sendall(message)
        heard = b""
        while b"done " not in heard:
            heard += kernel.control.recv(1 << 16)
        times.append((time.perf_counter() - begun) * 1e3)
        faults.append(page_faults(kernel.pid) - before)
        kernel.close()
    print("%-60s run to done: p50 %.3f ms, p90 %.3f, least %.3f, %d page faults; fork to ready: p50 %.2f, least %.2f"
          % (code.decode()[:60].replace("\n", "; "), statistics.median(times), sorted(times)[count * 9 // 10],
             min(times), statistics.median(faults), statistics.median(readies), min(readies)), flush=True)


def page_faults(pid):
    with open("/proc/%d/stat" % pid) as file:
        return int(file.read().rpartition(")")[2].split()[7])


def floor(count=100):
    """A process that only answers."""
    times = []
    ours, theirs = harness.socket.socketpair()
    pid = os.fork()
    if not pid:
        ours.close()
        while theirs.recv(1 << 16):
            theirs.send(b"done 1\n0")
        os._exit(0)
    theirs.close()
    for _ in range(count):
        time.sleep(0.05)
        begun = time.perf_counter()
        ours.sendall(b"run 1 python 1\n1")
        ours.recv(1 << 16)
        times.append((time.perf_counter() - begun) * 1e3)
    ours.close()
    os.waitpid(pid, 0)
    print("an answer and nothing else: p50 %.3f ms" % statistics.median(times))


def measure_all(python, cells, **more):
    zygote = forks.Zygote(python, **more)
    print("%s: ready in %.2f s, %s" % (python, zygote.seconds, json.dumps(zygote.ready)))
    floor()
    for code in cells:
        measure(zygote, code)
    kernels = [zygote.fork() for _ in range(10)]
    time.sleep(0.2)
    idle = [memory(kernel.pid) for kernel in kernels]
    print("idle, one of ten: PSS %d kB, private dirty %d kB, resident %d kB; zygote: dirty %d kB, resident %d kB" % (
        *[statistics.median([each[key] for each in idle]) for key in ("Pss", "Private_Dirty", "Rss")],
        dirty(zygote.pid), memory(zygote.pid)["Rss"]))
    for kernel in kernels:
        kernel.close()
    zygote.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--science")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--native", default=forks.STANDIN)
    options, rest = parser.parse_known_args()
    if options.measure:
        measure_all(options.python, [b"print(1+1)", b"1+1", b"x = 1\nclass A: pass"], native=options.native)
        if options.science:
            measure_all(options.science, [b"print(1+1)", b'import pandas as pd; print(pd.DataFrame({"a":[1]}).sum())',
                                          b"import numpy as np; print(np.arange(5).sum())", b"!true",
                                          b"import matplotlib.pyplot as plt; plt.plot([1, 2])"], native=options.native)
        return
    Case.python, Case.science_python = options.python, options.science
    version = subprocess.run([options.python, "-V"], stdout=subprocess.PIPE).stdout.decode().strip()
    print("%s (%s)" % (version, options.python), file=sys.stderr, flush=True)
    if not options.science:
        print("packages are skipped: no --science", file=sys.stderr)
    program = unittest.main(argv=[sys.argv[0], *rest], exit=False)
    for zygote in {Case.zygote, Case.science} - {None}:
        zygote.close()
    sys.exit(not program.result.wasSuccessful())


if __name__ == "__main__":
    main()
