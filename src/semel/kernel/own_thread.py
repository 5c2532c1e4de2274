"""A blocking function, awaited: it runs on a thread of its own, and the event loop goes on."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any


class NoThread(Exception):
    """The system starts no more threads; the function was not called."""

    text = "The system starts no more threads; the tool did not run."
    fix = "Call fewer tools at once, or allow this process more threads."


End = tuple[Any, BaseException | None]


async def on_own_thread(function: Callable[..., Any], *args: Any) -> Any:
    """What the function returns or raises, called in the present context. Raises NoThread.

    Of its own, not one of the loop's: those are few, so a function would wait for others to end, and what
    else needs them (the look-up of a host's name) would wait for it. Whoever is cancelled does not wait for
    the function, which goes on.
    """
    ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
    call = contextvars.copy_context().run
    thread = threading.Thread(target=_work, args=(ended, call, function, *args), name="semel-tool")
    try:
        thread.start()
    except RuntimeError as full:
        raise NoThread from full
    value, raised = await ended
    if raised is None:
        return value
    try:
        raise raised
    finally:
        del raised, ended  # which know this frame


def _work(ended: asyncio.Future[Any], call: Callable[..., Any], *function: Any) -> None:
    # As a value, whatever it raises: a future does not take a StopIteration.
    end: End
    try:
        end = call(*function), None
    except BaseException as error:
        end = None, error
    try:
        ended.get_loop().call_soon_threadsafe(_tell, ended, end)
    except RuntimeError:
        pass  # the loop is closed, so nobody waits
    finally:
        del end  # which knows this frame


def _tell(ended: asyncio.Future[Any], end: End) -> None:
    if not ended.done():  # it may have been cancelled
        ended.set_result(end)
