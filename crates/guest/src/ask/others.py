# What pip knows besides installing: by the interpreter's own pip, where it has one, or else by what its packages say.
import sys

sys.path[:] = [path for path in sys.path if path not in ("", "/belljar/lib")]


def known():
    from importlib.metadata import distributions
    found = {}
    # The first of a name is the one that is imported.
    for each in distributions():
        if each.metadata["Name"]: found.setdefault(each.metadata["Name"].lower().replace("_", "-"), each)
    return [found[name] for name in sorted(found)]


def show(names):
    missing = 0
    for name in names:
        found = [each for each in known() if each.metadata["Name"].lower().replace("_", "-") == name.lower().replace("_", "-")]
        for each in found:
            print("Name: %s\nVersion: %s\nSummary: %s\nLocation: %s\nRequires: %s" % (each.metadata["Name"], each.version,
                each.metadata["Summary"], each.locate_file(""), ", ".join(each.requires or ())))
        if not found: missing = 1
        if not found: print("WARNING: Package(s) not found: " + name, file=sys.stderr)
    return missing


def tell(words):
    plain = [word for word in words if word[:1] != "-"]
    command = plain[0] if plain else ""
    if not plain and ("--version" in words or "-V" in words):
        print("pip (of this sandbox) (python %d.%d)" % sys.version_info[:2])
    elif command == "list":
        rows = [("Package", "Version")] + [(each.metadata["Name"], each.version) for each in known()]
        wide = max([len(name) for name, version in rows])
        rows.insert(1, ("-" * wide, "-" * max([len(version) for name, version in rows])))
        for name, version in rows: print(name.ljust(wide) + " " + version)
    elif command == "freeze":
        for each in known(): print("%s==%s" % (each.metadata["Name"], each.version))
    elif command == "show":
        return show(plain[1:])
    else:
        print("pip %s: this Python has no pip of its own; there are pip install, list, freeze and show" % command,
            file=sys.stderr)
        return 1


def main():
    import importlib.util, runpy
    words = sys.argv[1:]
    if not importlib.util.find_spec("pip"): sys.exit(tell(words))
    sys.argv[:] = ["pip", *words]
    runpy.run_module("pip", run_name="__main__", alter_sys=True)


main()
