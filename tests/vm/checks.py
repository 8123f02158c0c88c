"""Belljar on this machine's kernel, with cgroups of version 2: run as root in the machine that scripts/vm-check boots.

python3 checks.py [WORD...]. With words, only the checks whose name holds one of them are run. Prints a line for each
check and a count at the end. The tree of cgroups is laid out as systemd does it, and servers put where they would be.
"""

import ctypes
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

ROOT = "/sys/fs/cgroup"
CONTROLLERS = ["memory", "pids", "cpu"]
USER = 1000
# An emulated processor is ten to twenty times slower than a real one.
PATIENCE = 60

EAT = "b = bytearray(200 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('ate')"
FORK = """
import os, time
made = 0
try:
    for _ in range(64):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        made += 1
except OSError as error:
    print("refused", error.errno, flush=True)
print("made", made)
"""


# cgroups


def read(*parts):
    with open(os.path.join(*parts)) as file:
        return file.read().strip()


def write(text, *parts):
    with open(os.path.join(*parts), "w") as file:
        file.write(text)


def directories(top):
    """Every cgroup below one, deepest first."""
    return [path for path, _, _ in os.walk(top, topdown=False) if path != top]


def ours(top=ROOT):
    """What servers have made and not removed."""
    return sorted(path.removeprefix(f"{top}/") for path in directories(top) if "/belljar-" in path)


def processes(path):
    return [int(pid) for pid in read(path, "cgroup.procs").split()]


def until(what, holds, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


class Cgroup:
    """A cgroup to start servers in; gone with all below it at the end."""

    def __init__(self, name, controllers=CONTROLLERS, owner=None):
        self.path = f"{ROOT}/{name}"
        self.neighbours = []
        # As systemd does: a slice hands the controllers down, the unit in it has the processes.
        above = os.path.dirname(self.path)
        os.makedirs(above, exist_ok=True)
        if above != ROOT:
            for controller in CONTROLLERS:
                write(f"{'+' if controller in controllers else '-'}{controller}", above, "cgroup.subtree_control")
        os.mkdir(self.path)
        if owner:
            # What `Delegate=yes` hands over, and no more: the limits of the unit itself stay root's.
            for name in ["", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"]:
                os.chown(os.path.join(self.path, name), owner, owner)

    def __enter__(self):
        return self

    def neighbour(self):
        """Somebody else's process in here, as a shell is that started the server."""
        sleeper = subprocess.Popen(["sleep", "1000"], preexec_fn=lambda: write("0", self.path, "cgroup.procs"))
        self.neighbours.append(sleeper)
        return self

    def __exit__(self, *_):
        for sleeper in self.neighbours:
            sleeper.kill()
            sleeper.wait()
        write("1", self.path, "cgroup.kill")
        for path in [*directories(self.path), self.path]:
            until(f"{path} can be removed", lambda path=path: removed(path), 10)


def removed(path):
    try:
        os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


# Servers


def command(words, cgroup=None, uid=0):
    """The arguments of Popen that start a program in a cgroup, as a user."""
    def enter():
        if cgroup:
            write("0", cgroup.path, "cgroup.procs")
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    env = {"PATH": "/usr/bin", "HOME": "/root" if uid == 0 else "/tmp", "BELLJAR_LOG": "info", "RUST_BACKTRACE": "1"}
    return {"args": words, "preexec_fn": enter, "env": env, "cwd": "/"}


def belljar(*words, cgroup=None, uid=0):
    return subprocess.run(**command(["belljar", *words], cgroup, uid), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=PATIENCE)


class Server:
    """`belljar serve` on stdio, and a client that sends what it is told."""

    def __init__(self, cgroup=None, uid=0):
        self.process = subprocess.Popen(**command(["belljar", "serve", "--no-pool"], cgroup, uid), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.pid, self.last, self.said = self.process.pid, 0, []
        self.answers, self.waiting = queue.Queue(), {}
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=lambda: self.said.extend(self.process.stderr), daemon=True).start()
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "checks", "version": "1"}}
        self.result(self.send("initialize", hello))
        self.write({"method": "notifications/initialized"})

    def listen(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))

    def write(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message) + "\n")
        self.process.stdin.flush()

    def send(self, method, params):
        self.last += 1
        self.write({"id": self.last, "method": method, "params": params})
        return self.last

    def result(self, number):
        while number not in self.waiting:
            answer = self.answers.get(timeout=PATIENCE)
            self.waiting[answer.get("id")] = answer
        answer = self.waiting.pop(number)
        assert "result" in answer, answer
        return answer["result"]

    def start(self, tool, **arguments):
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool, **arguments):
        """The structured content of a call that did not fail on our side."""
        result = self.result(self.start(tool, **arguments))
        assert "structuredContent" in result, result
        return result["structuredContent"]

    def run(self, code, language="python", **arguments):
        return self.call("run_code", language=language, code=code, timeout=30, **arguments)

    def program(self, code, sandbox_id):
        """Python as a process of its own: of a cell, what it forked would live on with its kernel."""
        return self.call("exec", sandbox_id=sandbox_id, command="python3 -", stdin=code, timeout=30)

    def create(self, **limits):
        return self.call("create_sandbox", limits=limits)["sandbox_id"]

    def isolation(self):
        return self.run("echo on", "shell")["isolation"]

    def own_cgroup(self):
        return ROOT + read(f"/proc/{self.pid}/cgroup").split("::")[1].rstrip("/")

    def home(self):
        """The directory that its sandboxes' cgroups are in."""
        found = [path for path in directories(ROOT) if re.fullmatch(rf"belljar-{self.pid}-\d+", os.path.basename(path))]
        assert len(found) == 1, f"cgroups of the server: {ours()}"
        return found[0]

    def sandboxes(self):
        return sorted(directories(self.home()))

    def end(self):
        self.process.stdin.close()
        self.ended()

    def terminate(self):
        self.process.terminate()
        self.ended()

    def ended(self):
        code = self.process.wait(PATIENCE)
        assert code == 0, f"exit code {code}: {self.said}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


