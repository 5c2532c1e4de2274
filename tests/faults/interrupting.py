"""A ctrl-C, or a handler that comes back in, at a chosen step of a call.

Wherever Python looks for signals, one can arrive; and wherever it runs, it may collect garbage.
"""

from __future__ import annotations

import dis
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

_BACK = dis.opmap["JUMP_BACKWARD"]


class Moment(NamedTuple):
    """The n-th time that a step of the program is reached."""

    file: str
    line: int
    step: int
    time: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} step {self.step}, time {self.time}"


def moments_of(run: Callable[[], Any]) -> list[Moment]:
    """Where this thread could be interrupted in it: each step when it is reached first, and last."""
    reached: dict[tuple[str, int, int], Moment] = {}

    def look(moment: Moment) -> None:
        reached[moment[:3]] = moment

    _watched(run, look)
    return sorted({moment._replace(time=1) for moment in reached.values()} | set(reached.values()))


def interrupted_at(moment: Moment, run: Callable[[], T]) -> T | None:
    """What it answers with an interrupt at that moment; None if that came not at all, or outside."""
    came = False

    def look(now: Moment) -> None:
        nonlocal came
        if now == moment and not came:
            came = True
            raise KeyboardInterrupt

    def run_through() -> T | None:
        try:
            return run()
        except KeyboardInterrupt:
            return None

    answer = _watched(run_through, look)
    return answer if came else None


def re_entered_at(moment: Moment, run: Callable[[], T], deed: Callable[[], None]) -> tuple[T, bool]:
    """What it answers, with a deed done at that moment on this thread; and whether that moment came."""
    came = False

    def look(now: Moment) -> None:
        nonlocal came
        if now == moment and not came:
            came = True
            deed()

    return _watched(run, look), came


def on_threads_to_come(look: Callable[[Moment], None]) -> None:
    """Look at every step of every thread that is started from here on."""
    profile, enter = _hooks(look)
    threading.settrace(enter)
    threading.setprofile(profile)


def _in_a_finalizer(frame: FrameType | None) -> bool:
    """Where Python swallows whatever is raised."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _watched(run: Callable[[], T], look: Callable[[Moment], None]) -> T:
    """Run it, looking wherever Python looks for signals."""
    profile, enter = _hooks(look)
    # Whoever listens to the collector is called in the middle of anything, and an interrupt there is lost.
    gc.disable()
    sys.settrace(enter)
    sys.setprofile(profile)
    try:
        return run()
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        gc.enable()


def _hooks(look: Callable[[Moment], None]) -> tuple[Any, Any]:
    """To look where a function begins, where a loop goes round, and after a call of a function that is not
    written in Python."""
    times: dict[tuple[str, int, int], int] = {}

    def here(frame: FrameType) -> None:
        if _in_a_finalizer(frame):
            return
        step = (frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lasti)
        times[step] = times.get(step, 0) + 1
        look(Moment(*step, times[step]))

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return"):
            here(frame)

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code.co_code

        def loop_back(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "opcode" and code[frame.f_lasti] == _BACK:
                here(frame)
            return loop_back

        return loop_back

    return profile, enter
