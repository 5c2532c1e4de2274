"""What no server can be made to do on purpose: one ASGI message at a time."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, cast
from urllib.parse import unquote

import orjson
import pytest
from starlette.requests import Request

import semel
from semel.errors import ContractError, OutcomeUnknown, ResultInvalid
from semel.integrations.asgi import IdempotencyMiddleware
from semel.kernel.record import Settle, State
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock, FlakyStore, WrappedStore
from tests.patience import PATIENCE_S

App = Callable[..., Awaitable[None]]
Header = tuple[bytes, bytes]

ANN = (b"authorization", b"Bearer of-ann")
KEY = (b"idempotency-key", b"k-1")


class Exchange:
    """One request to an application, and what it said."""

    def __init__(self, *headers: Header, body: bytes = b"{}", **scope: Any) -> None:
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/charges",
            "query_string": b"",
            "root_path": "",
            "headers": list(headers),
            **scope,
        }
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.send_error: Exception | None = None
        self._messages: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> Any:
        if self._messages:
            return self._messages.pop(0)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.send_error is not None:
            raise self.send_error
        self.sent.append(message)

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> list[Header]:
        headers: list[Header] = self.sent[0]["headers"]
        return headers

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def code(self) -> str:
        code: str = json.loads(self.body)["code"]
        return code

    @property
    def replayed(self) -> bool:
        return (b"idempotent-replayed", b"true") in self.headers


class Counting:
    """An application that answers with how often it was called."""

    def __init__(self, status: int = 200, headers: list[Header] | None = None) -> None:
        self.calls = 0
        self.status = status
        self.answer_headers = [(b"content-length", b"1")] if headers is None else headers
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        self.scopes.append(scope)
        await receive()
        await send({"type": "http.response.start", "status": self.status, "headers": self.answer_headers})
        await send({"type": "http.response.body", "body": str(self.calls).encode()})


async def ask(app: App, *headers: Header, body: bytes = b"{}", **scope: Any) -> Exchange:
    exchange = Exchange(*headers, body=body, **scope)
    await app(exchange.scope, exchange.receive, exchange.send)
    return exchange


def run(main: Coroutine[Any, Any, Any]) -> Any:
    async def within() -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return await main

    return asyncio.run(within())


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore())


# --- whose key it is ------------------------------------------------------------------------------


async def _asynchronous(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


def _synchronous(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


@pytest.mark.parametrize("caller", [_asynchronous, _synchronous])
def test_a_function_says_who_the_caller_is(caller: Any, ledger: Ledger) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger, caller=caller)

    async def main() -> None:
        one = await ask(app, KEY, (b"x-user", b"ann"), (b"authorization", b"of today"))
        again = await ask(app, KEY, (b"x-user", b"ann"), (b"authorization", b"refreshed"))
        assert (again.replayed, again.body) == (True, one.body)
        assert (await ask(app, KEY, (b"x-user", b"bob"))).body == b"2"
        assert (await ask(app, KEY, ANN)).code == "idempotency_caller_unknown"

    run(main())
    assert counting.calls == 2


def test_a_caller_that_is_no_text_is_a_mistake(ledger: Ledger) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger, caller=lambda _: 7)  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="caller="):
        run(ask(app, KEY))
    assert counting.calls == 0


def test_a_named_caller_is_nobodys_credentials(ledger: Ledger) -> None:
    """The same text as a token, a name and a cookie stands for three."""
    counting = Counting()
    plain = IdempotencyMiddleware(counting, ledger=ledger)
    named = IdempotencyMiddleware(counting, ledger=ledger, caller=lambda _: "x")

    async def main() -> None:
        for headers in ([(b"authorization", b"x")], [(b"x-api-key", b"x")], [(b"cookie", b"session=x")]):
            await ask(plain, KEY, *headers)
        await ask(named, KEY)

    run(main())
    assert counting.calls == 4


def test_cookies_are_chosen_by_name_and_by_nothing_else(ledger: Ledger) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger, cookies=("sid",))

    async def main() -> None:
        await ask(app, KEY, (b"cookie", b"a=1; sid=x; b=2"))
        assert (await ask(app, KEY, (b"cookie", b"b=3"), (b"cookie", b"sid=x"))).replayed
        assert not (await ask(app, KEY, (b"cookie", b"sid=y"))).replayed
        assert (await ask(app, KEY, (b"cookie", b"session=x; xsid=x"))).code == "idempotency_caller_unknown"

    run(main())


def test_no_credential_is_in_the_store(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger)
    run(
        ask(
            app, KEY, (b"authorization", b"Bearer s3cret"), body=b'{"card": "4242"}', query_string=b"t=s3cret"
        )
    )
    (record,) = ledger.records.list()
    history = ledger.records.history(record.request.id)
    assert "s3cret" not in repr(record) + repr(history)
    assert "4242" not in repr(record) + repr(history)


# --- what the application is told -------------------------------------------------------------------


def test_the_body_is_handed_on_whole_and_once(ledger: Ledger) -> None:
    bodies = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        bodies.append(await receive())
        await Counting()(scope, _nothing, send)

    async def _nothing() -> None: ...

    exchange = Exchange(KEY, ANN)
    exchange._messages = [
        {"type": "http.request", "body": part, "more_body": part != b"c"} for part in (b"a", b"b", b"c")
    ]
    run(IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send))
    assert bodies == [{"type": "http.request", "body": b"abc", "more_body": False}]


def test_a_client_that_left_is_not_spoken_of_before_the_answer_is_on_record(ledger: Ledger) -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        hearing = asyncio.create_task(receive())
        for _ in range(10):
            await asyncio.sleep(0)
        seen.append(hearing.done())
        await Counting()(scope, _nothing, send)
        seen.append((await hearing)["type"])

    async def _nothing() -> None: ...

    async def main() -> Exchange:
        exchange = Exchange(KEY, ANN)
        exchange.gone.set()
        await IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send)
        return exchange

    run(main())
    assert seen == [False, "http.disconnect"]
    assert ledger.records.list()[0].state is State.DONE


def test_a_client_that_left_is_spoken_of_once_the_run_limit_is_over(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        await Counting()(scope, _nothing, send)

    async def _nothing() -> None: ...

    async def main() -> Exchange:
        exchange = Exchange(KEY, ANN)
        exchange.gone.set()
        guarded = IdempotencyMiddleware(app, ledger=ledger, run_limit="1ms")
        await guarded(exchange.scope, exchange.receive, exchange.send)
        return exchange

    assert run(main()).status == 200


def test_a_stream_that_looks_now_and_then_whether_its_client_left_hears_of_it_too(flaky: FlakyStore) -> None:
    """`if await request.is_disconnected(): break`, as handlers write it: each look gives up at once."""
    ledger, clock = Ledger(flaky), cast(FakeClock, flaky.clock)
    heard: list[bool] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        await request.body()
        for _ in range(3):
            heard.append(await request.is_disconnected())
            clock.advance("8m")

    async def main() -> None:
        exchange = Exchange(KEY, ANN)
        exchange.gone.set()
        await IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send)

    run(main())
    assert heard == [False, False, True]


def test_a_request_without_a_key_hears_of_its_client_at_once(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"

    async def main() -> None:
        exchange = Exchange(ANN)
        exchange.gone.set()
        await IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send)

    run(main())


def test_a_send_that_fails_does_not_end_the_application(ledger: Ledger) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger)

    async def main() -> Exchange:
        exchange = Exchange(KEY, ANN)
        exchange.send_error = BrokenPipeError()
        await app(exchange.scope, exchange.receive, exchange.send)
        return await ask(app, KEY, ANN)

    again = run(main())
    assert (again.replayed, again.body, counting.calls) == (True, b"1", 1)


def test_a_stream_without_end_whose_client_left_ends_once_the_run_limit_is_over(flaky: FlakyStore) -> None:
    """Where the server says so by an error of `send` alone, as newer ones do."""
    ledger, clock = Ledger(flaky), cast(FakeClock, flaky.clock)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(14):
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            clock.advance("1m")
        clock.advance("1m")
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        pytest.fail("it never ends")

    async def main() -> None:
        exchange = Exchange(KEY, ANN)
        exchange.send_error = BrokenPipeError("the client is gone")
        await IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send)

    with pytest.raises(BrokenPipeError, match="the client is gone"):
        run(main())


def test_ways_to_answer_that_nobody_sees_are_not_offered(ledger: Ledger) -> None:
    counting = Counting()
    extensions = {"http.response.pathsend": {}, "http.response.zerocopysend": {}, "tls": {"version": 1}}
    run(ask(IdempotencyMiddleware(counting, ledger=ledger), KEY, ANN, extensions=extensions))
    run(ask(IdempotencyMiddleware(counting, ledger=ledger), ANN, extensions=extensions))
    assert [scope["extensions"] for scope in counting.scopes] == [{"tls": {"version": 1}}, extensions]


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_other_protocols_pass_untouched(kind: str, ledger: Ledger) -> None:
    passed: list[Any] = []

    async def app(*told: Any) -> None:
        passed.extend(told)

    told = ({"type": kind, "headers": [KEY, ANN]}, object(), object())
    run(IdempotencyMiddleware(app, ledger=ledger)(*told))  # type: ignore[arg-type]
    assert passed == list(told)


# --- where it is mounted ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "path", "guarded"),
    [
        ("", "/charges", True),
        ("", "/charges/7", True),
        ("", "/shop/charges", False),
        ("/shop", "/shop/charges", True),  # as servers say it that follow ASGI 3.0 to the letter
        ("/shop", "/charges", True),  # and as older ones did
        ("/shop", "/shopping/charges", False),
        ("/shop/", "/shop/charges", True),
        ("/shop", "/shop", False),
    ],
)
def test_paths_are_those_of_the_application_wherever_it_is_mounted(
    root: str, path: str, guarded: bool, ledger: Ledger
) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger, paths="/charges")
    run(ask(app, KEY, ANN, root_path=root, path=path))
    assert len(ledger.records.list()) == guarded


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("/charges", "POST /charges"),
        ("/charges/", "POST /charges"),
        ("/", "POST /"),
        ("/v1/orders/12/refund", "POST /v1/orders/{}/refund"),
        ("/orders/6ba7b810-9dad-11d1-80b4-00c04fd430c8", "POST /orders/{}"),
        ("/orders/ord_3kTz2024Xy", "POST /orders/{}"),
        ("/oauth2/token", "POST /oauth2/token"),
        ("/grüße\0\ud800", "POST /gr%C3%BC%C3%9Fe%00%3F"),
        ("/orders\n", "POST /orders%0A"),
        ("/" + "x" * 500, "POST /" + "x" * 194),
    ],
)
def test_a_route_is_named_without_what_tells_single_things_apart(
    path: str, tool: str, ledger: Ledger
) -> None:
    run(ask(IdempotencyMiddleware(Counting(), ledger=ledger), KEY, ANN, path=path))
    (record,) = ledger.records.list()
    assert (record.request.at.scope, record.request.tool) == ("http", tool)


def test_two_ids_under_one_name_are_two_requests(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger)
    run(ask(app, KEY, ANN, path="/orders/1"))
    assert run(ask(app, KEY, ANN, path="/orders/2")).code == "idempotency_key_reused"


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (b"/files/a%2Fb", b"/files/a/b"),
        (b"/files/a/b", b"/files/a%2fb"),
        (b"/files/a%2F", b"/files/a/"),
        (b"/files/%FF", b"/files/%FE"),
        (b"/files/%FF", b"/files/%EF%BF%BD"),
    ],
)
def test_paths_that_are_alike_only_once_they_are_decoded_are_two(
    first: bytes, other: bytes, ledger: Ledger
) -> None:
    """As servers hand them over: decoded, and as they came. An application may go by either."""

    def path(raw: bytes) -> dict[str, Any]:
        return {"path": unquote(raw.decode()), "raw_path": raw}

    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger)
    run(ask(app, KEY, ANN, **path(first)))
    assert run(ask(app, KEY, ANN, **path(other))).code == "idempotency_key_reused"
    assert run(ask(app, KEY, ANN, **path(first))).replayed
    assert counting.calls == 1


def test_a_router_that_takes_its_mount_from_the_path_makes_no_two_requests_one(ledger: Ledger) -> None:
    """As Litestar does before it calls its middleware, and without a `root_path` that says so."""
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger)
    run(ask(app, KEY, ANN, path="/pay/", raw_path=b"/shop-1/pay"))
    assert run(ask(app, KEY, ANN, path="/pay/", raw_path=b"/shop-2/pay")).code == "idempotency_key_reused"
    assert run(ask(app, KEY, ANN, path="/pay/", raw_path=b"/shop-1/pay/")).replayed
    assert counting.calls == 1


def test_a_path_that_is_only_spelled_otherwise_is_the_same(ledger: Ledger) -> None:
    """What stands in between may spell it anew; so does a redirect to the other slash."""
    app = IdempotencyMiddleware(Counting(), ledger=ledger)
    run(ask(app, KEY, ANN, path="/files/é b", raw_path=b"/files/%c3%a9%20b"))
    for raw in (b"/files/%C3%A9%20%62", b"/files/%C3%A9%20b/", b"/files/%C3%A9%20b?a=%2F", None):
        assert run(ask(app, KEY, ANN, path="/files/é b", raw_path=raw)).replayed


# --- answers ----------------------------------------------------------------------------------------


def test_only_safe_headers_are_replayed(ledger: Ledger) -> None:
    hop = [
        (b"Connection", b"close, X-Private"),
        (b"x-private", b"1"),
        (b"Keep-Alive", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"a=1"),
        (b"upgrade", b"h2c"),
        (b"proxy-authenticate", b"x"),
        (b"trailer", b"x"),
        (b"te", b"x"),
        (b"Idempotent-Replayed", b"false"),  # of what the application asked itself
    ]
    kept = [(b"x-shop", b"a"), (b"x-shop", b"b"), (b"location", "/ü".encode())]
    app = IdempotencyMiddleware(Counting(headers=hop + kept), ledger=ledger)
    first = run(ask(app, KEY, ANN))
    assert first.headers == hop + kept  # the first has all of them, as they are
    assert run(ask(app, KEY, ANN)).headers == [*kept, (b"idempotent-replayed", b"true")]
    kept_names = orjson.loads(ledger.records.list()[0].outcome or b"")["headers"].keys()
    assert kept_names == {"x-shop", "location"}  # what is not replayed is not kept either


@pytest.mark.parametrize(
    "body", [b"", b"plain", "grüße\r\n\t".encode(), b"\x00\x01", b"\xff\xfe", bytes(range(256))]
)
def test_any_body_is_replayed_to_the_byte(body: bytes, ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})  # headers may be left out
        await send({"type": "http.response.body", "body": body})

    guarded = IdempotencyMiddleware(app, ledger=ledger)
    assert run(ask(guarded, KEY, ANN)).body == body
    again = run(ask(guarded, KEY, ANN))
    assert (again.replayed, again.body) == (True, body)


def test_a_body_of_exactly_max_body_is_kept(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, True, False):
            await send({"type": "http.response.body", "body": b"\xff" * scope["bytes"], "more_body": more})

    guarded = IdempotencyMiddleware(app, ledger=ledger, max_body=3 << 20)
    assert len(run(ask(guarded, KEY, ANN, bytes=1 << 20)).body) == 3 << 20
    assert run(ask(guarded, KEY, ANN, bytes=1 << 20)).body == b"\xff" * (3 << 20)
    other = (b"idempotency-key", b"k-2")
    run(ask(guarded, other, ANN, bytes=(1 << 20) + 1))
    assert run(ask(guarded, other, ANN, bytes=(1 << 20) + 1)).code == "result_unavailable"


@pytest.mark.parametrize("length", [b"2", b"0002", b"9" * 5_000, b"x", b"-1"])
def test_a_length_is_believed_when_it_is_too_much(length: bytes, ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger, max_body=2)
    exchange = run(ask(app, KEY, ANN, (b"content-length", length)))
    assert exchange.status == (413 if len(length) == 5_000 else 200)


class Settling(WrappedStore):
    """Notes what had gone out when the answer was settled."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.exchange: Exchange | None = None
        self.gone_out: list[int] = []

    async def aperform(self, command: Any) -> Any:
        if isinstance(command, Settle):
            assert self.exchange is not None
            self.gone_out.append(len(self.exchange.sent))
        return await super().aperform(command)


