"""HTTP as the server speaks it, bounded before anybody is known: how long a header is, how long it all takes.

The parser underneath takes headers of any length. Here bytes are counted on their way. What is no HTTP, too
long or too late is answered with a problem like every other refusal, and the connection ends. A stop waits
for nothing that has not arrived. A request that comes in one piece, as most do, sets no timer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from semel.flow.problems import Refused
from semel.gateway import problems
from semel.gateway.incoming import BROKEN, LISTENING, REQUEST_ID, Scope

# Request line and headers together: several times what browsers and proxies send.
HEAD_BYTES_MAX = 64 << 10

# A header that takes longer is not on its way: it holds a connection.
HEAD_S = 10.0

# For all of a body: what a slow line needs for the largest, and no more than an abandoned one is waited for.
BODY_S = 60.0

# Framing of a chunked body, a byte per chunk at worst, and as much again at its end.
_FRAMING_PER_BYTE = 16

# A refused client may still be sending: it is listened to for so long, else its answer is lost on the way.
_LINGER_S = 2.0
_LINGER_BYTES = 1 << 20

# While the gateway stops: an answer that a client has not read for so long is given up.
_UNREAD_S = 5.0


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._in_head = True
        self._bytes = 0  # of the present message, as they came
        self._body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refused = False
        self._broken = False  # the body is refused: the rest of it is ignored

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect(HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self.transport.is_closing():
            if self._refused or self._broken:
                self._ignore(len(data))
                return
            # The parser never sees more of a header than it may have.
            allowed = HEAD_BYTES_MAX - self._bytes if self._in_head else HEAD_BYTES_MAX
            if allowed <= 0:
                self.refuse("headers_too_large")
                continue
            part, data = (data, b"") if len(data) <= allowed else (data[:allowed], data[allowed:])
            self._bytes += len(part)
            self._parse(part)
            if not self._in_head and self._framing() > 2 * HEAD_BYTES_MAX:
                self.refuse("headers_too_large")
        if self._bytes and not (self._refused or self._broken):
            self._expect(HEAD_S if self._in_head else BODY_S)

    def _parse(self, data: bytes) -> None:
        """As the server does, but a header with an offer to speak another protocol is read again without it.

        Behind such an offer the parser expects that other protocol: it would take the body for a request.
        """
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as offer:
                if self.parser.get_method() == b"CONNECT":
                    # It asks for no resource of ours, and is an offer however it is read again.
                    self._refuse_invalid()
                    return
                data = self._head_without_offer() + data[offer.args[0] :]
                self.parser = _parser(self)  # the old one takes a last request of its connection for over
            except httptools.HttpParserError:
                self._refuse_invalid()
                return

    def _refuse_invalid(self) -> None:
        message = "Invalid HTTP request received."
        self.logger.warning(message)
        self.send_400_response(message)

    def _is_offer(self) -> bool:
        return bool(self.parser.should_upgrade())

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _framing(self) -> int:
        """Bytes of a message that are not explained by its body."""
        return self._bytes - self._body_bytes * (1 + _FRAMING_PER_BYTE)

    # --- what the parser tells --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        # Behind the end of another one it was counted there, and yet something has begun to arrive.
        self._bytes = self._bytes or 1

    def on_header(self, name: bytes, value: bytes) -> None:
        # What stands behind a body is no header: whether it came in time to be read would be chance.
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_offer():
            return
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_offer():
            return
        self._in_head, self._bytes, self._body_bytes = True, 0, 0
        self._stop_timer()
        super().on_message_complete()
        self.headers = []  # what comes next has said nothing yet

    def send_400_response(self, msg: str) -> None:
        self.refuse("request_invalid", f"This is no HTTP request. {msg}")

    # --- time -------------------------------------------------------------------------------------

    def _expect(self, seconds: float) -> None:
        """The rest of what has begun to arrive, within so long from now; unless somebody waits already."""
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self._timer = None
        if self._working():
            self._expect(HEAD_S)  # the next request may begin to arrive while this one is worked on
        else:
            self.refuse("request_timeout")

    # --- refusals ---------------------------------------------------------------------------------

    def refuse(self, code: str, message: str | None = None) -> None:
        """The client is told why, and the connection ends."""
        self._stop_timer()
        self._unset_keepalive_if_required()
        if self._refused or self._broken or self.transport.is_closing():
            return
        problem = Refused(code, message)
        if not self._working():
            self._tell(problem)
        elif self.cycle.more_body and not self.cycle.response_started:
            self._tell_when_asked(problem)
        else:
            # An answer now would be taken for that of the request before, which may still succeed.
            self.transport.close()

    def _tell_when_asked(self, problem: Refused) -> None:
        """Refuse once somebody waits for the body. An answer that does without it is the last one here."""
        self._broken, self._bytes = True, 0
        self.cycle.keep_alive = False
        scope: Scope = self.cycle.scope  # type: ignore[assignment]
        scope[BROKEN] = lambda: self._tell(problem)

    def _tell(self, problem: Refused) -> None:
        if self._refused or self.transport.is_closing():
            return
        self._refused, self._bytes = True, 0
        self.transport.write(_answer(problem, self._request_id()))
        if self.cycle is not None and not self.cycle.response_complete:
            # Its body will not arrive: whoever listens for it hears that the client is gone.
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._timer = self.loop.call_later(_LINGER_S, self.transport.close)

    def _request_id(self) -> list[tuple[bytes, bytes]]:
        """What the refused request calls itself, if it has said so."""
        return [header for header in self.headers or () if header[0] == REQUEST_ID][:1]

    def _working(self) -> bool:
        """Whether something is done for a request, or it is being answered; not while its body is awaited."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        listening = cycle.more_body and cycle.scope.get(LISTENING, False)
        return cycle.response_started or not listening

    def _ignore(self, size: int) -> None:
        self._bytes += size
        if self._bytes > _LINGER_BYTES:
            self.transport.close()

    def shutdown(self) -> None:
        if self._refused:
            self.transport.close()
            return
        super().shutdown()
        self.loop.call_later(_UNREAD_S, self._drop_unread)
        if not self._working():
            # What has not arrived was not begun, and can be sent elsewhere.
            self.refuse("gateway_stopping")

    def _drop_unread(self) -> None:
        """A stop does not wait for a client that does not read its answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        elif not self.transport.is_closing():
            self.loop.call_later(_UNREAD_S, self._drop_unread)


def _parser(protocol: BoundedHttp) -> httptools.HttpRequestParser:
    """As the server makes it."""
    parser = httptools.HttpRequestParser(protocol)
    with suppress(AttributeError):  # of an httptools that has no such setting
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _answer(problem: Refused, request_id: list[tuple[bytes, bytes]]) -> bytes:
    body = problems.body(problem)
    headers = [
        (b"content-type", problems.MEDIA.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),
        *problems.headers(problem),
        *request_id,
    ]
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[problems.status_of(problem)] + lines + b"\r\n" + body
