# A kernel's life from cell to cell: interrupts, messages, and what is done before and after a cell.
lock = _thread.RLock()
# While guarded is set, a SIGINT is owed; else it is raised. A first cell may be running already.
guarded = not running
shows = pending = owed = 0
# What settings.py put aside.
aside = None


def code_of(part):
    text = parts[part]
    # A zygote has compiled them all.
    return compile(text, "<belljar " + part + ">", "exec", 0, True) if type(text) is str else text


def guard(function, *arguments):
    # Runs what must not be interrupted; an interrupt that came meanwhile is raised after it.
    global guarded, owed
    if _thread.get_ident() != thread: return function(*arguments)
    was, guarded = guarded, True
    try:
        function(*arguments)
    finally:
        guarded = was
        if owed and not was:
            owed = False
            raise KeyboardInterrupt


def load_now(part):
    exec(code_of(part), globals())
    parts.pop(part, None)


def send(kind, text):
    text = text.encode("utf-8", "replace")
    guard(send_now, b"%s %d\n%s" % (kind, len(text), text))


def send_now(text):
    # A child that was forked in a cell has no say.
    if posix.getpid() != pid: return
    with lock:
        try:
            count = posix.write(control, text)
            while count < len(text): count += posix.write(control, memoryview(text)[count:])
        except OSError:
            posix._exit(1)


def interrupt(number, frame):
    global pending, owed
    pending += 1
    if guarded:
        owed = True
    else:
        load("insist")
        insist(frame)
        raise KeyboardInterrupt


def attempt(function, *arguments):
    # Runs what may be interrupted; is what that raised.
    global guarded
    try:
        try:
            guarded = False
            function(*arguments)
        finally:
            guarded = True
    except BaseException as error:
        guarded = True
        return error


def cell(text, last):
    global number, pending, owed, shows, running
    number += 1
    pending = owed = shows = 0
    name = "<cell %d>" % number
    cells[name] = text
    load("live")
    before(name, text)
    running = True
    error = attempt(perform, text, name)
    running = False
    # Before any function of the driver's own is called: with these it would not come far. A trace ends with its cell.
    sys.setprofile(None)
    sys.settrace(None)
    limit = sys.getrecursionlimit()
    if limit < 400: sys.setrecursionlimit(1000)
    if limit < 400 or _signal.getsignal(2) is not interrupt:
        load("settings")
        put_aside(limit)
    return conclude(error, last)


def conclude(error, last):
    code = 0
    if error is not None or posix.getpid() != pid:
        load("errors")
        if posix.getpid() != pid: leave(error)
    if shows or figures_open():
        load("values")
        error = last_shows(error)
    if error is not None: code = tell_error(error)
    if last:
        load("last")
        return end(code)
    after()
    return code


def figures_open():
    # Of those that pyplot keeps.
    keeper = sys.modules.get("matplotlib._pylab_helpers")
    try:
        return bool(keeper and keeper.Gcf.figs)
    except Exception:
        return True


def take(size):
    # The next bytes of the guest, or the next line.
    global received
    while not (size or b"\n" in received) or len(received) < size:
        try:
            more = posix.read(control, size or 1 << 16)
        except OSError:
            more = b""
        except BaseException:
            # A handler of the user's for another signal has raised.
            continue
        if not more: posix._exit(0)
        received += more
    size = size or received.index(b"\n") + 1
    data, received = received[:size], received[size:]
    return data


def answer(function, *arguments):
    try:
        code = function(*arguments)
    except BaseException as error:
        if posix.getpid() != pid: posix._exit(1)
        load("errors")
        code = own_failure(error)
    send(b"done", str(code))


def take_over(error):
    # After a first and last cell that core.py has run.
    listen()
    answer(conclude, error, True)
    hang_up()


def hang_up():
    # The guest looks at what was used, and then hangs up.
    attempt(posix.read, control, 1)
    posix._exit(0)


def serve_cells():
    while True:
        run, size, language, last = take(0).split()
        answer(cell, take(int(size)).decode("utf-8", "replace") if int(size) else "", last == b"1")
        if last == b"1": hang_up()


def listen():
    # In place of what core.py left there; what the user has set is seen to in settings.py.
    if _signal.getsignal(2) in (_signal.default_int_handler, _signal.SIG_IGN): _signal.signal(2, interrupt)


if _thread.get_ident() == thread: listen()


def load(part):
    if part in parts: guard(load_now, part)
