# `tools`, its servers and their tools, by the names that /tools/index.json has, or that the host knows.
import sys
from time import monotonic

from . import _errors, _wire
from ._errors import InvalidArguments, ToolError, UnknownTool
from ._wire import ask

PLACE = "/tools"
NONE = ("no servers are configured, so there are no tools to call; whoever starts belljar names them with --mcp-config FILE "
    "(the usual mcpServers JSON)")
KEYWORDS = {"and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif", "else", "except",
    "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise",
    "return", "try", "while", "with", "yield", "None", "True", "False"}
# Seconds in which the host is not asked again for a name that it did not know.
PATIENCE = 2
Module = type(sys)
index, stamp, heard, asked_at = {}, None, {}, -PATIENCE


def renew():
    """Reads the index, if it is another than before: what can be called may change while a program runs."""
    global index, stamp
    import posix
    try:
        stat = posix.stat(PLACE + "/index.json")
    except OSError:
        stat = None
    now = stat and (stat.st_dev, stat.st_ino, stat.st_mtime_ns)
    if now == stamp: return
    index, stamp = {}, now
    if _wire.json is None: _wire.prepare()
    try:
        with open(PLACE + "/index.json", "rb") as file: found = _wire.json.load(file).get("servers")
    except (OSError, ValueError, AttributeError):
        found = None
    if type(found) is dict: index = found


def renew_from_host():
    """What the host knows, which may be newer. Not at every name that nobody knows."""
    global heard, asked_at
    if monotonic() - asked_at < PATIENCE: return
    asked_at = monotonic()
    value, error = ask({"list": {}})
    heard = {}
    for each in (value or {}).get("servers") or ():
        members = {tool["ident"]: {"name": tool["name"]} for tool in each.get("tools") or ()}
        heard[each["ident"]] = {"name": each["name"], "tools": members, "trouble": each.get("trouble")}


def same(name):
    # As names are compared that are spelled in another way.
    return "".join([letter for letter in name if letter.isalnum()]).lower()


def pick(members, name):
    """The member of this name: by its identifier, its own spelling, or another spelling that only one has."""
    if name in members: return name
    for ident, each in members.items():
        if each.get("name") == name: return ident
    alike = [ident for ident, each in members.items() if same(name) in (same(ident), same(each.get("name") or ident))]
    return alike[0] if len(alike) == 1 and same(name) else None


def server_of(name):
    """The identifier and entry of a server; None if there is none."""
    for look in (lambda: None, renew, renew_from_host):
        look()
        for known in index, heard:
            ident = pick(known, name)
            if ident is not None: return ident, known[ident]
    return None


def tool_of(server, name):
    """The same of a server's tool."""
    for look in (lambda: None, renew, renew_from_host):
        look()
        for known in index, heard:
            members = known.get(server, {}).get("tools") or {}
            ident = pick(members, name)
            if ident is not None: return ident, members[ident]
    return None


def fit(given, arguments, parameters):
    """The arguments by the names that the tool has for them."""
    if given:
        if len(given) > 1 or not isinstance(given[0], dict):
            return None, "arguments go by name (or all of them as one dict)"
        arguments = dict(given[0], **arguments)
    for name in list(arguments):
        # What Python cannot spell has a `_` after it.
        if type(name) is not str: return None, "the name of an argument is text, and not %r" % (name,)
        if name[-1:] == "_" and (name[:-1] in KEYWORDS if parameters is None else
                name not in parameters and name[:-1] in parameters):
            arguments[name[:-1]] = arguments.pop(name)
    return arguments, None


def question_for(to, given, arguments, parameters, raw, timeout):
    """The line that asks for a call, or why it cannot be."""
    arguments, wrong = fit(given, arguments, parameters)
    if wrong: return None, InvalidArguments(wrong, server=to.get("server"), tool=to.get("tool"))
    call = dict(to, arguments=arguments)
    if raw: call["raw"] = True
    if timeout is not None: call["timeout"] = timeout
    line, error = _wire.line_of({"call": call})
    if error is not None: error.server, error.tool = to.get("server"), to.get("tool")
    return line, error


