# What is done once in a zygote so that it is quick in the forks, and how no trace of it is left.
CELLS = ("x = 1\nx", "print(1 + 1)", "import os\nprint(os.getcwd())", "def f(n):\n    return n\n[f(i) for i in [1]]",
    "class A:\n    pass\nA()", "display({'a': 1})", "import json\nprint(json.dumps({'a': [1, 2.5]}))", "f(1) +",
    "1 / 0")
SNIPPETS = {
    "numpy": """
import numpy
str(numpy.arange(6.0).reshape(2, 3) @ numpy.ones((3, 2))), numpy.array([1, 2, 3]).mean(), numpy.random.default_rng()
""",
    "pandas": """
import io, pandas
frame = pandas.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"], "c": [0.5, None, 1.5]})
str(frame), str(frame.sum()), str(frame.groupby("b").sum()), str(frame.describe()), str(frame.dtypes), frame.head()
frame.groupby("b")["a"].agg(["mean", "max"]), frame.sort_values("a"), frame[frame.a > 1], frame.merge(frame, on="b")
frame.pivot_table(index="b", values="a"), frame.a.apply(lambda each: each), frame._repr_html_()
pandas.read_csv(io.StringIO(frame.to_csv(index=False))), pandas.to_datetime(["2024-01-01"]), frame.isna().sum()
""",
    "matplotlib": """
import io, matplotlib.pyplot
figure, axes = matplotlib.pyplot.subplots()
axes.plot([1, 2, 3], [1, 4, 9], label="a")
axes.bar([1, 2], [1, 2])
axes.set(title="t", xlabel="x", ylabel="y")
axes.legend()
figure.savefig(io.BytesIO(), format="png", bbox_inches="tight")
matplotlib.pyplot.close("all")
""",
    "plotly": """
import plotly.express, plotly.graph_objects
plotly.graph_objects.Figure(plotly.graph_objects.Bar(x=["a"], y=[1])).to_json()
""",
    "sympy": """
import sympy
x = sympy.Symbol("x")
str(sympy.diff(x ** 2 + sympy.sin(x), x)), sympy.solve(x ** 2 - 1, x), sympy.latex(x / 2), sympy.integrate(x, x)
""",
    "PIL": """
import io, PIL.Image
PIL.Image.new("RGB", (8, 8)).resize((4, 4)).save(io.BytesIO(), "PNG")
""",
    "bs4": """
import bs4
bs4.BeautifulSoup("<p>a</p>", "html.parser").p.text
""",
    "openpyxl": """
import openpyxl
openpyxl.Workbook().active["A1"] = 1
""",
}


def warm_up(loaded):
    # In a kernel of no one, with names of its own, that speaks to nobody.
    if not state["warm"]: return
    before, registered = descriptors(), len(handlers)
    names = {"__name__": "__main__", "__builtins__": builtins}
    kernel = driver(names)
    kernel.update(pid=zygote, control=posix.dup(1), seen=kernel["layer"]())
    builtins.display = kernel["display"]
    kernel["load"]("live")
    for _ in range(3):
        for text in CELLS: bounded(lambda text: kernel["cell"](text, False), text, SECONDS_MAX)
    for name in loaded:
        if time_left() > 1: bounded(run_snippet, SNIPPETS.get(name, ""), time_left())
    if "IPython" in loaded and time_left() > 1: bounded(warm_ipython, kernel, time_left())
    posix.close(kernel["control"])
    kernel.clear()
    for handler in handlers[registered:]:
        if name_of(handler) not in HANDLERS: atexit.unregister(handler)
    handlers[registered:] = [each for each in handlers[registered:] if name_of(each) in HANDLERS]
    drop_caches()
    gc.collect()
    if loaded and (not alone() or descriptors() != before):
        state["warm"] = False
        start_anew()


def run_snippet(text):
    exec(text, {"__name__": "belljar"})


def warm_ipython(kernel):
    kernel["load"]("ipython")
    if not kernel["start_ipython"](): return
    shell = kernel["shell"]
    shell.transform_cell("!true\n%time x = 1")
    shell.builtin_trap.deactivate()
    type(shell).clear_instance()


def clean_up():
    # The interpreter as it was, the modules apart; and what they have found out of the zygote is found out anew.
    undo()
    import linecache, logging, platform, tempfile, uuid
    logging.getLogger().handlers[:] = []
    logging.getLogger().setLevel(logging.WARNING)
    logging.disable(logging.NOTSET)
    linecache.clearcache()
    for name in "last_type", "last_value", "last_traceback", "last_exc":
        if hasattr(sys, name): delattr(sys, name)
    tempfile.tempdir = tempfile._name_sequence = None
    # The host's name, and numbers that are to be unique.
    platform._platform_cache.clear()
    platform._uname_cache = uuid._node = uuid._last_timestamp = None
    sys.stdout.flush()
    sys.stderr.flush()


def drop_caches():
    # Of what has the fonts' files open, or says where the zygote's home is.
    for name in "matplotlib.font_manager._get_font", "matplotlib.get_cachedir", "matplotlib.get_configdir":
        module, _, name = name.rpartition(".")
        getattr(getattr(sys.modules.get(module), name, None), "cache_clear", int)()