# Checks: what holds wherever there are cgroups


def holds_limits(server, controllers=CONTROLLERS):
    """That the kernel has been told, and does what it was told."""
    isolation = server.isolation()
    missing = [one for one in CONTROLLERS if one not in controllers]
    without = f"; without {', '.join(missing)}" if missing else ""
    assert isolation["cgroup"] == f"v2: {' '.join(controllers)}{without}", isolation
    sandbox = server.create(memory_mb=64, processes=16, cpus=0.5)
    [path] = server.sandboxes()
    expected = {"memory.max": str(64 << 20), "pids.max": "18", "cpu.max": "50000 100000"}
    for file, value in expected.items():
        if file.split(".")[0] in controllers:
            assert read(path, file) == value, f"{file} is {read(path, file)}"
    assert processes(path), "nobody is in the sandbox's cgroup"

    seen = server.run("cat /proc/self/cgroup", "shell", sandbox_id=sandbox)
    assert seen["stdout"] == "0::/\n", seen

    if "memory" in controllers:
        ate = server.run(EAT, sandbox_id=sandbox)
        assert (ate["ending"], ate["stdout"]) == ("memory", ""), ate
        # That a kill was told once is no reason to tell it again.
        killed = server.run("kill -9 $$", "shell", sandbox_id=sandbox)
        assert killed["ending"] == "killed", killed
    if "pids" in controllers:
        forked = server.program(FORK, sandbox)
        made = int(forked["stdout"].split("made ")[1])
        # A kernel that lives counts, and so does the runner beside it.
        assert "refused 11" in forked["stdout"] and made in (13, 15), forked
        # RLIMIT_NPROC is as high, and may be met first. So that it is the cgroup for certain:
        write("8", path, "pids.max")
        forked = server.program(FORK, sandbox)
        assert "made 5" in forked["stdout"] and read(path, "pids.events") != "max 0", forked
        write("18", path, "pids.max")
    if "cpu" in controllers:
        server.call("run_code", language="shell", code="while :; do :; done", timeout=1.5, sandbox_id=sandbox)
        throttled = int(re.search(r"nr_throttled (\d+)", read(path, "cpu.stat"))[1])
        assert throttled > 5, f"throttled {throttled} times in 1.5 s"
    still = server.run("print('still here')", sandbox_id=sandbox)
    assert still["stdout"] == "still here\n", still

    server.call("destroy_sandbox", sandbox_id=sandbox)
    until("the sandbox's cgroup is gone", lambda: not server.sandboxes(), 10)

    if "memory" in controllers:
        # Files are memory too: they can fill what there is, but not take the sandbox with them.
        sandbox = server.create(memory_mb=64)
        filled = server.run("head -c 100M /dev/zero > /tmp/big", "shell", sandbox_id=sandbox)
        assert filled["ending"] == "memory" or "No space left" in filled["stderr"], filled
        emptied = server.run("rm /tmp/big; echo emptied", "shell", sandbox_id=sandbox)
        assert emptied["stdout"] == "emptied\n", emptied
        server.call("destroy_sandbox", sandbox_id=sandbox)
        until("the sandbox's cgroup is gone", lambda: not server.sandboxes(), 10)


