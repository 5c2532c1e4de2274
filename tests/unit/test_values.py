"""A result comes back equal and as itself, or it is not kept at all."""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from inspect import Signature
from typing import Any, Literal, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, Field, SecretStr, field_serializer, model_serializer
from typing_extensions import TypedDict

from semel.contract.values import Unstorable, Values
from semel.errors import ContractError

NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


class Status(enum.Enum):
    DONE = "done"


class Refund(BaseModel):
    id: str
    amount: Decimal = Field(alias="Amount", serialization_alias="sum")
    at: datetime = NEW_YEAR
    token: SecretStr | None = None


class LoudRefund(Refund):
    volume: int = 11


@dataclass
class Receipt:
    id: uuid.UUID
    data: bytes
    status: Status = Status.DONE


@dataclass(eq=False)
class Ticket:
    number: int
    parts: list[float]


class Row(TypedDict):
    id: int
    data: bytes


class Point(NamedTuple):
    x: int
    y: Decimal


class SetBack(tzinfo):
    """A zone in the night when the clock is set back: the second hour is fold 1."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1 if at is not None and at.fold else 2)

    def dst(self, at: datetime | None) -> timedelta:
        return self.utcoffset(at)

    def tzname(self, at: datetime | None) -> str:
        return "somewhere"


def refund(**more: Any) -> Refund:
    return Refund.model_validate({"id": "r", "Amount": "1.50", **more})


def round_trip(kind: Any, value: Any) -> Any:
    values = Values.of(kind)
    return values.load(values.dump(value))


# --- results that come back ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, "x\0\u2028😀"),
        (int, 2**63),
        (int, -(2**200)),
        (bool, True),
        (None, None),
        (float, 0.1),
        (float, math.inf),
        (Any, {"a": [1, 2.5, None, {"b": "c"}]}),
        (Any, {"n": 2**64, "f": 1.0}),
        (Signature.empty, [1, "x"]),
        (object, {"a": -math.inf}),
        (dict, {"a": 1}),
        (list, [1, "x"]),
        (dict[str, int], {"a": 2**70}),
        (dict[str, Any], {"a": {"b": []}}),
        (dict[int, str], {1: "a"}),
        (list[int | None], [1, None]),
        (int | str, "5"),
        (int | float, 1.0),
        (dict[str, Any] | None, None),
        (Literal["a", 1], 1),
        (Decimal, Decimal("1.50")),
        (datetime, NEW_YEAR),
        (datetime, NEW_YEAR.replace(tzinfo=None)),
        (date, date(2024, 1, 1)),
        (timedelta, timedelta(days=-1, microseconds=1)),
        (uuid.UUID, uuid.UUID(int=5)),
        (bytes, b"\xff\x00"),
        (Status, Status.DONE),
        (AnyUrl, AnyUrl("http://example.com/")),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (frozenset[str], frozenset({"a"})),
        (Refund, refund()),
        (list[Refund], [refund()]),
        (Refund | Receipt | None, Receipt(uuid.UUID(int=1), b"a")),
        (Refund | LoudRefund, LoudRefund.model_validate({"id": "r", "Amount": 1})),
        (Receipt, Receipt(uuid.UUID(int=1), b"\xff")),
        (Row, {"id": 1, "data": b"\xff"}),
        (Point, Point(1, Decimal("0.10"))),
        (dict[str, Point], {"a": Point(1, Decimal(2))}),
    ],
)
def test_a_result_comes_back_as_itself(kind, value) -> None:
    read = round_trip(kind, value)
    assert read == value
    assert type(read) is type(value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(plain)
def test_every_json_value_comes_back_as_itself(value) -> None:
    read = round_trip(Any, value)
    assert (read, repr(read)) == (value, repr(value))


def test_not_a_number_comes_back_as_not_a_number() -> None:
    assert math.isnan(round_trip(float, math.nan))
    assert math.isnan(round_trip(Any, {"a": [math.nan]})["a"][0])
    assert math.isnan(round_trip(Ticket, Ticket(1, [math.nan])).parts[0])


def test_a_result_that_only_its_fields_make_equal_comes_back() -> None:
    read = round_trip(Ticket, Ticket(7, [0.5]))
    assert (type(read), read.number, read.parts) == (Ticket, 7, [0.5])


def test_an_instant_in_the_hour_that_happens_twice_comes_back() -> None:
    second = datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=SetBack())
    assert round_trip(datetime, second) == datetime(2024, 10, 27, 1, 30, tzinfo=UTC)


def test_an_integer_for_a_float_comes_back_equal() -> None:
    assert round_trip(float, 1) == 1


def test_every_load_gives_a_fresh_object() -> None:
    for kind, value in [(dict, {"a": []}), (Refund, refund()), (Row, {"id": 1, "data": b""})]:
        values = Values.of(kind)
        data = values.dump(value)
        assert values.load(data) is not values.load(data)


def test_a_field_with_two_aliases_is_stored_by_its_name() -> None:
    assert orjson.loads(Values.of(Refund).dump(refund()))["amount"] == "1.50"


@pytest.mark.parametrize("kind", [Any, dict[str, int], Refund, Receipt])
@pytest.mark.parametrize("data", [b"", b"{", b'{"a":1', b" {", b"\xff", b' {"id":1}}'])
def test_damaged_data_is_a_value_error(kind, data) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  orjson and pydantic each have a subclass of their own
        Values.of(kind).load(data)


# --- results that cannot be kept -----------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


class Node(BaseModel):
    below: Node | None = None


def chain(levels: int) -> Node:
    node = Node()
    for _ in range(levels - 1):
        node = Node(below=node)
    return node


class Bad(BaseModel):
    id: int

    @field_serializer("id")
    def never(self, id: int) -> int:
        raise RuntimeError(f"no {id}")


class Odd:
    """Never says whether it equals anything."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


