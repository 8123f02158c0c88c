# belljar run examples/hello.py
import os
import socket
import sys

print(f"Hello from Python {sys.version.split()[0]}, as uid {os.getuid()} in {os.getcwd()}.")

with open("note.txt", "w") as note:
    note.write("This file lives in memory and is gone with the sandbox.\n")
print("I may write here:", os.listdir("."))

for path in ("/etc/shadow", os.path.expanduser("~root/.ssh/id_rsa"), "/usr/bin/planted"):
    try:
        open(path, "a")
        print("I can write", path)
    except OSError as refusal:
        print(f"but not there: {path}: {refusal.strerror}")

try:
    socket.create_connection(("192.0.2.1", 80), timeout=2)
    print("I reached the network")
except OSError as refusal:
    print("and nobody outside:", refusal.strerror)
