"""Starts what the conformance suite talks to, runs it, and says what came of it. See scripts/conformance."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

HOME = sys.argv[1]
QUICK = "--quick" in sys.argv
BELLJAR = os.environ["BELLJAR"]
PROGRAMS = os.environ["PROGRAMS"]
SUITE = os.path.join(HOME, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
REQUIREMENTS = ["2026-07-28", "2025-11-25"]
# Of one run of the suite.
LIMIT = 240

# What says nothing of fixtures, against the product as it is.
BARE = {
    "2026-07-28": [
        "tools-list", "resources-list", "prompts-list", "sep-2164-resource-not-found", "dns-rebinding-protection",
        "caching", "server-sse-multiple-streams", "http-header-validation", "input-required-result-unsupported-methods",
    ],
    "2025-11-25": [
        "server-initialize", "ping", "logging-set-level", "tools-list", "resources-list", "prompts-list",
        "dns-rebinding-protection", "server-session-lifecycle", "server-sse-multiple-streams", "server-sse-polling",
    ],
}

LINE = re.compile(r"^([✓✗]) ([\w/.-]+): (\d+) passed, (\d+) failed(?:, (\d+) warnings)?")


class Running:
    """A server that is ended with the block, and whose log is there if it is asked for."""

    def __init__(self, name, command, env=None):
        self.log = open(os.path.join(HOME, "results", name + ".log"), "w+")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def said(self):
        self.log.flush()
        with open(self.log.name) as log:
            return log.read()

    def wait_for(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern, self.said())
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit(f"error: {self.log.name}: nothing like {pattern!r} was said:\n{self.said()[-2000:]}")


def suite(name, *arguments):
    """One run of the suite; which scenarios failed that count, and all lines of its summary."""
    out = subprocess.run(
        ["node", SUITE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
    ).stdout
    with open(os.path.join(HOME, "results", name + ".txt"), "w") as log:
        log.write(out)
    lines = [LINE.match(line) for line in out.splitlines()]
    scenarios = {found[2]: (found[1] == "✓", int(found[3]), int(found[4])) for found in lines if found}
    if not scenarios:
        raise SystemExit(f"error: {name}: the suite has no summary:\n{out[-3000:]}")
    unscored = set()
    if "Not scored for" in out:
        unscored = set(re.findall(r"^  [✓✗] ([\w/.-]+) \(", out.split("Not scored for", 1)[1], re.M))
    return scenarios, unscored


def told(name, scenarios, unscored):
    required = {key: value for key, value in scenarios.items() if key not in unscored}
    others = {key: value for key, value in scenarios.items() if key in unscored}
    failed = sorted(key for key, value in required.items() if not value[0])
    checks = sum(value[1] for value in required.values())
    line = f"{name}: {len(required) - len(failed)} of {len(required)} required scenarios, {checks} checks passed"
    if others:
        passed = sorted(key for key, value in others.items() if value[0])
        line += f"; besides, {len(passed)} of {len(others)} that do not count"
        for key in sorted(set(others) - set(passed)):
            line += f"\n    not counted: {key}"
    for key in failed:
        line += f"\n    FAILED: {key}"
    print(line, flush=True)
    return [f"{name}: {key}" for key in failed]


def serve(name, *arguments, home):
    env = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home + "/cache", "XDG_STATE_HOME": home + "/state"}
    return Running(name, [BELLJAR, "serve", "--http", "127.0.0.1:0", *arguments], env)


def free_port():
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    failed = []
    begun = time.monotonic()
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        servers = os.path.join(home, "servers.json")
        with open(servers, "w") as file:
            entry = {"url": f"http://127.0.0.1:{port}/mcp", "forward": True, "trusted": True, "allow": ["*"]}
            json.dump({"mcpServers": {"fixtures": entry}}, file)
        fixtures = Running("fixtures", [os.path.join(PROGRAMS, "conformance-fixtures"), f"127.0.0.1:{port}"])
        with fixtures, serve("forwarding", "--mcp-config", servers, home=home) as forwarding:
            url = forwarding.wait_for(r"http://\S+/mcp")[0]
            for version in REQUIREMENTS:
                name = f"server {version}, forwarded"
                failed += told(name, *suite(f"forwarded-{version}", "server", "--url", url, "--requirements", version))
        with serve("bare", home=home) as bare:
            url = bare.wait_for(r"http://\S+/mcp")[0]
            for version in REQUIREMENTS:
                scenarios = {}
                for scenario in BARE[version]:
                    one = ["server", "--url", url, "--scenario", scenario, "--spec-version", version]
                    scenarios[scenario] = single(f"bare-{version}-{scenario}", *one)
                failed += told(f"server {version}, bare", scenarios, set())
            failed += lint(url)
    if not QUICK:
        client = os.path.join(PROGRAMS, "conformance-client")
        for version in REQUIREMENTS:
            run = suite(f"client-{version}", "client", "--command", client, "--requirements", version)
            failed += told(f"client {version}", *again(client, version, *run))
    print(f"{time.monotonic() - begun:.0f} s")
    if failed:
        raise SystemExit("error: required scenarios failed:\n  " + "\n  ".join(failed))


def single(name, *arguments):
    done = subprocess.run(
        ["node", SUITE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
    )
    with open(os.path.join(HOME, "results", name + ".txt"), "w") as log:
        log.write(done.stdout)
    found = re.search(r"[Pp]assed: (\d+)(?:/(\d+))?(?:.*?(\d+) failed)?", done.stdout)
    return (done.returncode == 0, int(found[1]) if found else 0, 0)


def again(client, version, scenarios, unscored):
    """All clients are started at once, which a busy machine may be too slow for: those that failed are tried alone."""
    for key, value in scenarios.items():
        if key not in unscored and not value[0]:
            alone = ["client", "--command", client, "--scenario", key, "--spec-version", version]
            scenarios[key] = single(f"client-{version}-{key.replace('/', '-')}", *alone)
    return scenarios, unscored


def lint(url):
    """What the Inspector has against the schemas of our tools."""
    done = subprocess.run(
        ["mcp-inspector", "--cli", url, "--transport", "http", "--protocol-era", "modern", "--method", "tools/list",
         "--strict"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )
    with open(os.path.join(HOME, "results", "lint.txt"), "w") as log:
        log.write(done.stdout)
    print(f"inspector --strict: {'clean' if done.returncode == 0 else 'FAILED'}", flush=True)
    return [] if done.returncode == 0 else ["inspector --strict: " + done.stdout[-500:]]


main()
