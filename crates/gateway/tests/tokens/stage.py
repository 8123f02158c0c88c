"""A program of the benchmark without a server or a sandbox: python3 stage.py UPSTREAM RECORDS < PROGRAM."""

import importlib.util
import json
import pathlib
import sys
import types

upstream_file, records = sys.argv[1], pathlib.Path(sys.argv[2])
spec = importlib.util.spec_from_file_location("upstream", upstream_file)
upstream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upstream)


def result(server, name, arguments):
    record = json.loads((records / f"{server}.json").read_text())
    return upstream.answer(record, "tools/call", {"name": name, "arguments": arguments})


class ToolError(Exception):
    pass


class Server:
    """`tools.<server>`: finds a tool by the name that programs write, and follows the rule for values."""

    def __init__(self, name):
        self.server = name
        record = json.loads((records / f"{name}.json").read_text())
        self.names = {tool["name"].replace("-", "_"): tool["name"] for tool in record["tools"]}

    def __getattr__(self, ident):
        def call(**arguments):
            given = result(self.server, self.names[ident], arguments)
            text = given["content"][0]["text"]
            if given["isError"]:
                raise ToolError(text)
            if "structuredContent" in given:
                value = given["structuredContent"]
                return value["result"] if list(value) == ["result"] else value
            try:
                value = json.loads(text)
            except ValueError:
                return text
            return value if isinstance(value, (dict, list)) else text

        return call


class Tools(types.ModuleType):
    ToolError = ToolError

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return Server(name)

    @staticmethod
    def parallel(function, many):
        return [function(**arguments) for arguments in many]


sys.modules["tools"] = Tools("tools")
exec(compile(sys.stdin.read(), "program.py", "exec"), {"__name__": "__main__"})
