# The little of IPython's syntax that works without IPython.
import io

KNOWN = ("!command, name = !command, %pip, %uv, %time, %timeit, %cd, %pwd, %env, %who, %matplotlib, %load_ext, %autoreload, "
    "%%time, %%timeit, %%bash, %%sh, %%writefile, %%capture, name?")


class UsageError(Exception):
    pass


UsageError.__module__ = "builtins"


def translate(text):
    # Each line of that syntax becomes a call, in its place, so that the lines keep their numbers.
    builtins.__belljar__ = call
    stripped = text.lstrip("\n \t")
    if stripped.startswith("%%"):
        first, _, body = stripped.partition("\n")
        word, _, rest = first[2:].strip().partition(" ")
        return "__belljar__('cell', %r, %r, %r)" % (word, rest.strip(), body)
    done, state = [], ["", 0]
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not state[0] and not state[1]:
            taken = 1
            bare = line.strip()
            while bare[:1] in ("!", "%") and bare.endswith("\\") and at < len(lines):
                bare = bare[:-1] + lines[at].strip()
                at += 1
                taken += 1
            changed = replace(bare)
            if changed:
                done.append(line[:len(line) - len(line.lstrip())] + changed)
                done += [""] * (taken - 1)
                continue
        scan(line, state)
        done.append(line)
    return "\n".join(done)


def replace(line):
    if line[:2] == "!!": return "__belljar__('lines', %r)" % line[2:]
    if line[:1] == "!": return "__belljar__('system', %r)" % line[1:]
    if line[:1] == "%" and line[1:2].isalpha():
        word, _, rest = line[1:].partition(" ")
        return "__belljar__('line', %r, %r)" % (word, rest.strip())
    if line[:1] == "?" or line[-1:] == "?" and "#" not in line:
        return "__belljar__('help', %r)" % line.strip("?").strip()
    left, equals, right = line.partition("=")
    right = right.strip()
    if equals and right[:1] == "!": return "%s= __belljar__('lines', %r)" % (left, right[1:])
    if equals and right[:1] == "%" and right[1:2].isalpha():
        word, _, rest = right[1:].partition(" ")
        return "%s= __belljar__('line', %r, %r)" % (left, word, rest.strip())
    return None


def scan(line, state):
    # Whether the next line begins within a string or brackets.
    quotes, depth = state
    at = 0
    while at < len(line):
        three = line[at:at + 3]
        if quotes:
            if line[at] == "\\": at += 1
            elif line.startswith(quotes, at):
                at += len(quotes) - 1
                quotes = ""
        elif three in ('"""', "'''"):
            quotes = three
            at += 2
        elif line[at] in "\"'": quotes = line[at]
        elif line[at] == "#": break
        elif line[at] in "([{": depth += 1
        elif line[at] in ")]}": depth = max(0, depth - 1)
        at += 1
    if len(quotes) == 1: quotes = ""
    state[:] = quotes, depth


def expand(text, names):
    # {expression} and $name, where they can be evaluated; what cannot is the shell's.
    done, at = "", 0
    while at < len(text):
        if text[at] == "{" and "}" in text[at:]:
            end = text.index("}", at)
            try:
                done += str(eval(text[at + 1:end], names))
                at = end + 1
                continue
            except Exception:
                pass
        if text[at] == "$" and text[at + 1:at + 2].isidentifier():
            end = at + 1
            while text[at + 1:end + 1].isidentifier() and end < len(text): end += 1
            if text[at + 1:end] in names:
                done += str(names[text[at + 1:end]])
                at = end
                continue
        done += text[at]
        at += 1
    return done


def call(kind, *arguments):
    frame = sys._getframe(1)
    names = frame.f_globals
    if frame.f_locals is not names: names = {**names, **frame.f_locals}
    if kind == "help": return describe_object(arguments[0].lstrip("%"), names)
    if kind == "system":
        frame.f_globals["_exit_code"] = shell_run(expand(arguments[0], names))
        return None
    if kind == "lines":
        subprocess = module("subprocess")
        flush()
        text = subprocess.run(expand(arguments[0], names), shell=True, stdout=subprocess.PIPE).stdout
        return text.decode("utf-8", "replace").splitlines()
    word = arguments[0]
    found = globals().get(("cell_" if kind == "cell" else "line_") + word)
    if not found:
        raise UsageError("there is no magic %s%s; there are: %s" % ("%" if kind == "line" else "%%", word, KNOWN))
    return found(*arguments[1:], frame.f_globals)


