# Top-level await: one event loop for the life of the kernel, so that tasks go on while a later cell awaits.
load("errors")
asyncio = module("asyncio")
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)


async def settle(coroutine, outcome):
    # Nothing is raised into the loop: it would add its frames, and stop.
    try:
        outcome.append((await coroutine, None))
    except BaseException as error:
        outcome.append((None, error))


def wait(coroutine):
    outcome = []
    asyncio.set_event_loop(loop)
    task = loop.create_task(settle(coroutine, outcome))
    try:
        loop.run_until_complete(task)
    except BaseException as error:
        if not task.done():
            # Interrupted while it was waiting. The task is told, and says where it was.
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=0.3))
            trace = outcome[0][1].__traceback__ if outcome and outcome[0][1] else None
            raise error.with_traceback(trace)
        if not outcome: raise
    value, error = outcome[0]
    if error is not None: raise error
    return value


async def inside(code, names):
    value = eval(code, names)
    return await value if code.co_flags & 0x80 else value


def within(code, names):
    return wait(inside(code, names))


async def cancel_tasks():
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks: task.cancel()
    if tasks: await asyncio.wait(tasks, timeout=1)
    await loop.shutdown_asyncgens()
