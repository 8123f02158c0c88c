# What the code set for the whole interpreter and the driver cannot work under: put aside between cells.
def put_aside(limit):
    global aside
    handler = _signal.getsignal(2)
    if handler is not interrupt: _signal.signal(2, interrupt)
    aside = limit if limit < 400 else None, handler


def restore():
    global aside
    limit, handler = aside
    aside = None
    if handler is not interrupt: _signal.signal(2, handler)
    # No lower than where we are.
    for more in range(40 if limit else 0):
        try:
            sys.setrecursionlimit(limit + more)
            break
        except RecursionError:
            pass
