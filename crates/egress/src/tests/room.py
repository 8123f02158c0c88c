"""A network of its own, as a sandbox with a network has it: makes the doors, hands them out, and then runs what it is told.

room.py SOCKET RESOLV_CONF PORT... ; each line of the input is a command as JSON, each line of the output what it printed.
"""

import array
import json
import os
import socket
import subprocess
import sys

path, resolver, *ports = sys.argv[1:]
with open(resolver, "w") as file:
    file.write("nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["ip", "route", "add", "local", "198.18.0.0/15", "dev", "lo"], check=True)

doors = []
for address in [("127.0.0.1", 3128)] + [("0.0.0.0", int(port)) for port in ports]:
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(address)
    door.listen(128)
    doors.append(door)
names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
names.bind(("127.0.0.1", 53))
doors.append(names)
for door in doors:
    door.setblocking(False)

with socket.socket(socket.AF_UNIX) as out:
    out.connect(path)
    out.sendmsg([b"d"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [door.fileno() for door in doors]))])
for door in doors:
    door.close()

for line in sys.stdin:
    command = json.loads(line)
    ran = subprocess.run(
        command["words"], env={**os.environ, **command["env"]}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
    )
    print(json.dumps(ran.stdout.decode("utf-8", "replace")), flush=True)