@pytest.mark.parametrize(
    ("headers", "messages", "before"),
    [
        ([(b"content-length", b"1")], 1, 0),  # nothing at all has gone out
        ([(b"content-length", b"3")], 3, 3),
        ([], 1, 1),
        ([], 3, 3),
    ],
)
def test_an_answer_is_settled_before_its_last_message(
    headers: list[Header], messages: int, before: int
) -> None:
    store = Settling()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(messages):
            more = number + 1 < messages
            await send({"type": "http.response.body", "body": b"x", "more_body": more})

    async def main() -> None:
        exchange = store.exchange = Exchange(KEY, ANN)
        guarded = IdempotencyMiddleware(app, ledger=Ledger(store))
        await guarded(exchange.scope, exchange.receive, exchange.send)
        assert len(exchange.sent) == 1 + messages

    run(main())
    assert store.gone_out == [before]


def test_an_announced_length_tells_which_byte_is_the_last() -> None:
    """As a framework streams a file: an empty message ends it, after its last byte."""
    store = Settling()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = (
            (name, value) for name, value in [(b"content-length", b"2")]
        )  # used up by whoever reads it
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part, more in ((b"a", True), (b"b", True), (b"", False)):
            await send({"type": "http.response.body", "body": part, "more_body": more})

    async def main() -> None:
        exchange = store.exchange = Exchange(KEY, ANN)
        guarded = IdempotencyMiddleware(app, ledger=Ledger(store))
        await guarded(exchange.scope, exchange.receive, exchange.send)
        assert (exchange.headers, exchange.body, len(exchange.sent)) == (
            [(b"content-length", b"2")],
            b"ab",
            4,
        )
        assert (await ask(guarded, KEY, ANN)).body == b"ab"

    run(main())
    assert store.gone_out == [2]  # the start, and the first byte


