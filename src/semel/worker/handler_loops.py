"""Where handlers run: never on the worker's own loop, so that nothing they do keeps a heartbeat from leaving.

Synchronous ones have a thread each, asynchronous ones share a loop on a thread of its own. All threads are
daemons: a handler that does not end cannot keep the process from ending.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

# An idle loop ends at once; one whose handler blocks it is not waited for.
_END_S = 1.0


class HandlerEnd(NamedTuple):
    """What a handler returned, or what it raised: anything, also SystemExit, for it ends only its attempt."""

    value: Any
    error: BaseException | None = None


class HandlerLoops:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="semel-handlers", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        if not asyncio.all_tasks(self._loop):
            self._loop.close()

    def run(self, function: Callable[[], Awaitable[Any]]) -> Future[HandlerEnd]:
        """Its end, in time; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(_awaited(function), self._loop)

    def call(self, function: Callable[[], Any]) -> Future[HandlerEnd]:
        """Its end, in time. It cannot be stopped."""
        ended: Future[HandlerEnd] = Future()
        ended.set_running_or_notify_cancel()
        thread = threading.Thread(
            target=lambda: ended.set_result(_called(function)), name="semel-handler", daemon=True
        )
        thread.start()
        return ended

    def close(self) -> None:
        """What still runs is left alone; it ends with the process."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)


def _called(function: Callable[[], Any]) -> HandlerEnd:
    try:
        return HandlerEnd(function())
    except BaseException as error:
        return HandlerEnd(None, error)


async def _awaited(function: Callable[[], Awaitable[Any]]) -> HandlerEnd:
    try:
        return HandlerEnd(await function())
    except BaseException as error:
        return HandlerEnd(None, error)
