"""Secrets inside arguments and results: left out of what is stored, put back from the present call.

A secret is what a path names, and every value of pydantic's own secret types.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from html import escape, unescape
from typing import Any, cast
from urllib.parse import quote, quote_plus, unquote

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from semel.contract.shapes import SECRETS, Paths, difference, name_of, opened
from semel.kernel.keys import Bag
from semel.kernel.limits import DEPTH_MAX


class Misplaced(Exception):
    """A serializer of the caller's own writes another outline than the type has, so secrets are not found."""


def present_in(value: Any) -> bool:
    """Whether the value holds one of pydantic's own secrets."""
    members = opened(value)
    if members is None:
        return isinstance(value, SECRETS)
    return any(map(present_in, members.values() if isinstance(members, dict) else members))


def alike(value: Any, read: Any, secret: Paths) -> bool:
    """Whether a value was read back as it was, but for its secrets."""
    if secret.whole or isinstance(value, SECRETS):
        return True
    if not secret and not present_in(value):
        return difference(value, read) is None
    members, others = opened(value), opened(read)
    if isinstance(members, dict) and isinstance(others, dict) and type(value) is type(read):
        kept = [key for key, member in members.items() if not _is_secret(member, secret.below(key))]
        return {*kept} <= others.keys() <= members.keys() and all(
            alike(members[key], others[key], secret.below(key)) for key in kept
        )
    if isinstance(members, list) and isinstance(others, list) and type(value) is type(read):
        if len(members) != len(others) or isinstance(members, Bag):  # whose elements have no order
            return len(members) == len(others)
        return all(alike(*pair, secret) for pair in zip(members, others, strict=True))
    return difference(value, read) is None


def _is_secret(member: Any, secret: Paths) -> bool:
    return secret.whole or isinstance(member, SECRETS)


def plain_rest(value: Any, secret: Paths, depth: int = DEPTH_MAX) -> Any:
    """Plain data without its secret members, as deep as it may be; what is an object of a class stays."""
    if not secret or not depth:
        return value
    if type(value) is dict:
        rest = {key: (member, secret.below(_as_name(key))) for key, member in value.items()}
        return {key: plain_rest(*pair, depth - 1) for key, pair in rest.items() if not pair[1].whole}
    if type(value) in (list, tuple):
        return type(value)(plain_rest(item, secret, depth - 1) for item in value)
    return value


def _as_name(key: Any) -> Any:
    """What a path calls the key; one of bytes, which JSON has not, by its text."""
    return key.decode(errors="replace") if isinstance(key, bytes) else key


def shed(value: Any, written: Any, secret: Paths) -> Any:
    """The JSON form of a value without its secret members; in a list null stands in their place."""
    if isinstance(value, SECRETS):
        return None
    members = opened(value)
    if isinstance(members, dict) and isinstance(written, dict):
        return dict(_kept(members, written, secret))
    if isinstance(members, list) and isinstance(written, list) and len(members) == len(written):
        return [shed(*pair, secret) for pair in zip(members, written, strict=True)]
    if secret and members is not None:
        raise Misplaced
    return written


def _kept(members: dict[Any, Any], written: dict[str, Any], secret: Paths) -> Iterator[tuple[str, Any]]:
    by_name = _by_name(members)
    if secret and not by_name.keys() >= written.keys():
        raise Misplaced
    for name, form in written.items():
        below = secret.below(name)
        if not below.whole and not isinstance(by_name.get(name), SECRETS):
            yield name, shed(by_name.get(name), form, below)


def graft(stored: Any, value: Any, written: Any, secret: Paths, bytes_mode: str = "base64") -> Any:
    """The stored JSON form with the secrets of this value, whose own JSON form is `written`, put back.

    `bytes_mode` is how bytes are read here: a model sets it for itself and everything inside.
    """
    if secret.whole or isinstance(value, SECRETS):
        return _revealed(value, written, bytes_mode)
    bytes_mode = _bytes_mode_inside(value, bytes_mode)
    members = opened(value)
    if isinstance(members, dict) and isinstance(stored, dict) and isinstance(written, dict):
        for name, member in _by_name(members).items():
            below = secret.below(name)
            if name in written and (name in stored or below.whole or isinstance(member, SECRETS)):
                stored[name] = graft(stored.get(name), member, written[name], below, bytes_mode)
    elif isinstance(members, list) and isinstance(stored, list) and isinstance(written, list):
        for index, pair in enumerate(zip(members[: len(stored)], written, strict=False)):
            stored[index] = graft(stored[index], *pair, secret, bytes_mode)
    return stored


def _revealed(value: Any, written: Any, bytes_mode: str) -> Any:
    """The JSON form of a value with its secrets readable, for a validator in this process only."""
    if isinstance(value, SECRETS):
        return to_jsonable_python(value.get_secret_value(), bytes_mode=cast(Any, bytes_mode))
    bytes_mode = _bytes_mode_inside(value, bytes_mode)
    members = opened(value)
    if isinstance(members, dict) and isinstance(written, dict):
        by_name = _by_name(members)
        return {name: _revealed(by_name.get(name), form, bytes_mode) for name, form in written.items()}
    if isinstance(members, list) and isinstance(written, list):
        return [_revealed(*pair, bytes_mode) for pair in zip(members, written, strict=True)]
    return written


def _by_name(members: dict[Any, Any]) -> dict[str, Any]:
    return {name_of(key): member for key, member in members.items()}


