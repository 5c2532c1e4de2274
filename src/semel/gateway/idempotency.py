"""The key that a client sends: `Idempotency-Key`, `X-Idempotency-Key` or `?idempotency_key=`.

A key is text: 1 to 255 bytes of UTF-8 without control characters. `"abc"`, a quoted string as in RFC 8941, is
the same key as `abc`. Headers are bytes, and these are read as UTF-8 too. A key may be sent in several ways
at once, as proxies do, if all of them say the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn

from semel.flow.problems import Problem
from semel.kernel.limits import KEY_BYTES_MAX

HEADERS = (b"idempotency-key", b"x-idempotency-key")
QUERY = "idempotency_key"

# Nearly all of them: nothing in it has to be taken away or looked at more closely.
_USUAL = re.compile(rb"[A-Za-z0-9._:/-]{1,%d}" % KEY_BYTES_MAX)

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ESCAPED = re.compile(r'\\(["\\])')


def key_of(headers: Collection[bytes], queries: Collection[str]) -> str | None:
    """The one key that these values name, None if there are none; Problem `idempotency_key_invalid`."""
    if len(headers) == 1 and not queries:
        (header,) = headers
        return header.decode() if _USUAL.fullmatch(header) else _plain(_text(header))
    keys = {_plain(_text(value)) for value in headers} | {_plain(value) for value in queries}
    if len(keys) > 1:
        _refuse("It is given twice, with different values.")
    return keys.pop() if keys else None


def _text(header: bytes) -> str:
    try:
        return header.decode("utf-8")
    except UnicodeDecodeError:
        _refuse("It is not UTF-8.")


def _plain(value: str) -> str:
    key = value.strip(" \t")
    if key.startswith('"'):
        quoted = _QUOTED.fullmatch(key)
        if quoted is None:
            _refuse("It begins with a quotation mark and is no quoted string.")
        key = _ESCAPED.sub(r"\1", quoted[1])
    _check(key)
    return key


def _check(key: str) -> None:
    if not key:
        _refuse("It is empty.")
    if _CONTROL.search(key):
        _refuse("It contains control characters.")
    if len(key.encode()) > KEY_BYTES_MAX:
        _refuse(f"It is longer than {KEY_BYTES_MAX} bytes.")


def _refuse(why: str) -> NoReturn:
    raise Problem("idempotency_key_invalid", f"The idempotency key cannot be used. {why}")
