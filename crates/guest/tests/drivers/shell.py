"""The shell drivers against the protocol, in real bash and sh processes.

python3 crates/guest/tests/drivers/shell.py. BELLJAR_TEST_BASH names another bash.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from jsharness import Died, Kernel, shell


class Shell(unittest.TestCase):
    interpreter = "bash"

    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.kernel = None

    def tearDown(self):
        if self.kernel:
            self.kernel.close()

    def start(self):
        kernel = Kernel(shell(self.interpreter), self.folder)
        kernel.language = "shell"
        self.pid = kernel.pid
        return kernel

    def cell(self, code, **more):
        if self.kernel is None:
            self.kernel = self.start()
        return self.kernel.run(code, **more)

    def once(self, code, **more):
        """An only cell. If its end was not told, it is that of the process: below zero a signal."""
        kernel = self.start()
        try:
            return kernel.run(code, last=True, **more)
        except Died as died:
            died.outcome.code = died.status
            return died.outcome
        finally:
            kernel.close()

    def says(self, code, stdout="", stderr="", status=0, **more):
        outcome = self.cell(code, **more)
        self.assertEqual((outcome.stdout, outcome.stderr, outcome.code), (stdout, stderr, status), code)
        return outcome


class State(Shell):
    def test_all_lives_between_cells(self):
        self.says("echo $$", f"{(self.kernel or self.cell(':')) and self.kernel.pid}\n")
        self.says("a=1; export b=2; c=(x 'y z'); declare -A d=([k]=v); readonly e=5; declare -i f=3; f+=4")
        self.says('echo "$a $b ${c[1]} ${d[k]} $e $f"; env | grep ^b=', "1 2 y z v 5 7\nb=2\n")
        self.says("g() {\n  local l=$1\n  echo \"in $l\"\n}\nalias hi='echo hello'\nmkdir -p sub; cd sub")
        self.says("g 1; hi; pwd", f"in 1\nhello\n{self.folder}/sub\n")
        self.says("shopt -s nullglob; set -o pipefail; umask 027")
        self.says("echo *.none; false | true; echo $?; umask", "\n1\n0027\n")
        self.says("set -- p q; x='a  b'; IFS=:")
        self.says("echo \"$2 $x\"; y=1:2; echo $y; IFS=$' \\t\\n'", "q a  b\n1 2\n")

    def test_status(self):
        for code, status in {
            "true": 0,
            "false": 1,
            "(exit 7)": 7,
            "nope_nope 2>/dev/null": 127,
            "": 0,
            "# nothing": 0,
            "x=$(exit 4)": 4,
            "sh -c 'kill -9 $$'": 137,
        }.items():
            self.assertEqual(self.cell(code).code, status, code)
        self.cell("(exit 42)")
        self.says("echo $?", "42\n")
        self.says("echo $?", "0\n")

    def test_text(self):
        self.says("cat <<E\nhére $((1 + 1))\nE\necho 'ü😀' | cat", "hére 2\nü😀\n")
        self.says("printf '%s' 'no newline'", "no newline")
        self.says("echo a\\\nb; echo 'c\nd'", "ab\nc\nd\n")
        long = "x" * (1 << 20)
        self.assertEqual(self.cell(f"y='{long}'; echo ${{#y}}").stdout, f"{1 << 20}\n")
        self.assertEqual(len(self.cell('echo "$y"').stdout), (1 << 20) + 1)
        wide = "ü" * (1 << 18)
        self.assertEqual(self.cell(f"z='{wide}'; echo ${{#z}}").stdout, f"{1 << 18}\n")
        self.assertEqual(len(self.cell("head -c 10000000 /dev/zero").stdout_bytes), 10000000)

    def test_each_cell_has_its_own_input(self):
        self.says('read x; echo "[$x]"', "[one]\n", stdin=b"one\ntwo\n")
        self.says("cat", "second", stdin=b"second")
        self.says("read x || echo none", "none\n")
        self.says('while read -r l; do echo "<$l>"; done; read q || echo end', "<a>\n<b>\nend\n", stdin=b"a\nb\n")

    def test_errors_name_the_cell_and_the_line(self):
        self.cell(":")
        self.assertEqual(self.cell("echo a\nnope_nope").stderr, "cell 2: line 2: nope_nope: command not found\n")
        outcome = self.cell("echo a\nif (")
        self.assertEqual((outcome.code, outcome.stdout), (2, "a\n"))
        self.assertTrue(outcome.stderr.startswith("cell 3: eval: line 3: syntax error"), outcome.stderr)
        self.cell("break")
        self.assertEqual(self.cell("\n\nnope_nope").stderr, "cell 5: line 3: nope_nope: command not found\n")

    def test_background_processes_go_on(self):
        self.cell("sleep 30 & echo $! > pid; other=$!")
        self.says("jobs | wc -l; kill -0 $! && echo alive; [ $! = $other ] && echo same", "1\nalive\nsame\n")
        self.says("kill %1; wait $other; echo $?", "143\n")
        self.says("(sleep 0.05; echo late) & wait; echo after", "late\nafter\n")
        pid = self.cell("sleep 30 & echo $!").stdout.strip()
        self.says("true")
        os.kill(int(pid), signal.SIGKILL)

    def test_redirections_of_the_shell_stay(self):
        self.says("exec > out.txt; echo to the file")
        self.says("echo more")
        self.says("exec 2>&1; nope_nope 2>/dev/null", status=127)
        with open(os.path.join(self.folder, "out.txt"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "to the file\nmore\n")
        self.says('exec 5< out.txt; read -u 5 l; read -u 5 m; [ "$m" = more ]')

    def test_the_control_socket_is_not_for_children(self):
        look = "ls -l /proc/self/fd; (ls -l /proc/self/fd)"
        for outcome in self.cell(look), self.once(look), self.once(look + "; ls -l /proc/$$/fd; set +e"):
            self.assertEqual(outcome.code, 0)
            self.assertNotIn("socket:", outcome.stdout)
            self.assertNotIn("library", outcome.stdout)
        outcome = self.cell("echo x >&3")
        self.assertEqual(outcome.code, 1)
        self.says("exec 3> mine; echo x >&3; echo ok", "ok\n")

    def test_names(self):
        def named(code, **more):
            return [record for record in self.cell(code, **more).records if "names" in record]

        self.assertEqual(named("echo nothing new"), [])
        self.assertEqual(named("beta=1; alpha=2; _hidden=3"), [{"names": ["alpha", "beta"], "count": 2}])
        self.assertEqual(named("beta=5"), [])
        self.assertEqual(
            named("status=1; name=2; my-func() { gamma=1; }"),
            [{"names": ["alpha", "beta", "my-func", "name", "status"], "count": 5}],
        )
        self.assertEqual(named("my-func")[0]["names"], ["alpha", "beta", "gamma", "my-func", "name", "status"])
        self.assertEqual(named("unset alpha beta gamma name status; unset -f my-func"), [{"names": [], "count": 0}])
        self.assertEqual(named("read word rest", stdin=b"a b c")[0]["names"], ["rest", "word"])
        many = named("for i in {1..150}; do declare n$i=1; done")[0]
        self.assertEqual((len(many["names"]), many["count"]), (100, 153))


class Endings(Shell):
    def test_exit_ends_the_cell_and_keeps_the_state(self):
        self.cell("kept=1; sleep 30 & job=$!")
        for code, status in {
            "exit 3": 3,
            "exit": 0,
            "false; exit": 1,
            "exit 256": 0,
            "exit -1": 255,
            "made=2; exit 4": 4,
            "f() { g; echo no; }; g() { exit 5; echo no; }; f": 5,
            "for i in 1 2; do for j in 1 2; do exit 6; done; done": 6,
            "while :; do exit 7; done": 7,
            "while true; do f2() { exit 8; }; f2; done": 8,
            "until false; do { exit 9; }; done": 9,
            "if true; then exit 10; fi": 10,
            "case x in x) exit 11 ;; esac": 11,
            "true && exit 12": 12,
            "false || exit 13": 13,
            "exit 14 && echo no; echo no": 14,
            "for ((;;)); do exit 15; done": 15,
            "eval 'exit 17'; echo no": 17,
            "echo 'exit 18; echo no' > s.sh; . ./s.sh": 18,
            "for f in 1; do (exit 1) || exit 19; done": 19,
            "h() { for x in 1 2 3; do while :; do exit 20; done; done; }; for y in 1 2; do h; done": 20,
            "x=5; [[ $x == 5 ]] && exit 21; ((x++)); [[ 1 ]]": 21,
            "{ exit 22; } > /dev/null; echo no": 22,
            "exit nonsense 2> /dev/null": 2,
        }.items():
            outcome = self.cell(code + "\necho no")
            self.assertEqual((outcome.code, outcome.stdout), (status, ""), (code, outcome.stderr))
            if "nonsense" not in code:
                self.says("echo $kept; jobs %1 > /dev/null && kill -0 $job && echo on", "1\non\n")
        self.says(
            "(exit 5); echo $?; y=$(exit 6); echo $?; exit 7 | cat; echo ${PIPESTATUS[0]}; bash -c 'exit 8'; echo $?",
            "5\n6\n7\n8\n",
        )
        self.cell("kill $job")

    def test_set_e_ends_the_cell(self):
        self.says(
            "kept=1; arr=(a 'b c'); declare -A map=([k]='v w'); ff() { echo \"f $1\"; }; alias al='echo al'; set -e;"
            " echo before; false; echo no",
            "before\n",
            status=1,
        )
        self.says('echo $kept "${arr[1]}" "${map[k]}"; ff x; al; pwd', f"1 b c v w\nf x\nal\n{self.folder}\n")
        self.says("echo on; ls /nope 2> /dev/null; echo no", "on\n", status=2)
        self.says("if false; then :; fi; false || true; echo fine", "fine\n")
        self.says("set +e; false; echo off", "off\n")

    def test_set_u_and_required_variables(self):
        self.cell("kept=2; cd /tmp; set -u")
        outcome = self.cell("echo a; echo $undefined_one; echo no")
        self.assertEqual((outcome.stdout, outcome.code), ("a\n", 127))
        self.assertIn("undefined_one: unbound variable", outcome.stderr)
        self.assertEqual(outcome.stderr.count("\n"), 1, outcome.stderr)
        self.says("echo $kept; pwd; [[ $- == *u* ]] && echo still; set +u", "2\n/tmp\nstill\n")
        outcome = self.cell("echo ${missing:?it is missing}; echo no")
        self.assertEqual((outcome.stdout, outcome.code), ("", 127))
        self.says("echo $kept", "2\n")
        for _ in range(3):
            self.assertEqual(self.cell("set -eu; false").code, 1)
        self.says("set +eu; echo $kept", "2\n")

    def test_traces_show_the_cell_only(self):
        outcome = self.cell("set -x; echo a")
        self.assertEqual(outcome.stderr.replace("+", ""), " echo a\n")
        outcome = self.cell("echo b\nset +x")
        self.assertEqual(outcome.stderr.replace("+", ""), " echo b\n set x\n")
        self.says("echo c", "c\n")

    def test_loops_that_reach_out(self):
        for code in [
            "break",
            "continue",
            "break 5",
            "for i in 1; do break 9; done",
            "while :; do continue 0 2> /dev/null; break; done",
            "return 2> /dev/null",
        ]:
            self.cell(code)
            self.says("echo alive", "alive\n")

    def test_traps(self):
        self.says("trap 'echo got' USR1; kill -USR1 $$; :", "got\n")
        self.says("kill -USR1 $$; :", "got\n")
        self.says("trap 'echo err' ERR; false; true; trap - ERR", "err\n")
        self.says("trap 'echo debug' DEBUG; :; trap - DEBUG", "debug\ndebug\n")
        self.says("r() { trap 'echo returned' RETURN; }; r; trap - RETURN", "returned\n")

    def test_a_last_cell_after_others(self):
        self.cell("kept=1")
        self.says("echo $kept; (exit 4)", "1\n", status=4, last=True)

    def test_the_end_of_the_socket_is_the_end(self):
        for code in [None, "echo 1", "set -eu", "trap 'echo no' EXIT"]:
            kernel = self.start()
            if code:
                kernel.run(code)
            self.assertEqual(kernel.close(), 0, code)

    def test_death_is_death(self):
        for code, status in {"kill -9 $$": -9, "exec true": 0, "exec sh -c 'exit 6'": 6}.items():
            with self.assertRaises(Died) as died:
                self.cell(code)
            self.assertEqual(died.exception.status, status)
            self.kernel.close()
            self.kernel = None


class Script(Shell):
    """An only cell is a script: all that can be seen of it is what `bash -c` shows."""

    def script(self, code, stdin=b"", env=None):
        path = shell(self.interpreter)[0][0]
        environment = {"PATH": os.environ["PATH"], "HOME": self.folder, "LANG": "C.UTF-8", **(env or {})}
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            arguments = [self.interpreter, "-c", "--", code]
            return subprocess.run(
                arguments, executable=path, stdin=file, capture_output=True, cwd=self.folder, env=environment,
                start_new_session=True, close_fds=False,
            )

    def same(self, code, stdin=b""):
        for line in (code, f"{code}\n: set") if "\0" not in code else (code,):
            expected = self.script(line, stdin)
            outcome = self.once(line, stdin=stdin)
            stderr = outcome.stderr.replace("eval: line", "-c: line")
            plain = re.compile(r"\b\d{3,}\b(?= (?:Killed|Terminated|Hangup|Segmentation fault))")
            self.assertEqual(
                (outcome.stdout, plain.sub("PID", stderr), outcome.code),
                (expected.stdout.decode(), plain.sub("PID", expected.stderr.decode()), expected.returncode),
                line,
            )

    def test_ends(self):
        for code in [
            "echo 2", "", "# nothing", "true", "false", "(exit 7)", "exit 3", "exit", "false; exit", "exit 256", "exit -1",
            "exit nonsense", "f() { exit 5; }; f; echo no", "set -e; echo a; false; echo no", "set -eu; echo $none; echo no",
            "set -o pipefail; false | true", "echo ${none:?missing}; echo no", "echo $((1 / 0)); echo no",
            "readonly r=1; r=2; echo on", "nope_nope", "echo a\nnope_nope\necho b", "kill -9 $$", "kill -TERM $$; echo no",
            "kill -HUP $$", "kill -SEGV $$", "python3 -c 'import os; os.kill(os.getppid(), 15)'; echo no",
            "sh -c 'kill -9 $$'; echo $?", "exec sh -c 'exit 5'", "exec sh -c 'kill -9 $$'", "exec nope_nope; echo no",
            "trap 'echo bye' EXIT", "trap 'echo bye; exit 4' EXIT; exit 3", "trap 'echo err $?' ERR; false; (exit 3)",
            "trap 'echo debug' DEBUG; :; echo x", "trap", "trap -p", "trap 'echo got' USR1; kill -USR1 $$; echo on",
            "t=tra; ${t}p 'echo bye' USR1; kill -USR1 $$; echo on", "return 3; echo $?", "break; echo $?", "false || exit 13",
            "(exit 4); echo $?; echo ${PIPESTATUS[0]}", "x=$(exit 4)", "logout", "wait", "times > /dev/null",
        ]:
            with self.subTest(code):
                self.same(code)

    def test_what_it_sees(self):
        for code in [
            "echo $0 $# $? $- [$*] ${#BASH_SOURCE[@]} ${#FUNCNAME[@]} [$!] $SHLVL $OPTIND $SECONDS", 'echo "[$_]"',
            "echo $LINENO\n\necho $LINENO; f() {\necho $LINENO ${BASH_LINENO[0]} $FUNCNAME; caller; }\nf",
            "declare -F; declare -f; alias; shopt; set -o; umask; jobs; ulimit -a", "shopt; umask; jobs; alias",
            "declare -p | grep -v -e RANDOM -e EPOCH -e PID -e SECONDS -e STATUS", "compgen -v | grep -v STATUS; compgen -A function",
            "set | grep -v -e RANDOM -e EPOCH -e PID -e SECONDS -e STATUS", "env | sort", "export -p; readonly -p | grep -v PID",
            "type exit printf read", "echo ${!__*} ${!b*}", "echo $BASH_EXECUTION_STRING", "pwd; cd ..; pwd; echo ~",
            "[ -t 0 ] || [ -t 1 ] || echo none", "ls /proc/self/fd", "hash", "dirs; pushd / > /dev/null; dirs", "history",
            "echo $BASHOPTS $SHELLOPTS", "echo $BASH_COMMAND $BASH_SUBSHELL", "echo 'ü😀' | cat; x=ü; echo ${#x}",
            "[[ $$ == $BASHPID ]] && ps -o ppid= $$ > /dev/null && echo one",
        ]:
            with self.subTest(code):
                self.same(code)

    def test_text_and_input(self):
        for code, stdin in [
            ("if (", b""), ("echo a\nif (", b""), ("echo a\nfi\necho b", b""), ("echo 'a", b""), ("cat <<E\nx", b""),
            ("f() {\necho", b""), ("cat <<'E'\n$x `y`\nE\necho done", b""), ("echo a\\\nb # comment", b""),
            ("-x; echo $?", b""), ("cat", b"input\n"), ("read a; echo [$a]; cat", b"one\ntwo\nthree"),
            ('while read -r l; do echo "<$l>"; done; read q || echo end', b"a\nb"), ("head -1; cat", b"1\n2\n3\n"),
            ("python3 -c 'import sys; print(sys.stdin.read())'; echo; cat", b"all of it"),
            ("printf 'no newline'", b""), ("echo out; echo err >&2; echo out", b""), ("x=1; echo $x ${x+y} $((x + 1))", b""),
            ("echo " + "x" * 100000, b""), ("x='" + "ü" * 50000 + "'; echo ${#x}", b""), ("\t\n  echo hi  \n\n", b""),
            ("set -x; echo traced; x=1", b""), ("set -v; echo verbose", b""), ("set -n; echo no", b""),
            ("shopt -s expand_aliases\nalias hi='echo hello'\nhi", b""), ("alias hi='echo hello'\nhi", b""),
            ("select x in a b; do echo $x; break; done", b"2\n"), ("mapfile -t a; echo ${#a[@]}", b"1\n2\n"),
        ]:
            with self.subTest(code[:60]):
                self.same(code, stdin)

    def test_what_it_leaves_behind_is_not_waited_for(self):
        for code in ["sleep 30 & echo started", "(sleep 30 &); echo started", "sleep 30 > /dev/null 2>&1 & disown; echo started"]:
            outcome = self.once(f"{code}; : $!", timeout=3)
            self.assertEqual((outcome.stdout, outcome.code), ("started\n", 0))
            subprocess.run(["pkill", "-s", str(self.pid), "sleep"], check=True)

    def test_environment(self):
        for env in [{"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}, {"LANG": ""}, {"IFS": "x"}, {"BASH_ENV": "/nonexistent"}]:
            code = "x=ü; echo ${#x}; env | grep -v -e ^_= | sort; y='a b'; for w in $y; do echo $w; done"
            expected = self.script(code, env=env)
            kernel = Kernel(shell(self.interpreter), self.folder, env=env)
            kernel.language = "shell"
            outcome = kernel.run(code, last=True)
            kernel.close()
            self.assertEqual((outcome.stdout, outcome.code), (expected.stdout.decode(), 0), env)


class Interrupts(Shell):
    def interrupted(self, code, **more):
        outcome = self.cell(code, interrupt_after=0.2, timeout=3, **more)
        self.assertEqual(outcome.code, 130, (code, outcome.stderr))
        self.assertEqual(outcome.error["name"], "Interrupted")
        self.assertLess(outcome.seconds, 1.2, code)
        return outcome

    def test_loops_and_functions_and_commands(self):
        self.cell("kept=1; sleep 60 & job=$!")
        for code in [
            "while :; do :; done",
            "while :; do x=1; done",
            "until false; do ((n++)); done",
            "for ((;;)); do :; done",
            "sleep 20",
            "f() { while :; do g; done; }; g() { h=1; }; f",
            "while :; do sleep 0.01; done",
            "sleep 20 | cat",
            "(while :; do :; done)",
            "x=$(sleep 20)",
            "x=$(while :; do :; done)",
            "read v < <(sleep 20)",
            "wait $job",
            "cat < <(sleep 20)",
            "yes > /dev/null",
            "yes | while read -r l; do :; done",
            "if while :; do :; done; then :; fi",
            "w() { until false; do sleep 0.02; done; }; w && echo no || echo no",
            "for i in {1..1000000}; do :; done; while :; do :; done",
            "case x in x) while :; do :; done ;; esac",
            "{ while :; do :; done; } 2> /dev/null",
            "python3 -c 'while True: pass' 2> /dev/null",
            "eval 'while :; do :; done'",
            "find / -name nope_nope -exec sleep 20 \\; 2> /dev/null; sleep 20",
            "echo 'while :; do :; done' > l.sh; . ./l.sh",
            "r() { r2; r2; }; r2() { sleep 20; }; r; r",
            "while sleep 0.01; do :; done",
            "set -e; while :; do :; done",
        ]:
            with self.subTest(code):
                outcome = self.interrupted(f"{code}\necho no")
                self.assertNotIn("no\n", outcome.stdout)
                self.says("set +e; echo $kept; kill -0 $job", "1\n")
        self.cell("kill -9 $job")

    def test_an_interrupt_between_cells_is_nothing(self):
        for _ in range(5):
            self.cell(":")
            self.kernel.interrupt()
            time.sleep(0.01)
        self.says("echo alive", "alive\n")
        for _ in range(40):
            self.assertIn(self.cell("for i in {1..300}; do :; done", interrupt_after=0.001).code, (0, 130))
            self.says("echo alive", "alive\n")

    def test_after_the_state_was_carried_over(self):
        self.assertEqual(self.cell("set -u; kept=1; echo $nope").code, 127)
        self.interrupted("set +u; while :; do :; done")
        self.says("echo $kept; exit 4", "1\n", status=4)

    def test_an_interrupt_that_comes_with_the_end_of_the_shell(self):
        # As when a fork that is tried again and again is interrupted: bash ends, and has yet to run the trap.
        outcome = self.cell("keeps=1; : $(kill -INT $$) ${x:?}; echo no")
        self.assertEqual((outcome.stdout, outcome.code), ("", 130))
        self.says("echo on $keeps; f() { echo f; }; f", "on 1\nf\n")
        self.interrupted("while :; do :; done")

    def test_the_last_cell(self):
        for code in ["while :; do :; done", "sleep 20", "set -e; sleep 20"]:
            self.assertEqual(self.once(code, interrupt_after=0.2, timeout=3).code, -signal.SIGINT, code)
        outcome = self.once("trap 'echo mine; exit 3' INT; sleep 20", interrupt_after=0.2, timeout=3)
        self.assertEqual((outcome.stdout, outcome.code), ("mine\n", 3))

    def test_a_trap_of_the_users_is_theirs(self):
        outcome = self.cell("trap 'echo mine' INT; sleep 20; echo after", interrupt_after=0.2, timeout=3)
        self.assertEqual((outcome.stdout, outcome.code), ("mine\nafter\n", 0))


class PosixShell(Shell):
    interpreter = "dash"

    def setUp(self):
        if not shutil.which("dash"):
            self.skipTest("there is no dash")
        super().setUp()

    def test_state(self):
        self.says("a=1; f() { echo in $a; }; mkdir d; cd d")
        self.says("f; pwd; read x; echo $x", f"in 1\n{self.folder}/d\nline\n", stdin=b"line\n")
        self.says("cat <<E\nü\nE\n(exit 3)", "ü\n", status=3)
        self.assertEqual(self.cell("echo " + "x" * 100000).stdout, "x" * 100000 + "\n")
        self.assertNotIn("socket:", self.cell("ls -l /proc/self/fd").stdout)

    def test_an_end_is_told(self):
        for code, status in {"exit 3": 3, "set -e; false": 1, "kill -INT $$; while :; do :; done": 130}.items():
            outcome = self.cell(code)
            self.assertEqual(outcome.code, status, code)
            self.kernel.close()
            self.kernel = None

    def test_interrupt(self):
        outcome = self.cell("while :; do :; done", interrupt_after=0.2, timeout=3)
        self.assertEqual((outcome.code, outcome.error["name"]), (130, "Interrupted"))

    def test_the_last_cell(self):
        self.assertEqual((self.once("echo 1; exit 4").stdout, self.once("exit 4").code), ("1\n", 4))
        self.assertEqual(self.once("trap 'echo bye' EXIT; false").stdout, "bye\n")
        self.assertEqual(self.once("while :; do :; done", interrupt_after=0.2, timeout=3).code, -signal.SIGINT)
        self.assertEqual(self.once("if (").code, 2)
        outcome = self.once("ls -l /proc/self/fd /proc/$$/fd; echo $0; trap; kill -TERM $$")
        self.assertNotIn("socket:", outcome.stdout)
        self.assertTrue(outcome.stdout.endswith("\nsh\n"), outcome.stdout)
        self.assertEqual(outcome.code, -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
