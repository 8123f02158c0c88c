"""A small MCP server over stdio: Python's standard library, both lifecycles (`initialize` and `server/discover`)."""

import json
import sys

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
CURRENT = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SERVER_KEY = "io.modelcontextprotocol/serverInfo"


class Refusal(Exception):
    """What went wrong in a tool, told to whoever called it."""


def tool(function, description, parameters, required=(), output=None, **hints):
    """A tool that is a function. The hints are annotations, such as readOnlyHint=True."""
    schema = {"type": "object", "properties": parameters, "required": list(required), "additionalProperties": False}
    definition = {"name": function.__name__, "description": description, "inputSchema": schema, "annotations": hints}
    if output is not None:
        definition["outputSchema"] = output
    return function, definition


class Server:
    def __init__(self, name, version, instructions, tools):
        self.info = {"name": name, "version": version}
        self.instructions = instructions
        self.tools = {definition["name"]: (function, definition) for function, definition in tools}

    def answer(self, method, params):
        """The result of a request, or an error as (code, message, data)."""
        version = (params.get("_meta") or {}).get(VERSION_KEY)
        if version is not None and version != CURRENT:
            return None, (-32022, "unsupported protocol version", {"supported": [CURRENT], "requested": version})
        if method == "initialize":
            wanted = params.get("protocolVersion")
            return {
                "protocolVersion": wanted if wanted in LEGACY else LEGACY[0],
                "capabilities": {"tools": {}},
                "serverInfo": self.info,
                "instructions": self.instructions,
            }, None
        if method == "server/discover":
            result = {
                "supportedVersions": [CURRENT],
                "capabilities": {"tools": {}},
                "instructions": self.instructions,
                "_meta": {SERVER_KEY: self.info},
            }
            return self.current(result, lasting=True), None
        if method == "tools/list":
            result = {"tools": [definition for _, definition in self.tools.values()]}
            return (self.current(result, lasting=True) if version else result), None
        if method == "tools/call":
            if params.get("name") not in self.tools:
                return None, (-32602, "there is no tool %r" % params.get("name"), None)
            result = self.call(params["name"], params.get("arguments") or {})
            return (self.current(result) if version else result), None
        if method == "ping":
            return {}, None
        return None, (-32601, "there is no method %r" % method, None)

    @staticmethod
    def current(result, lasting=False):
        more = {"ttlMs": 3_600_000, "cacheScope": "public"} if lasting else {}
        return {"resultType": "complete", **more, **result}

    def call(self, name, arguments):
        function, definition = self.tools[name]
        schema = definition["inputSchema"]
        missing = [key for key in schema["required"] if key not in arguments]
        unknown = [key for key in arguments if key not in schema["properties"]]
        try:
            if missing or unknown:
                known = ", ".join(schema["properties"]) or "nothing"
                raise Refusal("%s takes %s; missing: %s; unknown: %s" % (name, known, missing, unknown))
            value = function(**arguments)
        except Refusal as refusal:
            return {"content": [{"type": "text", "text": str(refusal)}], "isError": True}
        return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value, "isError": False}

    def serve(self):
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
                ident, method, params = message.get("id"), message.get("method"), message.get("params") or {}
            except (ValueError, AttributeError):
                reply = {"id": None, "error": {"code": -32700, "message": "not a JSON-RPC message"}}
            else:
                if ident is None or method is None:
                    continue
                result, error = self.answer(method, params)
                reply = {"id": ident, "result": result}
                if error:
                    code, words, data = error
                    reply = {"id": ident, "error": {"code": code, "message": words, **({"data": data} if data else {})}}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **reply}) + "\n")
            sys.stdout.flush()