endless: list[Any] = []
endless.append(endless)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (Any, {"a": [refund()]}, r"result's a\.0 does not read back equal"),
        (Any, (1, Status.DONE), "does not read back equal"),
        (Any, {1: refund()}, "does not read back equal"),
        (Any, refund(), "does not read back equal"),
        (Any, object(), "cannot be written as JSON"),
        (Any, Odd(), "cannot be written as JSON"),
        (Any, endless, "cannot be written as JSON"),
        (Any, "\ud800", "cannot be written as JSON"),
        (Refund, LoudRefund.model_validate({"id": "r", "Amount": 1}), "does not read back equal"),
        (
            list[Refund],
            [LoudRefund.model_validate({"id": "r", "Amount": 1})],
            "result's 0 does not read back",
        ),
        (int, "5", "does not read back equal"),
        (int, "five", "does not fit its annotation"),
        (int, None, "does not fit its annotation"),
        (dict, refund(), "does not read back equal"),
        (Refund, {"id": "r", "amount": 1}, "does not read back equal"),
        (Bad, Bad(id=1), r"cannot be written as JSON \(PydanticSerializationError\)"),
        (Any, nested(65), "nested deeper than 64 levels"),
        (Node, chain(65), "nested deeper than 64 levels"),
        (str, "x" * (1 << 20), "takes 1048578 bytes; 1048576 are allowed"),
        (Receipt, Receipt(uuid.UUID(int=1), b"x" * (1 << 20)), "are allowed"),
    ],
)
def test_a_result_that_would_not_come_back_equal_is_not_kept(kind, value, reason) -> None:
    with pytest.raises(Unstorable, match=reason):
        Values.of(kind).dump(value)


def test_results_at_the_bounds_are_kept() -> None:
    assert round_trip(Any, nested(64)) == nested(64)
    assert round_trip(Node, chain(64)) == chain(64)
    assert len(Values.of(str).dump("x" * ((1 << 20) - 2))) == 1 << 20
    wide: dict[str, Any] = {str(n): {} for n in range(100)}
    assert round_trip(dict[str, dict[str, Refund]], wide) == wide


# --- types that cannot be stored -----------------------------------------------------------------


class Client:
    """No data."""


@pytest.mark.parametrize(
    "kind",
    [
        Client,
        list[Client],
        int | Client,
        Callable,
        Callable[[], int],
        Iterator[int],
        Generator[int, None, None],
        AsyncIterator[int],
        type,
    ],
)
def test_a_type_that_cannot_be_read_back_is_refused_with_the_fix(kind) -> None:
    with pytest.raises(ContractError, match=r"cannot be stored and read back .*Return a pydantic model"):
        Values.of(kind)


# --- annotations written as text -----------------------------------------------------------------


def early() -> Later: ...  # type: ignore[empty-body]


EARLY = Values.of("Later", function=early)
EARLY_WAS_READY = EARLY.ready


class Later(BaseModel):
    id: int


def test_a_return_type_defined_later_is_resolved_at_the_first_use() -> None:
    assert not EARLY_WAS_READY
    assert EARLY.load(EARLY.dump(Later(id=1))) == Later(id=1)
    assert EARLY.ready


