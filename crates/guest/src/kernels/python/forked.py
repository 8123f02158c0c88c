# A fork becomes a kernel: with an environment and random numbers of its own, and else as if it had just been started.
#
# Variables that interpreters and native libraries read at their start. Where one differs, the kernel is started after
# all.
READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "GOTO_",
    "MKL_", "BLIS_", "OPENSSL_", "SSL_")
# Read by packages while they load, and again when it matters.
READ_AGAIN = {"HOME", "PATH", "USER", "LOGNAME", "TERM", "TMPDIR", "TZ", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
    "XDG_DATA_HOME", "PWD"}
# A cell that does what most do.
REHEARSAL = b"run 31 python 1\nimport sys\nx = 1 + 1\nprint(x)\nx"


def hand_over(kernel):
    # Modules that hear of the driver when they are imported have been.
    for name in list(kernel["watched"]):
        module = sys.modules.get(name)
        if not module: continue
        kernel["watched"].discard(name)
        kernel["prepare"](name, module)
        # Where it has been taken to already.
        package = sys.modules.get(name.rpartition(".")[0])
        if "show" in getattr(package, "__dict__", {}): package.show = module.show


def settle(kernel):
    global calm, boxes, fresh, known, seen, given_text, linecache, logging, clock, main_thread
    import linecache, logging, threading
    given_text = b"".join([name + b"=" + value + b"\0" for name, value in given.items()])
    main_thread = threading.main_thread()
    clock = time.time_ns if type(logging._startTime) is int else time.time
    kernel["arrange"]()
    seen, known = kernel["seen"], from_packages(kernel["PACKAGES"])
    if hasattr(sys, "orig_argv"): sys.orig_argv[1:] = ["-s", "-X", "utf8", "-c", parts["boot"]]
    # What ends only now must not be looked for in a fork.
    for _ in range(3): gc.collect()
    calm = atexit._ncallbacks() if all([name_of(each) in HANDLERS for each in handlers]) else -1
    boxes = [(box, tuple(box)) for each in handlers for box in map(find, HANDLERS.get(name_of(each), ()))]
    kernel["busy"] = busy
    fresh = refreshers()
    kernel["pid"] = zygote
    first_rehearsal(kernel)
    for _ in range(8): rehearse(kernel)
    gc.collect()
    gather()
    _signal.signal(2, _signal.SIG_IGN)
    gc.freeze()
    gc.enable()


def gather():
    # What was freed is put together and sorted by the C library at the next large request: here, or in every fork at
    # the price of a page for each piece.
    if "ctypes" in sys.modules:
        try:
            sys.modules["ctypes"].CDLL(None).malloc_trim(0)
        except Exception:
            pass
    bytearray(100_000)


def find(path):
    module, _, name = path.rpartition(".")
    if module in sys.modules: return getattr(sys.modules[module], name)
    return getattr(find(module), name)


def busy(handlers):
    if handlers != calm: return True
    for box, content in boxes:
        if tuple(box) != content: return True
    return False


def refreshers():
    # What to call in a fork so that it shares no chance with any other.
    calls = [generator().seed for generator in generators if generator()]
    numpy = sys.modules.get("numpy.random")
    if numpy:
        # Not its seed(), where there is this: one that was given a seed has no others to give.
        if hasattr(numpy, "set_bit_generator"): calls.append(lambda: numpy.set_bit_generator(numpy.MT19937()))
        else: calls.append(numpy.seed)
        kinds = numpy.RandomState, getattr(numpy, "Generator", numpy.RandomState)
        for each in gc.get_objects():
            if not issubclass(type(each), kinds) or each is numpy.mtrand._rand: continue
            # One with a seed of its own is meant to give the same everywhere; the system's have 128 bits.
            entropy = getattr(getattr(each._bit_generator, "_seed_seq", None), "entropy", None)
            if type(entropy) is int and entropy >> 64: calls.append(renewal(each._bit_generator))
    processes = sys.modules.get("multiprocessing.process")
    if processes:
        def new_key():
            processes._current_process._config["authkey"] = processes.AuthenticationString(os.urandom(32))
        calls.append(new_key)
    return calls


def renewal(generator):
    def renew():
        generator.state = type(generator)().state
    return renew


def rehearse(kernel):
    # A cell before any other, so that the pages that all write to are this process's own by then. Nobody hears of it.
    reading, writing = posix.pipe()
    out = posix.dup(1)
    posix.dup2(writing, 1)
    kernel["names"] = {"__name__": "__main__", "__builtins__": builtins}
    # It is not the last one, whatever is left to do.
    kernel["control"], kernel["take_over"] = writing, bool
    header, line, text = REHEARSAL.partition(b"\n")
    header = header.split()
    if header[3:] == [b"1"] and int(header[1]) == len(text): kernel["only"](text.decode("utf-8", "replace"))
    kernel.update(unchanged)
    kernel["parts"]["kernel"] = None
    kernel["cells"].clear()
    linecache.cache.clear()
    posix.dup2(out, 1)
    for fd in reading, writing, out: posix.close(fd)


def first_rehearsal(kernel):
    # Tells what one changes in the driver, so that the others need not keep all of it.
    global unchanged
    before, unchanged = dict(kernel), {}
    rehearse(kernel)
    unchanged = {name: before.get(name) for name in kernel if kernel[name] is not before.get(name)}
    kernel.update(unchanged)


def differs(environment):
    for name in environment.keys() | given.keys():
        if environment.get(name) != given.get(name):
            name = name.decode("utf-8", "surrogateescape")
            if name.startswith(READ_AT_START) or name in asked and name not in READ_AGAIN: return True
    return False


def take_environment(environment):
    data = os.environ._data
    if list(data.items()) == list(environment.items()): return
    for name in data: posix.unsetenv(name)
    for name, value in environment.items(): posix.putenv(name, value)
    data.clear()
    data.update(environment)
    posix.environ.clear()
    posix.environ.update(environment)


def from_packages(root):
    # What was loaded that a layer could have another of: names, or all if it is of a layer itself.
    found = set()
    for name, module in sys.modules.items():
        path = getattr(module, "__file__", None) or ""
        if path.startswith(root + "/"): return None
        if "-packages/" in path: found.add(name.partition(".")[0])
    return found


def clash(kernel):
    # Whether the sandbox's packages are others than the zygote's, and one of them was loaded.
    if kernel["layer"]() == seen: return False
    if known is None: return True
    try:
        return not known.isdisjoint([name.partition(".")[0] for name in posix.listdir(kernel["packages"])])
    except OSError:
        return False


def settle_in(environment):
    import site
    environment = dict([pair.partition(b"=")[::2] for pair in environment.split(b"\0") if pair])
    another = differs(environment)
    take_environment(environment)
    site.USER_BASE = site.USER_SITE = None
    if environment.get(b"TZ") != given.get(b"TZ"): time.tzset()
    return another


def become(kernel, environment):
    # Few lines, and none that is not needed: each fork pays for the pages that they touch.
    if (environment != given_text and settle_in(environment)) or clash(kernel):
        anew([part for part in parts if part not in OWN], [], posix.environ)
    for call in fresh: call()
    main_thread._native_id = kernel["pid"] = posix.getpid()
    logging._startTime = clock()
    rehearse(kernel)
    return kernel["serve"]
