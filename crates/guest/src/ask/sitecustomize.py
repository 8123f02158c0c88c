# For interpreters of virtual environments, which look for no packages of users: those of the sandbox are theirs as well.
# A kernel's driver, which starts its interpreter with -s, does so itself.
import sys


def find():
    import site
    folder = "/belljar/packages/lib/python%d.%d/site-packages" % sys.version_info[:2]
    if sys.flags.no_user_site or sys.flags.isolated or folder in sys.path: return
    own = [path.endswith("-packages") for path in sys.path] + [True]
    rest = sys.path[own.index(True):]
    del sys.path[own.index(True):]
    site.addsitedir(folder)
    sys.path += rest


def real():
    # One of the interpreter's own, which this one stands before.
    paths = [path for path in sys.path if path != "/belljar/lib"]
    for finder in sys.meta_path:
        spec = finder.find_spec("sitecustomize", paths) if getattr(finder, "__name__", "") == "PathFinder" else None
        if spec and spec.loader: return spec.loader.exec_module(sys.modules[__name__])


find()
real()
