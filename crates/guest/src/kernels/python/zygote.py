# A zygote: an interpreter that loads what its environment has and is then forked into sandboxes, where each fork
# becomes a kernel as any other. No caller's code runs in it. The driver's parts are compiled here, once for all.
#
#   preload.py (watch.py) ─▶ warm.py ─▶ "ready" ─▶ native.serve() ═ fork ═▶ forked.py ─▶ core.py's serve()
#
# The native module is given by its path; its serve() answers the socket on descriptor 3 for ever, and returns only in a
# fork, with that one's environment.
#
# Where a whole machine is copied there is no module and no fork: this waits for its first cell as a kernel does, with a
# kernel's descriptors, and becomes one when that has come, which is in the copy (copied.py).
import _signal, _thread, builtins, gc, posix, sys, time

begun = time.monotonic()
real_exit, zygote = posix._exit, posix.getpid()
is_copied = sys.argv[1] == "copied"
# What is not a kernel's.
OWN = "boot", "zygote", "watch", "preload", "warm", "forked", "resident", "copied"
# Executed here and not in each fork: they only define, and what they keep is still empty. Each is after what it loads.
RESIDENT = ("kernel", "source", "live", "packages", "errors", "values", "figures", "tables", "charts", "pictures",
    "settings", "streams", "insist", "last")


def compiled(part):
    return compile(parts[part], "<belljar " + part + ">", "exec", 0, True)


def native_module(path):
    import importlib.util
    spec = importlib.util.spec_from_file_location("belljar_zygote", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def renew_streams():
    # As Python makes them at its start, on what a kernel has there: much of what they are is asked of the descriptor
    # only then. After that they lead nowhere until the fork.
    import io
    nowhere = posix.dup(1)
    reading, writing = posix.pipe()
    memory = posix.memfd_create("stdin")
    for fd, to, name, mode in (memory, 0, "stdin", "r"), (writing, 1, "stdout", "w"), (writing, 2, "stderr", "w"):
        old = getattr(sys, name)
        posix.dup2(fd, to)
        buffer = io.open(to, mode + "b", closefd=False)
        buffer.raw.name = "<" + name + ">"
        stream = io.TextIOWrapper(buffer, old.encoding, old.errors, "\n", to > 0)
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, "__" + name + "__", stream)
    sys.stdout.reconfigure(errors="backslashreplace")
    posix.dup2(nowhere, 1)
    posix.dup2(nowhere, 2)
    for fd in nowhere, reading, writing, memory: posix.close(fd)


def driver(names):
    # A kernel's driver, as boot.py makes it.
    made = {"__builtins__": builtins.__dict__.copy(), "__name__": "belljar", "parts": dict(codes)}
    exec(made["parts"].pop("core"), made)
    made["names"] = names
    for part in RESIDENT: exec(made["parts"].pop(part), made)
    made["parts"]["kernel"] = None
    exec(resident, made)
    return made


def find_packages(parts):
    # As a kernel does, which goes on from there.
    made = {"__builtins__": builtins.__dict__.copy(), "__name__": "belljar", "parts": {}}
    for part in parts: exec(codes[part], made)
    made["put_packages"]()
    made["renew_packages"]()
    # By its own word, what a layer is there for.
    try:
        with open(made["PACKAGES"] + "/preload") as file: names = file.read(10000).split()
    except (OSError, ValueError):
        return
    for name in names[:ASKED_MAX]:
        if name.isidentifier(): PACKAGES.setdefault(name, "")


def anew(wanted, arguments, environment):
    # The same interpreter from its beginning, with the parts that it needs.
    if is_copied: come_back()
    text = "".join(["\0" + part + "\n" + parts[part] for part in wanted]).encode()
    memory = posix.memfd_create("library")
    while text: text = text[posix.write(memory, text):]
    if memory == 4: posix.set_inheritable(4, True)
    else: posix.dup2(memory, 4)
    posix.set_inheritable(3, True)
    # A kernel ignores it until it runs a cell, and one that has been said to stand must not fall to it.
    if not is_copied: _signal.signal(2, _signal.SIG_DFL)
    posix.execve(sys.executable, [sys.executable, "-s", "-X", "utf8", "-c", parts["boot"], *arguments], environment)


def tell(preloaded, skipped):
    import json
    ms = round((time.monotonic() - begun) * 1000)
    posix.write(3, json.dumps({"preloaded": preloaded, "skipped": skipped, "ms": ms}).encode())


def live():
    _signal.signal(2, _signal.SIG_IGN)
    # What ends with this function would be freed in every fork, and each page of it copied for that.
    global native, codes, resident, kernel
    for part in "watch", "preload", "warm", "forked", "copied": exec(compiled(part), globals())
    native = None if is_copied else native_module(sys.argv[1])
    codes = {part: compiled(part) for part in parts if part not in OWN}
    resident = compiled("resident")
    if is_copied: step_aside()
    else: renew_streams()
    loaded, left_out = preload()
    warm_up(loaded)
    clean_up()
    kernel = driver(sys.modules["__main__"].__dict__)
    hand_over(kernel)
    settle(kernel)
    if is_copied: return wake(kernel)
    tell(loaded, left_out)
    return become(kernel, native.serve(3))


def fail(error):
    # In the place of "ready".
    where, trace = "", error.__traceback__
    while trace:
        where += " %s:%d" % (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    posix.write(3, ('{"failed":"%s:%s"}' % (type(error).__name__, where)).encode("ascii", "replace"))
    real_exit(1)


try:
    # The fork's: boot.py calls it.
    serve = live()
except BaseException as error:
    if posix.getpid() != zygote: raise
    # A kernel can do without all of this.
    if is_copied: anew([part for part in parts if part not in OWN], [], posix.environ)
    fail(error)
