"""A tool as callers meet it: the plain call, the call as data, codes, explicit keys, methods, classes."""

import asyncio
from typing import Any

import pytest

import semel
from semel import errors
from semel.contract.result import ToolCall, ToolResult
from semel.errors import InvalidArguments, NoStep, ScopeDenied, VersionMismatch
from semel.kernel.limits import ARGUMENT_BYTES_MAX
from semel.kernel.record import Address, Claim
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import Crash, FakeClock, crashing
from tests.tools import a_step, declared, events, keyed, kinds, state, the_record

TABLE = {
    "NO_STEP": (False, "NoStep"),
    "INVALID_ARGUMENTS": (False, "InvalidArguments"),
    "SCOPE_DENIED": (False, "ScopeDenied"),
    "VERSION_MISMATCH": (False, "VersionMismatch"),
    "RETRY_IN_FLIGHT": (True, "InFlight"),
    "KEY_REUSED": (False, "KeyReused"),
    "STORE_UNAVAILABLE": (True, "StoreUnavailable"),
    "STORE_CORRUPT": (False, "StoreCorrupt"),
    "TOO_LARGE": (False, "TooLarge"),
    "UPSTREAM_TIMEOUT": (True, "UpstreamUnavailable"),
    "EFFECT_FAILED": (False, "EffectFailed"),
    "PARTIAL_SUCCESS": (False, "PartialSuccess"),
    "OUTCOME_UNKNOWN": (False, "OutcomeUnknown"),
    "OWNERSHIP_LOST": (False, "OwnershipLost"),
    "RESULT_UNAVAILABLE": (False, "ResultUnavailable"),
    "APPROVAL_REQUIRED": (True, "ApprovalRequired"),
    "APPROVAL_REJECTED": (False, "ApprovalRejected"),
}


@pytest.mark.parametrize("code", TABLE)
def test_every_code_has_its_exception_and_says_whether_to_come_again(code):
    retriable, name = TABLE[code]
    kind = getattr(errors, name)
    error = kind()
    assert issubclass(kind, errors.SemelError)
    assert (error.code, error.retriable) == (code, retriable)
    assert error.message
    assert error.corrective_action
    assert error.retry_after_s == (1.0 if code == "STORE_UNAVAILABLE" else None)


def test_there_is_no_code_beyond_the_table():
    assert set(errors.BY_CODE) == set(TABLE)


# --- every row of the table, as data and as an exception ------------------------------------------


class Situation:
    """A tool and a request that lead to one code."""

    def __init__(self, ledger: Ledger, way: Any, clock: FakeClock) -> None:
        self.ledger, self.way, self.clock, self.ran = ledger, way, clock, 0
        self.request = ToolCall({"to": "a"}, idempotency_key="k")

    def tool(self, function: Any = None, **said: Any) -> Any:
        def pay(to: str, key: semel.Key | None = None) -> int:
            self.ran += 1
            return function() if function else 1

        return self.way.tool(name="pay", **said)(pay)

    def done(self, tool: Any, request: ToolCall | None = None) -> ToolResult[Any]:
        result: ToolResult[Any] = self.way.ask(tool, request or self.request, self.ledger)
        return result


def raising(error: BaseException) -> Any:
    def raises() -> None:
        raise error

    return raises


def no_step(at: Situation) -> Any:
    at.request = ToolCall({"to": "a"})
    return at.tool()


def invalid(at: Situation) -> Any:
    at.request = ToolCall({"too": "a"}, idempotency_key="k")
    return at.tool()


def denied(at: Situation) -> Any:
    return at.tool(scopes={"pay"})


def mismatched(at: Situation) -> Any:
    at.request = ToolCall({"to": "a"}, idempotency_key="k", version="2.0.0")
    return at.tool()


def of_another_major_version(at: Situation) -> Any:
    at.done(at.tool(version="1.9.0"))
    at.ran = 0
    return at.tool(version="2.0.0")


def in_flight(at: Situation) -> Any:
    tool = at.tool(in_flight="refuse")
    at.ledger.store.perform(claim_of(at, tool))
    return tool


def reused(at: Situation) -> Any:
    at.done(at.tool())
    at.ran = 0
    at.request = ToolCall({"to": "b"}, idempotency_key="k")
    return at.tool()


def too_large(at: Situation) -> Any:
    at.request = ToolCall({"to": "x" * ARGUMENT_BYTES_MAX}, idempotency_key="k")
    return at.tool()


