"""What calls tools in a sandbox: python3 calls.py --guest PATH [--python PATH] [--transpile PATH] [--speed] [unittest's arguments].

Everything is in a root of its own, as in ask.py, with a host that is played by this program (standhost.py).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ask
import harness
import jsharness
import standhost

def text_of(*names):
    with open(os.path.join(harness.KERNELS, *names), encoding="utf-8") as file:
        return file.read()


ONCE = [text_of("python", name) for name in ("once.py", "failed.py", "called.py")]


class Case(unittest.TestCase):
    python = host = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.host.seen.clear()
        self.host.withdrawn.clear()

    def file(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def call(self):
        return self.host.seen[-1]["call"]

    def command(self, *words, code=0, stdin=""):
        done = subprocess.run(words, cwd=self.folder, env=ask.ENV, input=stdin, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=30)
        self.assertEqual(done.returncode, code, done)
        return done

    def once(self, text, code=0):
        """Runs a program of Python as the guest does."""
        memory = os.memfd_create("code")
        os.write(memory, text.encode())
        os.lseek(memory, 0, os.SEEK_SET)

        def place():
            os.dup2(memory, 3)

        try:
            done = subprocess.run([self.python, "-u", "-X", "utf8", "-c", *ONCE], cwd=self.folder, env=ask.ENV,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, timeout=30,
                                  pass_fds=(3,), preexec_fn=place)
        finally:
            os.close(memory)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def kernel(self):
        kernel = harness.python(self.python, env=ask.ENV, cwd=self.folder)
        self.addCleanup(kernel.close)
        return kernel

    def told(self, text):
        """What a program of Python prints."""
        return self.once(text).stdout


class Python(Case):
    def test_a_call_by_every_name(self):
        for text in ("from tools import github; print(github.list_issues(owner='o', from_='f'))",
                     "import tools; print(tools.github.list_issues(owner='o', from_='f'))",
                     "import tools.github; print(tools.github.list_issues({'owner': 'o', 'from': 'f'}))",
                     "from tools.github import list_issues; print(list_issues({'owner': 'o'}, from_='f'))",
                     "print(tools.github.list_issues(owner='o', from_='f'))",
                     "print(tools['github']['list_issues'](owner='o', from_='f'))",
                     "print(tools.github.listIssues(owner='o', from_='f'))",
                     "print(call_tool('github', 'list_issues', {'owner': 'o', 'from': 'f'}))",
                     "from mcp_runtime import *; print(call_tool('github', 'list_issues', owner='o', from_='f'))"):
            with self.subTest(text):
                self.assertEqual(self.told(text), str({"server": "github", "tool": "list_issues",
                                                       "got": {"owner": "o", "from": "f"}}) + "\n")
        self.assertEqual(self.told("print(call_tool('github.text', {'text': 'a'}), call_tool('text', text='b'))"), "a b\n")
        self.assertEqual([each["call"].get("name") for each in self.host.seen[-2:]], ["github.text", "text"])

    def test_names_that_are_spelled_in_another_way(self):
        told = self.told("print(tools.my_files.read_file(path='p'), tools['my-files']['read-file'](path='p'), "
                         "tools.myFiles.readFile(path='p'), tools.github.class_(self=1, given=2))")
        self.assertEqual(told.count("'server': 'my-files', 'tool': 'read-file', 'got': {'path': 'p'}"), 3)
        self.assertIn("'tool': 'class', 'got': {'self': 1, 'given': 2}", told)

    def test_what_is_there(self):
        told = self.told("""
