"""Plays the guest for a kernel's driver: starts it, hands it cells, and collects what it answers."""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(HERE, "..", "..", "src", "kernels")
SECONDS_MAX = 60


class Lost(Exception):
    """The driver ended, or did not answer in time."""


class Answer:
    def __init__(self):
        self.records, self.out, self.err, self.code, self.seconds = [], b"", b"", None, 0.0

    def all(self, kind):
        return [record[kind] for record in self.records if kind in record]

    def one(self, kind):
        found = self.all(kind)
        return found[0] if found else None

    @property
    def result(self):
        bundle = self.one("result")
        return bundle and bundle["data"].get("text/plain")

    @property
    def error(self):
        return self.one("error")

    @property
    def stdout(self):
        return self.out.decode("utf-8", "replace")

    @property
    def stderr(self):
        return self.err.decode("utf-8", "replace")

    def __repr__(self):
        return "Answer(code=%r, out=%r, err=%r, records=%.2000r)" % (self.code, self.out[-2000:], self.err[-2000:],
                                                                   self.records)


class Kernel:
    """One kernel. `command` is the program and its arguments, `library` the text of descriptor 4."""

    def __init__(self, command, library, env=None, cwd=None):
        self.own = cwd is None
        self.home = cwd or tempfile.mkdtemp(prefix="belljar-driver-")
        ours, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.stdin = os.memfd_create("stdin")
        text = os.memfd_create("library")
        os.write(text, library)
        os.lseek(text, 0, os.SEEK_SET)
        environment = dict(PATH=os.environ["PATH"], HOME=self.home, LANG="C.UTF-8", MPLBACKEND="Agg")
        environment.update(env or {})
        self.begun = time.perf_counter()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.chdir(self.home)
                # Out of the way first: any of them may be among those that are taken.
                taken = [fcntl.fcntl(fd, fcntl.F_DUPFD, 100)
                         for fd in (self.stdin, out_write, err_write, theirs.fileno(), text)]
                for to, fd in enumerate(taken):
                    os.dup2(fd, to)
                os.closerange(5, 2000)
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.execvpe(command[0], command, environment)
            finally:
                os._exit(127)
        theirs.close()
        for fd in out_write, err_write, text:
            os.close(fd)
        self.control, self.out, self.err = ours, out_read, err_read
        self.buffer = b""
        self.rest = Answer()
        kind, payload = self.message(self.rest, SECONDS_MAX)
        assert kind == "ready" and int(payload) == self.pid, (kind, payload)

    def message(self, answer, seconds):
        """The next message; what comes on the pipes meanwhile goes to the answer."""
        end = time.monotonic() + seconds
        while True:
            head, newline, after = self.buffer.partition(b"\n")
            if newline:
                kind, length = head.decode("ascii").split(" ")
                if len(after) >= int(length):
                    self.buffer = after[int(length):]
                    return kind, after[:int(length)]
            left = end - time.monotonic()
            if left <= 0:
                raise Lost("no answer in %s s: %r" % (seconds, answer))
            ready = select.select([self.control, self.out, self.err], [], [], left)[0]
            self.drain(answer, [fd for fd in (self.out, self.err) if fd in ready])
            if self.control in ready:
                data = self.control.recv(1 << 20)
                if not data:
                    self.drain(answer)
                    raise Lost("the driver ended: %r" % answer)
                self.buffer += data

    def drain(self, answer, fds=None):
        for fd in fds or (self.out, self.err):
            while select.select([fd], [], [], 0)[0]:
                data = os.read(fd, 1 << 16)
                if not data:
                    break
                if fd == self.out:
                    answer.out += data
                else:
                    answer.err += data

    def start(self, code, stdin=b"", language="python", last=False):
        os.ftruncate(self.stdin, 0)
        os.lseek(self.stdin, 0, os.SEEK_SET)
        os.write(self.stdin, stdin)
        os.lseek(self.stdin, 0, os.SEEK_SET)
        code = code.encode() if isinstance(code, str) else code
        self.started = time.perf_counter()
        self.control.sendall(b"run %d %s %d\n" % (len(code), language.encode(), last) + code)

    def finish(self, seconds=SECONDS_MAX):
        answer = Answer()
        while True:
            kind, payload = self.message(answer, seconds)
            if kind == "record":
                assert len(payload) <= 16 << 20
                answer.records.append(json.loads(payload.decode("utf-8"), parse_constant=self.refuse))
                continue
            assert kind == "done", kind
            answer.code = int(payload)
            answer.seconds = time.perf_counter() - self.started
            self.drain(answer)
            return answer

    @staticmethod
    def refuse(constant):
        raise AssertionError("not strict JSON: " + constant)

    def run(self, code, stdin=b"", seconds=SECONDS_MAX, **how):
        self.start(code, stdin, **how)
        return self.finish(seconds)

    def interrupt(self):
        os.killpg(self.pid, signal.SIGINT)

    def until(self, marker, seconds=10):
        """Waits until the running cell has printed the marker, and is what it printed."""
        end, text = time.monotonic() + seconds, b""
        while marker not in text:
            if not select.select([self.out], [], [], max(0, end - time.monotonic()))[0]:
                raise Lost("%r was not printed: %r" % (marker, text))
            text += os.read(self.out, 4096)
        return text

    def asleep(self, seconds=10):
        """Waits until the kernel's main thread is in a call that blocks."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with open("/proc/%d/task/%d/stat" % (self.pid, self.pid)) as file:
                if file.read().rpartition(")")[2].split()[0] == "S":
                    return
        raise Lost("the kernel does not come to rest")

    def close(self):
        self.control.close()
        try:
            end = time.monotonic() + 5
            while time.monotonic() < end:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    return status
                time.sleep(0.001)
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ChildProcessError, ProcessLookupError):
            pass
        finally:
            if self.own:
                shutil.rmtree(self.home, ignore_errors=True)
            for fd in self.out, self.err, self.stdin:
                try:
                    os.close(fd)
                except OSError:
                    pass


PACKAGES = b"/belljar/packages"


def python(interpreter, options=("-s", "-X", "utf8"), packages=None, around=(), **more):
    """A Python kernel, assembled as the guest does it. `packages` is in the place of /belljar/packages; `around` is
    what starts it."""
    folder = os.path.join(KERNELS, "python")
    with open(os.path.join(folder, "boot.py")) as file:
        boot = file.read()
    library = b""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") and name not in ("boot.py", "once.py", "failed.py"):
            with open(os.path.join(folder, name), "rb") as file:
                library += b"\0" + name[:-3].encode() + b"\n" + file.read()
    if packages:
        assert PACKAGES in library
        library = library.replace(PACKAGES, packages.encode())
    return Kernel([*around, interpreter, *options, "-c", boot], library, **more)