def parked(at: Situation) -> Any:
    with pytest.raises(Crash):
        at.way.ask(at.tool(), at.request, crashing(at.ledger, "before settle"))
    at.clock.advance("1h")
    at.ran = 0
    return at.tool()


def valueless(at: Situation) -> Any:
    at.done(at.tool(object))
    at.ran = 0
    return at.tool()


def rejected(at: Situation) -> Any:
    tool = at.tool(approval="required")
    refusal = at.done(tool).error
    assert refusal is not None
    at.ledger.approvals.reject(refusal.details["job_id"], by="ann")
    return tool


SITUATIONS: dict[str, Any] = {
    "NO_STEP": no_step,
    "INVALID_ARGUMENTS": invalid,
    "SCOPE_DENIED": denied,
    "VERSION_MISMATCH": mismatched,
    "VERSION_MISMATCH ": of_another_major_version,
    "RETRY_IN_FLIGHT": in_flight,
    "KEY_REUSED": reused,
    "TOO_LARGE": too_large,
    "OUTCOME_UNKNOWN": parked,
    "RESULT_UNAVAILABLE": valueless,
    "APPROVAL_REQUIRED": lambda at: at.tool(approval="required"),
    "APPROVAL_REJECTED": rejected,
}

KEYED: dict[str, Any] = {"downstream_window": "1h"}
AFTER_RUNNING: dict[str, Any] = {
    "EFFECT_FAILED": lambda at: at.tool(raising(LookupError("gone"))),
    "PARTIAL_SUCCESS": lambda at: at.tool(raising(errors.PartialSuccess(done=1, remaining=2))),
    "UPSTREAM_TIMEOUT": lambda at: at.tool(
        raising(ChildProcessError()), transient=(ChildProcessError,), **KEYED
    ),
    "UPSTREAM_TIMEOUT ": lambda at: at.tool(raising(TimeoutError()), **KEYED),
    "OUTCOME_UNKNOWN": lambda at: at.tool(raising(TimeoutError())),
}


def claim_of(at: Situation, tool: Any) -> Claim:
    """What another process, which is inside the tool, has claimed."""
    doomed = crashing(Ledger(MemoryStore(clock=at.clock), tenant=at.ledger.tenant), "after claim")
    with pytest.raises(Crash):
        at.way.ask(tool, at.request, doomed)
    [record] = Ledger(doomed.store.inner, tenant=at.ledger.tenant).records.list()  # type: ignore[attr-defined]
    return Claim(record.request, b"other process!!!", 60_000_000)


@pytest.mark.parametrize("code", SITUATIONS)
def test_the_call_as_data_says_what_was_refused_and_the_tool_does_not_run(ledger, way, clock, code):
    at = Situation(ledger, way, clock)
    tool = SITUATIONS[code](at)
    result = at.done(tool)
    assert result.error is not None
    assert (result.ok, result.value, at.ran) == (False, None, 0)
    assert (result.error.code, result.error.retriable) == (code.strip(), TABLE[code.strip()][0])
    assert isinstance(result.error.exception(), getattr(errors, TABLE[code.strip()][1]))
    with pytest.raises(getattr(errors, TABLE[code.strip()][1])):
        result.unwrap()


@pytest.mark.parametrize("code", AFTER_RUNNING)
def test_the_call_as_data_says_how_the_tool_ended(ledger, way, clock, code):
    at = Situation(ledger, way, clock)
    result = at.done(AFTER_RUNNING[code](at))
    assert result.error is not None
    assert (result.ok, at.ran) == (False, 1)
    assert (result.error.code, result.error.retriable) == (code.strip(), TABLE[code.strip()][0])
    assert result.key == the_record(ledger).request.at.key


def test_the_call_as_data_says_what_came_back_and_whether_it_is_an_earlier_one(ledger, way, clock):
    at = Situation(ledger, way, clock)
    tool = at.tool()
    first, second = at.done(tool), at.done(tool)
    assert (first.ok, first.value, first.replayed) == (True, 1, False)
    assert (second.ok, second.value, second.replayed) == (True, 1, True)
    assert first.key == second.key == the_record(ledger).request.at.key
    assert isinstance(first.key, semel.Key)


def test_a_replayed_failure_says_that_it_is_one(ledger, way, clock):
    at = Situation(ledger, way, clock)
    tool = at.tool(raising(LookupError()))
    assert [at.done(tool).replayed for _ in range(3)] == [False, True, True]


