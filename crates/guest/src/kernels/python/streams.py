# New standard streams where the old ones were closed or hold what an earlier cell did not read.
def renew():
    global out, err, inp
    import io
    old = inp, out, err
    inp = io.open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
    inp.mode = "r"
    if out.closed:
        out = io.open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    if err.closed:
        err = io.open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    for name, was, now in zip(("stdin", "stdout", "stderr"), old, (inp, out, err)):
        # What the user put there stays.
        if getattr(sys, name, was) is was: setattr(sys, name, now)
        setattr(sys, "__" + name + "__", now)
