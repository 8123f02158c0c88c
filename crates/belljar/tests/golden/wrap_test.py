"""The wrapper of the run-python profile, in a plain Python that plays the kernel: what it tells of the code's value,
its errors and its dependencies."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
WRAP = os.path.join(HERE, "..", "..", "..", "server", "src", "profiles", "wrap.py")
OUTCOME = "application/vnd.belljar.outcome+json"

# The last expression of the cell is its result; display() is a kernel's.
KERNEL = """
import ast, builtins, json, sys
shown, out = [], sys.argv[2]
builtins.display = shown.append
tree = ast.parse(open(sys.argv[1]).read())
last = ast.Expression(tree.body.pop().value)
names = sys.modules["__main__"].__dict__
exec(compile(tree, "<cell 1>", "exec"), names)
told = eval(compile(last, "<cell 1>", "eval"), names)._repr_mimebundle_()
json.dump({"told": told, "shown": len(shown)}, open(out, "w"))
"""


def run(code, variables=None):
    job = json.dumps({"code": code, "globals": variables or {}})
    with tempfile.TemporaryDirectory() as home:
        kernel, out = os.path.join(home, "kernel.py"), os.path.join(home, "told.json")
        with open(kernel, "w") as file:
            file.write(KERNEL)
        done = subprocess.run([sys.executable, "-I", kernel, WRAP, out], input=job, capture_output=True, text=True,
                              timeout=60, cwd=home)
        assert os.path.exists(out), done.stderr
        with open(out) as file:
            told = json.load(file)
    outcome = told["told"][OUTCOME]
    outcome["stdout"], outcome["stderr"], outcome["shown"] = done.stdout, done.stderr, told["shown"]
    return outcome


class Wrap(unittest.TestCase):
    def value(self, code, variables=None):
        told = run(code, variables)
        self.assertEqual(told["status"], "success", told)
        return told.get("return_value")

    def test_the_last_value_is_json(self):
        self.assertEqual(self.value("x = 3\nx * 14"), "42")
        self.assertEqual(json.loads(self.value("{'a': [1, 2.5, None, True]}")), {"a": [1, 2.5, None, True]})
        self.assertEqual(self.value("'text as it is'"), "text as it is")
        self.assertEqual(self.value("{1, }"), '"{1}"')
        self.assertIsNone(self.value("x = 1"))
        self.assertIsNone(self.value("None"))
        self.assertEqual(self.value("'é\U0001f600'"), "é\U0001f600")

    def test_output_is_apart(self):
        told = run("import sys\nprint('out')\nprint('err', file=sys.stderr)\n1")
        self.assertEqual((told["stdout"], told["stderr"], told["return_value"]), ("out\n", "err\n", "1"))

    def test_global_variables_are_there(self):
        self.assertEqual(self.value("a + len(b)", {"a": 1, "b": [1, 2]}), "3")
        self.assertEqual(self.value("__name__"), "__main__")
        self.assertEqual(self.value("'_belljar_run' in globals()"), "false")

    def test_it_may_be_async(self):
        self.assertEqual(self.value("import asyncio\nawait asyncio.sleep(0)\nasync def f(): return 7\nawait f()"), "7")

    def test_an_exception_has_only_the_codes_own_frames(self):
        told = run("def f():\n    1 / 0\nprint('a')\nf()")
        self.assertEqual((told["status"], told["stdout"]), ("run-error", "a\n"))
        self.assertEqual(told["error"].splitlines()[:3],
                         ["Traceback (most recent call last):", '  File "main.py", line 4, in <module>', "    f()"])
        self.assertTrue(told["error"].endswith("ZeroDivisionError: division by zero"), told["error"])
        self.assertNotIn("cell", told["error"])
        told = run("x = (")
        self.assertEqual(told["status"], "run-error")
        self.assertIn('File "main.py", line 1', told["error"])
        self.assertIn("SyntaxError", told["error"])

    def test_an_exit_is_told(self):
        self.assertEqual(run("import sys\nsys.exit()")["status"], "success")
        told = run("import sys\nsys.exit(3)")
        self.assertEqual((told["status"], told["error"].splitlines()[-1]), ("run-error", "SystemExit: 3"))

    def test_what_is_not_there_is_named(self):
        told = run("import json, no_such_package.inner\nprint('never')")
        self.assertEqual((told["status"], told["dependencies"], told["stdout"]),
                         ("install-error", ["no_such_package"], ""))
        self.assertIn("not installed: no_such_package", told["error"])
        told = run("# /// script\n# dependencies = [\n#   'no-such-package>=1',\n# ]\n# ///\nprint('never')\n")
        self.assertEqual((told["status"], told["dependencies"]), ("install-error", ["no-such-package>=1"]))
        told = run("try:\n    import no_such_package\nexcept ImportError:\n    print('without')")
        self.assertEqual((told["status"], told["stdout"]), ("success", "without\n"))
        self.assertEqual(run("from . import x")["status"], "run-error")

    def test_a_value_that_shows_itself_is_shown(self):
        told = run("class Figure: pass\nFigure()")
        self.assertEqual(told["shown"], 1)
        self.assertIn("Figure object", told["return_value"])
        self.assertEqual(run("[1]")["shown"], 0)

    def test_a_value_without_end_is_bounded(self):
        self.assertLessEqual(len(self.value("'x' * 10_000_000")), 100_000)
        self.assertIn("[...]", self.value("x = []; x.append(x)\nx"))


if __name__ == "__main__":
    unittest.main()
