# Anything shown: bundles of the display protocol, text for what has none, and the bounds of both.
load("errors")
TEXT_MAX, OTHER_MAX, JSON_MAX, RECORD_MAX, SHOWS_MAX = 100_000, 1_000_000, 1 << 20, 16 << 20, 64
WIDTH = 100
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
METHODS = (("text/html", "_repr_html_"), ("text/markdown", "_repr_markdown_"), ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"), ("image/jpeg", "_repr_jpeg_"), ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"), ("application/javascript", "_repr_javascript_"),
    ("application/pdf", "_repr_pdf_"))
# The last state of what was shown with a name and updated since: shown when the cell ends.
updates = {}
# Types with nothing of the display protocol, so that it need not be asked for.
bare = plain | boxes | {type(None), type, type(load), type(len), Module, range}
# Libraries with a way of their own, and the part of the driver that knows it.
kinds = {("pandas", "DataFrame"): "tables", ("pandas", "Series"): "tables", ("polars", "DataFrame"): "tables",
    ("polars", "Series"): "tables", ("matplotlib", "Figure"): "figures", ("PIL", "Image"): "pictures",
    ("plotly", "BaseFigure"): "figures", ("altair", "TopLevelMixin"): "figures"}


def shorten(text, bound):
    text = exact(text)
    if len(text) <= bound: return text
    return text[:bound - 100] + "\n... %d characters left out" % (len(text) - bound + 100)


def encode(value):
    # Strict JSON: what it has no word for is null or text.
    json = module("json")
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, OverflowError):
        return json.dumps(clean(value, 0), allow_nan=False)


def clean(value, depth):
    if depth > 50: return None
    if is_a(value, dict): return {str(key): clean(each, depth + 1) for key, each in dict.items(value)}
    if is_a(value, list): return [clean(each, depth + 1) for each in list.__iter__(value)]
    if is_a(value, tuple): return [clean(each, depth + 1) for each in tuple.__iter__(value)]
    if value is None or type(value) in (bool, int, str): return value
    if is_a(value, float):
        value = float.__float__(value)
        return value if value == value and value not in (float("inf"), -float("inf")) else None
    return str(value)


def safe_repr(value):
    try:
        return exact(repr(value))
    except Exception as error:
        why = name_of(type(error)) + ": " + message(error)[:200]
        return "<%s object: its repr() raised %s>" % (name_of(type(value)), why)


def is_bare(value):
    # A class of classes may have a hash of its own.
    return type(type(value)) is type and type(value) in bare


def pretty(value):
    if not is_bare(value): return shorten(safe_repr(value), TEXT_MAX)
    return shorten(form(value, 0, 0, {}, [TEXT_MAX]), TEXT_MAX)


def form(value, indent, depth, above, left):
    # One line where it fits, else as many as it takes; bounded in items, depth and all.
    kind = type(value)
    if not is_bare(value) or kind not in boxes or not value:
        text = safe_repr(value)
        left[0] -= len(text)
        return text
    if id(value) in above or depth > 20: return "[...]" if kind is not dict else "{...}"
    above[id(value)] = value
    opening, closing = {list: "[]", dict: "{}", tuple: "()", set: "{}", frozenset: ("frozenset({", "})")}[kind]
    items = []
    inner = indent + len(opening)
    source = value.items() if kind is dict else value
    if kind in (set, frozenset) and len(value) <= 1000:
        try:
            source = sorted(value)
        except Exception:
            pass
    count = len(value)
    for item in source:
        if len(items) >= 1000 or left[0] <= 0: break
        if kind is dict:
            key = form(item[0], inner, depth + 1, above, left)
            items.append(key + ": " + form(item[1], inner + min(len(key), 40) + 2, depth + 1, above, left))
        else:
            items.append(form(item, inner, depth + 1, above, left))
    del above[id(value)]
    if count > len(items): items.append("... %d more" % (count - len(items)))
    elif kind is tuple and count == 1: closing = ",)"
    if sum([len(item) + 2 for item in items]) + inner <= WIDTH and not any(["\n" in item for item in items]):
        return opening + ", ".join(items) + closing
    # Short items are packed, so that a list of numbers does not take a line for each.
    pack = kind is not dict and max([len(item) for item in items]) <= 30
    lines, line = [], ""
    for item in items:
        if line and not (pack and len(line) + len(item) + 2 + inner <= WIDTH):
            lines.append(line)
            line = ""
        line += (", " if line else "") + item
    lines.append(line)
    return opening + (",\n" + " " * inner).join(lines) + closing


def method(value, name):
    # Not of classes, nor of objects that have an attribute for any name.
    try:
        found = getattr(value, name, None)
        if found is None or not callable(found) or isinstance(value, type): return None
        if hasattr(value, "_belljar_no_such_method_"): return None
        return found
    except Exception:
        return None


