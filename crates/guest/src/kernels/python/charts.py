# The data of matplotlib's axes, in E2B's shape of charts.
POINTS_MAX = 1000


def chart_of(figure):
    left = [POINTS_MAX]
    charts = [chart for chart in [axes_of(axes, left) for axes in figure.axes[:20]] if chart]
    if not charts or left[0] < 0: return None
    if len(charts) == 1: return charts[0]
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else ""
    return {"type": "superchart", "title": title[:500], "elements": charts}


def number_of(value):
    # What JSON has: numbers that are numbers, dates as text.
    if hasattr(value, "isoformat"): return value.isoformat()
    if hasattr(value, "item"): value = value.item()
    if type(value) is int: return value
    if type(value) is float: return value if value == value and abs(value) != float("inf") else None
    if type(value) is bool: return int(value)
    return exact(str(value))[:200]


def values_of(axis, values):
    # As the axis reads them: names of categories, dates, numbers.
    units = getattr(axis, "units", None)
    kind = name_of(type(axis.get_converter() if hasattr(axis, "get_converter") else axis.converter))
    if hasattr(units, "_mapping"):
        mapping = {place: name for name, place in units._mapping.items()}
        return [str(mapping.get(value, value)) for value in values]
    if "Date" in kind or "date" in kind.lower() or "Period" in kind:
        num2date = module("matplotlib.dates").num2date
        return [num2date(float(value)).replace(tzinfo=None).isoformat() for value in values]
    return [number_of(value) for value in values]


def axis_of(axes, which):
    axis = getattr(axes, which + "axis")
    ticks = values_of(axis, list(axis.get_majorticklocs())[:100])
    scale = axis.get_scale()
    if hasattr(getattr(axis, "units", None), "_mapping"): scale = "categorical"
    elif ticks and type(ticks[0]) is str: scale = "datetime"
    label = axis.get_label_text()[:500]
    unit = None
    if label.endswith(")") and "(" in label: unit = label[label.rindex("(") + 1:-1]
    labels = [tick.get_text()[:200] for tick in axis.get_ticklabels()[:100]]
    return {which + "_label": label, which + "_unit": unit, which + "_ticks": ticks, which + "_tick_labels": labels,
        which + "_scale": scale}


def axes_of(axes, left):
    name = name_of(type(axes))
    if name not in ("Axes", "AxesSubplot"): return None
    title = axes.get_title()[:500]
    patches = [name_of(type(patch)) for patch in axes.patches]
    if patches and all([patch == "Wedge" for patch in patches]):
        labels = [text.get_text() for text in axes.texts]
        each = max(1, len(labels) // len(patches))
        left[0] -= len(patches)
        return {"type": "pie", "title": title, "elements": [
            {"label": labels[index * each][:200] if index * each < len(labels) else "", "angle": number_of(
                float(patch.theta2 - patch.theta1)), "radius": number_of(float(patch.r))}
            for index, patch in enumerate(axes.patches)]}
    chart = {"title": title}
    chart.update(axis_of(axes, "x"))
    chart.update(axis_of(axes, "y"))
    boxes = boxes_of(axes)
    bars = [box for box in axes.containers if name_of(type(box)) == "BarContainer"]
    points = [each for each in axes.collections if name_of(type(each)) == "PathCollection"]
    lines = [line for line in axes.lines if len(line.get_xdata())]
    elements = []
    if boxes:
        chart["type"] = "box_and_whisker"
        elements = boxes
        left[0] -= 5 * len(boxes)
    elif bars:
        chart["type"] = "bar"
        for group in bars[:50]:
            upright = getattr(group, "orientation", "vertical") != "horizontal"
            axis = axes.xaxis if upright else axes.yaxis
            middles = [patch.get_x() + patch.get_width() / 2 if upright else patch.get_y() + patch.get_height() / 2
                for patch in group.patches]
            left[0] -= len(middles)
            if left[0] < 0: return None
            ticks = {round(float(place), 6): text.get_text() for place, text in
                zip(axis.get_majorticklocs(), axis.get_ticklabels())}
            for patch, place in zip(group.patches, middles):
                size = patch.get_height() if upright else patch.get_width()
                label = ticks.get(round(float(place), 6)) or str(number_of(place))
                elements.append({"label": label[:200], "group": label_of(group), "value": number_of(float(size))})
    elif points or lines:
        chart["type"] = "line" if lines else "scatter"
        for each in (lines or points)[:50]:
            if lines: xs, ys = each.get_xdata(orig=False), each.get_ydata(orig=False)
            else: xs, ys = zip(*each.get_offsets()) if len(each.get_offsets()) else ((), ())
            left[0] -= len(xs)
            if left[0] < 0: return None
            pairs = zip(values_of(axes.xaxis, list(xs)), values_of(axes.yaxis, list(ys)))
            elements.append({"label": label_of(each), "points": [list(pair) for pair in pairs]})
    else:
        return None
    chart["elements"] = elements
    return chart


def label_of(artist):
    label = str(artist.get_label())
    return "" if label.startswith("_") else label[:200]


def boxes_of(axes):
    # A box is a closed line or patch of five or more points with a median across it; matplotlib keeps no record of it.
    shapes = [patch.get_path().vertices for patch in axes.patches if name_of(type(patch)) == "PathPatch"]
    lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    if not shapes:
        shapes = [list(zip(*line)) for line in lines if len(line[0]) == 5 and line[0][0] == line[0][4]
            and line[1][0] == line[1][4] and len(set(line[0])) == 2 and len(set(line[1])) == 2]
    found = []
    ticks = {round(float(place), 6): text.get_text() for place, text in
        zip(axes.xaxis.get_majorticklocs(), axes.xaxis.get_ticklabels())}
    for shape in shapes[:100]:
        xs, ys = [float(point[0]) for point in shape], [float(point[1]) for point in shape]
        left, right, low, high = min(xs), max(xs), min(ys), max(ys)
        middle = (left + right) / 2
        median, least, most, outliers = None, low, high, []
        for x, y in lines:
            x, y = [float(each) for each in x], [float(each) for each in y]
            if not x or min(x) < left - 1e-9 or max(x) > right + 1e-9: continue
            # The caps of the whiskers are narrower than the box.
            across = len(x) == 2 and y[0] == y[1] and max(x) - min(x) > 0.99 * (right - left)
            if across and low <= y[0] <= high: median = y[0]
            elif len(x) == 2 and x[0] == x[1]: least, most = min(least, *y), max(most, *y)
        for x, y in lines:
            if x and all([abs(float(each) - middle) < 1e-9 for each in x]):
                outliers += [float(each) for each in y if not least <= float(each) <= most]
        if median is None: continue
        label = ticks.get(round(middle, 6)) or str(number_of(middle))
        found.append({"label": label[:200], "min": least, "first_quartile": low, "median": median,
            "third_quartile": high, "max": most, "outliers": outliers[:50]})
    return found
