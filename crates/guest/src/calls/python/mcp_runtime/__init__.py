"""Calls tools of other servers: `call_tool("github.list_issues", {"owner": "o"})`. The same is in the package `tools`."""

import sys

from . import _names
from ._names import ToolError, tools

__all__ = ["call_tool", "search_tools", "list_servers"]


def call_tool(*given, **arguments):
    """call_tool(name, args=None, **kwargs), where the name is "server.tool" or that of a tool which one server has; or
    call_tool(server, tool, args=None, **kwargs)."""
    where = [each for each in given if type(each) is str][:2]
    rest = given[len(where):]
    if not where or len(rest) > 1 or tuple(where) != given[:len(where)]:
        error = _names.InvalidArguments("call_tool takes a name and a dict of arguments: "
            'call_tool("server.tool", {"a": 1}), or call_tool("server", "tool", {"a": 1})')
    else:
        to = {"name": where[0]} if len(where) == 1 else {"server": where[0], "tool": where[1]}
        value, error = _names.asked_for(to, rest, arguments, None, False, None)
        if error is None: return value
    raise error


def search_tools(query="", detail="signatures", server=None, limit=10):
    """What is there for a purpose, as text."""
    return tools.search(query, detail, server, limit)


def list_servers():
    """All servers, each with its tools."""
    value, error = _names.ask({"list": {}})
    if error: raise error
    return value.get("servers") or []


def found():
    """The module `tools`, with what lets its servers be imported as its modules."""
    if not any([type(finder) is _names.Finder for finder in sys.meta_path]): sys.meta_path.append(_names.Finder())
    return tools