def test_the_start_of_a_stream_does_not_wait_for_its_first_part(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        assert len(exchange.sent) == 1
        await send({"type": "http.response.body", "body": b"x"})

    exchange = Exchange(KEY, ANN)
    run(IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send))
    assert len(exchange.sent) == 2


def test_messages_besides_the_answer_pass(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.early_hint", "links": []})
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"x"})
        await send({"type": "http.response.trailers", "headers": []})

    exchange = run(ask(IdempotencyMiddleware(app, ledger=ledger), KEY, ANN))
    assert [message["type"].rpartition(".")[2] for message in exchange.sent] == [
        "early_hint",
        "start",
        "body",
        "trailers",
    ]


HOST = (b"host", b"Shop.example:8000")


@pytest.mark.parametrize(
    "location",
    [
        "/elsewhere",
        "http://[",
        "https://pay.example/charges/3ds",
        "https://pay.example/charges?to=%2Fa%7Cb",
        "/charges",
        "/charges?to=/paid",
        "/charges/?to=%2Fa%7Cb&paid=yes",
        # It came from here: to be sent back here says what was done, and is no router's.
        "/charges?to=/a|b",
        "//shop.example/charges?to=/a|b#done",
        "http://shop.example:9000/charges?to=/a|b",
    ],
)
def test_a_redirect_elsewhere_is_an_answer(location: str, ledger: Ledger) -> None:
    counting = Counting(307, [(b"location", location.encode())])
    app = IdempotencyMiddleware(counting, ledger=ledger)
    for replayed in (False, True):
        assert run(ask(app, KEY, ANN, HOST, query_string=b"to=/a|b")).replayed is replayed
    assert counting.calls == 1


