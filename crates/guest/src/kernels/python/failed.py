# Runs after the code has raised something, before Python tells it, so that the traceback has the code's own frames only,
# and their lines, for which Python before 3.13 looks in files alone.
#
# Not in the driver, since every run would pay for parsing it. Not as a whole in the hook, since an import there makes
# Python forget that a KeyboardInterrupt ends it by the signal.
import sys


def prepare():
    show = sys.excepthook
    # The modules come from where they came before the workspace was in the path.
    beside, sys.path[:] = sys.path[:], paths
    try:
        import linecache, traceback
        # Every line has an end, as linecache itself sees to: the marks below a line are counted with it.
        linecache.cache["main.py"] = len(source), None, (source.decode() + "\n").splitlines(True), "main.py"
        if show is sys.__excepthook__:
            show = traceback.print_exception
    except Exception:
        pass
    sys.path[:] = beside

    def hook(kind, error, trace):
        error.__traceback__ = trace = trace.tb_next.tb_next
        show(kind, error, trace)

    # Python itself does the rest: it calls the hook, and ends as it would have.
    sys.excepthook = hook


prepare()
