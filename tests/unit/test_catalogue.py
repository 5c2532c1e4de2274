"""The catalogue: what the ledgers of a store have run, and what people's results are held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, SecretStr

from semel.contract.contract import Contract
from semel.contract.result_check import misfit, template
from semel.errors import ResultInvalid
from semel.kernel.clock import rfc3339
from semel.ledger import catalogue
from semel.ledger.catalogue import INDEX, TOOLS_MAX
from semel.ledger.ledger import Ledger
from semel.ledger.records import Records
from semel.stores.documents import Count, Fetch
from semel.stores.memory import MemoryStore
from semel.testing import FakeClock, FlakyStore
from tests.tools import a_step, declared, the_record


def shown(ledger: Ledger, name: str, version: str | None = None) -> Mapping[str, Any] | None:
    return catalogue.shown_as(catalogue.find(ledger.store, ledger.tenant, name), version)


def run(ledger: Ledger, tool: Any, *arguments: Any, step: str = "s") -> Any:
    with a_step(ledger, step):
        return tool(*arguments)


def refunding(version: str = "1.0.0", **said: Any) -> Any:
    @declared(name="refund", version=version, **said)
    def refund(payment: str) -> int:
        return len(payment)

    return refund


# --- what is seen ---------------------------------------------------------------------------------


def test_a_contract_that_was_run_is_described_with_when_it_was_last_seen(ledger, clock):
    tool = refunding(owner="payments")
    seen_at = clock.now_us()
    run(ledger, tool, "p-1")
    assert shown(ledger, "refund") is None  # nothing of it is on the call's way
    ledger.keeper.run_once()
    found = shown(ledger, "refund")
    assert found is not None
    assert found.items() >= tool.contract.describe().items()
    assert (found["owner"], found["result_schema"]) == ("payments", {"type": "integer"})
    assert found["first_seen_at"] == found["last_seen_at"] == rfc3339(seen_at)


def test_tools_without_records_are_seen_too_and_those_that_were_refused_are_not(ledger):
    @declared(class_="read")
    def look_up(what: str) -> list[str]:
        return [what]

    @declared(scopes={"pay"})
    def denied() -> None: ...

    assert run(ledger, look_up, "x") == ["x"]
    with a_step(ledger), pytest.raises(Exception, match="grant"):
        denied()
    ledger.keeper.close()
    assert ledger.store.ask(Count("acme", INDEX)) == 1


def test_the_same_contract_is_written_once_in_an_hour_however_often_it_runs(ledger, clock):
    tool = refunding()
    tags = set()
    for number in range(4):
        run(ledger, tool, "p", step=str(number))
        ledger.keeper.run_once()
        clock.advance("15m")
        tags.add(_tag(ledger))
    assert len(tags) == 1
    run(ledger, tool, "p", step="later")
    ledger.keeper.run_once()
    found = shown(ledger, "refund")
    assert found is not None
    assert found["last_seen_at"] == rfc3339(clock.now_us())
    assert found["first_seen_at"] < found["last_seen_at"]


def _tag(ledger: Ledger) -> str:
    id_ = "tool/refund"
    return str(ledger.store.ask(Fetch("acme", (id_,))).documents[id_].tag)


def test_each_major_version_is_kept_and_of_each_the_newest(ledger, clock):
    for number, version in enumerate(("1.2.0", "1.10.0", "1.9.9", "2.0.0-rc1")):
        run(ledger, refunding(version), "p", step=str(number))
        ledger.keeper.run_once()
    found = shown(ledger, "refund")
    assert found is not None
    assert [each["version"] for each in found["versions"]] == ["2.0.0-rc1", "1.10.0"]
    assert found["version"] == "2.0.0-rc1"
    assert (shown(ledger, "refund", "1.0.0") or {})["version"] == "1.10.0"
    assert shown(ledger, "refund", "3") is None
    clock.advance("3h")  # nobody runs 1.10.0 any more: somebody went back
    run(ledger, refunding("1.9.9"), "p", step="back")
    ledger.keeper.run_once()
    assert (shown(ledger, "refund", "1") or {})["version"] == "1.9.9"


def test_what_the_store_does_not_take_now_is_written_later(shaky: Ledger, flaky: FlakyStore, clock):
    run(shaky, refunding(), "p")
    flaky.down = True
    shaky.keeper.run_once()
    flaky.down = False
    clock.advance("60s")
    shaky.keeper.run_once()
    assert shown(shaky, "refund") is not None


def test_another_process_that_is_quicker_is_not_overwritten(clock: FakeClock):
    store = MemoryStore(clock=clock)
    one, other = Ledger(store, tenant="acme"), Ledger(store, tenant="acme")
    run(one, refunding("1.0.0"), "p")
    run(other, refunding("2.0.0"), "p", step="other")
    for ledger in (one, other):
        ledger.keeper.run_once()
    assert [each["version"] for each in (shown(one, "refund") or {})["versions"]] == ["2.0.0", "1.0.0"]
    assert shown(Ledger(store, tenant="globex"), "refund") is None


def test_a_catalogue_that_is_full_takes_no_new_tool_and_calls_go_on(ledger, monkeypatch):
    monkeypatch.setattr(catalogue, "TOOLS_MAX", 3)

    def made(number: int) -> Any:
        @declared(name=f"tool-{number}")
        def act() -> int:
            return number

        return act

    assert [run(ledger, made(number)) for number in range(5)] == [*range(5)]
    ledger.keeper.run_once()
    assert ledger.store.ask(Count("acme", INDEX)) == 3
    assert TOOLS_MAX >= 1_000


def test_a_contract_with_a_giant_schema_is_kept_without_it(ledger):
    @declared()
    def choose(one: Many) -> int:
        return 1

    run(ledger, choose, "choice-00001")
    ledger.keeper.run_once()
    found = shown(ledger, "choose")
    assert found is not None
    assert (found["schema"], found["result_schema"], found["class"]) == (None, None, "write-non-idempotent")


Many = Enum("Many", {f"m{number}": f"choice-{number:05}" for number in range(6_000)})  # type: ignore[misc]


class Card(BaseModel):
    number: str = "4242-canary"
    pin: SecretStr = SecretStr("pin-canary")


def test_no_secret_is_in_the_catalogue(ledger):
    @declared(secret=("card.number", "token"))
    def pay(card: Card = Card(number="4111-canary"), token: str = "token-canary") -> dict[str, str]:  # noqa: B008
        return {"paid": "yes"}

    run(ledger, pay)
    ledger.keeper.run_once()
    found = shown(ledger, "pay")
    assert found is not None
    assert "canary" not in repr(found)
    assert found["secret"] == ["card.number", "token"]


# --- what a result is held against ----------------------------------------------------------------


@dataclass
class Refund:
    id: str
    amount: Decimal
    at: datetime
    state: Literal["paid", "open"] = "paid"


class Line(BaseModel):
    name: Annotated[str, Field(min_length=1, pattern="^[a-z]+$")]
    count: Annotated[int, Field(ge=1)]


class Order(BaseModel):
    model_config = {"extra": "forbid"}

    lines: list[Line]
    note: str | None = None
    where: tuple[float, float] = (0.0, 0.0)
    pin: SecretStr | None = None


def schema_of(kind: Any) -> dict[str, Any]:
    def tool() -> Any: ...

    tool.__annotations__["return"] = kind
    contract: Contract = declared(secret=())(tool).contract
    found: dict[str, Any] = contract.describe()["result_schema"]
    return found


REFUND = {"id": "r", "amount": "1.50", "at": "2026-01-02T03:04:05Z"}
ORDER = {"lines": [{"name": "pen", "count": 2}]}

FITTING = [
    (int, 5), (int, 2**70), (float, 5), (float, 1.5), (bool, False), (type(None), None), (Any, {"x": [1]}),
    (str, ""), (dict[str, int], {"a": 1}), (list[int] | None, None), (Refund, REFUND),
    (Refund, REFUND | {"amount": 2, "state": "open"}), (Order, ORDER),
    (Order, ORDER | {"note": None, "where": [1, 2.5]}),
]  # fmt: skip

MISFITTING = [
    (int, "5", "integer"), (int, 5.5, "integer"), (int, True, "integer"), (int, None, "integer"),
    (bool, 1, "boolean"), (str, 5, "string"), (type(None), 0, "null"), (dict[str, int], {"a": "x"}, r"\$\.a"),
    (list[int] | None, "x", "none of the choices"), (list[int] | None, [1, "x"], r"\$\[1\]"),
    (Refund, None, "object"), (Refund, {"id": "r"}, "'amount' is missing"),
    (Refund, REFUND | {"amount": "much"}, r"\$\.amount"), (Refund, REFUND | {"at": "today"}, "date-time"),
    (Refund, REFUND | {"state": "lost"}, "one of"), (Order, ORDER | {"more": 1}, "'more'"),
    (Order, {"lines": [{"name": "Pen", "count": 2}]}, r"lines\[0\]\.name"),
    (Order, {"lines": [{"name": "", "count": 2}]}, "minLength"),
    (Order, {"lines": [{"name": "pen", "count": 0}]}, "minimum"), (Order, ORDER | {"where": [1]}, "minItems"),
    (Order, ORDER | {"pin": "1234"}, "secret"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), FITTING, ids=str)
def test_what_a_tool_may_return_fits(kind, value):
    assert misfit(value, schema_of(kind)) is None


@pytest.mark.parametrize(("kind", "value", "why"), MISFITTING, ids=str)
def test_what_it_never_returns_does_not_fit_and_is_not_quoted(kind, value, why):
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(misfit(value, schema_of(kind)))


def test_a_result_that_holds_a_secret_field_is_not_kept():
    schema = schema_of(dict[str, Any])
    assert misfit({"id": 1, "token": None}, schema, ["token", "cards.pin"]) is None
    for value in ({"token": "x"}, {"cards": [{"pin": "x"}]}):
        assert "secret" in (misfit(value, schema, ["token", "cards.pin"]) or "")


@pytest.mark.parametrize(
    ("kind", "outline"),
    [
        (type(None), "null"),
        (int, "<integer>"),
        (Any, "<any JSON>"),
        (dict[str, int], "{<name>: <integer>}"),
        (Refund, '{"id": <string>, "amount": <number>, "at": <date-time>}'),
        (Order, '{"lines": [{"name": <string>, "count": <integer>}, …]}'),
        (Literal["a", "b"], '<"a" | "b">'),
    ],
    ids=str,
)
def test_the_outline_of_a_result_is_no_json_until_it_is_filled_in(kind, outline):
    assert template(schema_of(kind)) == outline


def test_a_schema_that_refers_to_itself_has_an_end():
    schema = {"$ref": "#"}
    assert misfit(1, schema) is not None
    assert template(schema) == "<any JSON>"


# --- the check, where the tool itself is not ------------------------------------------------------


def doubt(ledger: Ledger) -> str:
    @declared()
    def pay(to: str) -> Refund:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run(ledger, pay, "ann")
    return the_record(ledger).request.id


def test_a_person_elsewhere_is_held_to_what_the_catalogue_says(ledger):
    id_ = doubt(ledger)
    ledger.keeper.run_once()
    elsewhere = Records(ledger.store, "acme")
    with pytest.raises(ResultInvalid, match=r"amount.* Nothing was changed"):
        elsewhere.resolution(id_, "happened", by="ann", result=REFUND | {"amount": None})
    said = elsewhere.resolution(id_, "happened", by="ann", result=REFUND)
    assert (said.checked, said.record.state) == (True, "done")
    with pytest.raises(ResultInvalid):
        elsewhere.amend(id_, by="ann", result="r")


def test_a_person_is_held_to_it_also_if_the_process_died_before_the_catalogue_was_written(ledger):
    id_ = doubt(ledger)
    elsewhere = Records(ledger.store, "acme")
    with pytest.raises(ResultInvalid, match=r"amount.* Nothing was changed"):
        elsewhere.resolution(id_, "happened", by="ann", result=REFUND | {"amount": None})
    assert "returns" not in elsewhere.show(the_record(ledger))["contract"]
    assert elsewhere.resolution(id_, "happened", by="ann", result=REFUND).checked


def test_records_do_not_repeat_what_the_catalogue_knows(ledger):
    @declared()
    def pay(to: str) -> Refund:
        return Refund("r", Decimal("1.50"), datetime.now(UTC))

    run(ledger, pay, "ann")
    ledger.keeper.run_once()
    run(ledger, pay, "ben")
    told = {each.request.arguments: each.request.terms for each in ledger.records.list()}
    assert "returns" in told[b'{"to":"ann"}']
    assert told[b'{"to":"ben"}'] == pay.contract.terms


def test_what_nobody_knows_is_taken_and_called_unchecked(ledger):
    @declared()
    def pay(to: str) -> Many:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        run(ledger, pay, "ann")
    elsewhere, id_ = Records(ledger.store, "acme"), the_record(ledger).request.id
    assert elsewhere.resolution(id_, "happened", by="ann", result="whatever").checked is False
    ledger.keeper.run_once()
    # Said before, so it is a replay.
    again = elsewhere.resolution(id_, "happened", by="ann", result="whatever")
    assert (again.replayed, again.checked) == (True, None)


def test_a_result_larger_than_any_that_is_kept_is_refused(ledger):
    id_ = doubt(ledger)
    with pytest.raises(ResultInvalid, match="bytes"):
        Records(ledger.store, "acme").resolve(id_, "happened", by="ann", result="x" * (1 << 20))