@pytest.mark.parametrize(
    "location",
    [
        "/charges/?to=%2Fa%7Cb",
        "https://shop.example/charges?to=/a|b",
        "//shop.example:8000/charges/?to=/a%7cb",
    ],
)
def test_a_redirect_to_the_same_request_takes_the_key_along(location: str, ledger: Ledger) -> None:
    counting = Counting(307, [(b"location", location.encode())])
    app = IdempotencyMiddleware(counting, ledger=ledger)
    for _ in range(2):
        assert not run(ask(app, KEY, ANN, HOST, query_string=b"to=/a|b")).replayed
    assert counting.calls == 2


def test_who_is_at_https_is_not_redirected_to_it(ledger: Ledger) -> None:
    counting = Counting(308, [(b"location", b"https://shop.example/charges")])
    app = IdempotencyMiddleware(counting, ledger=ledger)
    for replayed in (False, True):
        assert run(ask(app, KEY, ANN, HOST, scheme="https")).replayed is replayed
    assert counting.calls == 1


def test_small_letters_make_no_other_method(ledger: Ledger) -> None:
    """Some servers pass them on, and some frameworks take them for large ones."""
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger, required=True)
    assert run(ask(app, ANN, method="patch")).code == "idempotency_key_missing"
    for method in ("PATCH", "patch", "Patch"):
        assert run(ask(app, KEY, ANN, method=method)).body == b"1"
    assert counting.calls == 1


