import os


def say(probe, state, words):
    print(probe, state, words, flush=True)


def canary():
    try:
        with open(CANARY, "rb") as file:
            song = file.read(200).decode("utf-8", "replace")
    except Exception as error:
        return "passed", "a file of the host is not there (" + type(error).__name__ + ")"
    if song == SONG:
        return "fired", "a file of the host can be read inside"
    return "passed", "a file of the host is not there"


def network():
    try:
        import socket
        with socket.socket() as way:
            way.settimeout(2)
            way.connect(("127.0.0.1", PORT))
        return "fired", "a socket that listens on the host can be reached inside"
    except Exception:
        # Refused, not there, or no sockets at all.
        pass
    try:
        with open("/proc/net/route") as routes:
            for line in routes.readlines()[1:]:
                words = line.split()
                if len(words) > 1 and words[1] == "00000000":
                    return "fired", "there is a way out, by " + words[0]
    except OSError:
        pass
    return "passed", "the host's loopback is not here, and there is no way out"


def processes():
    try:
        numbers = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return "none", "there are no processes to be seen"
    for number in numbers:
        try:
            with open("/proc/" + number + "/cmdline", "rb") as file:
                line = file.read().hex()
        except OSError:
            continue
        if line and line in LINES:
            return "fired", "a process of the host can be seen inside"
    if not numbers:
        return "none", "there are no processes to be seen"
    return "passed", "of " + str(len(numbers)) + " processes none is the host's"


def unshare():
    users = 0x10000000
    if hasattr(os, "unshare"):
        os.unshare(users)
        return
    import ctypes
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(users) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def seccomp():
    try:
        unshare()
        return "fired", "a program can make itself a user namespace"
    except (ImportError, AttributeError, TypeError):
        return "none", "programs make no system calls here"
    except OSError as error:
        refused = "unshare is refused (errno " + str(error.errno) + ")"
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("Seccomp:"):
                    mode = line.split()[1]
                    if mode == "0":
                        return "unfiltered", "no filter of system calls is on"
                    return "passed", refused + ", and a filter is on"
    except OSError:
        pass
    return "passed", refused


for probe in (canary, network, processes, seccomp):
    say(probe.__name__, *probe())