def runs_at_once(server):
    numbers = [server.start("run_code", language="shell", code=f"sleep 1; echo {number}") for number in range(8)]
    until("several are there at once", lambda: len(server.sandboxes()) > 1)
    for number, sent in enumerate(numbers):
        assert server.result(sent)["structuredContent"]["stdout"] == f"{number}\n"
    until("all are gone", lambda: not server.sandboxes(), 20)


def ends_cleanly(cgroup, uid):
    """Nothing is left of a server that ended, and it gives its cgroup back as it was: another can start there."""
    top = cgroup.path if cgroup else ROOT
    for ending in [Server.end, Server.terminate, Server.end]:
        with Server(cgroup, uid) as server:
            server.create()
            server.run("print(1)")
            ending(server)
        assert not ours(top), f"left by a server that ended: {ours(top)}"


def is_killed(server):
    """Everything inside dies with the server, without anybody of ours to see to it."""
    sandbox = server.create()
    server.start("exec", sandbox_id=sandbox, command="setsid sleep 4321 & sleep 4321")
    until("it runs", lambda: len(sleepers()) == 2)
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    until("its programs are dead", lambda: not sleepers(), 10)


def sleepers():
    found = subprocess.run(["pgrep", "-f", "^sleep 4321"], capture_output=True, text=True)
    return found.stdout.split()


def degrades(cgroup, uid, *words):
    """Without cgroups programs run all the same, and both the result and doctor say why there are none."""
    with Server(cgroup, uid) as server:
        said = server.isolation()["cgroup"]
        assert said.startswith("none: ") and said.endswith("; rlimits instead"), said
        for word in words:
            assert word in said, f"{word!r} is not in: {said}"
        sandbox = server.create(memory_mb=64, processes=16)
        ate = server.run(EAT, sandbox_id=sandbox)
        # RLIMIT_DATA meets one process first: Python then says so itself.
        assert ate["ending"] == "memory" or ate["error"]["name"] == "MemoryError", ate
        forked = server.program(FORK, sandbox)
        assert "refused 11" in forked["stdout"], forked
        server.end()
    assert not ours(), f"left by a server without cgroups: {ours()}"
    doctor = belljar("doctor", cgroup=cgroup, uid=uid)
    assert doctor.returncode == 0 and re.search(r"weaker +cgroup", doctor.stdout), doctor
    return said


# Checks: who and where


def doctor_as_root():
    doctor = belljar("doctor")
    print(doctor.stdout)
    assert doctor.returncode == 0, doctor
    assert re.search(r"ok +cgroup +v2: memory pids cpu", doctor.stdout), doctor
    assert not ours(), ours()


def doctor_as_user():
    doctor = belljar("doctor", uid=USER)
    print(doctor.stdout)
    assert doctor.returncode == 0, doctor


def root_in_the_root_cgroup():
    with Server() as server:
        holds_limits(server)
        runs_at_once(server)
        server.end()
    ends_cleanly(None, 0)


