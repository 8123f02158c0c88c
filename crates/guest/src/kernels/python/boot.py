# The `-c` of a kernel, and of a zygote, which has an argument: reads the library on descriptor 4 and hands over to its
# first part.
def boot():
    import posix, builtins, sys
    text = b""
    while True:
        part = posix.pread(4, 1 << 20, len(text))
        if not part: break
        text += part
    posix.close(4)
    # A copy of the builtins, so that the driver does not feel what the code does to the real ones.
    driver = {"__builtins__": builtins.__dict__.copy(), "__name__": "belljar"}
    parts = driver["parts"] = dict([part.split("\n", 1) for part in text.decode().split("\0")[1:]])
    text = part = None
    first = "zygote" if sys.argv[1:] else "core"
    exec(compile(parts[first], "<belljar " + first + ">", "exec", 0, True), driver)
    return driver["serve"]
boot()()
