"""The key that a client sends in a header: `Idempotency-Key` or `X-Idempotency-Key`.

A key is text: 1 to 255 bytes of UTF-8 without control characters. `"abc"`, a quoted string as in RFC 8941, is
the same key as `abc`. Headers are bytes, and these are read as UTF-8 too. A key may be sent in several ways
at once, as proxies do, if all of them say the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from semel.kernel.limits import KEY_BYTES_MAX

HEADERS = (b"idempotency-key", b"x-idempotency-key")

# Nearly all of them: nothing in it has to be taken away or looked at more closely.
_USUAL = re.compile(rb"[A-Za-z0-9._:/-]{1,%d}" % KEY_BYTES_MAX)

_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_ESCAPED = re.compile(r'\\(["\\])')


class KeyInvalid(ValueError):
    """What was sent is no key; the text says why."""


def key_of(headers: Collection[bytes], others: Collection[str] = ()) -> str | None:
    """The one key that these values name, None if there are none; raises KeyInvalid.

    `others` are values that came in another way than by a header.
    """
    if len(headers) == 1 and not others:
        (header,) = headers
        return header.decode() if _USUAL.fullmatch(header) else _plain(_text(header))
    keys = {_plain(_text(value)) for value in headers} | {_plain(value) for value in others}
    if len(keys) > 1:
        raise KeyInvalid("It is given twice, with different values.")
    return keys.pop() if keys else None


def _text(header: bytes) -> str:
    try:
        return header.decode("utf-8")
    except UnicodeDecodeError:
        raise KeyInvalid("It is not UTF-8.") from None


def _plain(value: str) -> str:
    key = value.strip(" \t")
    if key.startswith('"'):
        quoted = _QUOTED.fullmatch(key)
        if quoted is None:
            raise KeyInvalid("It begins with a quotation mark and is no quoted string.")
        key = _ESCAPED.sub(r"\1", quoted[1])
    _check(key)
    return key


def _check(key: str) -> None:
    if not key:
        raise KeyInvalid("It is empty.")
    if _CONTROL.search(key):
        raise KeyInvalid("It contains control characters.")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise KeyInvalid(f"It is longer than {KEY_BYTES_MAX} bytes.")
