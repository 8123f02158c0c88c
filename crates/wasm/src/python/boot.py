# The `-c` of a kernel in WebAssembly: the driver of other places, whose parts come on a descriptor of the worker's, with what
# WASI has no word for put right before the first of them is used. Most of them have been compiled ahead.
def boot():
    import posix, builtins, marshal
    library = posix.open("/belljar/lines/library", posix.O_RDONLY)
    text = b""
    while True:
        part = posix.read(library, 1 << 20)
        if not part: break
        text += part
    posix.close(library)
    # A copy of the builtins, so that the driver does not feel what the code does to the real ones.
    driver = {"__builtins__": builtins.__dict__.copy(), "__name__": "belljar"}
    class Parts(dict):
        # Each is unpacked when it is used.
        def __getitem__(self, name):
            part = dict.__getitem__(self, name)
            return marshal.loads(part) if type(part) is bytes else part
    if text[:1] == b"\0":
        parts = Parts([part.split("\n", 1) for part in text.decode().split("\0")[1:]])
    else:
        parts = Parts(marshal.loads(text))
    driver["parts"] = parts
    text = part = None
    for first in "core", "serve":
        code = parts[first]
        del parts[first]
        exec(compile(code, "<belljar " + first + ">", "exec", 0, True) if type(code) is str else code, driver)
    return driver["serve"]
boot()()
