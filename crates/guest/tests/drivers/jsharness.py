"""Plays the guest for a driver: starts the interpreter as the guest does, speaks the protocol, collects the output."""

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KERNELS = os.path.join(HERE, "..", "..", "src", "kernels")
SEPARATOR = "\n// belljar: next part\n"


def text_of(*parts):
    with open(os.path.join(KERNELS, *parts), encoding="utf-8") as file:
        return file.read()


def javascript():
    """The arguments and the library of the JavaScript driver."""
    node = os.environ.get("BELLJAR_TEST_NODE") or shutil.which("node")
    library = SEPARATOR.join(text_of("javascript", f"{part}.js") for part in ("driver", "show", "imports", "worker"))
    return [node, "--no-force-async-hooks-checks", "-e", text_of("javascript", "boot.js")], library


def shell(interpreter="bash"):
    """The arguments and the library of the shell driver."""
    path = os.environ.get("BELLJAR_TEST_BASH") if interpreter == "bash" else None
    path = path or shutil.which(interpreter)
    name = "bash" if interpreter == "bash" else "sh"
    library = text_of("shell", f"{name}.sh")
    if name == "bash":
        library += "\1" + text_of("shell", "bash-live.sh")
    return [path, "-c", text_of("shell", f"{name}-boot.sh"), name], library


class Died(Exception):
    """The kernel ended without `done`; carries what it had written."""

    def __init__(self, outcome, status):
        super().__init__(f"the kernel ended with {status}: {outcome.stderr[-2000:]}")
        self.outcome = outcome
        self.status = status


class Outcome:
    """What one cell did."""

    def __init__(self):
        self.stdout_bytes = b""
        self.stderr_bytes = b""
        self.records = []
        self.code = None
        self.seconds = 0.0

    stdout = property(lambda self: self.stdout_bytes.decode("utf-8", "replace"))
    stderr = property(lambda self: self.stderr_bytes.decode("utf-8", "replace"))

    def of(self, kind):
        return [record[kind] for record in self.records if kind in record]

    @property
    def result(self):
        found = self.of("result")
        assert len(found) <= 1, found
        return found[0]["data"] if found else None

    @property
    def plain(self):
        return self.result["text/plain"] if self.result else None

    @property
    def error(self):
        found = self.of("error")
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def names(self):
        found = self.of("names")
        return found[-1]["names"] if found else None


