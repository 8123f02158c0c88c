# Runs the code on descriptor 3 as __main__. Python 3.8 and later; imports nothing that is not loaded already.
def main():
    import posix, sys
    source = b""
    while True:
        part = posix.read(3, 65536)
        if not part: break
        source += part
    posix.close(3)
    packages = "/belljar/packages/lib/python%d.%d/site-packages" % sys.version_info[:2]
    if packages not in sys.path:
        # Python itself does not look there in a virtual environment.
        import site
        own = [path.endswith("-packages") for path in sys.path] + [True]
        rest = sys.path[own.index(True):]
        del sys.path[own.index(True):]
        site.addsitedir(packages)
        sys.path += rest
    if sys.path[:1] != [""]: sys.path.insert(0, "")
    paths, failed = sys.path[1:], sys.argv[1]
    # Not for functools and itertools.
    if source.count(b"tool") > source.count(b"ctools") + source.count(b"rtools"):
        exec(compile(sys.argv[2], "<belljar called>", "exec"), {"__name__": "belljar"})
    sys.argv[:] = ["main.py"]
    sys.stdout.reconfigure(errors="backslashreplace")
    names = sys.modules["__main__"].__dict__
    # Where linecache asks for lines that no file has.
    names["__loader__"] = type(sys.implementation)(get_source=lambda name: source.decode())
    del names["main"]
    try:
        exec(compile(source, "main.py", "exec", 0, True), names)
    except SystemExit:
        raise
    except BaseException:
        exec(failed, {"paths": paths, "source": source})
        raise
main()