def test_the_call_as_data_lets_through_what_no_contract_decides(ledger, way, clock):
    at = Situation(ledger, way, clock)
    with pytest.raises(SystemExit):
        at.done(at.tool(raising(SystemExit())))
    assert state(ledger) == "in_doubt"


@pytest.mark.parametrize("arguments", [None, [], "to", 5, [("to", "a")]])
def test_arguments_without_names_are_refused(ledger, way, clock, arguments):
    at = Situation(ledger, way, clock)
    result = at.done(at.tool(), ToolCall(arguments, idempotency_key="k"))
    assert result.error is not None
    assert (result.error.code, at.ran) == ("INVALID_ARGUMENTS", 0)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"to": 5}, {"to": None}, {"to": "a", "more": 1}, {1: "a"}, {"to": "a\0"}, {"to": "\ud800"}],
    ids=str,
)
def test_arguments_that_do_not_fit_are_refused_before_anything_is_kept(ledger, way, clock, arguments):
    at = Situation(ledger, way, clock)
    result = at.done(at.tool(), ToolCall(arguments, idempotency_key="k"))
    assert result.error is not None
    assert (result.error.code, at.ran) == ("INVALID_ARGUMENTS", 0)
    assert ledger.records.list() == []


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), "many"])
def test_numbers_that_are_none_are_refused(ledger, amount):
    ran = []

    @declared()
    def pay(amount: float) -> None:
        ran.append(amount)

    with a_step(ledger), pytest.raises(InvalidArguments):
        pay(amount)
    assert ran == []


def test_arguments_nested_deeper_than_any_payload_are_refused(ledger):
    ran: list[Any] = []
    deep: list[Any] = []
    for _ in range(70):
        deep = [deep]

    @declared()
    def pay(what: Any) -> None:
        ran.append(what)

    with a_step(ledger), pytest.raises(InvalidArguments, match="deeper"):
        pay(deep)
    assert ran == []


def test_an_ignored_argument_is_bounded_too(ledger):
    ran = []

    @declared(ignore=("note",))
    def pay(to: str, note: str) -> None:
        ran.append(to)

    with a_step(ledger), pytest.raises(errors.TooLarge):
        pay("a", "x" * ARGUMENT_BYTES_MAX)
    assert ran == []


# --- explicit keys --------------------------------------------------------------------------------


def test_an_explicit_key_needs_no_step_and_replaces_the_derived_one(ledger, way):
    ran = []

    @way.tool()
    def pay(to: str) -> None:
        ran.append(to)

    request = ToolCall({"to": "a"}, idempotency_key="order-1")
    alone = way.ask(pay, request, ledger)
    with a_step(ledger):
        inside = way.ask(pay, request)
        derived = way.ask(pay, ToolCall({"to": "a"}))
    assert alone.key == inside.key != derived.key
    assert (alone.replayed, inside.replayed, derived.replayed) == (False, True, False)
    assert len(ran) == 2


def test_a_reused_key_discloses_nothing(ledger, way):
    @way.tool()
    def pay(to: str) -> str:
        return "result-canary"

    way.ask(pay, ToolCall({"to": "argument-canary"}, idempotency_key="k"), ledger)
    for other in (ledger, Ledger(ledger.store, tenant="acme")):
        result = way.ask(pay, ToolCall({"to": "b"}, idempotency_key="k"), other)
        assert "canary" not in repr(result)
        assert result.error is not None
        assert (result.error.code, dict(result.error.details)) == ("KEY_REUSED", {})


def test_a_key_reused_for_another_tool_is_refused_also_when_the_arguments_are_the_same(ledger, way):
    ran = []

    def remember(to: str) -> None:
        ran.append(to)

    pay, charge = way.tool(name="pay")(remember), way.tool(name="charge")(remember)
    request = ToolCall({"to": "a"}, idempotency_key="k")
    assert way.ask(pay, request, ledger).ok
    for other in (ledger, Ledger(ledger.store, tenant="acme")):
        result = way.ask(charge, request, other)
        assert result.error is not None
        assert result.error.code == "KEY_REUSED"
    assert ran == ["a"]


def test_a_key_reused_while_the_first_call_is_in_doubt_is_refused_too(ledger, way):
    @way.tool(on_unknown="rerun")
    def pay(to: str) -> None:
        raise TimeoutError

    way.ask(pay, ToolCall({"to": "a"}, idempotency_key="k"), ledger)
    ledger.records.resolve(the_record(ledger).request.id, "did_not_happen", by="ann")
    result = way.ask(pay, ToolCall({"to": "b"}, idempotency_key="k"), ledger)
    assert result.error is not None
    assert result.error.code == "KEY_REUSED"


