# In a fork, the last of what is put together: kernel.py and what is built on it are there, but come into force only
# when they are needed, as if they were loaded then.
load_more = load


def load(part):
    global load, guarded
    if part in ("source", "packages"): return
    if sys.getrecursionlimit() < 400: sys.setrecursionlimit(1000)
    guarded = not running
    if _thread.get_ident() == thread: listen()
    parts.pop("kernel", None)
    load = load_more
    load(part)
