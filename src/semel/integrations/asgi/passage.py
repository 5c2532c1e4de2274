"""One keyed request on its way through the application, recorded while its answer streams through.

The guard (call/guard.py) decides; the application is its tool. What it answers is settled *before* the last
byte goes out, so whoever has the whole answer and asks again is replayed.

A client that goes away is going to ask again with its key. So the application does not hear of it before its
answer is settled, or `run_limit` is over: what it began is finished, and recorded.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from typing import Literal

from semel import errors
from semel.call.drive import ENTERED, HandedOver
from semel.call.guard import guarded
from semel.call.guarded_call import Call
from semel.call.outcome import replayed_value
from semel.call.step import outside_step
from semel.contract.http_answer import AnswerReleases, AnswerUnsure, HttpAnswer
from semel.integrations.asgi.incoming import KeyedRequest
from semel.integrations.asgi.outgoing import (
    FAILED,
    SAME_REQUEST_ELSEWHERE,
    Application,
    Message,
    Receive,
    RequestRefused,
    Scope,
    Send,
    refused_by,
    safe_headers,
    send_problem,
)
from semel.integrations.asgi.telling import RequestTold
from semel.kernel.keys import fingerprint
from semel.ledger.counters import REFUSED, Hit

log = logging.getLogger("semel")

On5xx = Literal["replay", "in_doubt", "release"]

# Ways to answer that the middleware could not see: what they send is not in the messages.
_UNSEEN = frozenset(("http.response.pathsend", "http.response.zerocopysend"))

_NO_ANSWER = HttpAnswer(FAILED, ((b"content-type", b"text/plain; charset=utf-8"),), b"Internal Server Error")


@dataclass(frozen=True, slots=True)
class EdgeRules:
    """What becomes of an answer."""

    body_bytes_max: int
    on_5xx: On5xx
    release: frozenset[int]


class Passage:
    """The application's `receive` and `send`, and in between the guard."""

    def __init__(
        self, call: Call, request: KeyedRequest, rules: EdgeRules, receive: Receive, send: Send
    ) -> None:
        self._call = call
        self._guard = HandedOver(guarded(call), call, call.ledger.store, call.ledger.clock)
        self._telling = RequestTold(call)
        self._target = request.target
        self._rules = rules
        self._server_receive = receive
        self._server_send = send
        self._body: bytes | None = request.body  # until the application has read it
        self._start: Message | None = None  # of the answer, while it is held back
        self._status = 0  # 0: the application has not begun to answer
        self._headers: list[tuple[bytes, bytes]] = []
        self._announced: int | None = None  # how long it is going to be
        self._kept: list[bytes] | None = []  # None: longer than is kept
        self._kept_bytes = 0
        self._begun = False  # whether the client has got something of the answer
        self._gone: OSError | None = None  # that it has gone away
        self._hears_at = math.inf  # when the application is told so
        self._unheard = False  # whether what the application says is for nobody
        self._reported = False  # whether the guard knows how it ended
        self._over = asyncio.Event()  # whether that is on record, or is not going to be

    async def claim(self) -> HttpAnswer | None:
        """The answer of an earlier request; None if the application is to be called; else RequestRefused."""
        try:
            answer = self._remembered()
            if answer is None and (answer := await self._guard.begin()) is not ENTERED:
                self._telling.replayed(self._call)
        except errors.SemelError as error:
            self._telling.refused(error.code, replayed=error.replayed)
            self._telling.over()
            raise self._refused(error) from error
        except BaseException:
            self._telling.in_doubt()
            self._telling.over()
            raise
        return None if answer is ENTERED else answer

    def _remembered(self) -> HttpAnswer | None:
        """The answer, if its settlement is known in this process."""
        call, ledger = self._call, self._call.ledger
        now_us = ledger.clock.now_us()
        record = ledger.cache.get(call.key, now_us)
        if record is None or record.request.fingerprint != fingerprint(call.contract.name, call.canonical):
            return None  # if the key is another request's, the guard says so
        call.record = record
        ledger.counters.replayed(record, now_us)
        answer: HttpAnswer = replayed_value(call.contract, record)
        self._telling.replayed(record)
        return answer

    async def run(self, application: Application, scope: Scope) -> None:
        """The application has run, in the request's step, and its answer is on record."""
        call = self._call
        assert call.step is not None
        self._hears_at = call.ledger.clock.monotonic() + call.contract.run_limit_us / 1e6
        try:
            with outside_step(), call.step, self._guard.inside():
                _hide_unseen(scope)
                await application(scope, self._receive, self._send)
        except Exception as error:
            await self._failed(f"the application ended with {type(error).__name__}")
            raise
        except BaseException as interrupt:
            if not self._reported:
                self._reported = True
                self._telling.in_doubt()
                await self._guard.raised(interrupt)
            raise
        else:
            await self._failed("the application ended without an answer")
        finally:
            self._telling.over()

    # --- what the application calls ---------------------------------------------------------------

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        # From the request's begin, for each look: some applications look again and again, for a moment each.
        unspoken_s = self._hears_at - self._call.ledger.clock.monotonic()
        if unspoken_s > 0 and not self._over.is_set():
            try:
                async with asyncio.timeout(unspoken_s):
                    await self._over.wait()
            except TimeoutError:
                pass
        return await self._server_receive()

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start" and not self._status:
            await self._starts(message)
        elif kind == "http.response.body" and self._status and not self._reported:
            self._keep(message.get("body", b""))
            if not message.get("more_body", False) or self._kept_bytes == self._announced:
                await self._ends()
            await self._forward(message)
        else:
            await self._forward(message)

    async def _starts(self, message: Message) -> None:
        self._status = message["status"]
        self._headers = [(bytes(name), bytes(value)) for name, value in message.get("headers", ())]
        self._announced = _length(self._headers)
        self._start = {**message, "headers": self._headers}  # they may be an iterator, which is used up
        if self._announced is None:
            # It may be a stream whose first part takes a while; else the first part follows at once, and if
            # that is all, nothing has gone out before it is settled.
            await self._begin()

    def _keep(self, part: bytes) -> None:
        self._kept_bytes += len(part)
        if self._kept_bytes > self._rules.body_bytes_max:
            self._kept = None
        elif self._kept is not None:
            self._kept.append(bytes(part))

    async def _forward(self, message: Message) -> None:
        await self._begin()
        await self._to_client(message)

    async def _begin(self) -> None:
        if self._start is not None:
            start, self._start, self._begun = self._start, None, True
            await self._to_client(start)

    async def _to_client(self, message: Message) -> None:
        if self._unheard:
            return
        if self._gone is None:
            try:
                await self._server_send(message)
            except OSError as gone:
                self._gone = gone  # as servers say it; the application goes on
        elif self._call.ledger.clock.monotonic() >= self._hears_at:
            raise self._gone

    # --- how it ended -----------------------------------------------------------------------------

    async def _ends(self) -> None:
        """The last word, before the last byte. If it cannot be had, the client does not get that byte."""
        body = None if self._kept is None else b"".join(self._kept)
        answer = HttpAnswer(self._status, tuple(safe_headers(self._headers)), body)
        try:
            await self._settle(answer, f"the application answered {self._status}")
        except errors.SemelError as error:
            if self._begun:
                raise
            self._start = None
            refused = self._refused(error)
            log.warning("semel: the answer of %s is not on record: %s", self._call.contract.name, error)
            await send_problem(self._to_client, refused)
            self._unheard = True  # the client has its answer

    async def _settle(self, answer: HttpAnswer, why: str) -> None:
        """The answer is on record, its key free or in doubt, as the rules say. Raises what the guard says."""
        self._reported = True
        meaning = self._meaning(answer, why)
        try:
            if meaning is None:
                await self._guard.returned(answer)
            else:
                await self._guard.raised(meaning)
            self._telling.done()
        except AnswerReleases:
            self._telling.done()
        except errors.SemelError as error:
            self._telling.refused(error.code)
            if not (isinstance(error, errors.OutcomeUnknown) and isinstance(meaning, AnswerUnsure)):
                raise
        except BaseException:
            self._telling.in_doubt()
            raise
        finally:
            self._over.set()

    def _meaning(self, answer: HttpAnswer, why: str) -> AnswerReleases | AnswerUnsure | None:
        """What the answer means, if it is no result that is kept."""
        status, rules = answer.status, self._rules
        if status in rules.release or self._sends_elsewhere(answer):
            return AnswerReleases(why)
        if status < FAILED or rules.on_5xx == "replay":
            return None
        return AnswerReleases(why) if rules.on_5xx == "release" else AnswerUnsure(why)

    def _sends_elsewhere(self, answer: HttpAnswer) -> bool:
        """Whether a router sends it to the same path with or without its last slash, or to https.

        It did nothing else, and the client follows with the same request, key and all: the key has to be
        free. To another host, with another query or to where it came from, it may be sent because of what
        was done.
        """
        if answer.status not in SAME_REQUEST_ELSEWHERE:
            return False
        location = dict(answer.headers).get(b"location", b"").decode("latin-1")
        return self._target.has_other_form(location)

    async def _failed(self, why: str) -> None:
        """If the application ended without a whole answer, that counts as the answer of a failure.

        Also where the client has got a part of another answer.
        """
        if self._reported:
            return
        self._start = None
        try:
            await self._settle(_NO_ANSWER, why)
        except errors.SemelError as unsettled:
            # Whoever called the application hears how that ended, and not how this did.
            log.warning("semel: the failure of %s is not on record: %s", self._call.contract.name, unsettled)

    def _refused(self, error: errors.SemelError) -> RequestRefused:
        """What the client is told of what the guard says; raises it again if that is nothing for clients."""
        call = self._call
        record_id = "" if call.record is None else call.record.request.id
        refused = refused_by(error, record_id)
        if refused is None:
            raise error
        if not error.replayed:
            step = call.step
            assert step is not None
            where = (step.conversation, step.path_text, step.principal)
            hit = Hit(REFUSED, call.at, call.contract.name, call.contract.version, "", error.code, *where)
            call.ledger.counters.add(hit, call.ledger.clock.now_us())
            call.ledger.keeper.notice()
        return refused


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    lengths = [value for name, value in headers if name.lower() == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else None


def _hide_unseen(scope: Scope) -> None:
    """In place: whoever is further out reads what a router leaves in the scope."""
    extensions = scope.get("extensions") or {}
    if not _UNSEEN.isdisjoint(extensions):
        scope["extensions"] = {name: value for name, value in extensions.items() if name not in _UNSEEN}
