# One question to process 1, and its answer: a connection, a line of JSON each way. A line that begins with a space asks to
# keep the connection for the next question, of which one at a time waits here. Whoever stops waiting for an answer hangs up,
# which withdraws the question.
import sys
from _thread import get_ident

from . import _errors

SOCKET = "/home/agent/.belljar"
QUESTION_MAX = 1 << 20
# By thread, where one of tools.parallel wants to hang up for it.
held = {}
# A connection that waits for its next question.
idle = []
json = connect = encode = None


def prepare():
    # Not at the start: what is not used costs nothing.
    global json, connect, encode
    if sys.platform == "wasi":
        import json
        from ._wasi import connect
        encode = json.JSONEncoder(allow_nan=False, default=plain).encode
        return
    try:
        # Without what the module of Python's own does around it, which takes longer to load than a call.
        import _socket as sockets
    except ImportError:
        import socket as sockets
    import json as encoder, os

    def connect():
        made = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            made.connect(SOCKET)
        except BaseException:
            made.close()
            raise
        return made

    # A child has connections of its own.
    os.register_at_fork(after_in_child=idle.clear)
    # Made once: `dumps` would make one for each question.
    encode = encoder.JSONEncoder(allow_nan=False, default=plain).encode
    json = encoder


def plain(value):
    # What JSON has no word for, and programs often have.
    if hasattr(value, "isoformat"): return value.isoformat()
    if hasattr(value, "__fspath__"): return value.__fspath__()
    if hasattr(value, "tolist"): return value.tolist()
    if isinstance(value, (set, frozenset, type({}.keys()), type({}.values()))): return list(value)
    if hasattr(value, "_asdict"): return value._asdict()
    if type(value).__name__ == "Decimal": return float(value)
    if type(value).__name__ == "UUID": return str(value)
    raise TypeError("a %s is nothing that JSON has" % type(value).__name__)


def line_of(question):
    """The question as a line of bytes, or why it is none."""
    if json is None: prepare()
    try:
        text = encode(question)
    except RecursionError:
        return None, _errors.InvalidArguments("the arguments contain themselves, or are nested too deeply")
    except (TypeError, ValueError, OverflowError) as error:
        return None, _errors.InvalidArguments("the arguments cannot be sent as JSON: %s" % error)
    if len(text) >= QUESTION_MAX:
        return None, _errors.InvalidArguments("the arguments are %d bytes, and a call takes %d: pass a path or a part of "
            "them" % (len(text), QUESTION_MAX))
    return b" " + text.encode("ascii") + b"\n", None


def converse(line):
    """All that is answered, or why nothing is."""
    socket = whole = None
    group = held.get(get_ident()) if held else None
    parts = []
    try:
        while True:
            try:
                socket, again = (idle.pop(), True)
            except IndexError:
                socket, again = connect(), False
            if group is not None: group.append(socket)
            try:
                socket.sendall(line)
                part = socket.recv(1 << 18)
            except OSError:
                if not again: raise
                part = b""
            if part or not again: break
            # It was given up while it waited, and nobody has read the line: what is read is answered.
            if group is not None: group.remove(socket)
            socket.close()
        while part:
            parts.append(part)
            whole = part[-1] == 10
            if whole: break
            part = socket.recv(1 << 18)
    except OSError as error:
        if not parts: return None, unreachable(error)
    finally:
        if socket is not None:
            if group is not None and socket in group: group.remove(socket)
            if whole and not idle: idle.append(socket)
            else: socket.close()
    return parts[0] if len(parts) == 1 else b"".join(parts), None


def unreachable(error):
    return _errors.Upstream("nobody answers calls in this sandbox (%s)" % (error.strerror or error))


def read(answer):
    """The answer as an object, or the error that it is."""
    try:
        value = json.loads(answer)
    except ValueError:
        value = None
    if type(value) is not dict:
        return None, _errors.Cancelled("the answer broke off: whether the call was made is not known; look before it is "
            "made again")
    if "error" in value: return None, _errors.made_of(value["error"])
    if "spooled" in value: return unspooled(value["spooled"])
    return value, None


def unspooled(path):
    # Too large for an answer. The file stays, for who wants it once more.
    try:
        with open(path, "rb") as file: value = json.load(file)
    except (OSError, ValueError) as error:
        return None, _errors.Upstream("the result is in the file %s, which cannot be read: %s" % (path, error))
    # Whichever of them was asked for.
    return {"value": value, "raw": value}, None


def ask(question):
    line, error = line_of(question)
    if error is None: line, error = converse(line)
    return (None, error) if error is not None else read(line)
