"""An MCP server that sends reports: each becomes a line of JSON in the file that OUTBOX names.

    OUTBOX=outbox.jsonl python3 examples/outbox_server.py
"""

import json
import os
import time

from mcp_stdio import Refusal, Server, tool

BODY_CHARACTERS_MAX = 1 << 20


def send_report(to, subject, body):
    if not all(isinstance(each, str) for each in (to, subject, body)):
        raise Refusal("to, subject and body are texts")
    if "@" not in to or any(character in to + subject for character in "\r\n"):
        raise Refusal("to is one address, and neither it nor the subject has more than one line")
    if len(body) > BODY_CHARACTERS_MAX:
        raise Refusal("the body has %d characters, and %d are possible" % (len(body), BODY_CHARACTERS_MAX))
    line = json.dumps({"time": int(time.time()), "to": to, "subject": subject, "body": body}).encode() + b"\n"
    try:
        outbox = os.open(OUTBOX, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(outbox, line)
        finally:
            os.close(outbox)
    except OSError as error:
        raise Refusal("the report was not sent: %s" % error) from error
    return {"sent": True, "bytes": len(body.encode())}


TEXT = {"type": "string"}
SENT = {"type": "object", "properties": {"sent": {"type": "boolean"}, "bytes": {"type": "integer"}},
    "required": ["sent", "bytes"]}
TOOLS = [
    tool(send_report, "Sends a report to an e-mail address.", {"to": {**TEXT, "format": "email"}, "subject": TEXT,
        "body": TEXT}, ["to", "subject", "body"], SENT, readOnlyHint=False, destructiveHint=False, openWorldHint=True),
]

if __name__ == "__main__":
    OUTBOX = os.environ.get("OUTBOX", "outbox.jsonl")
    Server("outbox", "1.0.0", "Sends reports.", TOOLS).serve()
