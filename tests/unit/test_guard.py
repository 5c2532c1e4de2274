"""One call from the claim to its answer: what runs, what is replayed, who may go on."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel

import semel
from semel.call.step import Step
from semel.errors import (
    EffectFailed,
    InFlight,
    OutcomeUnknown,
    OwnershipLost,
    ResultUnavailable,
    StoreCorrupt,
)
from semel.kernel.keys import derive, fingerprint
from semel.kernel.limits import RESULT_BYTES_MAX
from semel.kernel.record import Address, Claim, Settle, State
from semel.ledger.ledger import Ledger
from tests.commands import asked
from tests.patience import PATIENCE_S
from tests.tools import a_step, another_process, declared, state, the_record


class Colour(Enum):
    RED = "red"


class Place(NamedTuple):
    x: int
    y: int


@dataclass
class Parcel:
    weight: Decimal
    sent: datetime


class Refund(BaseModel):
    id: UUID
    amount: Decimal
    on: date
    colours: set[Colour] = set()


class UpstreamTimeout(Exception):
    """The downstream did not answer."""


class Declined(Exception):
    """The downstream did nothing."""


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOME_ID = UUID("12345678-1234-5678-1234-567812345678")


# --- once -----------------------------------------------------------------------------------------


def test_a_second_call_reads_the_first_result(ledger, way):
    ran = []

    @way.tool()
    def refund(payment_id: str) -> dict:
        ran.append(payment_id)
        return {"id": len(ran)}

    with a_step(ledger):
        assert way.call(refund, "p-1") == way.call(refund, payment_id="p-1") == {"id": 1}
    assert ran == ["p-1"]


def test_the_result_is_read_from_the_store_by_a_process_that_did_not_write_it(ledger, way):
    ran = []

    @way.tool()
    def refund(payment_id: str) -> dict:
        ran.append(payment_id)
        return {"id": len(ran)}

    with a_step(ledger):
        way.call(refund, "p-1")
    with a_step(Ledger(ledger.store, tenant="acme")):
        assert way.call(refund, "p-1") == {"id": 1}
    assert ran == ["p-1"]


def test_another_step_another_tool_or_other_arguments_are_another_action(ledger):
    keys = set()

    def remember(payment_id: str, amount: int = 1) -> None:
        keys.add(semel.current_key())

    refund, charge = declared(name="refund")(remember), declared(name="charge")(remember)
    with a_step(ledger, "one"):
        refund("p-1"), refund("p-2"), refund("p-1", 2), charge("p-1")
    with a_step(ledger, "two"):
        refund("p-1")
    with a_step(ledger, "one", conversation="conv-43"):
        refund("p-1")
    assert len(keys) == 6


def test_another_major_version_is_another_action_and_another_minor_is_not(ledger):
    keys = []

    def remember(payment_id: str) -> None:
        keys.append(semel.current_key())

    with a_step(ledger):
        for version in ("2.1.0", "2.2.0", "3.0.0"):
            declared(version=version)(remember)("p-1")
    assert len(set(keys)) == len(keys) == 2


@pytest.mark.parametrize("given", [5000, 5000.0, "5000", Decimal("5000")])
def test_what_validates_to_the_same_is_one_action(ledger, given):
    ran = []

    @declared()
    def pay(amount: int) -> None:
        ran.append(amount)

    with a_step(ledger):
        pay(5000)
        pay(given)
    assert ran == [5000]


def test_position_name_and_default_make_no_difference(ledger):
    ran = []

    @declared()
    def pay(to: str, amount: int = 5, note: str | None = None) -> None:
        ran.append(to)

    with a_step(ledger):
        pay("a")
        pay(to="a")
        pay("a", 5)
        pay("a", amount=5, note=None)
        pay(note=None, amount=5, to="a")
    assert ran == ["a"]


def test_ignored_arguments_make_no_difference_and_others_do(ledger):
    ran = []

    @declared(ignore=("reason", "meta.trace"))
    def pay(to: str, reason: str, meta: dict[str, str]) -> None:
        ran.append((to, reason, meta["kind"]))

    with a_step(ledger):
        pay("a", "broken", {"trace": "1", "kind": "x"})
        pay("a", "damaged", {"trace": "2", "kind": "x"})
        pay("a", "damaged", {"trace": "2", "kind": "y"})
    assert ran == [("a", "broken", "x"), ("a", "damaged", "y")]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Refund, Refund(id=SOME_ID, amount=Decimal("1.50"), on=date(2026, 5, 1), colours={Colour.RED})),
        (Parcel, Parcel(Decimal("0.100"), NOON)),
        (Decimal, Decimal("0.30")),
        (datetime, NOON),
        (timedelta, timedelta(days=3, microseconds=7)),
        (UUID, SOME_ID),
        (Colour, Colour.RED),
        (None, None),
        (Place, Place(1, 2)),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (bytes, b"\x00\xff"),
        (list[Refund | None], [None, Refund(id=SOME_ID, amount=Decimal(1), on=date(2026, 5, 1))]),
        (float, 0.1),
        (int, 1 << 80),
        (str, "grüße \U0001f44b"),
        (dict[str, Any], {"a": [1, None, {"b": True}]}),
        (Any, [1, {"a": None}]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_replay_is_equal_and_of_the_same_type(ledger, annotation, value):
    def make(id: str):
        return value

    make.__annotations__["return"] = annotation
    tool = declared()(make)
    with a_step(ledger):
        first, second = tool("1"), tool("1")
    with a_step(Ledger(ledger.store, tenant="acme")):
        third = tool("1")
    assert first == second == third == value
    assert type(first) is type(second) is type(third)


def test_every_replay_is_an_object_of_its_own(ledger):
    tool = declared()(list_of)
    with a_step(ledger):
        tool("1")
        tool("1").append("spoiled")
        assert tool("1") == ["1"]


def list_of(id: str) -> list[str]:
    return [id]


@pytest.mark.parametrize(
    "value",
    [object(), "x" * (RESULT_BYTES_MAX + 1), "\ud800", {"a": object()}, lambda: None, threading.Lock()],
    ids=["object", "too large", "surrogate", "object in a dict", "function", "lock"],
)
def test_a_result_that_cannot_be_kept_is_returned_once_and_never_run_again(ledger, way, value):
    ran = []

    @way.tool()
    def make(id: str):
        ran.append(id)
        return value

    with a_step(ledger):
        assert way.call(make, "1") is value
        for _ in range(2):
            with pytest.raises(ResultUnavailable):
                way.call(make, "1")
    assert ran == ["1"]
    assert state(ledger) == "done"


def test_a_tool_without_async_def_that_returns_a_coroutine_fails_instead_of_running_unguarded(ledger):
    ran = []

    async def effect() -> None:
        ran.append("effect")

    @declared()
    def send(to: str):
        return effect()

    with a_step(ledger), pytest.raises(EffectFailed, match="coroutine"):
        send("a")
    assert ran == []
    assert state(ledger) == "failed"


def test_the_window_counts_from_the_settlement_and_ends_in_the_cache_as_in_the_store(ledger, clock, way):
    ran = []

    @way.tool(window="1h")
    def pay(to: str) -> int:
        clock.advance("10m")
        ran.append(to)
        return len(ran)

    with a_step(ledger):
        way.call(pay, "a")
        clock.advance(timedelta(hours=1) - timedelta(microseconds=1))
        assert way.call(pay, "a") == 1
        clock.advance(timedelta(microseconds=1))
        assert way.call(pay, "a") == 2


@pytest.mark.parametrize("state_of_it", [State.DONE, State.FAILED, State.PARTIAL])
def test_a_damaged_outcome_is_not_an_absent_one(ledger, state_of_it, way):
    @way.tool()
    def pay(to: str) -> int:
        raise AssertionError("it was settled before")

    with a_step(ledger) as step:
        damage(ledger, step, pay, state_of_it)
        for _ in range(2):
            with pytest.raises(StoreCorrupt):
                way.call(pay, "a")


def damage(ledger: Ledger, step: Step, tool: Any, settled_as: State) -> None:
    """Someone settled the key of this call, and the disk made something else of it."""
    key = derive(step.seed, tool.contract.frame, b'{"to":"a"}')
    asked_for = asked(at=Address("acme", "tool", key), tool="pay", version="1.0.0")
    asked_for = asked_for._replace(fingerprint=fingerprint("pay", b'{"to":"a"}'))
    ledger.store.perform(Claim(asked_for, b"t" * 16, 1_000_000))
    ledger.store.perform(Settle(asked_for.at, b"t" * 16, settled_as, b'{"half', None))


@pytest.mark.parametrize("before", ["a text", float("nan"), [1]], ids=repr)
def test_a_result_of_an_earlier_type_that_fits_no_more_is_unavailable_not_corrupt(ledger, before):
    def measured(to: str):
        return before

    def counted(to: str) -> date:
        raise AssertionError("it was measured before")

    measured.__annotations__["return"] = type(before)
    with a_step(ledger):
        declared(name="measure")(measured)("a")
    with a_step(another_process(ledger)), pytest.raises(ResultUnavailable, match="present result type"):
        declared(name="measure")(counted)("a")


# --- several at once ------------------------------------------------------------------------------


class Gate:
    """A tool that is entered and stays inside until it is let go."""

    def __init__(self, **said: Any) -> None:
        self.entered, self.go, self.ran = threading.Event(), threading.Event(), 0

        @declared(**said)
        def pay(to: str) -> int:
            self.ran += 1
            self.entered.set()
            assert self.go.wait(PATIENCE_S)
            return self.ran

        self.tool = pay

    def hold(self, ledger: Ledger) -> threading.Thread:
        """Someone is inside the tool, in the usual step."""
        thread = threading.Thread(target=lambda: a_step(ledger).run(self.tool, "a"))
        thread.start()
        assert self.entered.wait(PATIENCE_S)
        return thread

    def let_go(self, thread: threading.Thread) -> None:
        self.go.set()
        thread.join(PATIENCE_S)


def test_a_second_caller_waits_for_the_first_and_reads_its_result(real):
    gate, read = Gate(), []
    holder = gate.hold(real)
    waiter = threading.Thread(target=lambda: read.append(a_step(real).run(gate.tool, "a")))
    waiter.start()
    gate.let_go(holder)
    waiter.join(PATIENCE_S)
    assert read == [1]
    assert gate.ran == 1


def test_a_second_caller_is_refused_where_the_contract_says_so(real):
    gate = Gate(in_flight="refuse")
    holder = gate.hold(real)
    with a_step(real), pytest.raises(InFlight) as refused:
        gate.tool("a")
    gate.let_go(holder)
    assert refused.value.retriable
    assert refused.value.retry_after_s
    assert gate.ran == 1


def test_a_second_caller_waits_no_longer_than_it_is_told_to(real):
    gate = Gate(wait="20ms")
    holder = gate.hold(real)
    with a_step(real), pytest.raises(InFlight):
        gate.tool("a")
    gate.let_go(holder)
    assert gate.ran == 1


def test_a_synchronous_wait_on_an_event_loop_is_refused(real):
    gate = Gate()
    holder = gate.hold(real)

    async def call() -> None:
        gate.tool("a")

    with a_step(real), pytest.raises(InFlight, match="event loop"):
        asyncio.run(call())
    gate.let_go(holder)


def test_tasks_of_one_loop_wait_for_each_other(real):
    ran = []

    @declared()
    async def pay(to: str) -> int:
        ran.append(to)
        await asyncio.sleep(0.01)
        return len(ran)

    async def both() -> list[int]:
        return await asyncio.gather(*(pay("a") for _ in range(8)))

    with a_step(real):
        assert asyncio.run(both()) == [1] * 8


def test_a_waiter_whose_owner_dies_meets_the_doubt_when_the_lease_lapses(ledger, clock, way):
    @way.tool(lease="20s", wait="30s")
    def pay(to: str) -> None: ...

    claim_and_vanish(ledger, pay)
    with a_step(ledger), pytest.raises(OutcomeUnknown):
        way.call(pay, "a")


def test_a_waiter_gives_up_before_a_longer_lease_lapses(ledger, clock, way):
    @way.tool(lease="60s", wait="30s")
    def pay(to: str) -> None: ...

    claim_and_vanish(ledger, pay)
    with a_step(ledger), pytest.raises(InFlight):
        way.call(pay, "a")
    assert state(ledger) == "pending"


def claim_and_vanish(ledger: Ledger, tool: Any) -> None:
    """A process that dies inside the tool."""
    from semel.testing import Crash, crashing

    def call() -> None:
        begun = tool("a")
        if begun is not None:
            asyncio.run(_run(begun))

    with pytest.raises(Crash), a_step(crashing(ledger, "before settle")):
        call()


async def _run(begun: Any) -> Any:
    return await begun


# --- owners ---------------------------------------------------------------------------------------


def test_an_owner_that_was_silent_past_its_lease_may_still_settle_if_nobody_went_on(ledger, clock, way):
    @way.tool(lease="10s")
    def pay(to: str) -> int:
        clock.advance("1m")
        ledger.sweeper.run_once()
        assert state(ledger) == "in_doubt"
        return 1

    with a_step(ledger):
        assert way.call(pay, "a") == way.call(pay, "a") == 1
    assert state(ledger) == "done"


@pytest.mark.parametrize("ending", ["returns", "fails", "is refused", "cannot tell", "times out"])
def test_an_owner_after_which_someone_else_went_on_is_told_and_changes_nothing(ledger, clock, ending):
    def again(to: str) -> int:
        return 2

    def frozen(to: str) -> int:
        clock.advance("1m")
        with a_step(another_process(ledger)):
            assert tool_of(again)("a") == 2
        if ending == "returns":
            return 1
        raise {
            "fails": LookupError(),
            "is refused": Declined(),
            "cannot tell": UpstreamTimeout(),
            "times out": TimeoutError(),
        }[ending]

    def tool_of(function: Any) -> Any:
        said: Any = {"lease": "10s", "on_unknown": "rerun", "refused": Declined, "transient": UpstreamTimeout}
        return declared(name="pay", **said)(function)

    with a_step(ledger), pytest.raises(OwnershipLost) as lost:
        tool_of(frozen)("a")
    assert not lost.value.retriable
    with a_step(another_process(ledger)):
        assert tool_of(again)("a") == 2
    assert (state(ledger), the_record(ledger).attempts) == ("done", 2)


@pytest.mark.parametrize("outcome", ["happened", "did_not_happen"])
@pytest.mark.parametrize("ending", [None, LookupError(), Declined(), TimeoutError()], ids=repr)
def test_an_owner_that_ends_after_a_person_decided_is_told(ledger, clock, outcome, ending):
    @declared(lease="10s", refused=(Declined,))
    def pay(to: str) -> int:
        clock.advance("1m")
        ledger.records.resolve(the_record(ledger).request.id, outcome, by="ann")
        if ending is not None:
            raise ending
        return 1

    with a_step(ledger), pytest.raises(OwnershipLost):
        pay("a")
    assert the_record(ledger).state == ("done" if outcome == "happened" else "cleared")


def test_fences_rise_with_every_attempt_and_also_after_a_release(ledger, clock):
    fences: list[int] = []

    @declared(refused=(Declined,), on_unknown="rerun")
    def pay(to: str) -> None:
        fences.append(semel.current_fence() or 0)
        if len(fences) == 1:
            raise Declined
        if len(fences) == 2:
            raise TimeoutError

    with a_step(ledger):
        for error in (Declined, TimeoutError):
            with pytest.raises(error):
                pay("a")
        pay("a")
    assert all(earlier < later for earlier, later in pairwise(fences))
    assert len(fences) == 3


def test_key_and_fence_are_known_inside_the_tool_only(ledger, way):
    @way.tool()
    def outer(to: str, key: semel.Key) -> tuple[str, str, str]:
        before = semel.current_key()
        inner_key = inner("x")
        return str(before), inner_key, str(semel.current_key())

    @declared()
    def inner(to: str) -> str:
        return str(semel.current_key())

    assert (semel.current_key(), semel.current_fence()) == (None, None)
    with a_step(ledger):
        before, within, after = way.call(outer, "a")
    assert before == after != within
    assert (semel.current_key(), semel.current_fence()) == (None, None)


def test_the_forwarded_key_is_the_key_of_the_record(ledger, way):
    @way.tool()
    def pay(to: str, key: semel.Key) -> str:
        assert isinstance(key, semel.Key)
        assert key == semel.current_key()
        return key

    with a_step(ledger):
        assert way.call(pay, "a") == the_record(ledger).request.at.key


@pytest.mark.parametrize("ending", [None, LookupError(), Declined(), TimeoutError()], ids=repr)
def test_an_owner_that_ends_while_the_next_one_is_inside_does_not_touch_its_record(ledger, clock, ending):
    inside, go, told = threading.Event(), threading.Event(), []

    def frozen(to: str) -> int:
        inside.set()
        assert go.wait(PATIENCE_S)
        if ending is not None:
            raise ending
        return 1

    def go_on(to: str) -> int:
        before = the_record(ledger)
        go.set()
        frozen_caller.join(PATIENCE_S)
        assert the_record(ledger) == before
        return 2

    def tool_of(function: Any) -> Any:
        return declared(name="pay", lease="10s", on_unknown="rerun", refused=(Declined,))(function)

    def call() -> None:
        try:
            a_step(ledger).run(tool_of(frozen), "a")
        except OwnershipLost as lost:
            told.append(lost)

    frozen_caller = threading.Thread(target=call)
    frozen_caller.start()
    assert inside.wait(PATIENCE_S)
    clock.advance("1m")
    with a_step(another_process(ledger)):
        assert tool_of(go_on)("a") == 2
    assert len(told) == 1
    assert state(ledger) == "done"
