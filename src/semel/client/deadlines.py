"""One deadline for all that a try does on its connection, however slowly the answer comes.

httpx bounds each read; a server that sends a byte now and then could stretch a try without end. An event loop
has time-outs for that. A thread has none, so here every read and write is given what is left of the whole.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from semel.kernel.clock import SYSTEM

# A socket takes 0 for "do not wait", and says then that it would have to.
_LEAST_S = 0.001

# Between two looks at the time while a request is sent.
_PART_BYTES = 64 << 10


class _OfThisThread(threading.local):
    until: float | None = None


_deadline = _OfThisThread()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """What this thread does meanwhile through a DeadlineTransport ends within so many seconds."""
    _deadline.until = SYSTEM.monotonic() + seconds
    try:
        yield
    finally:
        _deadline.until = None


def _left_s(timeout: float | None, over: type[httpcore.TimeoutException]) -> float | None:
    """For what comes next. Raises `over` if nothing is left, also where nobody would have to wait."""
    if _deadline.until is None:
        return timeout
    left_s = _deadline.until - SYSTEM.monotonic()
    if left_s <= 0:
        raise over("the time of the try is over")
    return max(_LEAST_S, left_s)


class DeadlineTransport(httpx.BaseTransport):
    """As httpx's own, but for the deadline. It knows of no proxy."""

    def __init__(self, tls: ssl.SSLContext, limits: httpx.Limits) -> None:
        self._pool = httpcore.ConnectionPool(
            tls,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        with _named_by_httpx():
            answer = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    target,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream))

    def close(self) -> None:
        self._pool.close()


@contextmanager
def _named_by_httpx() -> Iterator[None]:
    """Both libraries call what goes wrong alike."""
    try:
        yield
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as wrong:
        named = getattr(httpx, type(wrong).__name__, httpx.TransportError)
        raise named(str(wrong)) from wrong


class _Body(httpx.SyncByteStream):
    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        with _named_by_httpx():
            yield from self._parts

    def close(self) -> None:
        self._parts.close()


class _Backend(httpcore.SyncBackend):
    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *rest: Any, **more: Any) -> Any:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return DeadlineStream(super().connect_tcp(host, port, left_s, *rest, **more))


class DeadlineStream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left_s(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PART_BYTES):
            left_s = _left_s(timeout, httpcore.WriteTimeout)
            self._inner.write(buffer[start : start + _PART_BYTES], left_s)

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left_s = _left_s(timeout, httpcore.ConnectTimeout)
        return DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, left_s))