def outcome(answer, raw):
    """What an answer comes to: its value, or the error that it is."""
    value, error = _wire.read(answer)
    if error is not None: return None, error
    if raw and "raw" in value: return ToolResult(value["raw"]), None
    if "value" in value and not raw: return value["value"], None
    return None, _errors.Upstream("the answer to the call is none that this sandbox knows")


def asked_for(to, given, arguments, parameters, raw, timeout):
    line, error = question_for(to, given, arguments, parameters, raw, timeout)
    if error is None: line, error = _wire.converse(line)
    return (None, error) if error is not None else outcome(line, raw)


class ToolResult:
    """All that a tool answered: value, text, content, structured, meta and files."""

    value = text = structured = meta = None

    def __init__(self, told):
        self.content, self.files = [], []
        for name in "value", "text", "content", "structured", "meta", "files":
            if told.get(name) is not None: setattr(self, name, told[name])

    def __repr__(self):
        return "ToolResult(%.2000r)" % (self.value,)


class Text(str):
    """Text that is shown as it is."""

    __slots__ = ("hits",)

    def __repr__(self):
        return str(self)


class Tool:
    """A tool. Call it with its arguments by name."""

    __slots__ = ("_server", "_tool", "_entry", "_to", "_timeout")

    def __init__(self, server, tool, entry, of, timeout=None):
        self._server, self._tool, self._entry, self._timeout = server, tool, entry, timeout
        self._to = {"server": of, "tool": entry.get("name", tool)}

    def __call__(*given, **arguments):
        # The first is the tool itself: any name may be one of an argument.
        self = given[0]
        value, error = asked_for(self._to, given[1:], arguments, self._entry.get("parameters"), False, self._timeout)
        if error is None: return value
        raise error

    def raw(*given, **arguments):
        """The same, and all of what the tool answered: a ToolResult."""
        self = given[0]
        value, error = asked_for(self._to, given[1:], arguments, self._entry.get("parameters"), True, self._timeout)
        if error is None: return value
        raise error

    def options(self, timeout=None):
        """The same tool, with so many seconds for each call."""
        return type(self)(self._server, self._tool, self._entry, self._to["server"], timeout)

    def __getattr__(self, name):
        # A class has these as its own.
        if name == "__name__": return self._tool
        if name == "__qualname__": return "%s.%s" % (self._server, self._tool)
        raise AttributeError(name)

    @property
    def __doc__(self):
        try:
            with open("%s/%s/%s.pyi" % (PLACE, self._server, self._tool)) as file: return file.read(100000)
        except (OSError, ValueError):
            pass
        try:
            return str(tools.describe(self.__qualname__))
        except ToolError:
            return None

    @property
    def __signature__(self):
        from inspect import Parameter, Signature
        required = self._entry.get("required") or ()
        names = self._entry.get("parameters")
        if names is None: return Signature([Parameter("arguments", Parameter.VAR_KEYWORD)])
        return Signature([Parameter(name + "_" * (name in KEYWORDS), Parameter.KEYWORD_ONLY,
            default=Parameter.empty if name in required else None) for name in names if name.isidentifier()])

    def __repr__(self):
        required = self._entry.get("required") or ()
        names = [name if name in required else name + "=..." for name in self._entry.get("parameters") or ()]
        return "<tool tools.%s.%s(%s)>" % (self._server, self._tool, ", ".join(names))


