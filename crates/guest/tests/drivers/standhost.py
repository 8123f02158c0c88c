"""Plays process 1 and the host behind it, for programs that call tools: answers on the socket by scripts of its own."""

import json
import os
import socket
import socketserver
import threading

SOCKET = "/home/agent/.belljar"
TOOLS = {
    "github": {"name": "github", "tools": {
        "list_issues": {"name": "list_issues", "parameters": ["owner", "repo", "from", "count", "open", "labels"],
                        "required": ["owner"]},
        "get_issue": {"name": "get_issue", "parameters": ["number"], "required": ["number"]},
        "class_": {"name": "class", "parameters": [], "required": []},
        "fail": {"name": "fail", "parameters": ["error"], "required": ["error"]},
        "big": {"name": "big", "parameters": ["size"], "required": ["size"]},
        "hang": {"name": "hang", "parameters": [], "required": []},
        "text": {"name": "text", "parameters": ["text"], "required": []},
        "broken": {"name": "broken", "parameters": [], "required": []},
    }},
    "my_files": {"name": "my-files", "tools": {"read_file": {"name": "read-file", "parameters": ["path"]}}},
}
SCHEMA = {"name": "list_issues", "inputSchema": {"type": "object", "required": ["owner"], "properties": {
    "owner": {"type": "string"}, "count": {"type": "integer"}, "open": {"type": ["boolean", "null"]},
    "labels": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}}}}
PYI = 'def list_issues(*, owner: str, repo: str = ...) -> list[Issue]:\n    """Lists the issues of a repository."""\n'
SKILLS = {
    "greet": {"name": "greet", "description": "greets", "language": "python",
              "code": "def main(who='you'):\n    return 'hello ' + who\n"},
    "wave": {"name": "wave", "description": "waves", "language": "javascript",
             "code": "import { github } from 'tools';\nexport const main = (given) => github.text({ text: given });\n"},
    "shout": {"name": "shout", "description": "shouts", "language": "shell", "code": "echo \"LOUD $1\"\n"},
}


def lay_out(index=True):
    """What /tools holds."""
    for ident, server in TOOLS.items() if index else ():
        os.makedirs("/tools/" + ident, exist_ok=True)
    if index:
        with open("/tools/index.json", "w") as file:
            json.dump({"servers": TOOLS}, file)
        with open("/tools/github/list_issues.json", "w") as file:
            json.dump(SCHEMA, file)
        with open("/tools/github/list_issues.pyi", "w") as file:
            file.write(PYI)


class Host(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers. `seen` are the questions, `withdrawn` the tools whose callers have hung up."""

    daemon_threads = True
    request_queue_size = 16

    def __init__(self):
        self.seen, self.withdrawn, self.servers = [], [], dict(TOOLS)
        self.news = threading.Condition()
        super().__init__(SOCKET, Connection)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def gone(self, tool, seconds=10):
        with self.news:
            return self.news.wait_for(lambda: tool in self.withdrawn, seconds)

    def listed(self):
        return [{"name": server["name"], "ident": ident, "tools": [
            {"name": tool["name"], "ident": each} for each, tool in server["tools"].items()]}
            for ident, server in self.servers.items()]

    def answer(self, question):
        if "call" in question:
            return self.call(question["call"])
        if "list" in question:
            return {"servers": self.listed()}
        if "search" in question:
            return {"text": "found %s\n" % question["search"]["query"], "hits": [
                {"server": "github", "tool": "list_issues", "path": "github.list_issues", "description": "lists"}]}
        if "describe" in question:
            return {"text": "described %s\n" % question["describe"]["name"]}
        return self.skills(question["skills"])

    def skills(self, question):
        (verb, about), = question.items()
        if verb == "list":
            return {"skills": [dict(skill, tools=[]) for name, skill in SKILLS.items() if name != "wave"]}
        if verb == "get" and about["name"] in SKILLS:
            return {"skill": SKILLS[about["name"]]}
        if verb == "save":
            return {"saved": about}
        if verb == "remove":
            return {"removed": about["name"]}
        return {"error": {"type": "ToolError", "message": "there is no such skill", "retryable": False}}

    def call(self, call):
        tool, arguments = call.get("tool") or call["name"].rpartition(".")[2], call["arguments"]
        if tool == "fail":
            return {"error": arguments["error"]}
        if tool == "broken":
            return None
        if tool == "nowhere":
            return {"error": {"type": "UnknownTool", "message": "there is no such tool", "retryable": False,
                              "suggestions": ["github.text"]}}
        value = arguments["text"] if tool == "text" else {"server": call.get("server"), "tool": tool, "got": arguments}
        if tool == "big":
            value = "x" * arguments["size"]
            os.makedirs("/tmp/results", exist_ok=True)
            path = "/tmp/results/%s.json" % len(self.seen)
        if call.get("raw"):
            value = {"value": value, "text": "as text", "content": [{"type": "text", "text": "as text"}],
                     "structured": None, "is_error": False, "meta": {"a": 1}, "files": []}
        if tool == "big":
            with open(path, "w") as file:
                json.dump(value, file)
            return {"spooled": path, "bytes": os.path.getsize(path)}
        return {"raw": value} if call.get("raw") else {"value": value, "parsed": False}


class Connection(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            return
        question = json.loads(line)
        self.server.seen.append(question)
        call = question.get("call") or {}
        if call.get("tool") == "hang":
            # Until whoever asks hangs up.
            self.request.recv(1)
            with self.server.news:
                self.server.withdrawn.append("hang")
                self.server.news.notify_all()
            return
        answer = self.server.answer(question)
        self.wfile.write(b'{"val' if answer is None else json.dumps(answer).encode() + b"\n")
