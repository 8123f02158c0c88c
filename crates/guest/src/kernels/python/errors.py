# What the code raised, told: only its own frames and those of libraries, bounded, whatever the objects try.
load("live")
BOUND = 20000
CALLS = "/belljar/lib/mcp_runtime/"


def module(name):
    # A module of Python's own, also where the workspace has a file of that name.
    if name in sys.modules: return sys.modules[name]
    paths = sys.path[:]
    try:
        here = posix.getcwd()
    except OSError:
        here = ""
    sys.path[:] = [path for path in paths if path not in ("", ".", here)]
    try:
        __import__(name)
        return sys.modules[name]
    finally:
        sys.path[:] = paths


def exact(text):
    return str.__getitem__(text, slice(None)) if type(text) is not str else text


def cut(text, bound):
    text = exact(text)
    if len(text) <= bound: return text
    half = bound // 2 - 50
    return "%s\n... %d characters left out ...\n%s" % (text[:half], len(text) - 2 * half, text[-half:])


def is_a(value, kind):
    # Without asking the object, which may lie about its class, or raise.
    return any([each is kind for each in type.__dict__["__mro__"].__get__(type(value))])


def name_of(kind):
    return exact(type.__dict__["__name__"].__get__(kind))


def message(error):
    try:
        return cut(str(error), BOUND)
    except RecursionError:
        return "<str() of the exception raised RecursionError>"
    except Exception as other:
        return "<str() of the exception raised " + name_of(type(other)) + ">"


def trim(error, seen):
    # Frames of the driver are taken out, wherever they are.
    if error is None or id(error) in seen or len(seen) > 100: return
    seen[id(error)] = error
    trace = BaseException.__dict__["__traceback__"]
    chain = []
    each = trace.__get__(error)
    while each is not None:
        # A magic's way through IPython says nothing either, nor does what calls tools.
        place = each.tb_frame.f_globals
        if (place is not globals() and not str(place.get("__name__")).startswith("IPython.core.")
                and not each.tb_frame.f_code.co_filename.startswith(CALLS)): chain.append(each)
        each = each.tb_next
    if len(chain) > 2000: chain[1000:-1000] = []
    for each, following in zip(chain, chain[1:] + [None]):
        if each.tb_next is not following: each.tb_next = following
    trace.__set__(error, chain[0] if chain else None)
    for link in "__cause__", "__context__":
        trim(BaseException.__dict__[link].__get__(error), seen)
    group = getattr(builtins, "BaseExceptionGroup", None)
    if group and is_a(error, group):
        for each in group.exceptions.__get__(error)[:20]: trim(each, seen)


def describe(error):
    trim(error, {})
    traceback = module("traceback")
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    told = traceback.TracebackException(type(error), error, trace)
    return cut("".join(told.format()).rstrip("\n"), BOUND)


def plainly(error):
    # Where the traceback module does not work, or the exception breaks it.
    told = []
    each = BaseException.__dict__["__traceback__"].__get__(error)
    while each is not None and len(told) < 50:
        code = each.tb_frame.f_code
        if each.tb_frame.f_globals is not globals():
            told.append('  File "%s", line %d, in %s' % (code.co_filename, each.tb_lineno, code.co_name))
            text = cells.get(code.co_filename, "").split("\n")
            if each.tb_lineno <= len(text): told.append("    " + text[each.tb_lineno - 1].strip()[:200])
        each = each.tb_next
    if told: told.insert(0, "Traceback (most recent call last):")
    return "\n".join(told)


def explain(error, into):
    into["name"] = name = name_of(type(error))
    into["value"] = value = message(error)
    if name == "EOFError" and value == "EOF when reading a line":
        into["value"] = value = value + ": the cell's input is at its end; pass what it should read as stdin"
    try:
        into["traceback"] = describe(error)
    except Exception:
        pass


def exit_code(error):
    # As Python computes it; what is not a number is printed.
    code = error.code
    if code is None: return 0
    if is_a(code, int):
        code = int.__index__(code)
        return code & 255 if -2 ** 63 <= code < 2 ** 63 else 255
    try:
        err.write(cut(str(code), BOUND) + "\n")
    except Exception:
        pass
    return 1


def tell_error(error):
    global pending
    if is_a(error, SystemExit):
        code = []
        if attempt(lambda: code.append(exit_code(error))): return 1
        return code[0]
    interrupted = is_a(error, KeyboardInterrupt)
    # So that it may be interrupted in its turn, when str() of the exception never ends.
    pending = 0
    told = {"name": name_of(type(error)), "value": ""}
    failed = attempt(explain, error, told)
    if "traceback" not in told:
        told["traceback"] = plainly(error) + "\n" + told["name"] + ": " + told["value"]
    if type(error) is not KeyboardInterrupt:
        sys.last_type, sys.last_value = type(error), error
        sys.last_traceback = BaseException.__dict__["__traceback__"].__get__(error)
        if sys.version_info >= (3, 12): sys.last_exc = error
    send(b"record", '{"error":{' + ",".join([quote(key) + ":" + quote(exact(text)) for key, text in told.items()])
        + "}}")
    return 130 if interrupted or failed and is_a(failed, KeyboardInterrupt) else 1


def leave(error):
    # A child that was forked in the cell and came to its end: it ends as a script would.
    code = 0
    if error is not None:
        told = {}
        if is_a(error, SystemExit): code = exit_code(error)
        else:
            code = 1
            attempt(explain, error, told)
            try:
                err.write(told.get("traceback", "") + "\n")
            except Exception:
                pass
    flush()
    posix._exit(code)


def own_failure(error):
    try:
        told = {}
        trace = error.__traceback__
        where = ""
        while trace is not None:
            where += " %s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            trace = trace.tb_next
        attempt(explain, error, told)
        text = told.get("name", "") + ": " + told.get("value", "") + where
    except BaseException:
        text = "unknown"
    send(b"record", '{"error":{"name":"KernelError","value":"the kernel failed around the cell; run it again, or '
        'restart the kernel","traceback":' + quote(text[:2000]) + "}}")
    flush()
    return 1
