# Twice what the sandbox may have, and touched, since memory that nobody has touched is only a promise. Some walls look at the
# memory from time to time, and end who has too much only then.
import time
taken = []
try:
    for _ in range(32):
        taken.append(b"\1" * (8 << 20))
    time.sleep(2)
    print("took")
except MemoryError:
    print("refused")
