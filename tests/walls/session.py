"""The built program behind a wall, from outside and with nothing but Python's own library: session.py BELLJAR CONFIGURATION

One program by `belljar run`, then a sandbox over MCP on stdio: two runs that share variables, a file there and back, a command, its
end. Prints a line for each with the milliseconds it took, and exits with 1 at the first that is not as it should be.
"""
import json, os, subprocess, sys, tempfile, threading, time

program, configuration = sys.argv[1:3]
SECONDS = 120
began = time.monotonic()


def done(what):
    global began
    print(f"{what:<40} {(time.monotonic() - began) * 1000:7.0f} ms", flush=True)
    began = time.monotonic()


def ask(condition, what):
    if not condition:
        print(f"FAILED: {what}", flush=True)
        sys.exit(1)


with open(configuration) as file:
    backend = next(line.split('"')[1] for line in file if line.startswith("backend"))

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "hello.py")
    with open(path, "w") as file:
        file.write("print('hello', 6 * 7)\n")
    words = [program, "--config", configuration, "--backend", backend, "run", path]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    ask((ran.returncode, ran.stdout) == (0, "hello 42\n"), f"belljar run: {ran}")
done("belljar run hello.py")

server = subprocess.Popen([program, "--config", configuration, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
# Whatever hangs ends here.
watch = threading.Timer(3 * SECONDS, server.kill)
watch.start()
number = 0


def request(method, params):
    global number
    number += 1
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n")
    server.stdin.flush()
    for line in server.stdout:
        message = json.loads(line)
        if message.get("id") == number:
            ask("result" in message, f"{method}: {message}")
            return message["result"]
    ask(False, f"{method}: the server ended")


def call(tool, **arguments):
    result = request("tools/call", {"name": tool, "arguments": arguments})
    return result, result.get("structuredContent", {}), result["content"][0]["text"] if result["content"] else ""


request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "walls", "version": "1"}})
server.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
done("initialize")

result, created, text = call("create_sandbox")
ask(not result.get("isError"), f"create_sandbox: {text}")
sandbox = created["sandbox_id"]
done("create_sandbox")

result, ran, text = call("run_code", language="python", code="kept = 41\nprint('first')", sandbox_id=sandbox)
told = ran.get("isolation", {}).get("backend", "")
ask(ran.get("stdout") == "first\n" and told.split(":")[0] == backend, f"run_code: {text} {ran}")
done("run_code")
result, ran, text = call("run_code", language="python", code="print(kept + 1)", sandbox_id=sandbox)
ask((ran.get("stdout"), ran.get("state")) == ("42\n", "preserved"), f"run_code again: {text} {ran}")
done("run_code, with its variables")

result, _, text = call("write_file", path="note.txt", content="a word\n", sandbox_id=sandbox)
ask(not result.get("isError"), f"write_file: {text}")
result, _, text = call("read_file", path="note.txt", sandbox_id=sandbox)
ask("a word" in text, f"read_file: {text}")
done("write_file and read_file")

result, ran, text = call("exec", command="cat note.txt; id -u", sandbox_id=sandbox)
if backend == "wasm":
    ask(result.get("isError") and ("process" in text or "command" in text), f"exec was not refused in words: {text}")
else:
    ask(ran.get("stdout") == "a word\n1000\n", f"exec: {text} {ran}")
done("exec")

result, _, text = call("destroy_sandbox", sandbox_id=sandbox)
ask(not result.get("isError"), f"destroy_sandbox: {text}")
result, _, text = call("run_code", language="python", code="1", sandbox_id=sandbox)
ask(result.get("isError"), f"a destroyed sandbox ran a program: {text}")
done("destroy_sandbox")

server.stdin.close()
ask(server.wait(timeout=30) == 0, f"the server ended with {server.returncode}")
watch.cancel()
done("end of the server")
