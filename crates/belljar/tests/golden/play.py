#!/usr/bin/env python3
"""Plays the transcripts of the profiles against a server, and compares what it answers.

    play.py [--update] [--only NAME] -- belljar serve --profile {profile}

A transcript is a file of JSON lines, `<profile>.jsonl`: {"send": {"method", "params"}, "expect": ...}. Ids and times
are masked in answers, <sandbox-1> and <session-1> in a request stand for what an earlier answer had there, and "<any>"
in an expectation stands for anything. --update writes down what came instead of comparing it.
"""

import json
import os
import queue
import re
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS_MAX = 120
MASKS = (
    (re.compile(r"run_[0-9a-f]{32}"), "<run>"),
    (re.compile(r"inline_\d+\."), "inline_<time>."),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+0000 UTC"), "<time>"),
)


class Failure(Exception):
    pass


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = queue.Queue()
        self.number = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, message):
        self.process.stdin.write(json.dumps(dict(message, jsonrpc="2.0")).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while True:
            try:
                line = self.lines.get(timeout=SECONDS_MAX)
            except queue.Empty:
                raise Failure("no answer to %s in %d s" % (method, SECONDS_MAX))
            if line is None:
                raise Failure("the server ended at %s" % method)
            message = json.loads(line)
            if message.get("id") == self.number:
                return message

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def normal(message):
    """An answer without what the transport and the revision of the protocol put around it."""
    if "error" in message:
        return {"error": {"code": message["error"]["code"], "message": message["error"]["message"]}}
    result = message["result"]
    if "content" not in result:
        kept = ("tools", "resources", "resourceTemplates", "contents")
        return {key: result[key] for key in kept if key in result}
    content = [block(each) for each in result["content"]]
    told = {"content": content, "isError": result.get("isError", False)}
    if "structuredContent" in result:
        first = content[0].get("json") if content else None
        told["structured"] = True if first == result["structuredContent"] else result["structuredContent"]
    return told


def block(each):
    if each["type"] == "image":
        return {"image": each["mimeType"], "chars": len(each["data"])}
    if each["type"] != "text":
        return each
    try:
        value = json.loads(each["text"])
    except ValueError:
        value = None
    return {"json": value} if isinstance(value, (dict, list)) else {"text": each["text"]}


class Names:
    """Ids of this play, and what stands for them in the transcript."""

    def __init__(self):
        self.known = {}

    def learn(self, kind, found):
        if found not in self.known:
            count = sum(1 for mask in self.known.values() if mask.startswith("<" + kind))
            self.known[found] = "<%s-%d>" % (kind, count + 1)

    def study(self, value):
        if isinstance(value, dict):
            session = value.get("session_id")
            if isinstance(session, str) and re.fullmatch(r"[A-Za-z0-9_-]{16}", session):
                self.learn("session", session)
            for each in value.values():
                self.study(each)
        elif isinstance(value, list):
            for each in value:
                self.study(each)
        elif isinstance(value, str):
            for found in re.findall(r"sb_[0-9a-f]{32}", value):
                self.learn("sandbox", found)

    def mask(self, value):
        if isinstance(value, dict):
            return {key: "<id>" if key in ("owner", "group") else 0 if key == "duration" else self.mask(each)
                    for key, each in value.items()}
        if isinstance(value, list):
            return [self.mask(each) for each in value]
        if isinstance(value, str):
            for found, mask in self.known.items():
                value = value.replace(found, mask)
            for pattern, mask in MASKS:
                value = pattern.sub(mask, value)
        return value

    def fill(self, value):
        text = json.dumps(value)
        for found, mask in self.known.items():
            text = text.replace(mask, found)
        return json.loads(text)


def differences(expected, got, at=""):
    if expected == "<any>" or expected == got:
        return []
    if isinstance(expected, dict) and isinstance(got, dict):
        found = []
        for key in list(expected) + [key for key in got if key not in expected]:
            if key not in expected or key not in got:
                where = "expected" if key in expected else "in the answer: %r" % got[key]
                found.append("%s.%s is only %s" % (at, key, where))
            else:
                found += differences(expected[key], got[key], "%s.%s" % (at, key))
        return found
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return [line for n, pair in enumerate(zip(expected, got)) for line in differences(*pair, at="%s[%d]" % (at, n))]
    return ["%s\n    expected %s\n    got      %s" % (at, json.dumps(expected), json.dumps(got))]


def play(profile, command, update):
    path = os.path.join(HERE, profile + ".jsonl")
    with open(path) as file:
        steps = [json.loads(line) for line in file if line.strip()]
    server = Server([word.replace("{profile}", profile) for word in command])
    names, failures = Names(), 0
    try:
        begun = server.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                          "clientInfo": {"name": "play", "version": "1"}})
        if "result" not in begun:
            raise Failure("not begun: %r" % begun)
        server.send({"method": "notifications/initialized"})
        for number, step in enumerate(steps, 1):
            send = names.fill(step["send"])
            if send["method"] == "initialize":
                got = {"instructions": begun["result"].get("instructions")}
            else:
                got = normal(server.ask(send["method"], send.get("params", {})))
                names.study(got)
            got = names.mask(got)
            found = differences(step["expect"], got)
            if found and update:
                step["expect"] = got
            elif found:
                failures += 1
                print("%s, line %d: %s" % (profile, number, json.dumps(step["send"])[:300]))
                for line in found:
                    print("  " + line)
    finally:
        server.close()
    if update:
        with open(path, "w") as file:
            file.writelines(json.dumps(step, ensure_ascii=False) + "\n" for step in steps)
    print("%s: %d of %d as expected" % (profile, len(steps) - failures, len(steps)))
    return failures


def main(words):
    update, only = False, None
    while words and words[0] != "--":
        word = words.pop(0)
        if word == "--update":
            update = True
        elif word == "--only" and words:
            only = words.pop(0)
        else:
            sys.exit(__doc__)
    if len(words) < 2:
        sys.exit(__doc__)
    profiles = sorted(name[:-6] for name in os.listdir(HERE) if name.endswith(".jsonl"))
    failures = sum(play(profile, words[1:], update) for profile in profiles if only in (None, profile))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit("play: %s" % failure)