def _bytes_mode_inside(value: Any, outside: str) -> str:
    if isinstance(value, BaseModel):
        return value.model_config.get("val_json_bytes", "utf8")
    return outside


def texts(value: Any, secret: Paths) -> Iterator[str]:
    """Every spelling in which a secret of this value could show up in a text."""
    if isinstance(value, SECRETS):
        yield from _spellings(value.get_secret_value())
        return
    members = opened(value)
    if isinstance(members, dict):
        for key, member in members.items():
            yield from texts(member, secret if secret.whole else secret.below(key))
    elif isinstance(members, list):
        for item in members:
            yield from texts(item, secret)
    elif secret.whole:
        yield from _spellings(value)


def _spellings(value: Any) -> Iterator[str]:
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool):  # a secret yes or no cannot be found in a text
        return
    raw = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    if len(raw) >= _ENCODED_BYTES_MIN:
        yield from (raw.hex(), raw.hex().upper())
        for encoded in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
            yield encoded.rstrip("=")
    for quoted in (quote(raw), quote(raw, safe=""), quote_plus(raw)):
        yield from (quoted, _PERCENT.sub(lambda code: code[0].lower(), quoted))
    # Twice, because a text that was quoted once is often quoted again: an exception in an exception.
    once = {text, *_escaped(text), repr(raw)[2:-1]}
    yield from once
    for spelling in once:
        yield from _escaped(spelling)


# The hexadecimal form of a shorter secret may be any number.
_ENCODED_BYTES_MIN = 4

_PERCENT = re.compile("%[0-9A-F]{2}")


def _escaped(text: str) -> tuple[str, ...]:
    plain_json, ascii_json = json.dumps(text, ensure_ascii=False), json.dumps(text)
    return repr(text)[1:-1], ascii(text)[1:-1], plain_json[1:-1], ascii_json[1:-1], escape(text)


# A shorter secret counts only where it stands alone: three digits of a card are in many a number by chance.
_ANYWHERE_CHARS_MIN = 6


def holds(form: Any, spellings: Iterable[str]) -> bool:
    """Whether a JSON form contains one of the secrets that are spelled so."""
    patterns = [_where(spelling) for spelling in spellings]
    return any(pattern.search(text) for text in _leaves(form) for pattern in patterns)


def struck(text: str, spellings: Iterable[str]) -> str:
    """The text with `***` for each secret that is spelled so; for all of it where that cannot be cut out."""
    spellings = list(spellings)
    for spelling in spellings:
        text = text.replace(spelling, "***")
    return "***" if spellings and holds(text, spellings) else text


def _where(spelling: str) -> re.Pattern[str]:
    if len(spelling) >= _ANYWHERE_CHARS_MIN:
        return re.compile(re.escape(spelling))
    return re.compile(rf"(?<![^\W_]){re.escape(spelling)}(?![^\W_])")


def _leaves(form: Any) -> Iterator[str]:
    if isinstance(form, dict):
        for name, member in form.items():
            yield from _readings(name)
            yield from _leaves(member)
    elif isinstance(form, list):
        for item in form:
            yield from _leaves(item)
    elif form is not None and not isinstance(form, bool):
        yield from _readings(str(form))


def _readings(text: str) -> Iterator[str]:
    """The text, and what it says once it is read as it was meant, layer by layer.

    A secret among other things is escaped with them and has no spelling of its own there.
    """
    yield text
    yield from _decoded(text)
    for read in (unquote, unescape, _unescaped):
        outer = text
        for _ in range(_LAYERS_MAX):
            inner = read(outer)
            if inner == outer:
                break
            yield inner
            outer = inner
    if "%" in text:
        yield from _decoded(unquote(text))


def _decoded(text: str) -> Iterator[str]:
    for run in _BASE64.findall(text):
        padded = run.translate(_URLSAFE) + "=" * (-len(run) % 4)
        try:
            yield base64.b64decode(padded, validate=True).decode(errors="backslashreplace")
        except ValueError:
            continue  # it only looks like it


def _unescaped(text: str) -> str:
    return _ESCAPES.sub(_meant, text) if "\\" in text else text


# An exception that quotes an exception that quotes a JSON text that quotes one.
_LAYERS_MAX = 4

# As in "Basic dXNlcjpzZWNyZXQ=": shorter ones say nothing.
_BASE64 = re.compile("[A-Za-z0-9+/_-]{8,}")
_URLSAFE = str.maketrans("-_", "+/")

# What Python and JSON escape: bytes in a row, UTF-16 units in a row (JSON has two of them for what is beyond
# 16 bits), a code point, a letter.
_ESCAPES = re.compile(
    r"(?P<bytes>(?:\\x[0-9A-Fa-f]{2})+)|(?P<units>(?:\\u[0-9A-Fa-f]{4})+)"
    r"|\\U(?P<point>000[0-9A-Fa-f]{5}|0010[0-9A-Fa-f]{4})|\\(?P<letter>.)",
    re.DOTALL,
)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}


def _meant(match: re.Match[str]) -> str:
    if match["bytes"]:
        raw = bytes.fromhex(match["bytes"].replace("\\x", ""))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw.decode("latin-1")  # as `repr` of a text means them
    if match["units"]:
        units = bytes.fromhex(match["units"].replace("\\u", ""))
        return units.decode("utf-16-be", errors="surrogatepass")
    if match["point"]:
        return chr(int(match["point"], 16))
    return _LETTERS.get(match["letter"], match["letter"])
