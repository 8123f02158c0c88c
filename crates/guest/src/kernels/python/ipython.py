# Cells that are more than Python: IPython does them where it is there, else magics.py.
load("values")
shell = None


def start_ipython():
    # Whether IPython is there; it is imported for no other cell, since that takes a third of a second.
    global shell
    if shell is not None: return True
    try:
        if module("importlib.util").find_spec("IPython") is None: return False
        from IPython.core.interactiveshell import InteractiveShell
    except Exception:
        return False
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.formatters import DisplayFormatter
    from traitlets import Type
    from traitlets.config import Config

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **options):
            extras = (metadata or {}).get("belljar", {})
            if update: globals()["update"]((transient or {}).get("display_id"), data, extras)
            else: publish("show", data, extras)

        def clear_output(self, wait=False):
            pass

    class Hook(DisplayHook):
        def __call__(self, value=None):
            if value is not None: tell("result", value)

    class Formatter(DisplayFormatter):
        def format(self, value, include=None, exclude=None):
            # What the driver knows better: frames, figures, pictures.
            if is_bare(value) or own_way(value):
                found = bundle(value)
                if found: return found[0], {"belljar": found[1]}
            return super().format(value, include, exclude)

    class Compiler(CachingCompiler):
        def get_code_name(self, raw_code, transformed_code, number):
            # Code that a magic runs: told apart from the cell.
            name = "<cell %d, part>" % globals()["number"]
            return name

    class Shell(InteractiveShell):
        displayhook_class = Type(Hook)
        display_pub_class = Type(Publisher)
        compiler_class = Type(Compiler)

        def init_display_formatter(self):
            self.display_formatter = Formatter(parent=self)
            self.configurables.append(self.display_formatter)

        def system(self, command):
            # Through descriptors 1 and 2, as any child of the code.
            flush()
            return self.system_raw(command)

        def showtraceback(self, *arguments, **options):
            # Code within a magic failed: so did the cell.
            error = sys.exc_info()[1]
            if error is not None: raise error

        def showsyntaxerror(self, *arguments, **options):
            self.showtraceback()

        def show_usage_error(self, error):
            raise error

        def enable_gui(self, gui=None):
            pass

        def enable_matplotlib(self, gui=None):
            return "agg", "agg"

        def atexit_operations(self):
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.history_length = 0
    config.Completer.use_jedi = False
    try:
        from IPython.core.release import version_info
        config.InteractiveShell.colors = "nocolor" if version_info >= (9,) else "NoColor"
    except ImportError:
        pass
    before = dict(names)
    main = sys.modules["__main__"]
    hook, excepthook = sys.displayhook, sys.excepthook
    shell = Shell.instance(config=config, user_module=main, user_ns=names)
    sys.displayhook, sys.excepthook = hook, excepthook
    shell.set_hook("show_in_pager", page, 0)
    shell.builtin_trap.activate()
    load("magics")
    # One that fails when pip does.
    shell.register_magic_function(lambda line: line_pip(shell.var_expand(line), names), "line", "pip")
    # What IPython put among the names is not the user's.
    for name, value in list(names.items()):
        if name not in before: hidden[name] = value
    return True


def page(shell, data, start=0, screen_lines=0, pager_cmd=None):
    publish("show", data if isinstance(data, dict) else {"text/plain": data}, {})


def transform(text):
    if start_ipython():
        return shell.transform_cell(text)
    load("magics")
    return translate(text)


def around(text):
    # What extensions such as autoreload wait for.
    from IPython.core.interactiveshell import ExecutionInfo
    try:
        shell.events.trigger("pre_execute")
        shell.events.trigger("pre_run_cell", ExecutionInfo(text, False, False, True, None))
    except Exception:
        pass