# --- how it may end ---------------------------------------------------------------------------------


async def _raises(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("no")


async def _cut_short(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"half", "more_body": True})
    raise RuntimeError("no")


async def _silent(scope: Any, receive: Any, send: Any) -> None:
    return


async def _unfinished(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})


@pytest.mark.parametrize("app", [_raises, _cut_short, _silent, _unfinished])
@pytest.mark.parametrize(
    ("on_5xx", "state", "note"),
    [
        ("replay", State.DONE, ""),
        ("release", State.RELEASED, ""),
        ("in_doubt", State.IN_DOUBT, "the application ended with"),
    ],
)
def test_without_a_whole_answer_it_has_failed(
    app: App, on_5xx: Any, state: State, note: str, ledger: Ledger
) -> None:
    guarded = IdempotencyMiddleware(app, ledger=ledger, on_5xx=on_5xx)
    for _ in range(1 + (on_5xx == "release")):
        if app in (_raises, _cut_short):
            with pytest.raises(RuntimeError, match="no"):
                run(ask(guarded, KEY, ANN))
        else:
            run(ask(guarded, KEY, ANN))
    (record,) = ledger.records.list()
    assert record.state is state
    assert record.note.startswith(note)
    if on_5xx == "replay":
        again = run(ask(guarded, KEY, ANN))
        assert (again.replayed, again.status, again.body) == (True, 500, b"Internal Server Error")


