"""An MCP server over stdio with one tool, which gives back what it gets. About the least that a server can do."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "echo", "description": "Gives back the message.", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "Echo: " + params["arguments"]["message"]}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params"))
    told = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **told}) + "\n")
    sys.stdout.flush()