def test_the_derived_key_of_one_tool_given_by_hand_to_another_is_refused_by_whoever_comes_second(ledger):
    from semel.kernel.keys import derive

    pay, charge = declared(name="pay")(echo), declared(name="charge")(echo)
    with a_step(ledger) as step:
        canonical = charge.contract.arguments.canonical({"to": "a"}, b"")
        key = derive(step.seed, charge.contract.frame, canonical)
        assert pay.call(ToolCall({"to": "a"}, idempotency_key=key)).ok
        for _ in range(2):
            with pytest.raises(errors.KeyReused):
                charge("a")


def echo(to: str) -> str:
    return to


def test_the_same_key_in_another_tenant_is_unrelated(ledger, way):
    ran = []

    @way.tool()
    def pay(to: str) -> None:
        ran.append(to)

    other = Ledger(ledger.store, tenant="globex")
    results = [
        way.ask(pay, ToolCall({"to": to}, idempotency_key="k"), where)
        for to, where in (("a", ledger), ("b", other))
    ]
    assert [(result.ok, result.replayed) for result in results] == [(True, False)] * 2
    assert results[0].key != results[1].key
    assert ran == ["a", "b"]
    assert len(other.records.list()) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "ü" * 128, "a\nb", "a\0", "\ud800", 5, b"k"], ids=repr)
def test_a_key_that_is_none_is_refused(ledger, way, key):
    @way.tool()
    def pay(to: str) -> None:
        raise AssertionError("no key, no effect")

    result = way.ask(pay, ToolCall({"to": "a"}, idempotency_key=key), ledger)
    assert result.error is not None
    assert result.error.code == "INVALID_ARGUMENTS"


def test_a_ledger_beside_the_steps_own_takes_the_keys_names_from_the_step(ledger, way):
    @way.tool()
    def pay(to: str) -> None: ...

    other = Ledger(ledger.store, tenant="globex")
    with a_step(ledger):
        way.ask(pay, ToolCall({"to": "a"}), other)
    [record] = other.records.list()
    assert (record.request.conversation, record.request.at.tenant) == ("conv-42", "globex")
    with a_step(other):
        assert way.ask(pay, ToolCall({"to": "a"})).replayed


# --- steps, scopes, versions ----------------------------------------------------------------------


def test_outside_a_step_a_recorded_tool_does_not_run(way):
    ran = []

    @way.tool()
    def pay(to: str) -> None:
        ran.append(to)

    with pytest.raises(NoStep, match=r"ledger\.step"):
        way.call(pay, "a")
    assert ran == []


def test_a_ledger_alone_makes_no_key(ledger, way):
    @way.tool()
    def pay(to: str) -> None: ...

    result = way.ask(pay, ToolCall({"to": "a"}), ledger)
    assert result.error is not None
    assert result.error.code == "NO_STEP"


@pytest.mark.parametrize("class_", ["read", "write-idempotent", "write-non-idempotent", "irreversible"])
def test_a_tool_needs_every_scope_that_it_names(ledger, way, class_):
    ran = []

    @way.tool(class_=class_, scopes={"pay", "audit"})
    def pay(to: str) -> None:
        ran.append(to)

    with a_step(ledger, scopes={"pay"}), pytest.raises(ScopeDenied, match="audit") as denied:
        way.call(pay, "a")
    assert denied.value.details == {"missing": ["audit"]}
    assert ran == []
    with a_step(ledger, scopes={"pay", "audit", "more"}):
        way.call(pay, "a")
    assert ran == ["a"]


def test_a_request_can_give_up_scopes_of_the_step_but_not_add_any(ledger, way):
    @way.tool(scopes={"pay"})
    def pay(to: str) -> None: ...

    def asked(scopes: set[str] | None) -> bool:
        return way.ask(pay, ToolCall({"to": "a"}, scopes=scopes)).ok

    with a_step(ledger, scopes={"pay"}):
        assert [asked(None), asked({"pay"}), asked(set())] == [True, True, False]
    with a_step(ledger, "poor"):
        assert [asked(None), asked({"pay"})] == [False, False]


def test_a_request_without_a_step_speaks_for_its_own_scopes(ledger, way):
    @way.tool(scopes={"pay"})
    def pay(to: str) -> None: ...

    def asked(scopes: set[str] | None) -> bool:
        return way.ask(pay, ToolCall({"to": "a"}, idempotency_key="k", scopes=scopes), ledger).ok

    assert [asked(None), asked(set()), asked({"pay"})] == [False, False, True]
    assert way.ask(pay, ToolCall({"to": "a"}, idempotency_key="k", scopes="pay"), ledger).ok


