# Servers as modules of `tools`, beside those of a folder of that name in the workspace.
import sys
from importlib.machinery import ModuleSpec, PathFinder

from ._errors import UnknownTool
from ._names import tools


def find(name):
    member = name.partition(".")[2]
    if "." in member: return None
    folders = [(each or ".") + "/tools" for each in sys.path if type(each) is str]
    found = PathFinder.find_spec(name, folders)
    if found is not None: return found
    try:
        made = getattr(tools, member)
    except UnknownTool as error:
        why = str(error)
    else:
        return ModuleSpec(name, Loader(made))
    # Not one that says that a module is missing, which the import of a name would take for its own.
    raise ImportError(why, name=name)


class Loader:
    def __init__(self, made):
        self.made = made

    def create_module(self, spec):
        return self.made

    def exec_module(self, module):
        pass
