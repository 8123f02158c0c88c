# Where there are no sockets: a descriptor of the place's own takes one question at a time and gives its answer.
import posix

LINE = posix.open("/belljar/lines/ask", posix.O_RDWR)


class Line:
    def sendall(self, line):
        line = memoryview(line)
        while line: line = line[posix.write(LINE, line):]

    def recv(self, most):
        return posix.read(LINE, most)

    def close(self):
        pass

    def shutdown(self, how):
        pass


connect = Line