def own_way(value):
    for kind in type.__dict__["__mro__"].__get__(type(value)):
        try:
            part = kinds.get((kind.__module__.partition(".")[0], kind.__name__))
        except Exception:
            continue
        if part: return part
    return None


def bundle(value):
    # Raw values by type, and extras. None when the object has shown itself.
    if is_bare(value): return {"text/plain": pretty(value)}, {}
    part = own_way(value)
    if part:
        load(part)
        try:
            found = globals()["bundle_" + part](value)
            if found: return found
        except (KeyboardInterrupt, MemoryError):
            raise
        except Exception:
            pass
    itself = method(value, "_ipython_display_")
    if itself:
        try:
            itself()
            return None
        except Exception:
            pass
    data = {}
    many = method(value, "_repr_mimebundle_")
    if many:
        try:
            found = many(include=None, exclude=None)
            if isinstance(found, tuple): found = found[0]
            data.update(found)
        except Exception:
            data = {}
    for kind, name in METHODS:
        if kind in data: continue
        each = method(value, name)
        if each:
            try:
                found = each()
            except Exception:
                continue
            if type(found) is tuple and len(found) == 2: found = found[0]
            if found is not None: data[kind] = found
    if "text/plain" not in data: data["text/plain"] = pretty(value)
    return data, {}


def compose(data, extras):
    # The bundle as JSON text, within the bounds.
    told, extra = {}, dict(extras)
    for kind, value in list(data.items())[:40]:
        try:
            kind = exact(str(kind))[:200]
            if kind in PICTURES:
                load("pictures")
                mime, picture, more = picture_of(kind, value)
                if mime == "text/plain":
                    told[mime] = quote(picture)
                else:
                    told[mime] = quote(picture)
                    extra.update(more)
            elif kind == "application/pdf":
                load("pictures")
                text = as_base64(value)
                if len(text) <= 8 << 20: told[kind] = quote(text)
            elif kind.endswith("json"):
                text = exact(value[0]) if type(value) is tuple and type(value[0]) is str else encode(value)
                if len(text) <= JSON_MAX: told[kind] = text
            elif value is not None:
                text = value if is_a(value, str) else str(value)
                if kind not in told:
                    told[kind] = quote(shorten(text, TEXT_MAX if kind == "text/plain" else OTHER_MAX))
        except (KeyboardInterrupt, MemoryError):
            raise
        except Exception:
            continue
    text = '{"data":{' + ",".join([quote(kind) + ":" + value for kind, value in told.items()]) + "}"
    for key, value in extra.items(): text += "," + quote(key) + ":" + encode(value)
    return text + "}"


def publish(kind, data, extras):
    global shows
    if kind == "show":
        shows += 1
        if shows > SHOWS_MAX: return
    if posix.getpid() != pid:
        # A child has no way to show; its text is better than nothing.
        return print(data.get("text/plain", ""))
    text = compose(data, extras)
    if len(text) > RECORD_MAX - 1000 or not text.isascii() and len(text.encode("utf-8", "replace")) > RECORD_MAX - 1000:
        text = compose({"text/plain": pretty_text(data) + "\n(the rest was larger than 16 MiB and is left out)"}, {})
    send(b"record", '{"' + kind + '":' + text + "}")


def pretty_text(data):
    text = data.get("text/plain", "")
    return shorten(text, TEXT_MAX) if is_a(text, str) else ""


def tell(kind, value):
    found = bundle(value)
    if found: publish(kind, *found)


class DisplayHandle:
    # What display(..., display_id=...) gives back; an update is shown anew, since nothing is taken back here.
    def __init__(self, name):
        self.display_id = name

    def display(self, value, **options):
        display(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        update(self.display_id, *(bundle(value) or ({}, {})))

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id


def update(name, data, extras):
    global shows
    shows = shows or 1
    updates.pop(name, None)
    if data and len(updates) < SHOWS_MAX: updates[name] = data, extras


def show(objects, include=None, exclude=None, metadata=None, transient=None, display_id=None, raw=False, clear=False,
        **options):
    for value in objects:
        if options.get("update"):
            update(display_id, *(bundle(value) or ({}, {})))
            continue
        if raw and isinstance(value, dict): publish("show", value, {})
        else: tell("show", value)
    if display_id is not None and not options.get("update"):
        return DisplayHandle("display-%d-%d" % (number, shows) if display_id is True else str(display_id))


def last_shows(error):
    # At the end of a cell: the figures left open, and how much was not shown.
    if "matplotlib.pyplot" in sys.modules and not pending:
        load("figures")
        late = attempt(show_figures)
        if late is not None and error is None: error = late
    if updates:
        late = attempt(lambda: [publish("show", *found) for found in updates.values()])
        if late is not None and error is None: error = late
        updates.clear()
    if shows > SHOWS_MAX:
        send(b"record", '{"show":{"data":{"text/plain":"%d more were shown after the first %d; they are left out"}}}'
            % (shows - SHOWS_MAX, SHOWS_MAX))
    if error is not None: load("errors")
    return error
