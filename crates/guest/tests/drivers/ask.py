"""What is pip and uv in a sandbox: python3 ask.py --guest PATH [--python PATH] [--science PATH] [unittest's arguments].

--guest names the built guest, which is those programs by other names. All of it is in a root of its own, in namespaces
that are made here, with a process 1 that is played by this program: it installs what it is asked for by its name.
"""

import argparse
import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness

ASK = os.path.join(harness.HERE, "..", "..", "src", "ask")
CALLS = os.path.join(harness.HERE, "..", "..", "src", "calls")
ENV = {"PATH": "/belljar/bin:/belljar/packages/bin:/node_modules/.bin:" + os.environ["PATH"], "HOME": "/tmp",
       "LANG": "C.UTF-8", "PYTHONUSERBASE": "/belljar/packages", "PYTHONPATH": "/belljar/lib",
       "NODE_PATH": "/belljar/node"}


def sandbox(guest):
    """A root with all of this machine's, and what a sandbox has besides."""
    root = tempfile.mkdtemp(prefix="belljar-root-")
    subprocess.run(["mount", "-t", "tmpfs", "none", root], check=True)
    for name in os.listdir("/"):
        to = os.path.join(root, name)
        if os.path.islink("/" + name):
            os.symlink(os.readlink("/" + name), to)
        elif os.path.isdir("/" + name) and name != "home":
            os.mkdir(to)
            subprocess.run(["mount", "--rbind", "/" + name, to], check=True)
    for name in "belljar/bin", "belljar/packages", "node_modules", "home/agent":
        os.makedirs(os.path.join(root, name))
    shutil.copy(guest, os.path.join(root, "belljar/ask"))
    for name in "tools", "skills":
        os.mkdir(os.path.join(root, name))
    for name in "pip", "pip3", "uv", "tools":
        os.symlink("../ask", os.path.join(root, "belljar/bin", name))
    shutil.copytree(os.path.join(ASK, "pip"), os.path.join(root, "belljar/lib/pip"))
    shutil.copy(os.path.join(ASK, "sitecustomize.py"), os.path.join(root, "belljar/lib"))
    shutil.copytree(os.path.join(CALLS, "python/mcp_runtime"), os.path.join(root, "belljar/lib/mcp_runtime"),
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(os.path.join(CALLS, "python/tools.py"), os.path.join(root, "belljar/lib"))
    shutil.copytree(os.path.join(CALLS, "node"), os.path.join(root, "belljar/node"))
    os.chroot(root)
    os.chdir("/tmp")


class Process1(threading.Thread):
    """Answers with `script`, if there is one, or else installs."""

    def __init__(self, version):
        super().__init__(daemon=True)
        self.inner = "lib/python%s/site-packages" % version
        self.asked, self.script, self.installed = [], None, []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind("/home/agent/.belljar")
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            peer, _ = self.listener.accept()
            with peer, peer.makefile("rwb") as lines:
                asked = json.loads(lines.readline())["install"]
                self.asked.append(asked)
                lines.write(self.script if self.script is not None else self.install(asked["requirements"]))

    def install(self, names):
        self.installed += [name for name in names if name not in self.installed]
        layer = tempfile.mkdtemp(prefix="belljar-layer-")
        atexit.register(shutil.rmtree, layer, True)
        os.chmod(layer, 0o755)
        site = os.path.join(layer, self.inner)
        os.makedirs(site)
        for name in self.installed:
            with open(os.path.join(site, name + ".py"), "w") as file:
                file.write("name = %r\n" % name)
            os.mkdir(os.path.join(site, name + "-1.0.dist-info"))
            with open(os.path.join(site, name + "-1.0.dist-info", "METADATA"), "w") as file:
                file.write("Metadata-Version: 2.1\nName: %s\nVersion: 1.0\nSummary: a test\n" % name)
        for path, _, _ in os.walk(site):
            os.utime(path, (1, 1))
        subprocess.run(["mount", "--bind", layer, "/belljar/packages"], check=True)
        return b'{"err":"installing\\n"}\n{"out":"Successfully installed\\n"}\n{"exit":0}\n'


class Case(unittest.TestCase):
    python = science = process1 = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.process1.asked, self.process1.script = [], None

    def run_in(self, *command, env=None, code=0):
        done = subprocess.run(command, cwd=self.folder, env=dict(ENV, **(env or {})), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=20)
        self.assertEqual(done.returncode, code, done)
        return done

    def file(self, name, text, mode=0o644):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path


class Asking(Case):
    def test_what_is_asked_and_what_comes(self):
        self.process1.script = ('{"err":"resolving \\u00e9\\n"}\n{"out":"done\\n"}\n{"later":1}\n{"exit":3}\n{"out":"no"}\n'
                                .encode())
        for command in (["pip", "install"], ["pip3", "install"], ["uv", "pip", "install"], ["uv", "add"]):
            with self.subTest(command):
                done = self.run_in(*command, "x>=1", "y", code=3)
                self.assertEqual(done.stdout, "done\n")
                self.assertIn("resolving é\n", done.stderr)
                self.assertEqual(self.process1.asked.pop(),
                                 {"kind": "python", "requirements": ["x>=1", "y"], "cwd": self.folder})
        self.assertIn("resolving", self.run_in("pip", "install", "-q", "x", code=3).stderr)

    def test_a_quiet_one_is_quiet_when_all_is_well(self):
        done = self.run_in("pip", "install", "-q", "quiet")
        self.assertEqual((done.stdout, done.stderr), ("", ""))

    def test_files_of_requirements(self):
        self.file("a/all.txt", "one>=1 # said\n-r more.txt\n-c limits.txt\n")
        self.file("a/more.txt", "two\n")
        self.file("a/limits.txt", "three<2\n")
        self.process1.script = b'{"exit":0}\n'
        self.run_in("pip", "install", "-r", "a/all.txt", "-U", "--pre")
        self.assertEqual(self.process1.asked.pop(), {
            "kind": "python", "requirements": ["one>=1", "two"], "constraints": ["three<2"], "upgrade": True,
            "pre": True, "cwd": self.folder})

    def test_the_interpreter_that_asks_is_named(self):
        self.process1.script = b'{"exit":0}\n'
        self.run_in(self.python, "-m", "pip", "install", "x")
        self.assertEqual(self.process1.asked.pop()["python"], self.python)
        self.run_in(self.python, "-c", "import pip; print(pip.__version__); pip.main(['install', 'x'])")
        self.assertEqual(self.process1.asked.pop()["python"], self.python)

    def test_what_is_refused_is_not_asked(self):
        for words in ["-e", "."], ["git+https://a.test/b"], ["."], ["--target", "x", "y"]:
            self.assertIn("packages are installed by name", self.run_in("pip", "install", *words, code=1).stderr)
        self.assertIn("read-only", self.run_in("pip", "uninstall", "-y", "x", code=1).stderr)
        self.assertEqual(self.process1.asked, [])

    def test_an_answer_that_breaks_off(self):
        self.process1.script = b'{"out":"half\\n"}\n'
        self.assertIn("broke off", self.run_in("pip", "install", "x", code=1).stderr)

    def test_nobody_who_answers(self):
        os.rename("/home/agent/.belljar", "/home/agent/away")
        try:
            done = self.run_in("pip", "install", "x", code=1)
        finally:
            os.rename("/home/agent/away", "/home/agent/.belljar")
        self.assertIn("nobody here can install packages", done.stderr)


class Others(Case):
    def test_the_interpreters_own_pip_tells_the_rest(self):
        self.run_in("pip", "install", "listed")
        real = subprocess.run([self.python, "-I", "-m", "pip", "--version"], stdout=subprocess.PIPE)
        if real.returncode:
            self.skipTest("this Python has no pip")
        for command in ["pip", "--python", self.python], [self.python, "-m", "pip"]:
            self.assertIn("listed==1.0", self.run_in(*command, "freeze").stdout)
            self.assertEqual(self.run_in(*command, "--version").stdout.split()[:2], real.stdout.decode().split()[:2])

    def environment(self):
        path = os.path.join(self.folder, "made")
        subprocess.run([self.python, "-m", "venv", "--without-pip", path], check=True)
        return os.path.join(path, "bin/python")

    def test_without_pip_the_packages_tell(self):
        self.run_in("pip", "install", "listed")
        python = self.environment()
        for command in ["pip", "--python", python], [python, "-m", "pip"]:
            self.assertIn("listed==1.0\n", self.run_in(*command, "freeze").stdout)
            self.assertRegex(self.run_in(*command, "list").stdout, r"(?m)^Package +Version\n-+ -+\n(.*\n)*listed +1.0$")
            self.assertIn("Summary: a test", self.run_in(*command, "show", "listed").stdout)
            self.assertIn("not found: nothing", self.run_in(*command, "show", "nothing", code=1).stderr)
            self.assertIn("python", self.run_in(*command, "--version").stdout)
            self.assertIn("no pip of its own", self.run_in(*command, "download", "x", code=1).stderr)

    def test_an_environment_that_was_made_in_the_sandbox(self):
        python = self.environment()
        script = "#!%s\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n" % python
        pip = self.file("made/bin/pip", script, 0o755)
        for command in [pip, "install"], [python, "-m", "pip", "install"]:
            self.run_in(*command, "within")
            self.assertEqual(self.process1.asked.pop(),
                             {"kind": "python", "requirements": ["within"], "cwd": self.folder})
        self.assertEqual(self.run_in(python, "-c", "import within; print(within.name)").stdout, "within\n")

    def test_the_real_pip_of_such_an_environment(self):
        path = os.path.join(self.folder, "whole")
        python = self.science or self.python
        made = subprocess.run([python, "-m", "venv", path], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode:
            self.skipTest("no environments with pip: " + made.stdout.decode()[:100])
        pip = os.path.join(path, "bin/pip")
        self.assertIn(path, self.run_in(pip, "--version").stdout)
        self.assertIn("Successfully", self.run_in(pip, "install", "within").stdout)
        self.assertIn("within", self.run_in(pip, "list").stdout)
        # What cannot be asked for is the real one's.
        done = self.run_in(os.path.join(path, "bin/python"), "-m", "pip", "install", "--no-index", "./nowhere", code=1)
        self.assertIn("ERROR: Invalid requirement", done.stderr)

    def test_packages_are_there_for_programs_of_every_interpreter(self):
        self.run_in("pip", "install", "everywhere")
        for python in filter(None, [self.python, self.environment(), self.science]):
            paths = "import everywhere, sys; print([path for path in sys.path if 'lib/python' in path])"
            paths = eval(self.run_in(python, "-c", paths).stdout)
            at = [path.startswith("/belljar/packages") for path in paths].index(True)
            self.assertTrue(paths[at - 1].endswith("lib-dynload"), paths)

    def test_an_interpreters_own_customization_is_not_lost(self):
        self.file("own/sitecustomize.py", "import sys\nsys.own = 'kept'\n")
        env = {"PYTHONPATH": "/belljar/lib:" + os.path.join(self.folder, "own")}
        for python in self.python, self.environment():
            self.assertEqual(self.run_in(python, "-c", "import sys; print(sys.own)", env=env).stdout, "kept\n")

    def test_uv(self):
        self.assertIn("there is no uv", self.run_in("uv", "run", "x.py", code=1,
                                                    env={"PATH": "/belljar/bin:/usr/bin:/bin"}).stderr)
        self.file("real/uv", "#!/bin/sh\necho real \"$@\"\n", 0o755)
        env = {"PATH": "/belljar/bin:" + os.path.join(self.folder, "real") + ":/usr/bin:/bin"}
        self.assertEqual(self.run_in("uv", "run", "x.py", env=env).stdout, "real run x.py\n")
        self.assertIn("Successfully", self.run_in("uv", "pip", "install", "x", env=env).stdout)


class Kernels(Case):
    def each(self):
        for python in filter(None, [self.python, self.science]):
            with self.subTest(python):
                kernel = harness.python(python, env=ENV)
                self.addCleanup(kernel.close)
                yield kernel

    def installed(self, kernel, name, code):
        self.assertEqual(kernel.run("import " + name).error["name"], "ModuleNotFoundError")
        answer = kernel.run("%s\nimport %s\n%s.name" % (code, name, name))
        self.assertEqual((answer.result, answer.code), (repr(name), 0), answer)
        self.assertIn("Successfully installed", answer.stdout)

    def test_what_a_cell_installs_it_imports(self):
        for count, kernel in enumerate(self.each()):
            self.installed(kernel, "a%d" % count, "!pip install a%d" % count)
            self.installed(kernel, "b%d" % count, "%%pip install b%d" % count)
            self.installed(kernel, "c%d" % count, "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', "
                                                  "'install', 'c%d'], check=True)" % count)
            self.installed(kernel, "d%d" % count, "!uv pip install d%d" % count)
            self.process1.script = b'{"err":"no such thing\\n"}\n{"exit":1}\n'
            answer = kernel.run("%pip install nothing")
            self.assertEqual(answer.error["name"], "UsageError")
            self.assertIn("no such thing", answer.stderr)
            self.process1.script = None

    def test_an_only_cell(self):
        for count, kernel in enumerate(self.each()):
            answer = kernel.run("!pip install only%d\nimport only%d\nprint(only%d.name)" % ((count,) * 3), last=True)
            self.assertIn("only%d\n" % count, answer.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--guest", required=True)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--science")
    parser.add_argument("--inside", action="store_true")
    options, rest = parser.parse_known_args()
    if not options.inside:
        unshare = ["unshare", "--mount", "--net"] + ["--map-root-user"] * bool(os.getuid())
        tried = subprocess.run([*unshare, "true"], stderr=subprocess.PIPE, universal_newlines=True)
        if tried.returncode:
            print("skipped: no namespaces here: " + tried.stderr.strip(), file=sys.stderr)
            return
        os.execvp("unshare", [*unshare, sys.executable, *sys.argv, "--inside"])
    sandbox(options.guest)
    version = subprocess.run([options.python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                             stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    Case.python, Case.science, Case.process1 = options.python, options.science, Process1(version)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