def root_after_a_kill():
    with Server() as server:
        is_killed(server)
    assert ours(), "there is nothing to tidy, so this shows nothing"
    with Server() as server:
        server.run("print(1)")
        left = [path for path in ours() if f"belljar-{server.pid}-" not in path]
        assert not left, f"left by a killed server after the next start: {left}"
        server.end()
    assert not ours(), ours()


def root_as_a_service():
    with Cgroup("system.slice/belljar.service") as cgroup:
        with Server(cgroup) as server:
            holds_limits(server)
            runs_at_once(server)
            server.end()
        ends_cleanly(cgroup, 0)


def root_in_a_session():
    """Its cgroup has others in it and can give nothing; root then goes to the top."""
    with Cgroup("user.slice/session-1.scope") as cgroup:
        cgroup.neighbour()
        with Server(cgroup, 0) as server:
            holds_limits(server)
            server.end()
        assert processes(cgroup.path) == [cgroup.neighbours[0].pid]
        assert not ours(), f"left by a server that ended: {ours()}"


def user_without_delegation():
    print("note user without delegation:", degrades(None, USER, "delegated"))
    with Cgroup("user.slice/session-2.scope") as cgroup:
        print("note user in a scope of root's:", degrades(cgroup, USER, "delegated"))


def user_with_delegation():
    with Cgroup("user.slice/app.scope", owner=USER) as cgroup:
        with Server(cgroup, USER) as server:
            holds_limits(server)
            runs_at_once(server)
            server.end()
        ends_cleanly(cgroup, USER)


def user_with_delegation_after_a_kill():
    """Whoever made the scope removes it with all that is in it, and can."""
    for _ in range(2):
        with Cgroup("user.slice/app.scope", owner=USER) as cgroup, Server(cgroup, USER) as server:
            assert server.isolation()["cgroup"].startswith("v2"), server.isolation()
            is_killed(server)
            busy = [path for path in directories(cgroup.path) if processes(path)]
            assert not busy, f"somebody lives on in {busy}"


def user_with_some_controllers():
    for controllers in [["memory", "pids"], ["pids"], ["memory"]]:
        with Cgroup("user.slice/app.scope", controllers, owner=USER) as cgroup, Server(cgroup, USER) as server:
            holds_limits(server, controllers)


def user_without_controllers():
    with Cgroup("user.slice/app.scope", [], owner=USER) as cgroup:
        print("note user without controllers:", degrades(cgroup, USER, "controller"))


def user_among_others():
    with Cgroup("user.slice/app.scope", owner=USER) as cgroup:
        cgroup.neighbour()
        print("note user among others:", degrades(cgroup, USER, "other processes"))
        with Server(cgroup, USER) as server:
            server.run("print(1)")
            assert server.own_cgroup() == cgroup.path, f"it was not left where it was: {server.own_cgroup()}"
            assert not ours(), ours()


def a_killed_jail_comes_back():
    """The next jail starts where the server then is, and can still put sandboxes into their cgroups."""
    with Cgroup("user.slice/app.scope", owner=USER) as cgroup, Server(cgroup, USER) as server:
        server.run("print(1)")
        [jail] = read(f"/proc/{server.pid}/task/{server.pid}/children").split()
        os.kill(int(jail), signal.SIGKILL)
        until("a run works again", lambda: not server.result(
            server.start("run_code", language="shell", code="echo again"))["isError"], 20)
        server.create()
        [path] = server.sandboxes()
        assert processes(path), "nobody is in the sandbox's cgroup"


