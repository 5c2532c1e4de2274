"""A caller that looks for a settlement before it claims is answered as one that claims at once."""

from collections.abc import Iterator

import pytest

import semel
from semel.errors import KeyReused, OutcomeUnknown, StoreUnavailable, VersionMismatch
from semel.ledger.ledger import Ledger
from semel.testing import FlakyStore
from tests.tools import a_step, another_process, declared, kinds, the_record


class Noting(FlakyStore):
    """Notes which commands reach it, and asks its callers to look first."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.looks_first = True
        self.commands: list[str] = []

    def before(self, name: str) -> None:
        self.commands.append(name)
        super().before(name)


@pytest.fixture
def store(kind, clock, tmp_path) -> Noting:
    return Noting(kind.open(tmp_path, clock, True))


@pytest.fixture
def first(store) -> Iterator[Ledger]:
    with Ledger(store, tenant="acme") as opened:
        yield opened


@pytest.fixture
def later(first, store) -> Ledger:
    """A process that knows nothing of what the first one did but from the store."""
    return another_process(first)


@declared(name="pay", window="1h")
def pay(to: str) -> dict[str, str]:
    return {"paid": to}


@declared(name="pay", version="2.0.0", window="1h")
def pay_anew(to: str) -> dict[str, str]:
    raise AssertionError("the key is of another version")


@declared(name="fail")
def fail(to: str) -> None:
    raise ValueError(f"no account {to}")


@declared(name="lose")
def lose(to: str) -> None:
    raise TimeoutError(to)


def commands_of(store: Noting, call) -> list[str]:
    store.commands.clear()
    call()
    return [name for name in store.commands if name in ("look", "claim", "settle")]


def test_what_is_settled_is_replayed_without_a_claim(first, later, store):
    with a_step(first):
        assert commands_of(store, lambda: pay("a")) == ["look", "claim", "settle"]
    with a_step(later):
        assert commands_of(store, lambda: pay("a")) == ["look"]
        assert commands_of(store, lambda: pay("a")) == [], "the second time it is in the cache"
        assert pay("a") == {"paid": "a"}
    assert kinds(first) == ["claimed", "settled"]
    assert kinds(later) == ["claimed", "settled", "dedup_hit"]


def test_who_found_nothing_claims_at_once_until_a_claim_meets_a_settlement(first, later, store):
    with a_step(first):
        for to in "abc":
            pay(to)
    with a_step(later):
        assert commands_of(store, lambda: pay("new")) == ["look", "claim", "settle"]
        assert commands_of(store, lambda: pay("newer")) == ["claim", "settle"]
        assert commands_of(store, lambda: pay("a")) == ["claim"]
        assert commands_of(store, lambda: pay("b")) == ["look"]


def test_a_failure_that_is_found_is_raised_again_as_a_replay(first, later, store):
    for ledger in (first, later):
        with a_step(ledger):
            result = fail.call(semel.ToolCall({"to": "a"}))
            assert (result.error.code, result.replayed) == ("EFFECT_FAILED", ledger is later)
    assert store.commands.count("claim") == 1


def test_a_result_as_data_says_that_it_was_found(first, later):
    with a_step(first):
        assert not pay.call(semel.ToolCall({"to": "a"})).replayed
    with a_step(later):
        found = pay.call(semel.ToolCall({"to": "a"}))
    assert (found.value, found.replayed) == ({"paid": "a"}, True)


def test_a_key_that_is_found_with_another_payload_is_refused(first, later):
    pay.call(semel.ToolCall({"to": "a"}, idempotency_key="k-1"), first)
    result = pay.call(semel.ToolCall({"to": "b"}, idempotency_key="k-1"), later)
    assert isinstance(result.error.exception(), KeyReused)
    assert "a" not in result.error.details


def test_a_key_that_is_found_under_another_version_is_refused(first, later):
    pay.call(semel.ToolCall({"to": "a"}, idempotency_key="k-1"), first)
    result = pay_anew.call(semel.ToolCall({"to": "a"}, idempotency_key="k-1"), later)
    assert isinstance(result.error.exception(), VersionMismatch)


def test_what_is_found_after_its_window_is_performed_anew(first, later, store, clock):
    with a_step(first):
        pay("a")
    clock.advance("1h")
    with a_step(later):
        assert commands_of(store, lambda: pay("a")) == ["look", "claim", "settle"]
    assert the_record(first).attempts == 1
    assert kinds(first) == ["claimed", "settled", "claimed", "settled"]


def test_what_is_found_in_doubt_is_claimed_and_answered_by_its_contract(first, later, store):
    with a_step(first), pytest.raises(TimeoutError):
        lose("a")
    with a_step(later), pytest.raises(OutcomeUnknown):
        lose("a")
    assert store.commands[-2:] == ["look", "claim"]


def test_a_store_that_does_not_answer_the_look_enters_no_tool_and_leaves_nothing(first, store):
    store.refuse("look")
    with a_step(first):
        with pytest.raises(StoreUnavailable):
            pay("a")
        assert not first.running.calls
        assert pay("a") == {"paid": "a"}
    assert the_record(first).attempts == 1


def test_an_asynchronous_caller_claims_at_once(first, store, way):
    tool = way.tool(name="apay")(paid)
    with a_step(first):
        store.commands.clear()
        way.call(tool, "a")
    assert ("look" in store.commands) is not way.is_async


def paid(to: str) -> dict[str, str]:
    return {"paid": to}