def test_scopes_are_checked_before_a_settled_result_is_shown(ledger, way):
    @way.tool(scopes={"pay"})
    def pay(to: str) -> str:
        return "secret"

    with a_step(ledger, scopes={"pay"}):
        way.call(pay, "a")
    with a_step(ledger), pytest.raises(ScopeDenied):
        way.call(pay, "a")


@pytest.mark.parametrize(
    ("asked", "fits"), [("2", True), ("2.9", True), (2, True), ("1.1.0", False), ("20", False)]
)
def test_a_caller_of_another_major_version_is_refused(ledger, asked, fits):
    @declared(version="2.1.0")
    def pay(to: str) -> None: ...

    result = pay.call(ToolCall({"to": "a"}, idempotency_key="k", version=asked), ledger)
    assert result.ok is fits
    assert fits or isinstance(result.error.exception(), VersionMismatch)


# --- classes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("class_", ["read", "write-idempotent"])
def test_a_tool_without_a_record_runs_each_time_without_a_step_and_with_the_store_down(
    shaky, flaky, way, class_
):
    ran = []

    @way.tool(class_=class_)
    def put(id: str) -> int:
        ran.append(id)
        return len(ran)

    flaky.down = True
    assert way.call(put, "1") == 1
    with a_step(shaky):
        assert way.call(put, "1") == 2
    assert way.ask(put, ToolCall({"id": "1"})).value == 3
    flaky.down = False
    assert shaky.records.list() == []


@pytest.mark.parametrize("class_", ["read", "write-idempotent"])
def test_a_tool_without_a_record_raises_what_it_raises(way, class_):
    error = LookupError("none")

    @way.tool(class_=class_)
    def look(id: str) -> None:
        raise error

    with pytest.raises(LookupError) as raised:
        way.call(look, "1")
    assert raised.value is error


@pytest.mark.parametrize(
    ("error", "code", "retriable"),
    [(LookupError("none"), "EFFECT_FAILED", False), (TimeoutError(), "UPSTREAM_TIMEOUT", True)],
)
def test_a_tool_without_a_record_never_raises_as_data(way, error, code, retriable):
    @way.tool(class_="read")
    def look(id: str) -> None:
        raise error

    result = way.ask(look, ToolCall({"id": "1"}))
    assert result.error is not None
    assert (result.error.code, result.error.retriable, result.key) == (code, retriable, None)
    assert "Nothing happened" not in result.error.corrective_action


def test_a_tool_without_a_record_validates_its_arguments(way):
    @way.tool(class_="read")
    def look(id: int) -> int:
        return id

    assert way.call(look, "5") == 5
    with pytest.raises(InvalidArguments):
        way.call(look, "five")


def test_a_read_tool_is_tried_again_without_further_conditions(way):
    ran = []

    class Busy(Exception):
        pass

    @way.tool(class_="read", transient=(Busy,), attempts=3, backoff=lambda entry: 0)
    def look(id: str) -> int:
        ran.append(id)
        if len(ran) < 3:
            raise Busy
        return len(ran)

    assert way.call(look, "1") == 3


def test_the_resource_of_an_idempotent_write_goes_to_the_audit(ledger, way):
    @way.tool(class_="write-idempotent", resource="customer")
    def put(customer: str, name: str) -> None: ...

    with a_step(ledger):
        way.call(put, "c-1", "Ann")
        way.call(put, "c-1", "Ann")
    [event] = events(ledger)
    assert (event.kind, event.note, event.times) == ("performed", "customer=c-1", 2)


def test_what_a_read_tool_returns_as_a_result_is_unwrapped(way):
    @way.tool(class_="read")
    def look(id: str) -> ToolResult[int]:
        return ToolResult.partial(done=1, remaining=2) if id == "half" else ToolResult.success(3)

    assert way.call(look, "all") == 3
    with pytest.raises(errors.PartialSuccess):
        way.call(look, "half")
    assert way.ask(look, ToolCall({"id": "half"})).error.code == "PARTIAL_SUCCESS"


# --- refused, as data -----------------------------------------------------------------------------


