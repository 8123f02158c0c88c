# The end of the last cell, as the end of a script would be: threads and tasks, exit handlers, then the names, so that
# files that were left open are written and finalizers run.
def end(code):
    global pending
    pending = 0
    if "loop" not in parts: attempt(leave_loop)
    threading = sys.modules.get("threading")
    if threading: attempt(threading._shutdown)
    exits = sys.modules.get("atexit")
    if exits: attempt(exits._run_exitfuncs)
    attempt(forget)
    flush()
    if pending:
        load("errors")
        return tell_error(KeyboardInterrupt())
    return code


def leave_loop():
    loop.run_until_complete(cancel_tasks())
    loop.close()


def forget():
    for name in "last_value", "last_traceback", "last_exc":
        if hasattr(sys, name): delattr(sys, name)
    for name in list(names):
        if name != "__builtins__": names[name] = None
    # What refers to itself takes code like this to make.
    if any(["class" in text or "def" in text or "lambda" in text for text in cells.values()]):
        import gc
        gc.collect()
