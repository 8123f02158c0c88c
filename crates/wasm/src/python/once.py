# Runs the code on a descriptor of the worker's as __main__.
def main():
    import posix, sys
    library = posix.open("/belljar/lines/library", posix.O_RDONLY)
    source = b""
    while True:
        part = posix.read(library, 65536)
        if not part: break
        source += part
    posix.close(library)
    try:
        posix.chdir(sys.argv[3])
    except OSError as error:
        sys.stderr.write("%s: %s\n" % (sys.argv[3], error.strerror))
        sys.exit(1)
    packages = "/belljar/packages/lib/python%d.%d/site-packages" % sys.version_info[:2]
    if packages not in sys.path: sys.path.append(packages)
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