class Server(Module):
    """A server, whose tools are its attributes."""

    _kind = Tool

    _inside = "tools"

    def __init__(self, ident, name):
        Module.__init__(self, "%s.%s" % (self._inside, ident), "Tools of the server %s: see /tools/%s/README.md" % (name, ident))
        self.__dict__.update(_ident=ident, _name=name, __path__=[])

    def __getattr__(self, name):
        if name[:2] == "__" or name[:1] == name[-1:] == "_": raise AttributeError(name)
        made = tool_in(self, name)
        if type(made) is UnknownTool: raise made
        self.__dict__[name] = made
        return made

    def __getitem__(self, name):
        return self.__getattr__(str(name))

    def _tools(self):
        renew()
        found = set(index.get(self._ident, {}).get("tools") or {})
        if not found:
            renew_from_host()
            found = set(heard.get(self._ident, {}).get("tools") or {})
        return sorted(found)

    def __dir__(self):
        return self._tools()

    def __iter__(self):
        return iter(self._tools())

    def __repr__(self):
        names = self._tools()
        return "<server %s: %s%s>" % (self._name, ", ".join(names[:50]), ", ..." * (len(names) > 50))


def tool_in(server, name):
    found = tool_of(server._ident, name)
    known = heard.get(server._ident, {})
    # Of a server that has told nothing yet any name may be one; the host knows by the time of the call, or says why not.
    if found is None and known.get("trouble") and not known["tools"]: found = name, {"name": name}
    if found is None:
        from ._unknown import unknown_tool
        return unknown_tool(server._ident, name)
    return server._kind(server._ident, found[0], found[1], server._name)


class Tools(Module):
    """The tools of other servers, each of which is an attribute: tools.github.list_issues(owner="o"). What there is:
    dir(tools), tools.search("what for"), tools.describe("github.list_issues"), /tools/README.md."""

    _kind = Server

    def __getattr__(self, name):
        if name[:2] == "__" or name[:1] == name[-1:] == "_": raise AttributeError(name)
        if name == "aio":
            from . import _aio
            made = _aio.Aio("tools.aio")
        elif name == "skills":
            from . import _skills
            made = _skills.Skills()
        elif name == "parallel":
            from ._parallel import parallel as made
        else:
            made = self._server(name)
            if type(made) is UnknownTool: raise made
        self.__dict__[name] = made
        return made

    def __getitem__(self, name):
        made = self._server(str(name))
        if type(made) is UnknownTool: raise made
        return made

    def _server(self, name):
        found = server_of(name)
        if found is None:
            from ._unknown import unknown_server
            return unknown_server(name)
        return self._kind(found[0], found[1].get("name") or found[0])

    def _servers(self):
        renew()
        if not index: renew_from_host()
        return sorted(set(index) | set(heard))

    def __dir__(self):
        return sorted([*_errors.ALL, "ToolResult", "aio", "describe", "parallel", "search", "skills", *self._servers()])

    def __iter__(self):
        return iter(self._servers())

    def __repr__(self):
        return "<tools of %s>" % (", ".join(self._servers()) or "no server: " + NONE)

    @staticmethod
    def search(query="", detail="signatures", server=None, limit=10):
        """What is there for a purpose, as text: print(tools.search("create an issue"))."""
        wanted = {"query": query, "detail": detail, "limit": limit, "language": "python"}
        if server is not None: wanted["server"] = server
        value, error = ask({"search": wanted})
        if error is None:
            text = Text(value.get("text") or "")
            text.hits = value.get("hits") or []
            return text
        raise error

    @staticmethod
    def describe(name):
        """All of a tool, as text: print(tools.describe("github.list_issues"))."""
        value, error = ask({"describe": {"name": getattr(name, "__qualname__", name), "language": "python"}})
        if error is None: return Text(value.get("text") or "")
        raise error


class Finder:
    """Lets servers be imported as modules of `tools`."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name[:6] != "tools." or sys.modules.get("tools") is not tools: return None
        from . import _finder
        return _finder.find(name)


tools = Tools("tools", Tools.__doc__)
tools.__dict__.update(_errors.ALL, ToolResult=ToolResult, __path__=[])
