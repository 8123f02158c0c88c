# Several calls at once, each in a thread.
import sys
from _thread import get_ident

from . import _names, _wire

# As many as the host answers at once.
MOST = 16


def parallel(calls, items=None, max=8, errors="raise"):
    """parallel(fn, [dict, ...]) calls fn with each, parallel([(fn, dict), ...]) each fn with its own; the values come in
    order. With errors="return" those that failed are in their places, else the first one is raised, and nothing further
    is begun."""
    import threading
    if errors not in ("raise", "return"): raise ValueError('errors is "raise" or "return"')
    todo = [one(calls, item) for item in items] if items is not None else [several(each) for each in calls]
    values, failed, sockets = [None] * len(todo), {}, []
    lock, nexts = threading.Lock(), iter(range(len(todo)))

    def work():
        _wire.held[get_ident()] = sockets
        try:
            while True:
                with lock: at = next(nexts, None) if errors == "return" or not failed else None
                if at is None: return
                try:
                    values[at] = todo[at]()
                except Exception as error:
                    failed[at] = values[at] = error
        finally:
            _wire.held.pop(get_ident(), None)

    count = min(len(todo), MOST, int(max) if max >= 1 else 1)
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    try:
        # Where there are no threads, one after the other.
        if sys.platform == "wasi": work()
        else:
            for each in threads: each.start()
            for each in threads: each.join()
    except BaseException:
        # Nobody waits for them any more.
        for _ in nexts: pass
        for each in list(sockets):
            try:
                each.shutdown(2)
            except OSError:
                pass
        raise
    if failed and errors == "raise": raise failed[min(failed)]
    return values


def one(function, item):
    if not isinstance(item, dict) or isinstance(function, _names.Tool): return lambda: function(item)
    return lambda: function(**item)


def several(each):
    if callable(each): return each
    function, *rest = each
    return one(function, *rest) if len(rest) == 1 else lambda: function(*rest)
