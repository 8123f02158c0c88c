# What a kernel needs for one plain cell, and no more: each line here is compiled in every run, which in a fresh Python
# takes longer than anything else that the driver does. Nothing is imported that Python has not loaded by then. The
# other parts are compiled when first used, in this same namespace.
import _signal, _thread, builtins, posix, sys

names = sys.modules["__main__"].__dict__
pid, thread = posix.getpid(), _thread.get_ident()
out, err, inp = sys.stdout, sys.stderr, sys.stdin
# Name of each cell, and its text.
cells = {}
number = flags = running = 0
# IPython's, if it has been started.
shell = None
# Where a sandbox has its packages. Others may be put over them at any time, which is told by what the place is then.
PACKAGES = "/belljar/packages"
packages = PACKAGES + "/lib/python%d.%d/site-packages" % sys.version_info[:2]
seen = None
# Whether exit handlers, so many, make the end of the only cell more than the common one. A zygote knows better.
busy = bool


def load(part):
    # Until kernel.py brings its own, as the last thing in it.
    if sys.getrecursionlimit() < 400: sys.setrecursionlimit(1000)
    kernel = parts["kernel"]
    exec(compile(kernel, "<belljar kernel>", "exec", 0, True) if type(kernel) is str else kernel, globals())
    parts.pop("kernel", None)
    load(part)


# Modules that have to hear of the driver when they are imported.
watched = {"linecache", "matplotlib.pyplot", "plotly.io._renderers"}


def look():
    global seen
    now = layer()
    if now != seen:
        seen = now
        load("packages")
        renew_packages()


def layer():
    try:
        stat = posix.stat(PACKAGES)
        return stat.st_dev, stat.st_ino
    except OSError:
        return None


def seek(name, path=None, target=None):
    # What a cell installs it may import at once.
    if path is None: look()
    if name in watched:
        load("source")
        return watch(name, path)


def display(*objects, **options):
    load("values")
    return show(objects, **options)


statements = {"for", "while", "if", "def", "class", "with", "try", "import", "from", "del", "assert", "raise", "async"}


def split(text, name):
    # The last statement that begins a line, and what is before it. When each compiles by itself, the two are the whole:
    # a line within brackets, a string or a block would have left the part before it incomplete. No tree is made, since
    # the first tree of an interpreter takes a millisecond.
    at = len(text)
    while at > 0 and text[at:at + 1] in "\n \t#)]}": at = text.rfind("\n", 0, max(at - 1, 0)) + 1
    tail = text[at:]
    left, equals, right = tail.partition("=")
    block = equals and right[:1] != "=" and left.rstrip("+-*/ ").isidentifier() or tail[:9].split(" ")[0] in statements
    if not (block and ";" in tail or "__future__" in text):
        try:
            # The last first: where it fails, the rest has not yet been warned of.
            tail = "\n" * text.count("\n", 0, at) + tail
            tail = compile(tail, name, "exec" if block else "eval", flags | 0x2000, True)
            return at and compile(text[:at], name, "exec", flags | 0x2000, True), tail
        except Exception:
            pass
    load("source")
    return parse(text, name)


def perform(text, name):
    look()
    if "IPython" in text or "get_ipython" in text:
        load("ipython")
        start_ipython()
    # Not for functools and itertools.
    if "tool" in text and text.count("tool") > text.count("ctools") + text.count("rtools") and "called" in parts:
        exec(parts.pop("called"), globals())
    if shell: around(text)
    evaluate = eval
    # A task may be made without an await, on the loop that later cells await on; but asyncio.run() wants none.
    if ("create_task(" in text or "ensure_future(" in text) and "run(" not in text and "run_until" not in text:
        load("loop")
        evaluate = within
    value = None
    for code in split(text, name):
        if code:
            value = evaluate(code, names)
            # CO_COROUTINE: there was a top-level await.
            if code.co_flags & 0x80 and evaluate is eval:
                load("loop")
                value = wait(value)
    if value is not None:
        load("live")
        result(value)


def flush():
    for name in "stdout", "stderr", "__stdout__", "__stderr__":
        try:
            getattr(sys, name).flush()
        except BaseException:
            pass


def put_packages():
    # Before the interpreter's own. One that was started without -s may have them already.
    global seen
    seen = layer()
    if packages in sys.path: return
    own = [path.endswith("-packages") for path in sys.path]
    sys.path.insert(own.index(True) if True in own else len(own), packages)
    try:
        # Files that say what else is to be done take more, when the first cell looks.
        if ".pth" in " ".join(posix.listdir(packages)): seen = None
    except OSError:
        pass


def arrange():
    # The interpreter as the code is to find it.
    put_packages()
    if sys.path[:1] != [""]: sys.path.insert(0, "")
    sys.argv[:] = ["main.py"]
    # One write for each line, whether Python was started with -u or not.
    out.reconfigure(errors="backslashreplace", line_buffering=True, write_through=False)
    err.reconfigure(line_buffering=True)
    del names["boot"]
    builtins.display = display
    sys.meta_path.insert(0, type(sys.implementation)(find_spec=seek))


def serve():
    global control, received
    # Nothing here is to be interrupted but the cell.
    _signal.signal(2, _signal.SIG_IGN)
    # Out of the way of code that counts descriptors from 3, and of what it closes.
    control = min(posix.sysconf("SC_OPEN_MAX"), 1000) - 8
    for fd in 3, 0, 1, 2: posix.dup2(fd, control + (fd + 1 & 3), False)
    posix.close(3)
    # A zygote has done so.
    if "boot" in names: arrange()
    posix.write(control, b"ready %d\n%d" % (len(str(pid)), pid))
    received = posix.read(control, 1 << 16)
    header, line, text = received.partition(b"\n")
    header = header.split()
    if header[3:] != [b"1"] or len(text) != int(header[1]):
        load("live")
        return serve_cells()
    only(text.decode("utf-8", "replace"))
    # Until the guest has seen what was used, and hangs up.
    posix.read(control, 1)
    posix._exit(0)


def only(text):
    # The only cell. Where it leaves nothing behind, this is all of it; else kernel.py takes over.
    global number, running, guarded
    number = 1
    cells["<cell 1>"] = text
    error = None
    try:
        try:
            running = True
            _signal.signal(2, _signal.default_int_handler)
            if "linecache" in sys.modules:
                load("source")
                remember("<cell 1>", text)
            perform(text, "<cell 1>")
        except BaseException as raised:
            error = raised
        guarded, running = True, False
        _signal.signal(2, _signal.SIG_IGN)
    except BaseException as raised:
        error = raised
    guarded, running = True, False
    # Before any function of the driver's own is called.
    sys.setprofile(None)
    sys.settrace(None)
    ends = sys.modules.get("atexit")
    if (error is not None or posix.getpid() != pid or _thread._count() or ends and busy(ends._ncallbacks())
            or "kernel" not in parts and (shows or pending or "loop" not in parts)):
        load("live")
        return take_over(error)
    # As at the end of a script: files that were left open are written, and finalizers run.
    for name in list(names):
        if name != "__builtins__": names[name] = None
    if "class" in text or "def" in text or "lambda" in text:
        import gc
        gc.collect()
    flush()
    posix.write(control, b"done 1\n0")
