# Figures of matplotlib, Plotly and Altair, shown without being asked for.
load("values")
kaleido = None
# Figures that were shown and are still open, by id: shown again only if drawn on since.
shown = {}


def bundle_figures(value):
    root = [kind.__module__.partition(".")[0] for kind in type(value).__mro__]
    if "matplotlib" in root: return figure_of(value)
    if "plotly" in root: return plotly_of(value)
    chart = value.to_dict()
    version = chart.get("$schema", "").rpartition("/v")[2].partition(".")[0]
    if not version.isdigit(): version = "5"
    return {"application/vnd.vegalite.v%s+json" % version: chart, "text/plain": "<altair chart>"}, {}


def figure_of(figure):
    import io
    file = io.BytesIO()
    dpi = figure.dpi
    width, height = figure.get_size_inches()
    # A figure of any size is drawn in bounded memory.
    if width * height * dpi * dpi > 40e6: dpi = (40e6 / (width * height)) ** 0.5
    if not figure.canvas or not hasattr(figure.canvas, "get_renderer"):
        module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    figure.savefig(file, format="png", dpi=dpi, bbox_inches="tight")
    data = {"image/png": file.getvalue(), "text/plain": "<%s size %dx%d with %d Axes>" % (
        name_of(type(figure)), width * figure.dpi, height * figure.dpi, len(figure.axes))}
    try:
        load("charts")
        chart = chart_of(figure)
        if chart: data["application/vnd.belljar.chart+json"] = chart
    except (KeyboardInterrupt, MemoryError):
        raise
    except Exception:
        pass
    figure.stale = False
    if figures_open(): shown[id(figure)] = figure
    return data, {}


def show_figures():
    managers = sys.modules.get("matplotlib._pylab_helpers")
    if not managers: return
    for manager in managers.Gcf.get_all_fig_managers():
        figure = manager.canvas.figure
        try:
            # One with nothing on it is not worth a picture.
            if len(figure.get_children()) > 1 and (id(figure) not in shown or figure.stale):
                publish("show", *figure_of(figure))
        except KeyboardInterrupt:
            raise
        except Exception as error:
            load("errors")
            err.write("a figure could not be drawn: %s: %s\n" % (name_of(type(error)), message(error)[:2000]))
        finally:
            managers.Gcf.destroy(manager)
    shown.clear()


def plotly_of(figure):
    global kaleido
    data = {"application/vnd.plotly.v1+json": (figure.to_json(),)}
    try:
        # The page's library is referred to, not held: it alone has 4 MB.
        data["text/html"] = figure.to_html(include_plotlyjs="cdn", full_html=False)
        if len(data["text/html"]) > OTHER_MAX: del data["text/html"]
    except Exception:
        pass
    kinds = [str(trace.type) for trace in figure.data[:20]]
    title = figure.layout.title.text
    title = ", title %r" % title[:200] if title else ""
    data["text/plain"] = "<plotly figure: %s%s>" % (", ".join(kinds) or "no traces", title)
    if kaleido is None:
        try:
            kaleido = module("importlib.util").find_spec("kaleido") is not None
        except Exception:
            kaleido = False
    if kaleido:
        try:
            data["image/png"] = figure.to_image(format="png")
        except Exception:
            # It wants a browser that is not there: not tried again.
            kaleido = False
    return data, {}
