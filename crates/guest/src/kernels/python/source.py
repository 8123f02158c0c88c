# Cells whose end is not plain from the text, cells that are not Python, and the lines of all of them.
def parse(text, name):
    global flags
    import _ast
    try:
        tree = compile(text, name, "exec", flags | 0x2400, True)
    except SyntaxError as error:
        if not special(text): raise
        try:
            load("ipython")
            changed = transform(text)
        except BaseException as other:
            other.__context__ = None
            raise
        if changed == text: raise
        error = None
        text = changed
        tree = compile(text, name, "exec", flags | 0x2400, True)
    body = tree.body
    last = body.pop() if body and isinstance(body[-1], _ast.Expr) and not quiet(text, body[-1]) else None
    head = compile(tree, name, "exec", flags | 0x2000, True) if body else None
    if head and "__future__" in text:
        load("live")
        import __future__
        for feature in __future__.all_feature_names:
            hidden[feature] = getattr(__future__, feature)
            flags |= head.co_flags & hidden[feature].compiler_flag
    tail = None
    if last is not None:
        tail = compile(_ast.Expression(last.value), name, "eval", flags | 0x2000, True)
    return head, tail


def quiet(text, node):
    # A semicolon after the last expression.
    rest = text.split("\n")[node.end_lineno - 1:]
    return b";" in rest[0].encode("utf-8", "replace")[node.end_col_offset:].split(b"#")[0]


def special(text):
    for line in text.split("\n"):
        line = line.strip()
        if line[:1] in ("%", "!", "?") and line or line[-1:] == "?": return True
        sign = line.partition("=")[2].lstrip()[:1]
        if sign in ("!", "%") and sign: return True
    return False


def remember(name, text):
    if len(cells) > 1000: cells.pop(next(iter(cells)), None)
    lines = sys.modules.get("linecache")
    try:
        # No time of change: so it is kept whatever linecache thinks of files.
        lines.cache[name] = len(text), None, [line + "\n" for line in text.split("\n")], name
    except Exception:
        pass


def watch(name, path):
    for finder in sys.meta_path:
        seeking = getattr(finder, "find_spec", None)
        spec = seeking and seeking is not seek and seeking(name, path)
        if spec: break
    else:
        return None
    loader = spec.loader
    real = loader.exec_module

    def exec_module(module):
        try:
            del loader.exec_module
        except AttributeError:
            pass
        real(module)
        watched.discard(name)
        try:
            prepare(name, module)
        except Exception:
            pass

    try:
        loader.exec_module = exec_module
    except AttributeError:
        pass
    return spec


def prepare(name, module):
    if name == "linecache":
        for each, text in cells.items(): remember(each, text)
    elif name == "matplotlib.pyplot":
        module.show = show_pyplot
        sys.modules["matplotlib.backend_bases"].FigureManagerBase.show = show_manager
    else:
        module.show = show_plotly


def show_pyplot(*arguments, **options):
    load("figures")
    show_figures()


def show_manager(self):
    load("figures")
    publish("show", *figure_of(self.canvas.figure))


def show_plotly(figure, *arguments, **options):
    display(figure)