def shell_run(command, program=None):
    subprocess = module("subprocess")
    flush()
    if program is None: return subprocess.call(command, shell=True)
    return subprocess.call([program, "-c", command])


def line_pip(rest, names):
    module("shlex")
    code = shell_run("%s -m pip %s" % (sys.modules["shlex"].quote(sys.executable), rest))
    look()
    if code: raise UsageError("pip %s ended with code %d; what it said is above" % (rest.split(" ")[0], code))


def line_uv(rest, names):
    code = shell_run("uv " + rest)
    look()
    if code: raise UsageError("uv %s ended with code %d; what it said is above" % (rest.split(" ")[0], code))


def run_text(text, names):
    value = None
    name = "<cell %d, part>" % number
    load("source")
    cells[name] = text
    remember(name, text)
    for code in split(text, name):
        if code:
            value = eval(code, names)
            if code.co_flags & 0x80:
                load("loop")
                value = wait(value)
    return value


def timed(text, names):
    time = module("time")
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        return run_text(text, names)
    finally:
        print("CPU time: %s, wall time: %s" % (span(time.process_time() - cpu), span(time.perf_counter() - wall)))


def span(seconds):
    for unit, size in ("s", 1), ("ms", 1e-3), ("us", 1e-6):
        if seconds >= size: return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds * 1e9)


def line_time(rest, names):
    return timed(rest, names)


def cell_time(rest, body, names):
    return timed(body, names)


def line_timeit(rest, names, setup="pass"):
    timeit = module("timeit")
    rest = rest.split()
    loops = repeat = None
    while rest and rest[0][:2] in ("-n", "-r"):
        option = rest.pop(0)
        count = int(option[2:] or rest.pop(0))
        if option[1] == "n": loops = count
        else: repeat = count
    text = " ".join(rest) if "\n" not in setup else setup
    timer = timeit.Timer(text, "pass", globals=names)
    if not loops: loops, _ = timer.autorange()
    times = [each / loops for each in timer.repeat(repeat or 5, loops)]
    print("%s per loop, best of %d; %d loops each" % (span(min(times)), len(times), loops))


def cell_timeit(rest, body, names):
    line_timeit(rest, names, body + "\n")


def cell_bash(rest, body, names):
    subprocess = module("subprocess")
    code = shell_run(body, "bash")
    if code: raise subprocess.CalledProcessError(code, "bash")


def cell_sh(rest, body, names):
    subprocess = module("subprocess")
    code = shell_run(body, "sh")
    if code: raise subprocess.CalledProcessError(code, "sh")


def cell_writefile(rest, body, names):
    append = rest.startswith("-a ")
    path = expand(rest[3:].strip() if append else rest, names)
    with io.open(path, "a" if append else "w", encoding="utf-8") as file: file.write(body)
    print(("Appended to " if append else "Wrote ") + path)


def cell_capture(rest, body, names):
    real, sys.stdout = sys.stdout, io.StringIO()
    try:
        run_text(body, names)
    finally:
        text, sys.stdout = sys.stdout.getvalue(), real
    if rest: names[rest.split()[0]] = text


def line_cd(rest, names):
    os = module("os")
    os.chdir(os.path.expanduser(expand(rest, names).strip("\"'") or "~"))
    print(os.getcwd())


def line_pwd(rest, names):
    return posix.getcwd()


def line_env(rest, names):
    os = module("os")
    if not rest: return dict(os.environ)
    name, sign, value = rest.partition("=") if "=" in rest else rest.partition(" ")
    if not sign: return os.environ.get(name)
    os.environ[name.strip()] = expand(value.strip(), names)
    print("env: %s=%s" % (name.strip(), os.environ[name.strip()]))


def line_who(rest, names):
    print("  ".join(sorted([name for name, value in names.items() if name[:1] != "_" and type(value) is not Module])))


def nothing(rest, names):
    return None


line_matplotlib = line_load_ext = line_autoreload = line_reload_ext = line_config = nothing
line_set_env = line_env


def describe_object(text, names):
    value = eval(text, names)
    inspect = module("inspect")
    told = []
    try:
        told.append("Signature: %s%s" % (text, inspect.signature(value)))
    except (TypeError, ValueError):
        told.append("String form: " + shorten(safe_repr(value), 500))
    told.append("Type: " + name_of(type(value)))
    try:
        told.append("File: " + inspect.getfile(value))
    except (TypeError, OSError):
        pass
    told.append("Docstring:\n" + (inspect.getdoc(value) or "none"))
    publish("show", {"text/plain": "\n".join(told)}, {})
