# An interrupt that the code caught: told again, and then in a way that an `except KeyboardInterrupt: pass` in a loop
# does not outlive, since the guest would end the whole kernel for it.
import time


def insist(frame):
    if pending == 1:
        _thread.start_new_thread(remind, (number,))
    elif running:
        # Raises at the next line of any frame, which may be the one within the except.
        while frame is not None:
            if frame.f_globals is not globals(): frame.f_trace = refuse
            frame = frame.f_back
        sys.settrace(refuse)
        sys.setprofile(again)


def again(frame, event, argument):
    # Python drops a trace that raised: set anew when the frame that it left returns to its caller.
    if running: sys.settrace(refuse)


def refuse(frame, event, argument):
    if frame.f_globals is globals(): return None
    if event == "line": raise KeyboardInterrupt
    return refuse


def remind(cell):
    # The guest waits for about a second; most of it is the code's, to clean up.
    time.sleep(0.6)
    for _ in range(20):
        if not running or number != cell: return
        _thread.interrupt_main()
        time.sleep(0.02)
