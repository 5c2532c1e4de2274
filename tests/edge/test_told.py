"""What people read of requests afterwards: records in words, the audit log, its reports, windows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from semel import instrumentation
from semel.audit.duplicate_report import find_duplicates
from semel.audit.verify import verify
from semel.call.cache import SettledCache
from semel.instrumentation import CallEnded
from semel.integrations.asgi import IdempotencyMiddleware
from semel.kernel.clock import rfc3339
from semel.ledger.explain import explained
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock
from semel.windows.advice import advise
from tests.edge.test_middleware import ANN, KEY, Counting, ask, run

BOB = (b"authorization", b"Bearer of-bob")
OTHER_KEY = (b"idempotency-key", b"k-2")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(MemoryStore(clock=FakeClock()))


def test_events_and_replays_are_in_the_audit_log(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger)
    for body in (b"{}", b"{}", b"[]"):
        run(ask(app, KEY, ANN, body=body))
    ledger.keeper.flush()
    (record,) = ledger.records.list()
    history = ledger.records.history(record.request.id)
    assert [(event.kind, event.scope, event.tool) for event in history] == [
        ("claimed", "http", "POST /charges"),
        ("settled", "http", "POST /charges"),
        ("dedup_hit", "http", "POST /charges"),
    ]
    ledger.close()
    assert verify(ledger.store).whole


def test_a_refusal_is_counted(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(500), ledger=ledger, on_5xx="in_doubt")
    for body in (b"{}", b"{}", b"[]"):
        run(ask(app, KEY, ANN, body=body))
    assert [event.state for event in ledger.counters.take()] == ["OUTCOME_UNKNOWN", "KEY_REUSED"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (201, ["Settled as done", "this answer is replayed"]),
        (422, ["Nothing happened, the application proved it: the key is free."]),
        (502, ["In doubt", "the application answered 502"]),
    ],
)
def test_a_record_is_explained(status: int, words: list[str], ledger: Ledger) -> None:
    run(ask(IdempotencyMiddleware(Counting(status), ledger=ledger, on_5xx="in_doubt"), KEY, ANN))
    (record,) = ledger.records.list()
    explanation = explained(record, ledger.records.history(record.request.id), ledger.clock.now_us())
    assert all(word in explanation["known"] for word in words)
    if status == 502:
        assert explanation["question"] == (
            f"Look at what POST /charges acts on: did the request take effect since "
            f"{rfc3339(record.entered_at)}? What it called that has a contract has a record of its own, in "
            f"the conversation {record.request.conversation}."
        )


@pytest.fixture
def ends() -> Iterator[list[CallEnded]]:
    """The calls that have ended, told to the only hook there is."""
    told: list[CallEnded] = []
    with instrumentation.use(told.append):
        yield told


def test_hooks_are_told_of_every_request_with_a_key(ledger: Ledger, ends: list[CallEnded]) -> None:
    counting = Counting()
    app = IdempotencyMiddleware(counting, ledger=ledger, on_5xx="in_doubt")

    async def main() -> None:
        await ask(app, ANN)  # has no key
        for body in (b"{}", b"{}", b"[]"):
            await ask(app, KEY, ANN, body=body)
        ledger.cache = SettledCache()
        await ask(app, KEY, ANN)
        counting.status = 500
        for _ in range(2):
            await ask(app, OTHER_KEY, ANN)
        counting.status = 422
        await ask(app, (b"idempotency-key", b"k-3"), ANN)

    run(main())
    answers = ["done", "replayed", "KEY_REUSED", "replayed", "OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN", "done"]
    assert [end.answer for end in ends] == answers
    assert [end.replayed for end in ends] == [answer == "replayed" for answer in answers]
    assert {(end.tool, end.class_) for end in ends} == {("POST /charges", "write-non-idempotent")}


def test_hooks_hear_of_the_end_where_they_heard_of_the_start(ledger: Ledger) -> None:
    """Frameworks stream in a task of their own: a span that is begun in one cannot be ended in another."""
    tasks: list[Any] = []

    class Tasks:
        def started(self, call: CallEnded) -> None:
            tasks.append(asyncio.current_task())

        ended = started

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.create_task(Counting()(scope, receive, send))

    with instrumentation.use(Tasks()):
        run(ask(IdempotencyMiddleware(app, ledger=ledger), KEY, ANN))
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


def test_a_cancelled_request_is_told_of_too(ledger: Ledger, ends: list[CallEnded]) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            entered.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(ask(IdempotencyMiddleware(app, ledger=ledger), KEY, ANN))
        await entered.wait()
        task.cancel()
        await asyncio.wait([task])

    run(main())
    assert [end.answer for end in ends] == ["OUTCOME_UNKNOWN"]


def test_a_caller_that_makes_a_new_key_for_every_try_is_found_and_two_callers_are_not(ledger: Ledger) -> None:
    app = IdempotencyMiddleware(Counting(), ledger=ledger)
    run(ask(app, KEY, ANN))
    run(ask(app, KEY, BOB))
    assert find_duplicates(ledger.store, "default").count == 0
    run(ask(app, OTHER_KEY, ANN))
    report = find_duplicates(ledger.store, "default")
    assert {tool: each.count for tool, each in report.tools.items()} == {"POST /charges": 1}


def test_a_repeat_after_the_window_is_found_and_windows_say_so(ledger: Ledger) -> None:
    clock = cast(FakeClock, ledger.clock)
    app = IdempotencyMiddleware(Counting(), ledger=ledger, window="1h")
    run(ask(app, KEY, ANN))
    clock.advance("30m")
    assert run(ask(app, KEY, ANN)).replayed
    clock.advance("2h")
    assert not run(ask(app, KEY, ANN)).replayed
    ledger.close()
    (advice,) = advise(ledger.store, "default")
    seen: tuple[Any, ...] = (advice.name, advice.ages.retries, advice.after, advice.too_short)
    assert seen == ("POST /charges", 2, 1, True)
    assert advice.stock is not None
