# A kernel whose whole machine is copied while it waits for its first cell. Each copy comes to itself when that is there:
# with random numbers of its own, and from the beginning where the sandbox has packages that were loaded from elsewhere.
streams = []


def step_aside():
    # Packages may write while they load, and no cell is to have said that.
    streams[:] = [posix.dup(fd) for fd in (0, 1, 2)]
    nowhere = posix.open("/dev/null", posix.O_RDWR)
    for fd in 0, 1, 2: posix.dup2(nowhere, fd)
    posix.close(nowhere)


def come_back():
    while streams:
        posix.dup2(streams[-1], len(streams) - 1)
        posix.close(streams.pop())


def wake(kernel):
    import select
    come_back()
    # As serve() says it, and will again: whoever makes the copies may do so from now on.
    posix.write(3, b"ready %d\n%d" % (len(str(zygote)), zygote))
    while not select.select([3], [], [])[0]: pass
    # What a fork would have done by itself.
    random.seed()
    if "_ssl" in sys.modules: sys.modules["_ssl"].RAND_add(posix.urandom(32), 32.0)
    return become(kernel, given_text)
