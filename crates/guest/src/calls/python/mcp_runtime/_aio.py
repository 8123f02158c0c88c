# The same to be awaited: `await tools.aio.github.list_issues(owner="o")`. Cancelling the task withdraws the call.
import asyncio
import sys

from . import _names, _wire

# As many as the host answers at once, of which others may have some; by loop.
MOST = 8
turns = {}


def turn():
    loop = asyncio.get_running_loop()
    for each in [each for each in turns if each.is_closed()]: del turns[each]
    if loop not in turns: turns[loop] = asyncio.Semaphore(MOST)
    return turns[loop]


async def converse(line):
    writer = None
    # One thread, which has one question at a time.
    if sys.platform == "wasi": return _wire.converse(line)
    async with turn():
        try:
            reader, writer = await asyncio.open_unix_connection(_wire.SOCKET)
            writer.write(line)
            return await reader.read(), None
        except OSError as error:
            return None, _wire.unreachable(error)
        finally:
            if writer is not None: writer.close()


class AioTool(_names.Tool):
    __slots__ = ()

    async def __call__(*given, **arguments):
        value, error = await awaited(given, arguments, False)
        if error is None: return value
        raise error

    async def raw(*given, **arguments):
        """The same, and all of what the tool answered: a ToolResult."""
        value, error = await awaited(given, arguments, True)
        if error is None: return value
        raise error


async def awaited(given, arguments, raw):
    self = given[0]
    line, error = _names.question_for(self._to, given[1:], arguments, self._entry.get("parameters"), raw, self._timeout)
    if error is None: line, error = await converse(line)
    return (None, error) if error is not None else _names.outcome(line, raw)


class AioServer(_names.Server):
    _kind, _inside = AioTool, "tools.aio"


class Aio(_names.Tools):
    """The tools of other servers, to be awaited."""

    _kind = AioServer
