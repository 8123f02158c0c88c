# Data frames: a compact text, the page's table, and the shape with the types of the columns.
def bundle_tables(value):
    library = [kind.__module__.partition(".")[0] for kind in type(value).__mro__]
    data = {}
    frame = len(value.shape) > 1
    if "pandas" in library:
        if frame:
            # A wide one is wrapped; fewer columns first, so that it takes few lines.
            text = value.to_string(max_rows=20, max_cols=20, line_width=160, max_colwidth=60)
            if not (len(value) and value.shape[1]): text = exact(repr(value))
            else: text += "\n\n[%d rows x %d columns]" % value.shape
            columns = zip(value.columns[:100], value.dtypes[:100])
            columns = [[exact(str(name))[:200], str(kind)] for name, kind in columns]
        else:
            text = exact(repr(value))
            if len(value): text = value.to_string(max_rows=20, name=True, dtype=True, length=len(value) > 20)
            columns = [[exact(str(value.name))[:200] if value.name is not None else "", str(value.dtype)]]
    else:
        text = exact(repr(value))
        if frame: columns = [[name[:200], str(kind)] for name, kind in zip(value.columns[:100], value.dtypes[:100])]
        else: columns = [[value.name[:200], str(value.dtype)]]
    # No line of a frame is longer than this, whatever is in its cells.
    data["text/plain"] = "\n".join([line if len(line) <= 160 or "pandas" not in library else line[:157] + "..."
        for line in text.split("\n")])
    data["application/vnd.belljar.table+json"] = {
        "shape": [int(value.shape[0]), int(value.shape[1]) if frame else 1], "columns": columns}
    page = method(value, "_repr_html_")
    if page:
        try:
            data["text/html"] = page()
        except Exception:
            pass
    return data, {}
