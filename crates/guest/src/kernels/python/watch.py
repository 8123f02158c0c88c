# What packages do to the interpreter while they load: noted, and undone.
import _locale, atexit, os, random, warnings, weakref

register, seed, environment_kind = atexit.register, random.Random.seed, type(os.environ)
given = dict(os.environ._data)
# Exit handlers that were registered, generators of random numbers that nobody has given a seed, and variables that were
# read.
handlers, generators, asked = [], [], set()
# Of sys.
ATTRIBUTES = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "excepthook", "displayhook",
    "unraisablehook", "dont_write_bytecode", "argv")
# So that none is left when it comes to the fork: Arrow then frees memory when it is used, and NumExpr, which pandas
# brings, has one thread until told otherwise.
FEWER_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "NUMEXPR_NUM_THREADS": "1"}


class Left(BaseException):
    pass


def alarm(number, frame):
    raise Left("it took too long")


def leave(status):
    # A child that a package has forked may.
    if posix.getpid() != zygote: real_exit(status)
    raise Left("it called os._exit")


def note_handler(function, *arguments, **options):
    handlers.append(function)
    return register(function, *arguments, **options)


def note_seed(self, a=None, version=2):
    if a is None:
        try:
            generators.append(weakref.ref(self))
        except TypeError:
            generators.append(lambda: self)
    return seed(self, a, version)


class Environment(environment_kind):
    def __getitem__(self, name):
        asked.add(name)
        return environment_kind.__getitem__(self, name)

    def __contains__(self, name):
        asked.add(name)
        return environment_kind.__contains__(self, name)


def watch():
    global kept, kept_filters, catch
    mask = posix.umask(0o22)
    posix.umask(mask)
    kept = {
        "handlers": {number: _signal.getsignal(number) for number in range(1, 65)},
        "attributes": {name: getattr(sys, name) for name in ATTRIBUTES},
        "dicts": [(each, dict(each)) for each in (builtins.__dict__, sys.modules["__main__"].__dict__)],
        "path": sys.path[:], "threshold": gc.get_threshold(), "limit": sys.getrecursionlimit(),
        "interval": sys.getswitchinterval(), "locale": _locale.setlocale(_locale.LC_ALL), "mask": mask,
        "folder": posix.getcwd(), "filters": warnings.filters[:]}
    catch = warnings.catch_warnings()
    catch.__enter__()
    _signal.signal(_signal.SIGALRM, alarm)
    os._exit = posix._exit = leave
    atexit.register, random.Random.seed = note_handler, note_seed
    os.environ.__class__ = Environment
    for name, value in FEWER_THREADS.items(): os.environ.setdefault(name, value)


def stop_noting_reads():
    # From here on they are of what is done, and not of what is kept.
    os.environ.__class__ = environment_kind


def undo():
    os._exit = posix._exit = real_exit
    atexit.register, random.Random.seed = register, seed
    for number, handler in kept["handlers"].items():
        if _signal.getsignal(number) is not handler and handler is not None: _signal.signal(number, handler)
    for name, value in kept["attributes"].items(): setattr(sys, name, value)
    for each, content in kept["dicts"]:
        for name in set(each) - set(content): del each[name]
        each.update(content)
    sys.path[:] = kept["path"]
    sys.setrecursionlimit(kept["limit"])
    sys.setswitchinterval(kept["interval"])
    sys.setprofile(None)
    sys.settrace(None)
    gc.set_threshold(*kept["threshold"])
    posix.umask(kept["mask"])
    posix.chdir(kept["folder"])
    if _locale.setlocale(_locale.LC_ALL) != kept["locale"]: _locale.setlocale(_locale.LC_ALL, kept["locale"])
    take_environment(given)
    undo_warnings()


def undo_warnings():
    # A filter that names a message, a module or a category of its package's own stays with the package.
    stay = [each for each in warnings.filters if each not in kept["filters"]
        and (each[1] or each[3] or each[2].__module__ != "builtins")]
    catch.__exit__(None, None, None)
    warnings.filters[:0] = stay
    # Has the filters read anew.
    with warnings.catch_warnings(): pass
    getattr(warnings, "onceregistry", {}).clear()
    for module in list(sys.modules.values()):
        if isinstance(module, type(sys)): module.__dict__.pop("__warningregistry__", None)


def name_of(function):
    return "%s.%s" % (getattr(function, "__module__", None), getattr(function, "__qualname__", None))
