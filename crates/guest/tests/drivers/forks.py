"""Plays the spawner for a Python zygote: starts it with the stand-in of its native module, and has kernels forked."""

import array
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time

import harness

STANDIN = os.path.join(harness.HERE, "standin.py")


def library():
    folder = os.path.join(harness.KERNELS, "python")
    text = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") and name not in ("once.py", "failed.py"):
            with open(os.path.join(folder, name), "rb") as file:
                text[name[:-3]] = file.read()
    return text


class Zygote:
    """`ready` is what it said of itself. `env` is added to its environment, which its kernels start from."""

    def __init__(self, interpreter, env=None, seconds=120, native=STANDIN, parts=None, cwd="/", packages=None):
        self.interpreter = interpreter
        self.home = tempfile.mkdtemp(prefix="belljar-zygote-")
        parts = parts or library()
        if packages:
            parts = {name: part.replace(harness.PACKAGES, packages.encode()) for name, part in parts.items()}
        text = b"".join(b"\0" + name.encode() + b"\n" + part for name, part in parts.items())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        memory = os.memfd_create("library")
        os.write(memory, text)
        self.env = dict(PATH=os.environ["PATH"], HOME=self.home, LANG="C.UTF-8", MPLBACKEND="Agg")
        self.env.update(env or {})
        command = [interpreter, "-s", "-X", "utf8", "-c", parts["boot"].decode(), native]
        begun = time.perf_counter()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                null = os.open("/dev/null", os.O_RDWR)
                taken = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100) for fd in (null, null, null, theirs.fileno(), memory)]
                for to, fd in enumerate(taken):
                    os.dup2(fd, to)
                os.closerange(5, 2000)
                os.execvpe(command[0], command, self.env)
            finally:
                os._exit(127)
        theirs.close()
        os.close(memory)
        self.control = ours
        if not select.select([ours], [], [], seconds)[0]:
            self.close()
            raise harness.Lost("the zygote is not ready in %s s" % seconds)
        said = ours.recv(1 << 16)
        self.seconds = time.perf_counter() - begun
        self.ready = json.loads(said.decode()) if said else {}
        if "preloaded" not in self.ready:
            ours.close()
            status = os.waitpid(self.pid, 0)[1]
            shutil.rmtree(self.home, ignore_errors=True)
            raise harness.Lost(self.ready.get("failed")
                               or "the zygote ended with status %d before it was ready" % status)

    def ask(self, data, descriptors=()):
        self.control.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
        answer = self.control.recv(1 << 16)
        if not answer:
            raise harness.Lost("the zygote has ended")
        return answer

    def fork(self, **more):
        return Forked(self, **more)

    def close(self):
        self.control.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        shutil.rmtree(self.home, ignore_errors=True)


class Forked(harness.Kernel):
    """A kernel that a zygote was forked into. `exact` is its whole environment."""

    def __init__(self, zygote, env=None, cwd=None, exact=None):
        self.zygote = zygote
        self.own = cwd is None
        self.home = cwd or tempfile.mkdtemp(prefix="belljar-driver-")
        self.control, theirs = socket.socketpair()
        self.out, out = os.pipe()
        self.err, err = os.pipe()
        self.stdin = os.memfd_create("stdin")
        environment = dict(zygote.env, **(env or {})) if exact is None else exact
        text = b"".join(os.fsencode(name) + b"=" + os.fsencode(value) + b"\0" for name, value in environment.items())
        self.begun = time.perf_counter()
        self.pid = int(zygote.ask(b"fork " + self.home.encode() + b"\0" + text,
                                  [self.stdin, out, err, theirs.fileno()]))
        theirs.close()
        os.close(out)
        os.close(err)
        self.buffer = b""
        self.rest = harness.Answer()
        kind, payload = self.message(self.rest, harness.SECONDS_MAX)
        self.seconds = time.perf_counter() - self.begun
        assert kind == "ready" and int(payload) == self.pid, (kind, payload)

    def close(self):
        if self.control.fileno() < 0:
            return None
        self.control.close()
        for fd in self.out, self.err, self.stdin:
            os.close(fd)
        if self.own:
            shutil.rmtree(self.home, ignore_errors=True)
        end = time.monotonic() + 5
        while True:
            status = self.zygote.ask(b"wait %d" % self.pid)
            if status != b"-":
                return int(status)
            if time.monotonic() > end:
                os.killpg(self.pid, signal.SIGKILL)
            time.sleep(0.0005)
