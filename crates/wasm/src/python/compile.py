# Compiles the parts of the driver that are on standard input, each by itself.
import marshal, sys
parts = dict([part.split("\n", 1) for part in sys.stdin.buffer.read().decode().split("\0")[1:]])
for name, text in parts.items():
    # Which is run in the names of whoever uses it.
    if name != "called":
        parts[name] = marshal.dumps(compile(text, "<belljar " + name + ">", "exec", 0, True))
sys.stdout.buffer.write(marshal.dumps(parts))
sys.stdout.flush()
