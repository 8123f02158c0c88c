# What a zygote loads, so that no fork has to.
#
# A package that fails, takes too long, or leaves behind what a fork cannot have (a thread, a descriptor, an exit
# handler of unknown purpose) is left out. What it had begun cannot be undone, so the zygote then starts anew without
# it: twice the time for one such package, and seldom more.
SECONDS_MAX = 20
# The part of Python's own that most code uses. Each takes a millisecond or more to load, and stays in the memory of all
# that are forked: not asyncio, which is seldom used, takes 33 ms, and would be a fifth of it (2.5 MB).
# Last what calls tools, which is ours, and nowhere compiled.
LIBRARY = ("abc atexit base64 bisect calendar collections.abc contextlib copy csv dataclasses datetime decimal enum "
    "fractions functools glob hashlib heapq importlib.util inspect io itertools json linecache locale logging math "
    "operator os pathlib pickle platform pprint queue random re secrets shutil signal site socket statistics string "
    "struct subprocess tempfile textwrap threading time traceback types typing urllib.parse uuid warnings weakref "
    "zlib mcp_runtime").split()
# Modules that a layer may name itself, which are loaded after these.
ASKED_MAX = 12
# Each package, and what of it is loaded with it.
PACKAGES = {
    "numpy": "numpy.random numpy.linalg numpy.fft",
    "pandas": "",
    "matplotlib": "matplotlib.pyplot matplotlib.backends.backend_agg matplotlib.dates",
    "PIL": "PIL.Image PIL.ImageDraw PIL.ImageFont PIL.PngImagePlugin PIL.JpegImagePlugin",
    "scipy": "scipy.stats scipy.optimize scipy.linalg scipy.interpolate scipy.integrate scipy.signal scipy.sparse",
    "seaborn": "",
    "sklearn": "sklearn.linear_model sklearn.ensemble sklearn.model_selection sklearn.preprocessing sklearn.metrics "
        "sklearn.cluster sklearn.pipeline sklearn.decomposition",
    "sympy": "",
    "plotly": "plotly.graph_objects plotly.express plotly.io._renderers",
    "requests": "",
    "bs4": "",
    "openpyxl": "",
    "IPython": "IPython.core.interactiveshell IPython.display",
}
# Exit handlers that have nothing to do until something is put into one of these.
HANDLERS = {
    "logging.shutdown": ("logging._handlerList",),
    "weakref.finalize._exitfunc": ("weakref.finalize._registry",),
    "multiprocessing.util._exit_function": ("multiprocessing.util._finalizer_registry",
        "multiprocessing.process._children"),
    "matplotlib._pylab_helpers.Gcf.destroy_all": ("matplotlib._pylab_helpers.Gcf.figs",),
    "openpyxl.worksheet._writer._openpyxl_shutdown": ("openpyxl.worksheet._writer.ALL_TEMP_FILES",),
    # Before Python 3.9.
    "concurrent.futures.thread._python_exit": ("concurrent.futures.thread._threads_queues",),
    "concurrent.futures.process._python_exit": ("concurrent.futures.process._threads_wakeups",),
    # These free memory.
    "PIL._imaging.clear_cache": (),
    "certifi.core.exit_cacert_ctx": (),
}


def preload():
    # What was loaded, and why not the rest. `state` outlives a new start.
    global begun, state, loaded
    import json
    state = json.loads(sys.argv[2]) if sys.argv[2:] else {"begun": begun, "proven": [], "skipped": {}, "warm": True}
    begun, loaded, skipped = state["begun"], [], state["skipped"]
    sys.path[:] = [path for path in sys.path if path]
    gc.disable()
    watch()
    why = bounded(find_packages, ["core", "packages"], SECONDS_MAX)
    # No fork could do without what a layer's .pth files have begun.
    if why or not alone(): raise RuntimeError(why or "a thread was started")
    kept["path"] = sys.path[:]
    for name in LIBRARY: bounded(load, [name], SECONDS_MAX)
    for name, more in PACKAGES.items():
        if name in skipped or not there(name): continue
        # Some have shown to be quick, before a new start.
        left = SECONDS_MAX if name in state["proven"] else time_left()
        if left < 0.01:
            skipped[name] = "no time was left"
            continue
        modules, before = set(sys.modules), (descriptors(), len(handlers))
        why = bounded(load, [name, *more.split()], left) or trouble(*before)
        if why:
            skipped[name] = why[:200]
            if set(sys.modules) != modules or trouble(*before): start_anew()
        else:
            loaded.append(name)
    stop_noting_reads()
    return loaded, skipped


def time_left():
    return SECONDS_MAX - (time.monotonic() - begun)


def start_anew():
    import json
    state["proven"] = loaded
    anew(list(parts), [sys.argv[1], json.dumps(state)], given)


def load(modules):
    for name in modules:
        try:
            __import__(name)
        except ImportError:
            # Of what is loaded beside a package, other versions may not have all.
            if name == modules[0]: raise


def bounded(function, argument, seconds):
    # Is why it failed. The alarm comes again and again, since code may catch what it raises.
    try:
        _signal.setitimer(_signal.ITIMER_REAL, seconds, 0.5)
        try:
            function(argument)
        finally:
            _signal.setitimer(_signal.ITIMER_REAL, 0)
    except BaseException as error:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        if isinstance(error, Left): return str(error)
        try:
            return type(error).__name__ + ": " + str(error)
        except BaseException:
            return "it raised what cannot be told"


def there(name):
    import importlib.util
    try:
        return importlib.util.find_spec(name) is not None
    except Exception:
        return False


def trouble(descriptors_before, handlers_before):
    unknown = [name_of(each) for each in handlers[handlers_before:] if name_of(each) not in HANDLERS]
    if unknown: return "it has an exit handler: " + unknown[0]
    if not alone(): return "it has started a thread"
    if descriptors() != descriptors_before: return "it has left a descriptor open"


def alone():
    # Whether this is the only thread. OpenBLAS ends its own before a fork, and has them again when it needs them.
    if _thread._count(): return False
    if single(): return True
    import warnings
    with warnings.catch_warnings():
        # Of a fork with threads.
        warnings.simplefilter("ignore")
        pid = posix.fork()
    if not pid: real_exit(0)
    posix.waitpid(pid, 0)
    return single()


def single():
    try:
        return len(posix.listdir("/proc/self/task")) == 1
    except OSError:
        pass
    # There is no /proc in a zygote. CLONE_THREAD changes nothing, and is refused with EINVAL where there are others.
    import ctypes
    return ctypes.CDLL(None, use_errno=True).unshare(0x10000) == 0 or ctypes.get_errno() != 22


def descriptors():
    found = set()
    for fd in range(256):
        try:
            posix.fstat(fd)
            found.add(fd)
        except OSError:
            pass
    return found
