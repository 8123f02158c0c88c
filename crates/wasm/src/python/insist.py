# An interrupt that the code caught: the worker sends it again, and then it is raised in a way that an `except
# KeyboardInterrupt: pass` in a loop does not outlive.
def insist(frame):
    if pending > 1 and running:
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