import tools, inspect, pydoc
print([name for name in dir(tools) if name[0].islower()])
print(dir(tools.github), list(tools.my_files), sorted(tools))
print(repr(tools.github.list_issues), inspect.signature(tools.github.list_issues))
print(tools.github.list_issues.__doc__)
import sys
# Before 3.9 help() tells of the class of an object only.
print(pydoc.plain(pydoc.render_doc(tools.github.list_issues)) if sys.version_info > (3, 9) else tools.github.list_issues.__doc__)
print(pydoc.plain(pydoc.render_doc(tools.github))[:0], tools.github.text.__doc__)
print(hasattr(tools, '__wrapped__'), hasattr(tools.github, '_repr_html_'), hasattr(tools.github, 'nothing'))
""")
        lines = told.split("\n")
        self.assertEqual(lines[0], str(["aio", "describe", "github", "my_files", "parallel", "search", "skills"]))
        self.assertEqual(lines[1], "%r ['read_file'] ['github', 'my_files']" % sorted(standhost.TOOLS["github"]["tools"]))
        self.assertIn("<tool tools.github.list_issues(owner, repo=..., ", lines[2])
        self.assertIn("(*, owner, repo=None, from_=None", lines[2])
        self.assertEqual(told.count("Lists the issues of a repository"), 2, told)
        self.assertIn("described github.text", told)
        self.assertIn("False False False", told)

    def test_text_of_searches(self):
        told = self.told("import tools\nfound = tools.search('issue', server='github')\nprint(found, found.hits[0]['tool'])\n"
                         "print(repr(tools.describe(tools.github.list_issues)))")
        self.assertEqual(told, "found issue\n list_issues\ndescribed github.list_issues\n\n")
        self.assertEqual(self.host.seen[0], {"search": {"query": "issue", "detail": "signatures", "limit": 10,
                                                        "language": "python", "server": "github"}})
        self.assertEqual(self.told("from mcp_runtime import *\nprint(search_tools('x'), end='')\n"
                                   "print(list_servers()[0]['name'])"), "found x\ngithub\n")

    def test_all_of_a_result(self):
        told = self.told("r = tools.github.text.raw(text='t')\n"
                         "print(r.value, r.text, r.content, r.structured, r.meta, r.files)")
        self.assertEqual(told, "t as text [{'type': 'text', 'text': 'as text'}] None {'a': 1} []\n")

    def test_a_result_that_is_in_a_file(self):
        told = self.told("print(len(tools.github.big(size=3000000)), len(tools.github.big.raw(size=10).value))")
        self.assertEqual(told, "3000000 10\n")

    def test_errors(self):
        told = self.told("""
import tools, pickle
from tools import ToolError, InvalidArguments, UnknownTool, ToolTimeout, RateLimited, AuthRequired
def fail(kind, **more):
    try:
        tools.github.fail(error=dict(type=kind, message="it is so", server="github", tool="fail", retryable=True, **more))
    except ToolError as error:
        assert type(pickle.loads(pickle.dumps(error))) is type(error) and pickle.loads(pickle.dumps(error)).server == "github"
        return error
e = fail("InvalidArguments", problems=["owner is missing"], signature="fail(*, owner: str)")
print(type(e).__name__, isinstance(e, TypeError), e.problems, e.retryable, e.server, e.tool)
print(e)
e = fail("UnknownTool", suggestions=["github.text"])
print(isinstance(e, AttributeError), e)
e = fail("ToolTimeout", limit=2.5)
print(isinstance(e, TimeoutError), e.limit, e)
print(fail("RateLimited", retry_after=3).retry_after, fail("AuthRequired", url="https://a.test").url, fail("ToolError", code=-5, data={"a": 1}).data)
print([type(fail(kind)).__name__ for kind in ("PolicyDenied", "ApprovalDenied", "Cancelled", "Upstream", "BudgetExceeded", "New")])
e = fail("ToolError", args="x", with_traceback="y", __class__="z")
print(e.args, callable(e.with_traceback), type(e).__name__)
try: tools.github.broken()
except tools.Cancelled as e: print(e)
""")
        self.assertIn("InvalidArguments True ['owner is missing'] True github fail\nit is so\n- owner is missing\n"
                      "Signature: fail(*, owner: str)\n", told)
        self.assertIn("True it is so\nDid you mean: github.text\nTrue 2.5 it is so\n3 https://a.test {'a': 1}\n", told)
        self.assertIn("['PolicyDenied', 'ApprovalDenied', 'Cancelled', 'Upstream', 'BudgetExceeded', 'ToolError']", told)
        self.assertIn("('it is so',) True ToolError\nthe answer broke off", told)

    def test_arguments_that_are_none(self):
        told = self.told("""
