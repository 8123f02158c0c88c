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

    def is_ours(trace):
        return trace.tb_frame.f_code.co_filename.startswith(("<belljar ", "/belljar/lib/mcp_runtime/"))

    def hook(kind, error, trace):
        # What calls tools says nothing that the error does not.
        own = trace = trace.tb_next.tb_next
        while own and own.tb_next:
            if is_ours(own.tb_next): own.tb_next = own.tb_next.tb_next
            else: own = own.tb_next
        error.__traceback__ = trace
        show(kind, error, trace)

    # Python itself does the rest: it calls the hook, and ends as it would have.
    sys.excepthook = hook


prepare()
