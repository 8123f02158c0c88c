"""What the native module of a zygote does, in Python and without a sandbox: see forks.py, which asks."""

import array
import os
import socket

DESCRIPTORS = 4


def serve(fd):
    """Answers requests for ever, and returns in each fork with its environment.

    A request is a word and its rest: `fork FOLDER NUL ENVIRONMENT` with four descriptors, answered by the child's
    number; `wait PID`, answered by its status, or nothing while it lives.
    """
    asked = socket.socket(fileno=fd)
    while True:
        data, ancillary, _, _ = asked.recvmsg(1 << 17, socket.CMSG_LEN(DESCRIPTORS * 4))
        if not data:
            os._exit(0)
        word, _, rest = data.partition(b" ")
        if word == b"wait":
            pid, status = os.waitpid(int(rest), os.WNOHANG)
            asked.send(b"%d" % status if pid else b"-")
            continue
        taken = array.array("i")
        for _, _, bytes_of in ancillary:
            taken.frombytes(bytes_of)
        pid = os.fork()
        if pid:
            for each in taken:
                os.close(each)
            asked.send(b"%d" % pid)
            continue
        asked.detach()
        os.setsid()
        folder, _, environment = rest.partition(b"\0")
        os.chdir(folder)
        # None of them is among those that are replaced.
        above = [os.dup2(each, 100 + place) for place, each in enumerate(taken)]
        for place, each in enumerate(above):
            os.dup2(each, place)
        os.closerange(DESCRIPTORS, 200)
        return environment