def walls_stand():
    """Each wall by what only it refuses, and that the result names the landlock this kernel has."""
    probe = """
import ctypes, errno, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print({name: status[name].strip() for name in ["Seccomp", "NoNewPrivs", "CapEff", "CapBnd", "Uid"]})
def attempt(name, work):
    try:
        work()
        print(name, "worked")
    except OSError as error:
        print(name, errno.errorcode[error.errno])
# The mounts let it be written, since a device is no part of a read-only file system: only landlock does not.
attempt("urandom", lambda: open("/dev/urandom", "wb"))
attempt("null", lambda: open("/dev/null", "wb"))
attempt("usr", lambda: open("/usr/planted", "wb"))
os.makedirs("a"), os.makedirs("b"), open("a/x", "w").close()
attempt("rename", lambda: os.rename("a/x", "b/x"))
attempt("link", lambda: os.link("b/x", "a/y"))
libc = ctypes.CDLL(None, use_errno=True)
def unshare():
    if libc.unshare(0x10000000): raise OSError(ctypes.get_errno(), "")
attempt("unshare", unshare)
"""
    abi = landlock_abi()
    print(f"note landlock abi {abi}")
    for uid in [0, USER]:
        with Server(uid=uid) as server:
            ran = server.run(probe)
            out = ran["stdout"]
            print(out, ran["stderr"])
            none = "0" * 16
            assert f"'Seccomp': '2', 'NoNewPrivs': '1', 'CapEff': '{none}', 'CapBnd': '{none}'" in out, ran
            told = ran["isolation"]["landlock"]
            # The first version would keep files from being moved between directories, so it is left out.
            used = abi >= 2
            assert told == f"abi {abi}" if used else told.startswith("none: "), told
            for line in [f"urandom {'EACCES' if used else 'worked'}", "null worked", "usr EROFS", "unshare EPERM",
                         "rename worked", "link worked"]:
                assert line in out, f"{line!r} is not in: {out}"
            server.end()


def landlock_abi():
    create_ruleset, version = 444, 1
    return max(ctypes.CDLL(None).syscall(create_ruleset, None, 0, version), 0)


def contract_as(cgroup, uid):
    """The contract suite, one after the other: in one process all servers have one name, and only one can have it."""
    words = ["contract", "contract::native::", "--test-threads=1"]
    ran = subprocess.run(**command(words, cgroup, uid), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=300)
    print("\n".join(f"    {line}" for line in (ran.stdout + ran.stderr)[-8000:].splitlines()))
    assert ran.returncode == 0, re.findall(r"^test (\S+) \.\.\. FAILED", ran.stdout, re.M)


def contract_as_root():
    contract_as(None, 0)


def contract_as_user():
    contract_as(None, USER)


def contract_as_user_with_delegation():
    with Cgroup("user.slice/app.scope", owner=USER) as cgroup:
        contract_as(cgroup, USER)


def a_run_as_root():
    ran = belljar("run", "--json", "-l", "python", "-c", "print(6 * 7)")
    assert ran.returncode == 0, ran
    report = json.loads(ran.stdout)
    assert report["stdout"] == "42\n" and report["isolation"]["cgroup"].startswith("v2"), report
    assert not ours(), ours()


CHECKS = [
    doctor_as_root,
    doctor_as_user,
    walls_stand,
    a_run_as_root,
    root_in_the_root_cgroup,
    root_after_a_kill,
    root_as_a_service,
    root_in_a_session,
    user_without_delegation,
    user_with_delegation,
    user_with_delegation_after_a_kill,
    user_with_some_controllers,
    user_without_controllers,
    user_among_others,
    a_killed_jail_comes_back,
    contract_as_root,
    contract_as_user,
    contract_as_user_with_delegation,
]


def attempt(check):
    """Whether the check held."""
    started = time.monotonic()
    try:
        check()
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        why = " ".join(f"{type(error).__name__}: {error}".split())[:1000]
        print(f"FAIL {check.__name__} ({time.monotonic() - started:.1f} s): {why}")
        return False
    print(f"ok {check.__name__} ({time.monotonic() - started:.1f} s)")
    return True


def main(only):
    print("#", os.uname().release, "controllers:", read(ROOT, "cgroup.controllers"))
    for controller in CONTROLLERS:
        write(f"+{controller}", ROOT, "cgroup.subtree_control")
    held = [attempt(check) for check in CHECKS if not only or any(word in check.__name__ for word in only)]
    print(f"{held.count(True)} passed, {held.count(False)} failed")


if __name__ == "__main__":
    main(sys.argv[1:])