def memory_file(name, data=b""):
    descriptor = os.memfd_create(name)
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class Kernel:
    def __init__(self, command, folder, env=None, tells_interrupt=False, first=b""):
        """`first` is sent at once, before the driver has said that it stands."""
        arguments, library = command
        self.tells_interrupt = tells_interrupt
        self.stdin = memory_file("stdin")
        ours, theirs = socket.socketpair()
        self.control = ours
        out, out_write = os.pipe()
        err, err_write = os.pipe()
        descriptors = [self.stdin, out_write, err_write, theirs.fileno(), memory_file("library", library.encode())]
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 20) for descriptor in descriptors]
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(high)]
        actions += [(os.POSIX_SPAWN_CLOSE, source) for source in high]
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "LANG": "C.UTF-8", **(env or {})}
        before = os.getcwd()
        os.chdir(folder)
        try:
            # Python has some signals ignored.
            defaults = [signal.SIGPIPE, signal.SIGXFSZ]
            self.pid = os.posix_spawn(
                arguments[0], arguments, environment, file_actions=actions, setsid=True, setsigdef=defaults
            )
        finally:
            os.chdir(before)
        for descriptor in high + [out_write, err_write, descriptors[4]]:
            os.close(descriptor)
        theirs.close()
        self.control.sendall(first)
        self.pipes = {out: "stdout_bytes", err: "stderr_bytes"}
        for descriptor in self.pipes:
            os.set_blocking(descriptor, False)
        self.control.setblocking(False)
        self.buffer = b""
        self.status = None
        early = Outcome()
        kind, payload = self._message(early, time.monotonic() + 20)
        assert kind == "ready", (kind, payload)
        self.early = early
        self.told_pid = int(payload)

    def _drain(self, outcome):
        for descriptor, name in list(self.pipes.items()):
            while True:
                try:
                    data = os.read(descriptor, 1 << 20)
                except BlockingIOError:
                    break
                if not data:
                    del self.pipes[descriptor]
                    os.close(descriptor)
                    break
                setattr(outcome, name, getattr(outcome, name) + data)

    def _message(self, outcome, deadline, interrupt_at=None):
        while True:
            if b"\n" in self.buffer:
                header, rest = self.buffer.split(b"\n", 1)
                kind, length = header.decode("ascii").split(" ")
                if len(rest) >= int(length):
                    self.buffer = rest[int(length) :]
                    return kind, rest[: int(length)].decode("utf-8")
            now = time.monotonic()
            if interrupt_at is not None and now >= interrupt_at:
                interrupt_at = None
                self.interrupt()
            if now > deadline:
                raise TimeoutError(f"no answer; stdout {outcome.stdout[-500:]!r} stderr {outcome.stderr[-500:]!r}")
            until = deadline if interrupt_at is None else min(deadline, interrupt_at)
            ready, _, _ = select.select([self.control, *self.pipes], [], [], max(0, until - now))
            self._drain(outcome)
            if self.control in ready:
                try:
                    data = self.control.recv(1 << 20)
                except ConnectionResetError:
                    data = b""
                if not data:
                    self._outlive(outcome, deadline, interrupt_at)
                self.buffer += data

    def _outlive(self, outcome, deadline, interrupt_at):
        """The control socket is closed: what it still writes and how it ends is all that there is."""
        pid = 0
        while not pid:
            if interrupt_at is not None and time.monotonic() >= interrupt_at:
                interrupt_at = None
                self.interrupt()
            if time.monotonic() > deadline:
                raise TimeoutError(f"it does not end; stderr {outcome.stderr[-500:]!r}")
            select.select([*self.pipes], [], [], 0.002)
            self._drain(outcome)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        self.status = os.waitstatus_to_exitcode(status)
        self._drain(outcome)
        raise Died(outcome, self.status)

    def interrupt(self):
        if self.tells_interrupt:
            self.control.setblocking(True)
            self.control.sendall(b"interrupt 0\n")
            self.control.setblocking(False)
        os.killpg(self.pid, signal.SIGINT)

    def send(self, code, language, last=False, stdin=b""):
        os.ftruncate(self.stdin, 0)
        os.pwrite(self.stdin, stdin, 0)
        os.lseek(self.stdin, 0, os.SEEK_SET)
        data = code.encode("utf-8")
        self.control.setblocking(True)
        self.control.sendall(f"run {len(data)} {language} {int(last)}\n".encode() + data)
        self.control.setblocking(False)

    def run(self, code, language=None, last=False, stdin=b"", interrupt_after=None, timeout=20):
        self.send(code, language or self.language, last, stdin)
        return self.finish(interrupt_after, timeout)

    def finish(self, interrupt_after=None, timeout=20):
        outcome = Outcome()
        started = time.monotonic()
        interrupt_at = None if interrupt_after is None else started + interrupt_after
        while True:
            kind, payload = self._message(outcome, started + timeout, interrupt_at)
            if interrupt_at is not None and time.monotonic() >= interrupt_at:
                interrupt_at = None
            if kind == "record":
                assert len(payload) <= 16 << 20
                outcome.records.append(json.loads(payload, parse_constant=lambda word: 1 / 0))
            else:
                assert kind == "done", kind
                outcome.code = int(payload)
                self._drain(outcome)
                outcome.seconds = time.monotonic() - started
                return outcome

    language = "javascript"

    def close(self):
        """Ends the kernel by closing the control socket, as the guest would; kills it if it does not go."""
        self.control.close()
        if self.status is None:
            deadline = time.monotonic() + 5
            while True:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.status = os.waitstatus_to_exitcode(status)
                    break
                if time.monotonic() > deadline:
                    os.killpg(self.pid, signal.SIGKILL)
                    os.waitpid(self.pid, 0)
                    self.status = "killed"
                    break
                select.select([], [], [], 0.002)
        for descriptor in self.pipes:
            os.close(descriptor)
        self.pipes = {}
        os.close(self.stdin)
        return self.status
