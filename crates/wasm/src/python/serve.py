# In place of what core.py has for processes: there are none here, nor descriptors to put aside.
import posix as real

posix = type(sys)("posix")
posix.__dict__.update(real.__dict__)
posix.getpid = lambda: 1
posix.dup2 = lambda *descriptors: None
# The worker ends the interpreter when it has read all that was said.
posix._exit = real._exit
pid = 1


def serve():
    global control, received
    _signal.signal(2, _signal.SIG_IGN)
    control = real.open("/belljar/lines/control", real.O_RDWR)
    posix.chdir("/workspace")
    arrange()
    posix.write(control, b"ready 1\n1")
    received = posix.read(control, 1 << 16)
    header, line, text = received.partition(b"\n")
    header = header.split()
    if header[3:] != [b"1"] or len(text) != int(header[1]):
        load("live")
        return serve_cells()
    only(text.decode("utf-8", "replace"))
    posix._exit(0)