def test_a_return_type_that_never_comes_is_refused_at_the_first_use() -> None:
    values = Values.of("Never")
    with pytest.raises(ContractError, match="return annotation cannot be resolved"):
        values.dump(1)


def test_a_return_type_may_be_local() -> None:
    class Local(BaseModel):
        id: int

    values = Values.of("list[Local]", local_names={"Local": Local})
    assert values.load(values.dump([Local(id=1)])) == [Local(id=1)]


# --- secrets -------------------------------------------------------------------------------------


class Session(BaseModel):
    user: str
    code: str = ""
    keys: list[Refund] = []


def test_a_secret_field_is_not_stored_and_the_rest_comes_back() -> None:
    values = Values.of(Session, secret=("code", "keys.id", "an_argument"))
    data = values.dump(Session(user="ann", code="c-1"))
    assert b"c-1" not in data
    assert values.load(data) == Session(user="ann")


def test_a_field_of_a_secret_type_is_not_stored() -> None:
    values = Values.of(Refund)
    data = values.dump(refund(token="t-1"))
    assert b"token" not in data
    assert values.load(data) == refund()


def test_secret_members_of_plain_results_are_not_stored() -> None:
    for kind in (Any, dict, dict[str, Any], list[dict[str, Any]]):
        values = Values.of(kind, secret=("token",))
        one: dict[str, Any] = {"id": 1, "token": {"deep": "t-1"}}
        given, kept = ([one], [{"id": 1}]) if kind == list[dict[str, Any]] else (one, {"id": 1})
        assert values.load(values.dump(given)) == kept


WHEN = datetime(2026, 8, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ((1, 2), (1, 2)),
        ({"at": WHEN}, {"at": WHEN}),
        ({1: "a"}, {1: "a"}),
        ({"at": WHEN, "token": "t-1"}, {"at": WHEN}),
        ([({"token": "t-1", "id": 1},)], [({"id": 1},)]),
        ({"at": WHEN, b"token": "t-1"}, {"at": WHEN}),
    ],
)
def test_what_is_not_secret_comes_back_as_it_was(given: Any, kept: Any) -> None:
    """Also where the secret is an argument: its name may stand in an undeclared result."""
    values = Values.of(Any, secret=("token",))
    data = values.dump(given)
    assert b"t-1" not in data
    read = values.load(data)
    assert (read, type(read)) == (kept, type(kept))


def test_what_holds_itself_is_not_kept_beside_a_secret_either() -> None:
    endless: list[Any] = [(1, 2)]
    endless.append(endless)
    with pytest.raises(Unstorable):
        Values.of(Any, secret=("token",)).dump(endless)


def test_what_is_not_secret_and_would_come_back_as_something_else_is_not_kept() -> None:
    class Loose(BaseModel):
        at: Any
        token: str = ""

    values = Values.of(Loose, secret=("token",))
    assert values.load(values.dump(Loose(at="now", token="t-1"))) == Loose(at="now")
    with pytest.raises(Unstorable, match="exact type"):
        values.dump(Loose(at=WHEN, token="t-1"))


def test_a_result_that_needs_its_secret_is_not_kept() -> None:
    with pytest.raises(Unstorable, match="without its secret fields"):
        Values.of(Session, secret=("user",)).dump(Session(user="ann"))
    with pytest.raises(Unstorable, match="without its secret fields"):
        Values.of(SecretStr).dump(SecretStr("s"))


def test_a_serializer_that_moves_a_secret_is_not_trusted_with_one() -> None:
    class Flat(BaseModel):
        code: str = ""

        @model_serializer
        def flat(self) -> dict[str, str]:
            return {"hidden": self.code}

    with pytest.raises(Unstorable, match="to another place"):
        Values.of(Flat, secret=("code",)).dump(Flat(code="c-1"))


def test_the_reason_never_holds_the_value() -> None:
    with pytest.raises(Unstorable) as refusal:
        Values.of(int).dump("c-1")
    assert "c-1" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("kind", "path", "known"),
    [
        (Session, "code", True),
        (Session, "keys.amount", True),
        (Session, "keys.Amount", False),
        (Session, "nothing", False),
        (Session | None, "code", True),
        (list[Receipt], "data", True),
        (Row, "data", True),
        (int, "data", False),
        (None, "data", False),
        (Any, "data.deep", True),
        (dict[str, int], "data", True),
        (dict[str, int], "data.deep", False),
    ],
)
def test_a_path_is_accepted_if_it_names_a_field_of_the_result(kind, path, known) -> None:
    assert Values.of(kind).accepts_path(path) == known