def test_an_application_that_raises_after_its_answer_has_answered(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Counting()(scope, receive, send)
        raise RuntimeError("in the background")

    guarded = IdempotencyMiddleware(app, ledger=ledger)
    with pytest.raises(RuntimeError, match="background"):
        run(ask(guarded, KEY, ANN))
    assert run(ask(guarded, KEY, ANN)).body == b"1"


@pytest.mark.parametrize("cut", [False, True])
def test_a_cancelled_request_is_in_doubt(cut: bool, ledger: Ledger) -> None:
    entered = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if cut:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        entered.set()
        await asyncio.Event().wait()

    async def main() -> Exchange:
        guarded = IdempotencyMiddleware(app, ledger=ledger)
        task = asyncio.create_task(ask(guarded, KEY, ANN))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await ask(guarded, KEY, ANN)

    again = run(main())
    assert again.code == "outcome_unknown"
    assert json.loads(again.body)["record_id"] == ledger.records.list()[0].request.id
    assert ledger.records.list()[0].note == "the tool ended with CancelledError"


class Stuck(WrappedStore):
    """A store that does not come back with the settlement."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked = asyncio.Event()

    async def aperform(self, command: Any) -> Any:
        if isinstance(command, Settle):
            self.asked.set()
            await asyncio.Event().wait()
        return await super().aperform(command)


def test_a_request_that_is_cancelled_while_it_is_settled_is_settled() -> None:
    async def main() -> None:
        store = Stuck()
        ledger = Ledger(store)
        guarded = IdempotencyMiddleware(Counting(), ledger=ledger)
        task = asyncio.create_task(ask(guarded, KEY, ANN))
        await store.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = await ask(guarded, KEY, ANN)
        assert (again.replayed, again.body) == (True, b"1")

    run(main())


def test_a_dropped_request_is_in_doubt(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    exchange = Exchange(KEY, ANN)
    coroutine = IdempotencyMiddleware(app, ledger=ledger)(exchange.scope, exchange.receive, exchange.send)

    async def main() -> None:
        async def drop() -> None:
            coroutine.send(None)
            coroutine.close()

        await drop()

    run(main())
    assert ledger.records.list()[0].state is State.IN_DOUBT


@pytest.fixture
def flaky() -> FlakyStore:
    return FlakyStore(MemoryStore(clock=FakeClock()))


def test_without_a_store_the_application_is_not_called(flaky: FlakyStore) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=Ledger(flaky))
    flaky.down = True
    exchange = run(ask(app, KEY, ANN))
    assert (exchange.status, exchange.code) == (503, "store_unavailable")
    assert (b"retry-after", b"1") in exchange.headers
    assert counting.calls == 0
    flaky.down = False
    assert run(ask(app, KEY, ANN)).status == 200


def _goes_down(flaky: FlakyStore, streams: bool) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        flaky.down = True
        headers = [] if streams else [(b"content-length", b"4")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b"done"})

    return app


def test_an_answer_that_cannot_be_recorded_is_not_given_for_recorded(
    flaky: FlakyStore, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(flaky)
    app = IdempotencyMiddleware(_goes_down(flaky, streams=False), ledger=ledger)
    with caplog.at_level(logging.WARNING):
        exchange = run(ask(app, KEY, ANN))
    assert (exchange.status, exchange.code) == (409, "outcome_unknown")
    assert json.loads(exchange.body)["record_id"].startswith("rec_")
    assert "is not on record" in caplog.text
    flaky.down = False
    ledger.keeper.run_once()  # which goes on trying
    again = run(ask(app, KEY, ANN))
    assert (again.replayed, again.status, again.body) == (True, 201, b"done")


def test_after_a_refusal_in_its_place_the_application_is_not_heard(flaky: FlakyStore) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await _goes_down(flaky, streams=False)(scope, receive, send)
        await send({"type": "http.response.trailers", "headers": []})

    exchange = run(ask(IdempotencyMiddleware(app, ledger=Ledger(flaky)), KEY, ANN))
    assert [message["type"] for message in exchange.sent] == ["http.response.start", "http.response.body"]


def test_a_stream_that_cannot_be_recorded_is_cut(flaky: FlakyStore) -> None:
    app = IdempotencyMiddleware(_goes_down(flaky, streams=True), ledger=Ledger(flaky))
    exchange = Exchange(KEY, ANN)
    with pytest.raises(OutcomeUnknown):
        run(app(exchange.scope, exchange.receive, exchange.send))
    assert [message["type"] for message in exchange.sent] == ["http.response.start"]


def test_a_failure_that_cannot_be_recorded_is_raised_as_itself(flaky: FlakyStore) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        flaky.down = True
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run(ask(IdempotencyMiddleware(app, ledger=Ledger(flaky)), KEY, ANN))


class Corrupt(WrappedStore):
    async def aperform(self, command: Any) -> Any:
        raise semel.errors.StoreCorrupt


def test_a_damaged_record_is_no_absent_one() -> None:
    counting = Counting()
    exchange = run(ask(IdempotencyMiddleware(counting, ledger=Ledger(Corrupt(MemoryStore()))), KEY, ANN))
    assert (exchange.status, exchange.code, counting.calls) == (500, "store_corrupt", 0)


def test_a_closed_ledger_calls_nobody(ledger: Ledger) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger)
    ledger.close()
    assert run(ask(app, KEY, ANN)).code == "store_unavailable"
    assert counting.calls == 0


def test_who_was_overtaken_is_told_so(ledger: Ledger) -> None:
    """A person said meanwhile what became of it, because its owner had been silent for too long."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        (record,) = ledger.records.list()
        ledger.store.perform(semel.kernel.record.Park(record.request.at, record.token, "silent"))
        ledger.records.resolve(record.request.id, "happened", by="ann", result={"status": 202, "body": "ok"})
        await Counting()(scope, receive, send)

    guarded = IdempotencyMiddleware(app, ledger=ledger)
    overtaken = run(ask(guarded, KEY, ANN))
    assert (overtaken.status, overtaken.code) == (409, "ownership_lost")
    again = run(ask(guarded, KEY, ANN))
    assert (again.replayed, again.status, again.body) == (True, 202, b"ok")


@pytest.mark.parametrize(
    "headers", [{"X-A": "a\r\nSet-Cookie: b=1"}, {"X-A: b\r\nC": "d"}, {"X-A": "\u0100"}, {"": "a"}]
)
def test_a_person_cannot_say_what_is_no_header(headers: dict[str, str], ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(500), ledger=ledger, on_5xx="in_doubt")
    run(ask(app, KEY, ANN))
    record_id = ledger.records.list()[0].request.id
    with pytest.raises(ResultInvalid):
        ledger.records.resolve(record_id, "happened", by="ann", result={"status": 200, "headers": headers})
    assert run(ask(app, KEY, ANN)).code == "outcome_unknown"


def test_a_length_that_a_person_says_is_not_believed(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(500), ledger=ledger, on_5xx="in_doubt")
    run(ask(app, KEY, ANN))
    record_id = ledger.records.list()[0].request.id
    copied = {"status": 201, "headers": {"Content-Length": "1", "X-A": "b"}, "body": "another"}
    ledger.records.resolve(record_id, "happened", by="ann", result=copied)
    assert run(ask(app, KEY, ANN)).headers == [(b"x-a", b"b"), (b"idempotent-replayed", b"true")]


def test_a_later_refusal_says_nothing_about_an_earlier_run(ledger: Ledger) -> None:
    counting = Counting(500)
    app = IdempotencyMiddleware(counting, ledger=ledger, on_unknown="rerun", on_5xx="in_doubt")
    assert run(ask(app, KEY, ANN)).status == 500
    counting.status = 422
    exchange = run(ask(app, KEY, ANN))
    assert (exchange.status, exchange.code, counting.calls) == (409, "outcome_unknown", 2)
    assert ledger.records.list()[0].state is State.IN_DOUBT


# --- the request is a step --------------------------------------------------------------------------


def test_inside_a_clients_step_the_request_is_its_own(ledger: Ledger) -> None:
    """As in a test, where client and server share a task."""
    keys = []

    @semel.tool_contract()
    async def pay() -> str:
        return "paid"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        keys.append((await pay.call(semel.ToolCall({}))).key)
        await Counting()(scope, receive, send)

    async def main() -> None:
        guarded = IdempotencyMiddleware(app, ledger=ledger)
        await ask(guarded, KEY, ANN)
        with ledger.step(conversation="c", step="s"):
            await ask(guarded, KEY, ANN, (b"content-type", b"x"), path="/other")
            await ask(guarded, (b"idempotency-key", b"k-2"), ANN)
            mine = await pay.call(semel.ToolCall({}))
        assert mine.key not in keys
        assert len(set(keys)) == 2

    run(main())


def test_what_a_handler_leaves_open_is_not_its_clients_to_finish(ledger: Ledger) -> None:
    @semel.tool_contract()
    async def pay() -> str:
        raise TimeoutError

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert not (await pay.call(semel.ToolCall({}))).ok
        await Counting()(scope, receive, send)

    async def main() -> None:
        conversation = ledger.conversation("c")
        async with conversation.step():
            await ask(IdempotencyMiddleware(app, ledger=ledger), KEY, ANN)
        assert (conversation.unfinished, conversation.position) == ((), 1)

    run(main())


def test_a_request_that_its_own_handler_makes_again_is_in_flight(ledger: Ledger) -> None:
    codes = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        codes.append((await ask(guarded, KEY, ANN)).code)
        await Counting()(scope, receive, send)

    guarded = IdempotencyMiddleware(app, ledger=ledger)
    assert run(ask(guarded, KEY, ANN)).status == 200
    assert codes == ["idempotency_in_flight"]


def test_two_around_one_application_are_one(ledger: Ledger) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(IdempotencyMiddleware(counting, ledger=ledger), ledger=ledger)
    assert run(ask(app, KEY, ANN)).body == b"1"
    assert run(ask(app, KEY, ANN)).replayed
    assert len(ledger.records.list()) == 1
    other = IdempotencyMiddleware(app, ledger=ledger, app="other")
    assert run(ask(other, KEY, ANN)).body == b"1"  # which replays the inner one's
    assert counting.calls == 1


def test_what_a_router_leaves_in_the_scope_is_there_for_whoever_is_around(ledger: Ledger) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["route"] = "charges"
        await Counting()(scope, receive, send)

    extensions: dict[str, Any] = {"http.response.pathsend": {}}
    exchange = run(ask(IdempotencyMiddleware(app, ledger=ledger), KEY, ANN, extensions=extensions))
    assert exchange.scope["route"] == "charges"


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"on_5xx": "retry"}, "on_5xx="),
        ({"on_unknown": "retry"}, "on_unknown="),
        ({"anonymous": True}, "anonymous="),
        ({"max_body": 0}, "max_body="),
        ({"max_body": "1 MiB"}, "max_body="),
        ({"max_body": 1 << 30}, "max_body="),
        ({"release": {7}}, "release="),
        ({"release": ["422"]}, "release="),
        ({"paths": ["charges"]}, "paths="),
        ({"paths": [7]}, "paths="),
        ({"paths": [re.compile(rb"^/charges")]}, "paths="),
        ({"release": 422}, "release="),
        ({"caller": "user"}, "caller="),
        ({"methods": [None]}, "methods="),
        ({"window": "1 day"}, "window"),
        ({"run_limit": "soon"}, "run_limit"),
        ({"app": "a/b"}, "app="),
        ({"ledger": "sqlite:///x.db"}, "ledger="),
    ],
)
def test_what_cannot_be_kept_is_said_at_once(options: dict[str, Any], names: str, ledger: Ledger) -> None:
    with pytest.raises(ContractError, match=re.escape(names)):
        IdempotencyMiddleware(Counting(), **{"ledger": ledger, **options})


def test_it_goes_around_something(ledger: Ledger) -> None:
    with pytest.raises(ContractError, match="ASGI application"):
        IdempotencyMiddleware(ledger=ledger)


def test_some_frameworks_hand_the_application_over_by_name(ledger: Ledger) -> None:
    counting = Counting()
    assert run(ask(IdempotencyMiddleware(app=counting, ledger=ledger), KEY, ANN)).body == b"1"


def test_methods_in_any_case(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger, methods="put")
    run(ask(app, KEY, ANN, method="PUT"))
    assert run(ask(app, KEY, ANN, method="PUT")).replayed
    assert not run(ask(app, KEY, ANN)).replayed


def test_a_window_closes(flaky: FlakyStore) -> None:
    counting, clock = Counting(), cast(FakeClock, flaky.clock)
    app = IdempotencyMiddleware(counting, ledger=Ledger(flaky), window="1h")
    run(ask(app, KEY, ANN))
    clock.advance("3599s")
    assert run(ask(app, KEY, ANN)).replayed
    clock.advance("2s")
    assert run(ask(app, KEY, ANN)).body == b"2"
