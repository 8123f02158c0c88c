# Builds a Python layer, inside the walls: job as JSON on stdin, the resolver's words on stderr, what came of it as JSON on
# stdout. Whatever setup.py does, it does here.
import json
import os
import re
import shutil
import subprocess
import sys

job = json.load(sys.stdin)
build, layer = job["build"], job["build"] + "/layer"
version = "python%d.%d" % sys.version_info[:2]


def say(phase):
    print("belljar:" + phase, file=sys.stderr, flush=True)


def run(*command):
    return subprocess.call(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def write(name, text):
    path = build + "/" + name
    with open(path, "w") as file:
        file.write(text)
    return path


os.makedirs(build + "/tmp", exist_ok=True)
# Not what stands in for pip in a sandbox, which asks for a build.
path = [one for one in os.environ.get("PATH", "").split(os.pathsep) if not one.startswith("/belljar/")]
os.environ.pop("PYTHONPATH", None)
os.environ.pop("PYTHONUSERBASE", None)
os.environ.update(
    PATH=os.pathsep.join(path),
    TMPDIR=build + "/tmp", UV_CACHE_DIR=build + "/cache", UV_LINK_MODE="hardlink", UV_NO_CONFIG="1",
    UV_PYTHON_DOWNLOADS="never", NO_COLOR="1", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1",
    PIP_NO_CACHE_DIR="1", PIP_CONFIG_FILE="/dev/null")
requirements, constraints = write("requirements.txt", job["requirements"]), write("constraints.txt", job["constraints"])
if job["below"] and job["uv"]:
    say("resolving")
    # Before all of that is copied: most of what fails fails here.
    code = run(job["uv"], "pip", "compile", "--quiet", "--python", sys.executable, requirements, "-c", constraints,
               "-o", build + "/tmp/resolved.txt")
    if code != 0:
        sys.exit(code if 0 < code < 126 else 1)
if job["below"]:
    say("preparing")
    # Twice as fast as Python. Times do not matter: what is compiled there names none.
    if run("cp", "-R", "--preserve=mode,links", "--reflink=auto", job["below"], layer) != 0:
        sys.exit(1)
    run("chmod", "-R", "u+rwX", layer)
else:
    os.makedirs(layer, exist_ok=True)
site = "%s/lib/%s/site-packages" % (layer, version)
os.makedirs(site, exist_ok=True)
compiled = set(os.listdir(site))
say("resolving")
files = ["-r", requirements, "-c", constraints]
files += ["--require-hashes", "--only-binary", ":all:"] if job["hashed"] else []
if job["uv"]:
    code = run(job["uv"], "pip", "install", "--prefix", layer, "--python", sys.executable, *files)
else:
    code = run(sys.executable, "-I", "-m", "pip", "install", "--prefix", layer, "--no-warn-script-location",
               "--ignore-installed", *files)
if code != 0:
    sys.exit(code if 0 < code < 126 else 1)

# Some of the distributions' own Pythons have a scheme of their own.
for other in ["local/lib/%s/dist-packages", "lib/%s/dist-packages", "local/lib/%s/site-packages", "lib64/%s/site-packages"]:
    other = layer + "/" + other % version
    if not os.path.isdir(other) or os.path.islink(layer + "/lib64"):
        continue
    for name in os.listdir(other):
        if not os.path.lexists(site + "/" + name):
            os.rename(other + "/" + name, site + "/" + name)
if os.path.isdir(layer + "/local/bin") and not os.path.lexists(layer + "/bin"):
    os.rename(layer + "/local/bin", layer + "/bin")

say("compiling")
try:
    import multiprocessing
    multiprocessing.Lock()
    workers = "0"
except (ImportError, OSError):
    workers = "1"
# Layers are never written to: whether the source is newer need not be looked at, at each import of each sandbox.
fresh = sorted(site + "/" + name for name in set(os.listdir(site)) - compiled if not name.endswith((".dist-info", ".libs")))
if fresh:
    run(sys.executable, "-m", "compileall", "-q", "-j", workers, "--invalidation-mode", "unchecked-hash", "-x", "/tests?/", *fresh)

import importlib.metadata

def normal(name):
    return re.sub("[-_.]+", "-", name).lower()


# What the layer is made for, which whoever uses it often loads ahead.
wanted = {normal(re.match("[A-Za-z0-9._-]*", line.strip()).group()) for line in job["requirements"].splitlines()}
packages, asked = {}, []
for distribution in importlib.metadata.distributions(path=[site]):
    name = distribution.metadata["Name"]
    if not name:
        continue
    packages[normal(name)] = distribution.version or ""
    if normal(name) in wanted and not job["hashed"]:
        files = [file.parts for file in distribution.files or []]
        asked += [parts[0] for parts in files if parts[1:] == ("__init__.py",)]
        asked += [parts[0][:-3] for parts in files if len(parts) == 1 and parts[0].endswith(".py")]
with open(layer + "/preload", "w") as file:
    file.write("".join(name + "\n" for name in sorted(set(asked))))
modules = set()
for entry in os.scandir(site):
    name = entry.name.split(".")[0]
    is_module = entry.name == name if entry.is_dir() else entry.name.endswith((".py", ".so"))
    if is_module and name.isidentifier() and name != "__pycache__":
        modules.add(name)
say("storing")
subprocess.call(["chmod", "-R", "a+rX", layer])
for name in ["cache", "tmp"]:
    shutil.rmtree(build + "/" + name, ignore_errors=True)
json.dump({"packages": sorted(packages.items()), "modules": sorted(modules)}, sys.stdout)
