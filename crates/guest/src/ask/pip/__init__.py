"""Stands before the interpreter's own pip, for `python -m pip`; whatever else of pip is imported is the real one's."""

import os
import sys

ASK = "/belljar/bin/pip"

__path__ += [os.path.join(path, "pip") for path in sys.path if os.path.isdir(os.path.join(path, "pip", "_internal"))][:1]


def ask(words):
    os.execv(ASK, [ASK, "--python", sys.executable, *words])


def main(args=None):
    import subprocess
    return subprocess.call([ASK, "--python", sys.executable, *(sys.argv[1:] if args is None else args)])


def __getattr__(name):
    if name != "__version__":
        raise AttributeError("module 'pip' has no attribute %r" % name)
    from importlib.metadata import PackageNotFoundError, version
    try:
        return version("pip")
    except PackageNotFoundError:
        return "0"


# The script of a virtual environment's, which goes on to import the real one.
if os.path.basename(sys.argv[0] if sys.argv else "") in ("pip", "pip3") and sys.argv[1:2] == ["install"]:
    ask(sys.argv[1:])
