# Names that nobody has, and those that may have been meant.
from . import _names
from ._errors import UnknownTool
from ._names import same


def close_to(name, names):
    import difflib
    alike = {same(each): each for each in names}
    found = [alike[each] for each in difflib.get_close_matches(same(name), list(alike), 3, 0.5)]
    return found + [each for each in names if same(name) and same(name) in same(each) and each not in found][:3]


def unknown_server(name):
    _names.renew()
    index, heard = _names.index, _names.heard
    names = sorted(set(index) | set(heard))
    if not names: return UnknownTool(_names.NONE, server=name)
    holders = sorted({"%s.%s" % (server, tool) for known in (index, heard) for server, entry in known.items()
        for tool in entry.get("tools") or {} if same(tool) == same(name)})
    message = "there is no server %r; there are: %s" % (name, ", ".join(names[:50]))
    return UnknownTool(message, server=name, suggestions=holders[:5] + close_to(name, names))


def unknown_tool(server, name):
    index, heard = _names.index, _names.heard
    names = sorted(set(index.get(server, {}).get("tools") or {}) | set(heard.get(server, {}).get("tools") or {}))
    message = "%s has no tool %r; all that it has: dir(tools.%s), or tools.search(%r)" % (server, name, server, name)
    suggestions = ["%s.%s" % (server, each) for each in close_to(name, names)]
    return UnknownTool(message, server=server, tool=name, suggestions=suggestions)