import tools, datetime, pathlib, decimal
for given in (lambda: tools.github.text(1), lambda: tools.github.text({}, {}), lambda: tools.github.text(text=object()),
        lambda: tools.github.text(text=float('nan')), lambda: tools.github.text(text='x' * 1100000), lambda: call_tool(5)):
    try: print(given())
    except TypeError as e: print(type(e).__name__, e)
print(tools.github.text(text={'a': datetime.date(2026, 1, 2), 'b': pathlib.Path('/p'), 'c': {3}, 'd': (1, 2)}))
""")
        self.assertEqual(told.count("InvalidArguments"), 6, told)
        self.assertIn("arguments go by name", told)
        self.assertIn("pass a path or a part", told)
        self.assertIn("{'a': '2026-01-02', 'b': '/p', 'c': [3], 'd': [1, 2]}", told)

    def test_names_that_nobody_has(self):
        told = self.told("""
import tools
for f in (lambda: tools.gitub, lambda: tools.github.list_isues, lambda: tools.list_issues, lambda: tools.github['x'],
        lambda: __import__('tools', fromlist=['gitub']) and exec('from tools import gitub'), lambda: exec('import tools.gitub')):
    try: print(f())
    except (AttributeError, ImportError) as e: print(type(e).__name__, '|', e)
print(getattr(tools, 'nothing', 5))
""")
        self.assertIn("UnknownTool | there is no server 'gitub'; there are: github, my_files\n", told)
        self.assertIn("Did you mean: github.list_issues\n", told)
        self.assertEqual(told.count("ImportError | there is no server 'gitub'"), 2, told)
        self.assertTrue(told.endswith("\n5\n"), told)
        self.assertLessEqual(len([each for each in self.host.seen if "list" in each]), 1)

    def test_what_the_host_knows_that_is_newer(self):
        self.host.servers["fresh"] = {"name": "fresh", "tools": {"go": {"name": "go"}}}
        try:
            self.assertIn("'tool': 'go', 'got': {'from': 1}", self.told("print(tools.fresh.go(from_=1))"))
        finally:
            del self.host.servers["fresh"]

    def test_without_any_server(self):
        os.rename("/tools/index.json", "/tools/away")
        servers, self.host.servers = self.host.servers, {}
        try:
            told = self.told("import tools\nprint(dir(tools)[-1], tools)\ntry: tools.x\nexcept AttributeError as e: print(e)")
            self.assertEqual(told.count("--mcp-config"), 2, told)
        finally:
            self.host.servers = servers
            os.rename("/tools/away", "/tools/index.json")

    def test_several_at_once(self):
        told = self.told("""
import tools
from tools import github
print([each['got']['number'] for each in tools.parallel(github.get_issue, [dict(number=n) for n in range(40)], max=8)])
print(tools.parallel([(github.text, dict(text='a')), lambda: 'b', (github.text, {'text': 'c'})]))
print(tools.parallel(lambda x: x * 2, [1, 2, 3]), tools.parallel(lambda a, b=0: a + b, [dict(a=1, b=2)]), tools.parallel(github.text, []))
wrong = dict(error=dict(type='RateLimited', message='slow', retryable=True))
mixed = tools.parallel([(github.text, dict(text='a')), (github.fail, wrong)], errors='return')
print(mixed[0], type(mixed[1]).__name__)
try: tools.parallel(github.fail, [wrong] * 100, max=2)
except tools.RateLimited as e: print('raised', e)
""")
        self.assertEqual(told, "%s\n['a', 'b', 'c']\n[2, 4, 6] [3] []\na RateLimited\nraised slow\n" % list(range(40)))
        self.assertLess(len([each for each in self.host.seen if each["call"]["tool"] == "fail"]), 6)

    def test_what_is_awaited(self):
        told = self.told("""
