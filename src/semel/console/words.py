"""Times, JSON and names, as people read them. Signs that nobody sees are written out."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import orjson
from markupsafe import Markup

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00Z")
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))

# More of a value than this is not read on a page; the command shows all of it.
_SHOWN_CHARS_MAX = 20_000
_CELL_CHARS_MAX = 100


def distance(at: str, now_us: int) -> str:
    """`5 minutes ago`, `in 2 days`: one unit is enough, the exact time stands beside it."""
    seconds = (now_us - (datetime.fromisoformat(at) - _EPOCH) // timedelta(microseconds=1)) // 1_000_000
    size, name = next((unit for unit in _UNITS if abs(seconds) >= unit[0]), (1, ""))
    if not name:
        return "now"
    count = abs(seconds) // size
    words = f"{count} {name}{'' if count == 1 else 's'}"
    return f"{words} ago" if seconds > 0 else f"in {words}"


def exact(at: str) -> str:
    """To the second: what is finer is in the page's `datetime`."""
    return f"{at[:10]} {at[11:19]} UTC"


def whole(value: Any) -> str:
    """All of it, however long: what somebody decides about."""
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def pretty(value: Any) -> str:
    text = whole(value)
    if len(text) <= _SHOWN_CHARS_MAX:
        return text
    return f"{text[:_SHOWN_CHARS_MAX]}\n… {len(text) - _SHOWN_CHARS_MAX} more characters"


def brief(value: Any) -> str:
    """A value in a cell: of an object, its members."""
    if isinstance(value, dict) and value:
        text = ", ".join(f"{name}: {_compact(member)}" for name, member in value.items())
    else:
        text = _compact(value)
    return text if len(text) <= _CELL_CHARS_MAX else f"{text[: _CELL_CHARS_MAX - 1]}…"


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def seen(value: Any) -> Any:
    """A text without signs that change how the others are read: what is approved is what is seen."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _written(sign) for sign in value)


def _written(sign: str) -> str:
    return repr(sign)[1:-1]


def plain(name: str) -> str:
    """`in_doubt`, `step.queued` as they are said."""
    return name.replace("_", " ").replace(".", " ")
