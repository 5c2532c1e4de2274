"""Where an exception came from: files, lines and functions. No message, argument, local or line of source."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

import semel
from semel.kernel.limits import TRACEBACK_BYTES_MAX

# Of one exception: the innermost say where it happened; a recursion repeats itself.
_FRAMES_MAX = 100

_LED_TO = "which led to"

_OURS = os.path.dirname(os.path.abspath(semel.__file__)) + os.sep


def trace(error: BaseException) -> str:
    """One line per frame of the user's code, the innermost last; what it was raised from comes before it."""
    return _text(error, ours=False)


def whole_trace(error: BaseException) -> str:
    """The same with our own frames: the error is ours."""
    return _text(error, ours=True)


def _text(error: BaseException, *, ours: bool) -> str:
    parts = [lines for each in _chain(error) if (lines := _frames(each, ours))]
    text = f"\n{_LED_TO}\n".join("\n".join(lines) for lines in parts)
    kept = text.encode("utf-8", "replace")[-TRACEBACK_BYTES_MAX:].decode("utf-8", "ignore")
    return kept.replace("\0", "\\0")


def _chain(error: BaseException) -> list[BaseException]:
    """The exception, after what it was raised from."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and not any(each is earlier for earlier in chain):
        chain.insert(0, each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return chain


def _frames(error: BaseException, ours: bool) -> list[str]:
    lines = [line for name, line in _walked(error) if ours or not os.path.abspath(name).startswith(_OURS)]
    return lines[-_FRAMES_MAX:]


def _walked(error: BaseException) -> Iterator[tuple[str, str]]:
    for frame, number in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        yield code.co_filename, f"{code.co_filename}:{number} {code.co_qualname}"