import asyncio, tools
async def main():
    print([each['got']['number'] for each in await asyncio.gather(*[tools.aio.github.get_issue(number=n) for n in range(60)])])
    print((await tools.aio.github.text.raw(text='r')).value)
    try: await tools.aio.github.fail(error=dict(type='PolicyDenied', message='no'))
    except tools.PolicyDenied as e: print(e)
    task = asyncio.ensure_future(tools.aio.github.hang())
    await asyncio.sleep(0.2)
    task.cancel()
    try: await task
    except asyncio.CancelledError: print('cancelled')
asyncio.run(main())
""")
        self.assertEqual(told, "%s\nr\nno\ncancelled\n" % list(range(60)))
        self.assertTrue(self.host.gone("hang"))

    def test_skills(self):
        told = self.told("""
print(tools.skills.run('greet', who='all'), tools.skills.greet(), [each['name'] for each in tools.skills.list()])
print(tools.skills.save('s', 'def main(): pass', 'does it', tools=[tools.github.text, 'a.b'])['tools'], tools.skills.remove('s'))
try: tools.skills.shout()
except tools.ToolError as e: print(e)
""")
        self.assertEqual(told, "hello all hello you ['greet', 'shout']\n['github.text', 'a.b'] s\n"
                               "the skill shout is written in shell: run it in a shell, with `tools skills run shout`\n")
        self.assertEqual(self.host.seen[3]["skills"]["save"], {"name": "s", "description": "does it", "language": "python",
                                                               "code": "def main(): pass", "tools": ["github.text", "a.b"]})

    def test_a_module_of_the_users_own_wins(self):
        self.file("tools.py", "mine = 5\n")
        self.assertEqual(self.told("import tools\nprint(tools.mine)"), "5\n")
        self.assertEqual(self.told("from mcp_runtime import call_tool\nprint(call_tool('text', text='t'))"), "t\n")
        self.assertEqual(self.kernel().run("import tools\ntools.mine").result, "5")
        self.assertEqual(self.command(self.python, "-c", "import tools; print(tools.mine)").stdout, "5\n")

    def test_a_folder_of_the_users_own_is_found_too(self):
        self.file("tools/own.py", "mine = 6\n")
        self.assertEqual(self.told("import tools.own\nfrom tools import own, github\n"
                                   "print(own.mine, tools.own.mine, github.text(text=1))"), "6 6 1\n")

    def test_a_name_of_the_users_own_wins(self):
        self.assertEqual(self.told("tools = 3\ncall_tool = 4\nprint(tools, call_tool)"), "3 4\n")
        self.assertEqual(self.told("tools = 3\ndel tools\nprint(tools.github.text(text='x'))"), "x\n")

    def test_nothing_is_loaded_that_is_not_used(self):
        told = self.told("import sys, functools, itertools\nprint('builtin', 'call_too' + 'l' in dir(__builtins__))")
        self.assertEqual(told, "builtin False\n")
        told = self.told("import sys\n# tools\nprint([name for name in sys.modules if 'mcp' in name or 'tools' == name])")
        self.assertEqual(told, "[]\n")
        told = self.told("import tools, sys\nprint([name for name in ('socket', 'json', 'asyncio', 'threading') if name in sys.modules])")
        self.assertEqual(told, "[]\n")

    def test_an_uncaught_error_is_short(self):
        for text in ("from tools import github\ngithub.fail(error=dict(type='PolicyDenied', message='not allowed'))",
                     "1\ncall_tool('fail', error=dict(type='PolicyDenied', message='not allowed'))",
                     "1\ntools.github.fail(error=dict(type='PolicyDenied', message='not allowed'))"):
            with self.subTest(text):
                err = self.once(text, code=1).stderr
                self.assertIn('  File "main.py", line 2, in <module>\n', err)
                self.assertTrue(err.endswith("tools.PolicyDenied: not allowed\n"), err)
                self.assertNotIn("belljar", err)
                error = self.kernel().run(text).error
                self.assertEqual(error["name"], "PolicyDenied")
                self.assertNotIn("belljar", error["traceback"])
                self.assertIn('File "<cell 1>", line 2, in <module>', error["traceback"])
        self.assertIn("UnknownTool: github has no tool", self.once("tools.github.nothing()", code=1).stderr)


class Kernels(Case):
    def test_names_that_are_there_without_an_import(self):
        kernel = self.kernel()
        self.assertEqual(kernel.run("tools.github.text(text='a')").result, "'a'")
        answer = kernel.run("x = call_tool('github.text', {'text': 'b'})\nprint(x)")
        self.assertEqual((answer.stdout, answer.all("names")[-1]), ("b\n", ["x"]))
        self.assertEqual(kernel.run("tools = 3\ntools").result, "3")
        self.assertEqual(kernel.run("del tools\ntools.github").result.split(":")[0], "<server github")
        self.assertEqual(kernel.run("repr(tools)").result, "'<tools of github, my_files>'")
        self.assertEqual(kernel.run("import asyncio\nawait tools.aio.github.text(text='c')").result, "'c'")

    def test_an_only_cell(self):
        answer = self.kernel().run("print(tools.github.text(text='a'))", last=True)
        self.assertEqual((answer.stdout, answer.code), ("a\n", 0), answer)

    def test_an_interrupt_withdraws_the_call(self):
        kernel = self.kernel()
        for text in "tools.github.hang()", "tools.parallel([tools.github.hang] * 3)":
            self.host.withdrawn.clear()
            self.host.seen.clear()
            kernel.start(text)
            end = time.monotonic() + 10
            while not self.host.seen and time.monotonic() < end:
                time.sleep(0.001)
            kernel.asleep()
            kernel.interrupt()
            answer = kernel.finish()
            self.assertEqual(answer.error["name"], "KeyboardInterrupt")
            self.assertTrue(self.host.gone("hang"))
            self.assertEqual(kernel.run("tools.github.text(text='after')").result, "'after'")


class JavaScript(Case):
    transpile = None

    def started(self):
        env = dict(ask.ENV, BELLJAR_TRANSPILE=self.transpile or "/nowhere")
        kernel = jsharness.Kernel(jsharness.javascript(), self.folder, env=env, tells_interrupt=True,
                                  first=b"wait 0 javascript\n")
        self.addCleanup(kernel.close)
        return kernel

    def cell(self, text, language="javascript", last=False):
        return self.started().run(text, language, last=last, timeout=20)

    def node(self, text, code=0):
        """Runs a script as the guest does."""
        words = ["--require=/belljar/node/belljar/once.js"] if "tools" in text else []
        return self.command("node", *words, "--eval=" + text, code=code)

    def test_a_call_by_every_name(self):
        call = "(await github.list_issues({owner: 'o'})).got.owner"
        for text in ("const {{ github }} = await import('tools'); console.log({0})",
                     "const {{ github }} = require('tools'); console.log({0})",
                     "const {{ github }} = tools; console.log({0})",
                     "import {{ github }} from 'tools'; console.log({0})",
                     "import tools from 'tools'; const {{ github }} = tools; console.log({0})",
                     "import * as all from 'tools'; const {{ github }} = all; console.log({0})",
                     "import {{ type Issue, github }} from 'tools'; const x: string = {0}; console.log(x)"):
            text = text.format(call)
            with self.subTest(text):
                language = "typescript" if "type " in text else "javascript"
                if "import " not in text or self.transpile:
                    for last in False, True:
                        outcome = self.cell(text, language, last)
                        self.assertEqual((outcome.stdout, outcome.error), ("o\n", None), outcome.stderr)
                if language == "javascript":
                    body = text if "import" in text else "(async () => { %s })()" % text
                    self.assertEqual(self.node(body).stdout, "o\n")
        self.file("script.js", "require('tools').github.text({ text: 't' }).then(console.log)")
        self.assertEqual(self.command("node", "script.js").stdout, "t\n")

    def test_names_that_are_spelled_in_another_way(self):
        outcome = self.cell("""[await tools.my_files.read_file({path: 1}), await tools['my-files']['read-file']({path: 1}),
            await tools.myFiles.readFile({path: 1})].map((each) => each.server + each.tool).join()""")
        self.assertEqual(outcome.plain, "'" + ",".join(["my-filesread-file"] * 3) + "'", outcome.error)

    def test_hostile_names_change_nothing(self):
        outcome = self.cell("""
            const before = Reflect.ownKeys(Object.prototype).length;
            console.log(tools.__proto__, tools.constructor, tools.then, tools.github.__proto__, tools.github.toJSON);
            const error = await tools.github.fail({ error: { type: 'ToolError', message: 'm', ['__proto__']: { bad: 1 }, constructor: 5 } }).catch((e) => e);
            const other = JSON.parse('{"type": "__proto__", "message": "n", "__proto__": {"bad": 1}}');
            const second = await tools.github.fail({ error: other }).catch((e) => e);
            console.log(error.message, second.message, {}.bad, second.bad, second instanceof tools.ToolError, Reflect.ownKeys(Object.prototype).length === before);
            console.log(Object.keys(tools.github).includes('text'), 'github' in tools, tools, tools.my_files);""")
        self.assertEqual(outcome.stdout, "undefined undefined undefined undefined undefined\nm n undefined undefined true true\n"
                         "true true [tools of github, my_files] [server my-files: read_file]\n", outcome.error)

    def test_errors(self):
        outcome = self.cell("""
            const { ToolError, InvalidArguments, RateLimited, Cancelled } = tools;
            const fail = (error) => tools.github.fail({ error }).catch((e) => e);
            const e = await fail({ type: 'InvalidArguments', message: 'm', problems: ['p'], signature: 's()', retryable: true, server: 'github' });
            console.log(e instanceof InvalidArguments, e instanceof ToolError, e instanceof Error, e.name, e.message, e.problems, e.retryable, e.server);
            console.log((await fail({ type: 'RateLimited', message: 'm', retry_after: 2 })).retry_after, (await fail({ type: 'Later', message: 'm' })).name);
            console.log((await fail({ type: 'UnknownTool', message: 'm', suggestions: ['a.b'] })).message);
            console.log((await tools.github.text(5).catch((e) => e)).message, (await tools.github.text({ text: 1n }).catch((e) => e)).name);
            console.log((await tools.github.broken().catch((e) => e)) instanceof Cancelled, (await tools.nothing.nowhere().catch((e) => e)).suggestions);""")
        self.assertEqual(outcome.stdout.split("\n"), [
            "true true true InvalidArguments m", "- p", "Signature: s() [ 'p' ] true github", "2 ToolError", "m",
            "Did you mean: a.b", "the arguments are one object: tool({ name: value }) InvalidArguments",
            "true [ 'github.text' ]", ""], outcome.error)
        outcome = self.cell("1\nawait tools.github.fail({ error: { type: 'PolicyDenied', message: 'no' } })")
        self.assertEqual(outcome.error["name"], "PolicyDenied")
        self.assertIn("cell 1:2", outcome.error["traceback"])
        self.assertNotIn("belljar", outcome.error["traceback"])

    def test_the_rest(self):
        outcome = self.cell("""
            const r = await tools.github.text.raw({ text: 't' });
            console.log(r.value, r.text, r.meta, (await tools.github.big({ size: 2000000 })).length, (await tools.github.big.raw({ size: 5 })).value);
            console.log(await tools.search('issue'), await tools.describe(tools.github.text));
            console.log((await Promise.all(Array.from({ length: 100 }, (_, number) => tools.github.get_issue({ number })))).every((each, at) => each.got.number === at));
            console.log(await tools.parallel(tools.github.text, [{ text: 1 }, { text: 2 }], { max: 1 }), await tools.parallel([() => 3, () => tools.github.text({ text: 4 })]));
            console.log((await tools.parallel(tools.github.fail, [{ error: { type: 'Upstream', message: 'm' } }], { errors: 'return' }))[0].name);
            const stop = new AbortController();
            const waits = tools.github.hang({}, { signal: stop.signal }).catch((e) => e.name);
            setTimeout(() => stop.abort(), 50);
            console.log(await waits, (await tools.skills.list()).length, await tools.skills.shout().catch((e) => e.name));""")
        self.assertEqual(outcome.stdout, "t as text { a: 1 } 2000000 xxxxx\nfound issue\n described github.text\n\ntrue\n"
                         "[ 1, 2 ] [ 3, 4 ]\nUpstream\nCancelled 2 ToolError\n", outcome.error)
        self.assertTrue(self.host.gone("hang"))

    def test_the_process_waits_for_a_call_and_for_nothing_else(self):
        self.assertEqual(self.node("tools.github.text({ text: 'late' }).then(console.log)").stdout, "late\n")
        self.assertEqual(self.cell("tools.github.text({ text: 'late' }).then(console.log); 0", last=True).stdout, "late\n")
        self.node("tools.github")

    def test_names_of_the_users_own_win(self):
        self.assertEqual(self.cell("const tools = 3; console.log(tools)").stdout, "3\n")
        self.assertEqual(self.cell("var tools = 4; console.log(tools)").stdout, "4\n")
        self.file("node_modules/tools/index.js", "module.exports = 5")
        self.assertEqual(self.cell("console.log(require('tools'), (await import('tools')).default)").stdout, "5 5\n")
        outcome = self.cell("x = 1")
        self.assertEqual(outcome.of("names"), [["x"]])

    def test_an_interrupted_call_is_not_waited_for(self):
        kernel = self.started()
        kernel.send("await tools.github.hang()", "javascript")
        end = time.monotonic() + 10
        while not self.host.seen and time.monotonic() < end:
            time.sleep(0.001)
        kernel.interrupt()
        self.assertEqual((kernel.finish().code, kernel.run("await tools.github.text({ text: 7 })").plain), (130, "7"))

    def test_files_that_import_it(self):
        self.file("near.mjs", "import { github, ToolError } from 'tools';\nexport default await github.text({ text: 'near' });\n")
        outcome = self.cell("console.log((await import('./near.mjs')).default)")
        self.assertEqual((outcome.stdout, outcome.error), ("near\n", None))


class Shell(Case):
    def test_a_call(self):
        for words in (["github", "list_issues"], ["github.list_issues"]):
            done = self.command("tools", "call", *words, "owner=5", "count=3", "open=true", 'labels=["a"]', "repo:={}", "x=é")
            self.assertEqual(self.call()["arguments"], {"owner": "5", "count": 3, "open": True, "labels": ["a"], "repo": {},
                                                        "x": "é"})
            self.assertEqual(json.loads(done.stdout)["tool"], "list_issues")
            self.assertEqual(done.stdout.count("\n"), 1)
        self.assertEqual(self.command("tools", "call", "github", "text", "text=a b").stdout, "a b\n")
        self.assertEqual(self.command("tools", "call", "text", "text:=[1.50,null]").stdout, "[1.5,null]\n")
        self.command("tools", "call", "github", "text", "--json", "-", "--timeout", "3", stdin='{"text": {"a": 1}}')
        self.assertEqual(self.call(), {"server": "github", "tool": "text", "timeout": 3, "arguments": {"text": {"a": 1}}})
        raw = json.loads(self.command("tools", "call", "github", "text", "text=t", "--raw").stdout)
        self.assertEqual((raw["value"], raw["meta"]), ("t", {"a": 1}))

    def test_a_result_that_is_in_a_file(self):
        done = self.command("tools", "call", "github", "big", "size:=3000000")
        self.assertEqual(done.stdout, "x" * 3000000 + "\n")
        self.assertEqual(json.loads(self.command("tools", "call", "github", "big", "size:=9", "--raw").stdout)["value"], "x" * 9)

    def test_what_there_is(self):
        listed = self.command("tools").stdout
        self.assertIn("github.list_issues\n", listed)
        self.assertEqual(listed, self.command("tools", "list").stdout)
        self.assertEqual(self.command("tools", "list", "my-files").stdout, "my_files.read_file\n")
        self.assertIn("there are: github, my-files", self.command("tools", "list", "x", code=4).stderr)
        self.assertEqual(self.command("tools", "search", "make", "an", "issue", "--detail", "names").stdout, "found make an issue\n")
        self.assertEqual(self.host.seen[-1]["search"]["detail"], "names")
        self.assertEqual(self.command("tools", "describe", "github.text").stdout, "described github.text\n")
        self.assertIn("tools call SERVER TOOL", self.command("tools", "--help").stdout)
        servers, self.host.servers = self.host.servers, {}
        try:
            self.assertIn("--mcp-config", self.command("tools").stderr)
        finally:
            self.host.servers = servers

    def test_failures_are_told_apart(self):
        for kind, code in {"ToolError": 1, "InvalidArguments": 2, "PolicyDenied": 3, "ApprovalDenied": 3, "UnknownTool": 4,
                           "ToolTimeout": 5, "Upstream": 1}.items():
            error = {"type": kind, "message": "it is so", "problems": ["p"], "signature": "f()", "suggestions": ["a.b"]}
            done = self.command("tools", "call", "github", "fail", "error:=" + json.dumps(error), code=code)
            self.assertEqual((done.stdout, done.stderr),
                             ("", kind + ": it is so\n- p\nSignature: f()\nDid you mean: a.b\n"))
        self.assertIn("count is integer", self.command("tools", "call", "github", "list_issues", "count=x", code=2).stderr)
        self.assertIn("broke off", self.command("tools", "call", "github", "broken", code=1).stderr)
        for words in ["call"], ["nonsense"], ["call", "a", "b", "c"], ["search", "--other"], ["skills", "nothing"]:
            self.assertIn("InvalidArguments: ", self.command("tools", *words, code=2).stderr)
        os.rename(standhost.SOCKET, "/home/agent/away")
        try:
            self.assertIn("nobody answers", self.command("tools", "call", "a.b", code=1).stderr)
        finally:
            os.rename("/home/agent/away", standhost.SOCKET)

    def test_skills(self):
        self.assertEqual(self.command("tools", "skills", "list").stdout, "greet (python): greets\nshout (shell): shouts\n")
        self.assertEqual(self.command("tools", "skills", "run", "greet", "who=all").stdout, "hello all\n")
        self.assertEqual(self.command("tools", "skills", "run", "shout", "now").stdout, "LOUD now\n")
        self.assertEqual(self.command("tools", "skills", "run", "wave", "n:=2").stdout, '{"n":2}\n')
        self.assertIn("no such skill", self.command("tools", "skills", "run", "x", code=1).stderr)
        self.file("s.py", "print(1)\n")
        self.command("tools", "skills", "save", "s", "s.py", "--description", "d", "--tool", "github.text")
        self.assertEqual(self.host.seen[-1]["skills"]["save"], {"name": "s", "description": "d", "language": "python",
                                                                "code": "print(1)\n", "tools": ["github.text"]})
        self.assertIn("--description", self.command("tools", "skills", "save", "s", "s.py", code=2).stderr)
        self.command("tools", "skills", "remove", "s")
        self.assertEqual(self.host.seen[-1], {"skills": {"remove": {"name": "s"}}})


def speed(python):
    """Microseconds of an import and of a call."""
    code = """
