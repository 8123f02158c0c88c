# The names `tools` and `call_tool`, which code has without an import. What is behind them is loaded when it is used.
import builtins, sys


def runtime():
    # Where it is also without PYTHONPATH.
    paths = sys.path[:]
    if "/belljar/lib" not in paths: sys.path.append("/belljar/lib")
    try:
        import mcp_runtime
    finally:
        if sys.path[:-1] == paths: sys.path[:] = paths
    return mcp_runtime


def real():
    made = runtime().found()
    # From now on it is that.
    if builtins.__dict__.get("tools") is later: builtins.tools = made
    return made


def call_tool(*given, **arguments):
    """Calls a tool of another server: call_tool("server.tool", {"a": 1})."""
    return runtime().call_tool(*given, **arguments)


# Not a class of its own, whose every method would have to be written: a module that finds its attributes elsewhere.
kind = type("Tools", (type(sys),), {"__getattr__": lambda self, name: getattr(real(), name),
    "__getitem__": lambda self, name: real()[name], "__dir__": lambda self: dir(real()),
    "__iter__": lambda self: iter(real()), "__repr__": lambda self: repr(real())})
later = kind("tools")
builtins.__dict__.setdefault("tools", later)
builtins.__dict__.setdefault("call_tool", call_tool)
