"""One request: what it is called, its key, whose that key is, and its body."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from semel.integrations.asgi.outgoing import Receive, RequestRefused, Scope
from semel.kernel import key_header
from semel.kernel.keys import frame

# Says what the store's key is used for here, so that nothing that it signed elsewhere means anything here.
_CALLER_PURPOSE = b"semel http caller, format 1"
_REQUEST_PURPOSE = b"semel http request, format 1"

# A route is named for people, for counts and for metrics: ids in its path would make one of every request.
_ID = re.compile(r"[0-9]+|(?=.*[0-9]).{16,}|(?:[^0-9]*[0-9]){4}.*")
_NAME_CHARS_MAX = 200
_SHOWN_CHARS_MAX = 1_000
_PRINTED = " /:@!$&'()*+,;=-._~{}"
_PLAIN = re.compile(r"[A-Za-z0-9 /:@!$&'()*+,;=._~{}-]*")


class Left(Exception):
    """The client went away before its request was whole; nothing was done."""


class RequestTarget(NamedTuple):
    """Where a request goes to."""

    scheme: str
    host: bytes
    path: str
    query: bytes

    def has_other_form(self, location: str) -> bool:
        """Whether a redirect leads to the same with or without the last slash of the path, or by https."""
        try:
            url, host = urlsplit(location), urlsplit(b"//" + self.host).hostname
            if url.hostname is not None and url.hostname.encode("latin-1") != host:
                return False
        except ValueError:
            return False
        if unquote_to_bytes(url.query) != unquote_to_bytes(self.query):
            return False
        path = unquote(url.path) or "/"
        is_other = path != self.path or (self.scheme, url.scheme) == ("http", "https")
        return is_other and without_last_slash(path) == without_last_slash(self.path)


def without_last_slash(path: str) -> str:
    """Who is redirected from one form to the other asks for the same."""
    return path.rstrip("/") or "/"


class KeyedRequest(NamedTuple):
    """A request with a key, whole."""

    key: str
    caller: str  # a keyed digest
    method: str
    path: str
    query: bytes
    content_type: bytes
    body: bytes
    scheme: str
    host: bytes
    raw_path: bytes  # as it came; empty where the server does not say

    @property
    def place(self) -> str:
        return without_last_slash(self.path)

    @property
    def target(self) -> RequestTarget:
        return RequestTarget(self.scheme, self.host, self.path, self.query)

    @property
    def route(self) -> str:
        """Method and path as a name: what tells single resources apart is left out."""
        # Long ones are not held: they are somebody's who makes them up.
        name = _route_name if len(self.path) <= _NAME_CHARS_MAX else _route_name.__wrapped__
        return name(self.method, self.place)

    def shown(self) -> dict[str, str | int]:
        """What a record says of it."""
        return {
            "method": self.method,
            "path": _printable(self.path)[:_SHOWN_CHARS_MAX],
            "content_type": _printable(self.content_type.decode("latin-1"))[:_SHOWN_CHARS_MAX],
            "body_bytes": len(self.body),
        }

    def digest(self, secret_key: bytes) -> bytes:
        """What tells it from another request of the same key; keyed, because a body may hold secrets."""
        place = _bytes(self.place)
        lost = _lost_on_the_way(self.raw_path, place)
        whole = frame(self.caller, self.method, place, self.query, self.content_type, self.body, *lost)
        return hmac.digest(_key_for(_REQUEST_PURPOSE, secret_key), whole, "sha256")


def _lost_on_the_way(raw_path: bytes, place: bytes) -> tuple[bytes, ...]:
    """The names of the path that the client asked for, if `place` does not tell them; nearly always it does.

    Decoded, `a%2Fb` is like `a/b`, and bytes that are no text are like others; and some routers take from the
    path what an application is mounted at. Two requests that differ there are two.
    """
    path, _, _ = raw_path.partition(b"?")  # some servers leave the query there
    path = path.rstrip(b"/") or path[:1]
    if path == place or not path:
        return ()
    names = [unquote_to_bytes(name) for name in path.split(b"/")]
    return () if names == place.split(b"/") else (frame(*names),)


@lru_cache(1_024)
def _route_name(method: str, path: str) -> str:
    segments = ("{}" if _ID.fullmatch(segment) else segment for segment in path.split("/"))
    return f"{method} {_printable('/'.join(segments))}"[:_NAME_CHARS_MAX]


@lru_cache(8)
def _key_for(purpose: bytes, secret_key: bytes) -> bytes:
    return hmac.digest(secret_key, purpose, "sha256")


def full_path(scope: Scope) -> str:
    """The path as the client asked for it. Servers differ in whether `path` has what `root_path` says."""
    root, path = scope.get("root_path", "").rstrip("/"), str(scope["path"])
    return path if not root or _is_below(path, root) else root + path


def own_path(scope: Scope) -> str:
    """The path as the application routes it: without where it is mounted."""
    root, path = scope.get("root_path", "").rstrip("/"), str(scope["path"])
    return path[len(root) :] or "/" if root and _is_below(path, root) else path


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root}/")


def _printable(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text  # nearly always
    return quote(text, safe=_PRINTED, errors="replace")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# --- headers --------------------------------------------------------------------------------------


# By name, in small letters: every value, in order.
Headers = dict[bytes, list[bytes]]


def headers_of(scope: Scope) -> Headers:
    headers: Headers = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.lower(), []).append(value)
    return headers


def key_of(headers: Headers) -> str | None:
    """The key that the headers name, None if there is none; RequestRefused if it is none."""
    values = [value for name in key_header.HEADERS for value in headers.get(name, ())]
    try:
        return key_header.key_of(values)
    except key_header.KeyInvalid as wrong:
        raise RequestRefused(
            "idempotency_key_invalid",
            f"{wrong} The application was not called. A key is 1 to 255 bytes of text, quoted or not; a UUID "
            "is a good one.",
        ) from None


def credentials(headers: Headers, cookies: Iterable[str]) -> tuple[bytes, ...] | None:
    """What the request proves its sender by, with its kind in front; None if there is nothing."""
    for name in (b"authorization", b"x-api-key"):
        values = tuple(value for value in headers.get(name, ()) if value.strip())
        if values:
            return (name, *values)
    sent = _cookies(headers.get(b"cookie", ()))
    chosen = [part for name in cookies for part in sent if part[0] == name.encode() and part[1]]
    return (b"cookie", *(text for part in chosen for text in part)) if chosen else None


def _cookies(headers: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    pairs = (part.partition(b"=") for header in headers for part in header.split(b";"))
    return [(name.strip(), value.strip()) for name, _, value in pairs]


def caller_digest(secret_key: bytes, parts: Iterable[bytes]) -> str:
    """Stands for a caller: 128 bits that tell nothing about it to whoever has not the store's key."""
    return hmac.digest(_key_for(_CALLER_PURPOSE, secret_key), frame(*parts), "sha256").hex()[:32]


# --- body -----------------------------------------------------------------------------------------


async def read_body(headers: Headers, receive: Receive, bytes_max: int) -> bytes:
    """All of it; RequestRefused as soon as it is certain that it is longer; Left if the client goes away."""
    if any(_is_more(value, bytes_max) for value in headers.get(b"content-length", ())):
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Left
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise _too_large(bytes_max)
        parts.append(part)
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_more(announced: bytes, bytes_max: int) -> bool:
    digits = announced.lstrip(b"0")
    return digits.isdigit() and (len(digits) > len(str(bytes_max)) or int(digits) > bytes_max)


def _too_large(bytes_max: int) -> RequestRefused:
    return RequestRefused(
        "body_too_large",
        f"With a key a body has at most {bytes_max} bytes; the application was not called.",
        limit=bytes_max,
    )