import time, sys
began = time.perf_counter(); import tools; imported = time.perf_counter() - began
began = time.perf_counter(); tools.github.text(text="a"); first = time.perf_counter() - began
began = time.perf_counter()
for n in range(1000): tools.github.text(text="a")
each = (time.perf_counter() - began) / 1000
print("import %.0f us, first call %.0f us, each call %.1f us" % (imported * 1e6, first * 1e6, each * 1e6))
"""
    subprocess.run([python, "-c", code], env=ask.ENV, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--guest", required=True)
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--transpile")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--inside", action="store_true")
    options, rest = parser.parse_known_args()
    if not options.inside:
        unshare = ["unshare", "--mount", "--net"] + ["--map-root-user"] * bool(os.getuid())
        tried = subprocess.run([*unshare, "true"], stderr=subprocess.PIPE, universal_newlines=True)
        if tried.returncode:
            print("skipped: no namespaces here: " + tried.stderr.strip(), file=sys.stderr)
            return
        os.execvp("unshare", [*unshare, sys.executable, *sys.argv, "--inside"])
    ask.sandbox(options.guest)
    standhost.lay_out()
    Case.python, Case.host = options.python, standhost.Host()
    JavaScript.transpile = options.transpile
    if options.speed:
        return speed(options.python)
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
