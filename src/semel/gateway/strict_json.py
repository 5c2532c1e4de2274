"""From bytes to a JSON value, or a Refused. Stricter than parsers are, so that a value means one thing.

Refused besides what is no JSON: NaN and Infinity, a name given twice in one object, halves of surrogate
pairs, NUL (stores and downstreams cut texts there), integers that 64 bits do not hold (they would be
rounded), and more than 64 levels. Depth is judged before anything is parsed, so that no parser's stack is at
stake. Every check is a pass in C over the bytes, because it holds up everybody who shares the process.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from semel.flow.problems import Refused
from semel.kernel.limits import DEPTH_MAX

_LONG_INTEGER = re.compile(rb"(?<![\d.eE+-])(?:-?\d{19,})(?![\d.eE])")
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1

_ALL = bytes(range(256))
_NOT_BRACKETS = bytes(set(_ALL) - set(b"[]{}"))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")

# Nothing shorter can need more than 64 bits.
_ONE_DIGIT = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * 19


def parse(text: bytes, name: str = "body") -> Any:
    """The value; Refused `body_not_json`, `body_too_deep` or `request_invalid`, which call it by its name."""
    bare = _bare(text)
    # Few brackets cannot nest deeply, wherever they stand; nearly every body has few.
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX and _too_deep(bare):
        raise Refused("body_too_deep")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as wrong:
        raise Refused("body_not_json", f"The {name} is not JSON: {wrong.msg}.") from None
    if (colons := bare.count(b":")) and _names(value, colons) != colons:
        raise Refused("body_not_json", f"The {name} names a member of an object twice.")
    if _MANY_DIGITS in bare.translate(_ONE_DIGIT) and any(map(_too_long, _LONG_INTEGER.findall(bare))):
        why = f"An integer of the {name} needs more than 64 bits; send it as a text."
        raise Refused("request_invalid", why)
    if b"\\u0000" in text and _NUL.search(text):
        raise Refused("request_invalid", f"A text of the {name} contains NUL.")
    return value


def _names(value: Any, expected: int) -> int:
    """How many names there are in all objects of the value."""
    if type(value) is dict and len(value) == expected:
        return expected  # then the objects within it have none
    # Written again, each name stands once: so a colon is missing for each that was given twice.
    return _bare(orjson.dumps(value)).count(b":")


def _bare(text: bytes) -> bytes:
    """What is outside of strings; a string that is never closed runs to the end."""
    if b"\\" in text:
        # Pairs first: then a backslash that is left stands before what it escapes.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(text.split(b'"')[::2])


def _too_long(digits: bytes) -> bool:
    return not _INT_MIN <= int(digits) <= _INT_MAX


def _too_deep(bare: bytes) -> bool:
    """Whether brackets outside of strings nest too deeply.

    Each pass takes away the innermost pairs, so as many passes as there are levels leave nothing. That is as
    quick on two million brackets as on two, where a loop over them would hold everybody up.
    """
    brackets = bare.translate(_ONE_KIND, _NOT_BRACKETS)
    for _ in range(DEPTH_MAX):
        if b"[]" not in brackets:
            break
        brackets = brackets.replace(b"[]", b"")
    # What is left is deeper, or is not balanced; then the parser says so, unless its stack is in danger.
    return b"[]" in brackets or brackets.count(b"[") > DEPTH_MAX
