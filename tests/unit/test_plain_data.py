"""Plain data without a declared type is kept by its structure, and comes back as it was."""

from __future__ import annotations

import enum
import uuid
import warnings
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semel
from semel.contract import plain_data
from semel.contract.plain_data import NotPlain
from semel.contract.values import BY_STRUCTURE, Unstorable, Values
from semel.errors import ResultUnavailable

Pair = namedtuple("Pair", "one other")


class Status(enum.Enum):
    PAID = "paid"


@dataclass
class Paid:
    order: str


PLAIN = [
    (1, "a", (2.5, None)),
    {1, 2, 3},
    frozenset({"a"}),
    b"\x00\xff",
    Decimal("1.50"),
    datetime(2024, 2, 29, 12, tzinfo=UTC),
    date(2024, 2, 29),
    time(12, 30),
    timedelta(days=-1, microseconds=3),
    uuid.UUID(int=7),
    {"amount": Decimal("2.50"), "parts": (1, [2, {3}])},
    {1: "a", (2, 3): "b"},
    {"$kind": "decimal", "value": "1"},
    {"big": 2**80, "t": ()},
]

keys = st.one_of(st.text(), st.integers(), st.uuids(), st.tuples(st.integers(), st.text()))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.timedeltas(),
    st.uuids(),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(keys, inner), st.sets(st.integers())
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("annotation", [Any, object], ids=["undeclared", "object"])
@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_data_comes_back_as_it_was(annotation: Any, value: Any) -> None:
    results = Values.of(annotation)
    read = results.load(results.dump(value))
    assert read == value
    assert type(read) is type(value)


@given(values)
def test_whatever_is_plain_comes_back(value: Any) -> None:
    read = plain_data.load(plain_data.dump(value))
    assert read == value
    assert repr(type(read)) == repr(type(value))


@pytest.mark.parametrize("annotation", [dict, dict[str, Any], list, dict[str, Any] | None], ids=str)
def test_what_a_declared_container_leaves_open_is_kept_too(annotation: Any) -> None:
    value: Any = [Decimal("1.5"), (1, 2)] if annotation is list else {"amount": Decimal("1.5"), "of": (1, 2)}
    results = Values.of(annotation)
    assert results.load(results.dump(value)) == value


def test_json_is_kept_as_json() -> None:
    results = Values.of(Any)
    assert results.dump({"a": [1, None]}) == b'{"a":[1,null]}'


@pytest.mark.parametrize("value", [Paid("a"), Status.PAID, Pair(1, 2), range(2), {"a": Paid("a")}], ids=repr)
def test_an_object_of_a_class_is_not(value: Any) -> None:
    with pytest.raises(NotPlain):
        plain_data.dump(value)
    with pytest.raises(Unstorable):
        Values.of(Any).dump(value)


@pytest.mark.parametrize("annotation", [int, dict[str, int], list[str]], ids=str)
def test_a_declared_type_is_held_to(annotation: Any) -> None:
    with pytest.raises(Unstorable):
        Values.of(annotation).dump({"a": Decimal("1.5")})


@pytest.mark.parametrize(
    "damage",
    [b"{", b'{"$kind": "decimal"}', b'{"$kind": "decimal", "value": "x"}', b'{"$kind": "no", "value": 1}',
     b'{"$kind": "set", "value": [[]]}', b'{"$kind": "bytes", "value": 3}'],
)  # fmt: skip
def test_damaged_data_is_a_value_error(damage: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Values.of(Any).load(BY_STRUCTURE + damage)


def test_an_undeclared_result_is_replayed(tmp_path: Any) -> None:
    @semel.tool_contract
    def pay(order: str):
        return {"order": order, "amount": Decimal("2.50"), "parts": (1, 2)}

    for _ in range(2):  # another ledger reads from the store
        with semel.open(f"sqlite:///{tmp_path}/a.db") as ledger, ledger.step(conversation="a", step="b"):
            assert pay("a") == {"order": "a", "amount": Decimal("2.50"), "parts": (1, 2)}


def test_a_secret_argument_in_plain_data_is_not_kept(tmp_path: Any) -> None:
    @semel.tool_contract(secret=("card",))
    def pay(order: str, card: str):
        return (order, card.encode())

    with semel.open("memory://") as ledger, ledger.step(conversation="a", step="b"):
        pay("a", "4242-4242")
        with pytest.raises(ResultUnavailable):
            pay("a", "4242-4242")


# --- told at definition ---------------------------------------------------------------------------


def test_a_class_that_is_returned_and_not_declared_is_said_at_definition() -> None:
    with pytest.warns(UserWarning, match="returns Paid and does not declare it.*-> Paid"):

        @semel.tool_contract
        def pay(order: str):
            if order:
                return Paid(order)
            return None


def test_nothing_is_said_where_it_is_declared_plain_or_unknown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @semel.tool_contract
        def declared(order: str) -> Paid:
            return Paid(order)

        @semel.tool_contract
        def plain(order: str):
            return Decimal(order)

        @semel.tool_contract
        def another(order: str):
            def inner():
                return Paid(order)

            return inner().order

        @semel.tool_contract(class_="read")
        def read(order: str):
            return Paid(order)
