# What an interpreter is and has, as JSON on stdout.
import json
import os
import pkgutil
import platform
import shutil
import sys
import sysconfig

names = set(getattr(sys, "stdlib_module_names", ())) | set(sys.builtin_module_names)
names |= {module.name for module in pkgutil.iter_modules()}
# Not what stands in for it in a sandbox, which asks us.
path = os.pathsep.join(one for one in os.environ.get("PATH", "").split(os.pathsep) if not one.startswith("/belljar/"))
json.dump({
    "made_for": "|".join(["python", sys.implementation.cache_tag or "", sysconfig.get_config_var("SOABI") or "",
                          sysconfig.get_platform(), "-".join(platform.libc_ver())]),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "machine": platform.machine(),
    "modules": sorted(name for name in names if not name.startswith("_")),
    "uv": shutil.which("uv", path=path),
    "pip": "pip" in names,
}, sys.stdout)
