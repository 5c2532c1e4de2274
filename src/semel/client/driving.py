"""Two drivers carry out what a decider wishes: `CallingDriver` by calling, `AwaitingDriver` by awaiting.

Every try has a deadline of its own. Nobody else's answer is taken: its connection is closed, since the right
answer may still come on it, and the next request would take that for its own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode
from urllib.request import getproxies

import httpx

from semel.client.deadlines import DeadlineTransport, deadline
from semel.client.retrying import Asking, ListedPages, Patience, Silence, Try, WireAnswer

T = TypeVar("T")

# As many connections as there are requests under way; of those that are idle so many are kept, for less time
# than the gateway keeps its own.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=60.0)

# These come before anything is sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout)


def _no_cookies() -> CookieJar:
    """A jar that takes none: what stands in front of a gateway sets cookies, and some cannot be sent back."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=[]))


class ServerAddress(NamedTuple):
    """Which gateway, and what it is told about who asks."""

    url: str
    headers: Mapping[str, bytes]

    def tls(self) -> ssl.SSLContext:
        """Loading the certificates of the world takes longer than a request, and is not done for nothing."""
        if httpx.URL(self.url).scheme == "https":
            return httpx.create_ssl_context()
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def sent(self, wish: Try) -> dict[str, Any]:
        """What httpx is told."""
        query = f"?{urlencode(wish.query)}" if wish.query else ""
        return {
            "method": wish.method,
            "url": f"{self.url}{wish.path}{query}",
            "content": wish.content,
            "headers": {**self.headers, **wish.headers},
            "timeout": wish.for_s,
        }


class CallingDriver:
    """Threads may share it."""

    def __init__(self, server: ServerAddress, patience: Patience) -> None:
        self._server, self._patience = server, patience
        # Through a proxy each read is bounded, and not all of them together.
        proxied = getproxies().keys() & {"http", "https", "all"}
        transport = None if proxied else DeadlineTransport(server.tls(), _LIMITS)
        self._http = httpx.Client(
            verify=server.tls(), limits=_LIMITS, transport=transport, cookies=_no_cookies()
        )

    def ask(self, asking: Asking[T]) -> T:
        deciding = asking.decide(self._patience)
        try:
            wish = next(deciding)
            while True:
                if isinstance(wish, Try):
                    wish = deciding.send(self._tried(wish))
                else:
                    self._patience.clock.sleep(wish.seconds)
                    wish = deciding.send(self._http.is_closed)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def items(self, pages: ListedPages[T]) -> Iterator[T]:
        while (request := pages.request()) is not None:
            yield from pages.took(self.ask(request))

    def _tried(self, wish: Try) -> WireAnswer | Silence:
        try:
            with deadline(wish.for_s), self._http.stream(**self._server.sent(wish)) as answer:
                return _others(answer, wish) or WireAnswer(answer.status_code, answer.headers, answer.read())
        except httpx.HTTPError as wrong:
            return _silence(wrong, last=self._http.is_closed)

    def close(self) -> None:
        self._http.close()


class AwaitingDriver:
    """For one event loop. Whoever is cancelled leaves no connection in use behind."""

    def __init__(self, server: ServerAddress, patience: Patience) -> None:
        self._server, self._patience = server, patience
        self._http = httpx.AsyncClient(verify=server.tls(), limits=_LIMITS, cookies=_no_cookies())

    @property
    def is_closed(self) -> bool:
        return self._http.is_closed

    async def ask(self, asking: Asking[T]) -> T:
        deciding = asking.decide(self._patience)
        try:
            wish = next(deciding)
            while True:
                if isinstance(wish, Try):
                    wish = deciding.send(await self._tried(wish))
                else:
                    await self._patience.clock.asleep(wish.seconds)
                    wish = deciding.send(self.is_closed)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def items(self, pages: ListedPages[T]) -> AsyncIterator[T]:
        while (request := pages.request()) is not None:
            for item in pages.took(await self.ask(request)):
                yield item

    async def _tried(self, wish: Try) -> WireAnswer | Silence:
        try:
            async with asyncio.timeout(wish.for_s), self._http.stream(**self._server.sent(wish)) as answer:
                return _others(answer, wish) or WireAnswer(
                    answer.status_code, answer.headers, await answer.aread()
                )
        except (httpx.HTTPError, TimeoutError) as wrong:
            return _silence(wrong, last=self.is_closed)

    async def aclose(self) -> None:
        await self._http.aclose()


def _others(answer: httpx.Response, wish: Try) -> Silence | None:
    """Said if the answer is to another request. Its body is left unread, and so its connection is closed."""
    named = answer.headers.get("x-request-id", wish.request_id)
    if named == wish.request_id:
        return None
    return Silence("AnswerToAnotherRequest", begun=True, code="bad_gateway")


def _silence(wrong: Exception, *, last: bool) -> Silence:
    return Silence(type(wrong).__name__, begun=not isinstance(wrong, _NOT_SENT), last=last)