def test_a_refusal_by_the_downstream_is_raised_as_it_is_and_may_be_called_again_as_data(ledger, way):
    class Declined(Exception):
        pass

    @way.tool(refused=(Declined,))
    def pay(to: str) -> None:
        raise Declined("not today")

    result = way.ask(pay, ToolCall({"to": "a"}, idempotency_key="k"), ledger)
    assert result.error is not None
    assert (result.error.code, result.error.retriable) == ("EFFECT_FAILED", True)
    assert "not today" in result.error.message
    assert the_record(ledger).state == "released"


# --- methods --------------------------------------------------------------------------------------


class Bank:
    def __init__(self, name: str) -> None:
        self.name = name
        self.paid: list[str] = []

    @declared(key_of=lambda self: None)
    def pay(self, to: str) -> str:
        self.paid.append(to)
        return f"{self.name}: {to}"

    @keyed(key_of=lambda self: self.name)
    async def transfer(self, to: str, key: semel.Key) -> str:
        self.paid.append(to)
        return key

    @classmethod
    @declared(key_of=lambda cls: cls.__name__)
    def open(cls, to: str) -> str:
        return f"{cls.__name__}: {to}"

    @staticmethod
    @declared()
    def close(to: str) -> str:
        return to


def test_self_is_in_the_key_only_as_far_as_key_of_says(ledger):
    one, other = Bank("one"), Bank("other")
    with a_step(ledger):
        assert one.pay("a") == other.pay(to="a") == "one: a"
    assert (one.paid, other.paid) == (["a"], [])


def test_async_methods_class_methods_and_static_methods_work(ledger):
    bank = Bank("one")

    async def transfers() -> set[str]:
        return {await bank.transfer("a"), await bank.transfer("a")}

    with a_step(ledger):
        assert len(asyncio.run(transfers())) == 1
        assert Bank.open("a") == bank.open("a") == "Bank: a"
        assert Bank.close("a") == bank.close("a") == "a"
    assert bank.paid == ["a"]


def test_a_method_is_called_as_data_on_an_instance(ledger):
    bank = Bank("one")
    request = ToolCall({"to": "a"}, idempotency_key="k")
    assert bank.pay.call(request, ledger).value == "one: a"
    assert Bank.pay.call(request, ledger, instance=bank).value == "one: a"
    assert Bank.pay.call(request, ledger).error.code == "INVALID_ARGUMENTS"


def test_a_method_called_on_the_class_says_what_is_missing(ledger):
    with a_step(ledger), pytest.raises(InvalidArguments, match="instance"):
        Bank.pay(to="a")


# --- counting -------------------------------------------------------------------------------------


def test_replays_and_refusals_are_counted_and_written_in_one_event_each(ledger, way):
    @way.tool(scopes={"pay"})
    def pay(to: str) -> None: ...

    with a_step(ledger, scopes={"pay"}, principal="bot"):
        for _ in range(4):
            way.call(pay, "a")
    for _ in range(3):
        with a_step(ledger), pytest.raises(ScopeDenied):
            way.call(pay, "a")
    assert kinds(ledger) == ["claimed", "settled", "dedup_hit", "refused"]
    hit, refusal = events(ledger)[2:]
    assert (hit.times, hit.state, hit.record_id, hit.by) == (3, "done", the_record(ledger).request.id, "bot")
    assert (refusal.times, refusal.state) == (3, "SCOPE_DENIED")


def test_a_replay_that_was_read_from_the_store_is_counted_too(ledger, way):
    tool = way.tool()(echo)
    with a_step(ledger):
        way.call(tool, "a")
    other = Ledger(ledger.store, tenant="acme")
    with a_step(other):
        way.call(tool, "a")
    assert kinds(other) == ["claimed", "settled", "dedup_hit"]


def test_a_failure_on_record_is_not_counted_as_a_refusal_as_well(ledger):
    @declared()
    def pay(to: str) -> None:
        raise LookupError

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(errors.EffectFailed):
                pay("a")
    assert kinds(ledger) == ["claimed", "settled", "dedup_hit"]


def test_the_principal_of_the_step_stands_in_the_record_and_its_events(ledger):
    with a_step(ledger, principal="support-bot"):
        declared()(echo)("a")
    record = the_record(ledger)
    assert (record.request.principal, record.request.step) == ("support-bot", '["refund-1"]')
    assert {event.by for event in events(ledger)} == {"support-bot"}


def test_an_address_names_tenant_scope_and_key(ledger):
    with a_step(ledger):
        declared()(echo)("a")
    assert the_record(ledger).request.at == Address("acme", "tool", the_record(ledger).request.at.key)
