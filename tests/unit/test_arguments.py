"""Arguments after validation decide what one action is; what is stored comes back as it was given."""

from __future__ import annotations

import enum
import functools
import math
import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Optional

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    RootModel,
    Secret,
    SecretBytes,
    SecretStr,
    computed_field,
    field_validator,
    model_serializer,
)
from typing_extensions import TypedDict

import semel.kernel.keys
from semel.contract.arguments import Arguments
from semel.errors import ContractError, InvalidArguments, TooLarge
from semel.kernel.keys import Key

STORE_KEY = b"k" * 32
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


class Currency(enum.Enum):
    EUR = "eur"
    USD = "usd"


class Customer(BaseModel):
    id: str
    note: str = ""


class Vip(Customer):
    level: int = 1


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    note: str = ""


class Address(TypedDict):
    city: str
    note: str


class Point(NamedTuple):
    x: int
    y: int


class Blob(TypedDict):
    data: bytes


@dataclass
class Chunk:
    data: bytes


class Packed(NamedTuple):
    data: bytes


def issue_refund(payment_id: str, amount_minor: int, reason: str, key: Key) -> None: ...


REFUND = Arguments.of(issue_refund, ignore=("reason",))
PAID = {"payment_id": "p-1", "amount_minor": 5000, "reason": "damaged"}


def canonical(arguments: Arguments, *args, **kwargs) -> bytes:
    return arguments.canonical(arguments.validate(arguments.bind(args, kwargs)), STORE_KEY)


def round_trip(arguments: Arguments, **kwargs):
    """What the call runs with, and what a re-entry runs with."""
    validated = arguments.validate(arguments.bind((), kwargs))
    return validated, arguments.restore(arguments.dump(validated), validated)


# --- one action ----------------------------------------------------------------------------------


def test_an_amount_is_one_action_however_it_is_spelled() -> None:
    spellings = [5000, 5000.0, "5000", "5000.0", Decimal(5000), True + 4999]
    assert {canonical(REFUND, "p-1", amount, "x") for amount in spellings} == {
        b'{"amount_minor":5000,"payment_id":"p-1"}'
    }


def test_other_amounts_and_other_payments_are_other_actions() -> None:
    calls = [("p-1", 5000), ("p-1", 5001), ("p-2", 5000), ("p-15", 0), ("p-1", 50000), ("p-1", -5000)]
    assert len({canonical(REFUND, *call, "x") for call in calls}) == len(calls)


def test_what_the_model_writes_anew_does_not_count_when_it_is_ignored() -> None:
    assert canonical(REFUND, "p-1", 5000, "damaged") == canonical(REFUND, "p-1", 5000, "arrived broken")
    counted = Arguments.of(issue_refund)
    assert canonical(counted, "p-1", 5000, "damaged") != canonical(counted, "p-1", 5000, "arrived broken")


def test_positional_and_keyword_calls_are_equal() -> None:
    calls = [
        canonical(REFUND, "p-1", 5000, "x"),
        canonical(REFUND, "p-1", 5000, reason="x"),
        canonical(REFUND, reason="x", amount_minor=5000, payment_id="p-1"),
    ]
    assert len(set(calls)) == 1


def test_an_argument_that_equals_its_default_is_as_if_not_given() -> None:
    def send(to: str, copies: int = 1, tags: Sequence[str] = (), at: datetime = NEW_YEAR) -> None: ...

    arguments = Arguments.of(send)
    bare = canonical(arguments, "ann")
    assert bare == b'{"to":"ann"}'
    assert canonical(arguments, "ann", 1, [], NEW_YEAR) == bare
    assert canonical(arguments, "ann", "1") == bare
    assert canonical(arguments, "ann", 2) != bare
    assert canonical(arguments, "ann", 1, ["a"]) != bare


def test_a_default_is_told_from_what_only_looks_equal_to_it() -> None:
    def switch(flag=1, other: Any = 0, limit: float = 2) -> None: ...

    arguments = Arguments.of(switch)
    assert canonical(arguments) == canonical(arguments, 1, 0, 2.0) == canonical(arguments, 1.0, -0.0) == b"{}"
    assert canonical(arguments, True) == b'{"flag":true}'
    assert canonical(arguments, 1, False) == b'{"other":false}'


def test_an_enum_as_default_equals_its_value() -> None:
    def pay(amount: int, currency: Currency | str = Currency.EUR) -> None: ...

    arguments = Arguments.of(pay)
    spellings = [
        canonical(arguments, 1),
        canonical(arguments, 1, Currency.EUR),
        canonical(arguments, 1, "eur"),
    ]
    assert set(spellings) == {b'{"amount":1}'}
    assert canonical(arguments, 1, "usd") == canonical(arguments, 1, Currency.USD) != spellings[0]


def test_a_default_that_is_not_of_its_type_is_validated_first() -> None:
    def pay(amount: Decimal = 1, on: date = "2024-01-01") -> None: ...  # type: ignore[assignment]

    arguments = Arguments.of(pay)
    assert canonical(arguments, Decimal("1.0"), date(2024, 1, 1)) == canonical(arguments)


def test_models_dataclasses_and_dicts_with_the_same_fields_are_one_action() -> None:
    def charge(customer: Customer, line: Line, address: Address, point: Point) -> None: ...

    arguments = Arguments.of(charge)
    as_objects = canonical(
        arguments,
        Customer(id="c", note="n"),
        Line("s", Decimal("1.50")),
        Address(city="x", note=""),
        Point(1, 2),
    )
    as_json = canonical(
        arguments,
        customer={"note": "n", "id": "c"},
        line={"sku": "s", "price": "1.5"},
        address={"note": "", "city": "x"},
        point=[1, 2],
    )
    assert as_objects == as_json


def test_a_field_that_only_a_subclass_has_tells_actions_apart() -> None:
    def greet(customer: Customer) -> None: ...

    arguments = Arguments.of(greet)
    assert canonical(arguments, Vip(id="c", level=1)) != canonical(arguments, Vip(id="c", level=2))


def test_a_field_that_is_never_dumped_tells_actions_apart() -> None:
    class Payment(BaseModel):
        amount: int = Field(exclude=True)

        @functools.cached_property
        def cost(self) -> int:
            return self.amount * 2

    def pay(payment: Payment) -> None: ...

    arguments = Arguments.of(pay, local_names=locals())
    five = Payment(amount=5)
    before = canonical(arguments, five)
    assert five.cost == 10
    assert canonical(arguments, five) == before
    assert canonical(arguments, Payment(amount=6)) != before


def test_types_of_the_network_and_the_file_system_have_a_canonical_form() -> None:
    def fetch(url: AnyUrl, to: Path) -> None: ...

    arguments = Arguments.of(fetch)
    one = canonical(arguments, "http://example.com/a", "a/b")
    assert one == canonical(arguments, AnyUrl("http://example.com/a"), Path("a/b"))
    assert one != canonical(arguments, "http://example.com/b", "a/b")


def test_a_value_whose_text_is_not_all_of_it_has_no_canonical_form() -> None:
    def find(pattern: re.Pattern[str]) -> None: ...

    arguments = Arguments.of(find)
    assert canonical(arguments, "a") == canonical(arguments, re.compile("a")) != canonical(arguments, "b")
    with pytest.raises(InvalidArguments, match=r"pattern is of type re\.Pattern"):
        canonical(arguments, re.compile("a", re.IGNORECASE))


class Money:
    """A type that pydantic learns about only from its annotation."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return self.cents


def money(value: Any) -> Money:
    return value if isinstance(value, Money) else Money(int(value))


FREE = Money(0)
AnyMoney = Annotated[Money, PlainValidator(money), PlainSerializer(lambda made: made.cents)]


def test_a_type_of_the_callers_own_counts_as_its_serializer_writes_it() -> None:
    def pay(amount: AnyMoney, coins: frozenset[AnyMoney] = frozenset(), tip: AnyMoney = FREE) -> None: ...

    arguments = Arguments.of(pay)
    assert canonical(arguments, Money(5)) == canonical(arguments, "5", tip=Money(0)) == b'{"amount":5}'
    assert canonical(arguments, Money(6)) != canonical(arguments, Money(5))
    assert canonical(arguments, 5, [Money(1), Money(2)]) == canonical(arguments, 5, [Money(2), Money(1)])
    assert round_trip(arguments, amount=5, coins=[1, 2])[1] == {
        "amount": Money(5),
        "coins": {Money(1), Money(2)},
        "tip": Money(0),
    }


@dataclass
class Everything:
    number: int
    share: float
    price: Decimal
    at: datetime
    currency: Currency
    tags: set[str]
    pair: tuple[int, str]
    data: bytes
    customer: Customer


moments = st.datetimes(timezones=st.none() | st.just(UTC))
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
everything = st.builds(
    Everything,
    number=st.integers(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    price=st.decimals(allow_nan=False, allow_infinity=False, places=2),
    at=moments,
    currency=st.sampled_from(Currency),
    tags=st.sets(texts, max_size=2),
    pair=st.tuples(st.integers(0, 1), texts),
    data=st.binary(max_size=3),
    customer=st.builds(Customer, id=texts, note=texts),
)


def take_everything(thing: Everything, number: int = 0, text: str = "", anything: Any = None) -> None: ...


EVERYTHING = Arguments.of(take_everything)


@given(everything, everything)
def test_two_calls_share_their_bytes_exactly_when_their_validated_arguments_are_equal(one, other) -> None:
    assert (canonical(EVERYTHING, one) == canonical(EVERYTHING, other)) == (one == other)


@given(everything, st.integers(), texts)
def test_what_json_makes_of_the_arguments_is_the_same_action(thing, number, text) -> None:
    validated = EVERYTHING.validate({"thing": thing, "number": number, "text": text})
    again = EVERYTHING.restore(EVERYTHING.dump(validated), validated)
    assert again == {**validated, "anything": None}
    assert EVERYTHING.canonical(again, STORE_KEY) == EVERYTHING.canonical(validated, STORE_KEY)


# --- binding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {"amount_minor": 1}, "payment_id is missing; reason is missing"),
        (("p", 1, "r", "extra"), {}, "4 arguments were given by position, where 3 are taken"),
        (("p", 1, "r"), {"reason": "r"}, "reason was given twice"),
        (("p", 1, "r"), {"note": "r"}, "there is no argument note"),
        ((), {**PAID, "key": "0" * 64}, "key was given, but Semel makes the key"),
        ((), {**PAID, "x" * 999: 1}, "there is no argument xxx"),
        ((), {**PAID, "a\0\ud800": 1}, r"there is no argument a\\x00\\ud800"),
        ((), dict([*PAID.items(), (7, 1)]), "there is no argument 7"),
    ],
)
def test_what_the_signature_does_not_take_is_refused_by_name(args, kwargs, problem) -> None:
    with pytest.raises(InvalidArguments, match=problem) as refusal:
        REFUND.bind(args, kwargs)
    assert "'issue_refund', which did not run" in str(refusal.value)
    assert len(str(refusal.value)) < 400


def test_arguments_with_defaults_may_be_left_out() -> None:
    def send(to: str, copies: int = 1, *, urgent: bool = False) -> None: ...

    arguments = Arguments.of(send)
    assert arguments.bind(("ann",), {}) == {"to": "ann"}
    assert arguments.bind(("ann",), {"urgent": True}) == {"to": "ann", "urgent": True}
    with pytest.raises(InvalidArguments, match="by position"):
        arguments.bind(("ann", 1, True), {})


def test_binding_does_not_write_into_what_the_caller_passed() -> None:
    passed = {"reason": "x"}
    REFUND.bind(("p", 1), passed)
    assert passed == {"reason": "x"}


def test_a_method_takes_its_self_and_no_key_of_the_callers() -> None:
    class Payments:
        def refund(self, payment_id: str, key: semel.kernel.keys.Key, amount: int = 1) -> None: ...

        @classmethod
        def void(cls, payment_id: str) -> None: ...

    refund = Arguments.of(Payments.refund)
    assert refund.takes_self
    assert refund.key_parameters == ("key",)
    assert refund.bind(("p", 5), {}) == {"payment_id": "p", "amount": 5}
    assert Arguments.of(Payments.__dict__["void"].__func__).takes_self
    assert not REFUND.takes_self


def test_a_key_may_be_optional_or_annotated() -> None:
    def pay(one: Key | None, two: Annotated[Key, "downstream"], three: Optional[Key] = None) -> None: ...  # noqa: UP045

    assert Arguments.of(pay).key_parameters == ("one", "two", "three")


def test_a_decorated_function_is_read_by_its_own_signature() -> None:
    @functools.wraps(issue_refund)
    def traced(*args: Any, **kwargs: Any) -> None:
        issue_refund(*args, **kwargs)

    assert Arguments.of(traced).bind(("p", 1, "r"), {}) == {
        "payment_id": "p",
        "amount_minor": 1,
        "reason": "r",
    }


# --- validation ----------------------------------------------------------------------------------


def test_a_refusal_lists_every_place_and_reason() -> None:
    def charge(amount: int, customer: Customer) -> None: ...

    with pytest.raises(InvalidArguments) as refusal:
        Arguments.of(charge).validate({"amount": "a lot", "customer": {"note": 5}})
    text = str(refusal.value)
    assert "amount: Input should be a valid integer" in text
    assert "customer.id: Field required" in text
    assert "customer.note: Input should be a valid string" in text
    assert refusal.value.__cause__ is None


def test_a_long_list_of_problems_is_cut() -> None:
    def add(numbers: list[int]) -> None: ...

    with pytest.raises(InvalidArguments, match="and 992 more") as refusal:
        Arguments.of(add).validate({"numbers": ["x"] * 1000})
    assert len(str(refusal.value)) < 2_000


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, "nan"])
def test_a_number_that_is_none_is_refused(bad) -> None:
    def pay(amount: float, details: Any = None) -> None: ...

    arguments = Arguments.of(pay)
    with pytest.raises(InvalidArguments, match="finite number"):
        arguments.validate({"amount": bad})


class Loose(BaseModel):
    ratio: float
    inner: Any = None


def nested(levels: int, leaf: Any = 1) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


BAD_VALUES = [
    ({"deep": [math.nan]}, "is nan"),
    (Decimal("NaN"), "is NaN"),
    (Loose(ratio=math.inf), "ratio is inf"),
    ("lone \ud800", "lone surrogate"),
    ({"\udc00": 1}, "lone surrogate"),
    ("nul \0", "NUL character"),
    (nested(64), "nested deeper than 64 levels"),
    (object(), "type builtins.object"),
    (lambda: 1, "type builtins.function"),
]


@pytest.mark.parametrize(("bad", "problem"), BAD_VALUES)
def test_a_value_without_a_canonical_form_is_an_invalid_argument(bad, problem) -> None:
    def act(first: str, anything) -> None: ...

    arguments = Arguments.of(act)
    with pytest.raises(InvalidArguments, match=problem) as refusal:
        canonical(arguments, "x", bad)
    assert "'act', which did not run: anything" in str(refusal.value)


@pytest.mark.parametrize(("bad", "problem"), [*BAD_VALUES[:-2], (object(), "cannot be written as JSON")])
def test_an_ignored_argument_is_held_to_the_same_bounds_when_it_is_stored(bad, problem) -> None:
    def act(first: str, anything) -> None: ...

    arguments = Arguments.of(act, ignore=("anything",))
    validated = arguments.validate({"first": "x", "anything": bad})
    assert arguments.canonical(validated, STORE_KEY) == b'{"first":"x"}'
    with pytest.raises(InvalidArguments, match=problem):
        arguments.dump(validated)


@pytest.mark.parametrize("bad", ["lone \ud800", "nul \0"])
def test_a_text_that_is_none_is_refused_in_plain_signatures_too(bad) -> None:
    with pytest.raises(InvalidArguments, match="payment_id contains"):
        canonical(REFUND, bad, 1, "x")
    with pytest.raises(InvalidArguments, match="reason contains"):
        REFUND.dump(REFUND.validate({**PAID, "reason": bad}))


def test_arguments_over_the_bound_are_too_large() -> None:
    assert len(canonical(REFUND, "x" * ((1 << 20) - 34), 1, "")) == 1 << 20
    with pytest.raises(TooLarge, match="1048577 bytes; 1048576 are allowed"):
        canonical(REFUND, "x" * ((1 << 20) - 33), 1, "")
    with pytest.raises(TooLarge, match="'issue_refund', which did not run"):
        REFUND.dump(REFUND.validate({**PAID, "reason": "x" * (1 << 20)}))


def test_integers_beyond_64_bits_are_told_apart_and_come_back() -> None:
    def count(number: int) -> None: ...

    arguments = Arguments.of(count)
    assert canonical(arguments, 2**64) != canonical(arguments, 2**64 + 1)
    assert round_trip(arguments, number=2**80 + 1)[1] == {"number": 2**80 + 1}


# --- definitions that cannot work ----------------------------------------------------------------


def test_a_signature_without_names_is_refused_with_the_fix() -> None:
    def many(*amounts: int) -> None: ...
    def open_ended(**more: int) -> None: ...
    def placed(amount: int, /) -> None: ...

    with pytest.raises(ContractError, match="one list"):
        Arguments.of(many)
    with pytest.raises(ContractError, match="one dict"):
        Arguments.of(open_ended)
    with pytest.raises(ContractError, match="Remove the `/`"):
        Arguments.of(placed)


def test_a_generator_is_refused_with_the_fix() -> None:
    def some(amount: int):
        yield amount

    async def later(amount: int):
        yield amount

    for function in (some, later):
        with pytest.raises(ContractError, match="Return a list instead"):
            Arguments.of(function)


class Client:
    """What a tool talks to: no data."""


@pytest.mark.parametrize(
    "kind",
    [Client, Callable, Callable[[int], int], int | Client, int | Callable, type, Iterable[int], list[Client]],
)
def test_an_argument_that_is_no_data_is_refused_by_name(kind) -> None:
    def pay(amount: int, client) -> None: ...

    pay.__annotations__["client"] = kind
    with pytest.raises(ContractError, match=r"argument 'client'.*attribute of its self") as refusal:
        Arguments.of(pay)
    assert "pydantic.dev" not in str(refusal.value)


def test_a_default_that_does_not_fit_is_refused_by_name() -> None:
    missing = object()

    def pay(amount: int = missing) -> None: ...  # type: ignore[assignment]

    with pytest.raises(ContractError, match="default for 'amount'"):
        Arguments.of(pay)


def test_none_as_a_default_is_an_optional_argument() -> None:
    def pay(amount: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    arguments = Arguments.of(pay)
    assert canonical(arguments, None) == canonical(arguments) == b"{}"
    assert arguments.restore(arguments.dump({}), {}) == {"amount": None}


# --- paths ---------------------------------------------------------------------------------------


class Order(BaseModel):
    customer: Customer | None = None
    lines: list[Line] = []
    address: Address | None = None
    parents: list[Order] = []
    extra: dict[str, Customer] = {}
    open: Any = None


def place(order: Order, count: int, kind: Literal["a", "b"] = "a") -> None: ...


@pytest.mark.parametrize(
    "path",
    [
        "order",
        "order.customer.note",
        "order.lines.note",
        "order.address.note",
        "order.parents.parents.lines.sku",
        "order.extra.anyone.note",
        "order.open.what.ever",
    ],
)
def test_an_ignored_path_may_lead_through_models_lists_and_dicts(path) -> None:
    Arguments.of(place, ignore=(path,))


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("ordr", "Possible names there: count, kind, order"),
        ("order.note", "Possible names there: address, customer, extra, lines, open, parents"),
        ("order.lines.notes", "Possible names there: note, price, sku"),
        ("order.extra.anyone.notes", "Possible names there: id, note"),
        ("count.note", "Nothing has a name there"),
        ("kind.note", "Nothing has a name there"),
        ("key", "Possible names there"),
        ("", "Possible names there"),
    ],
)
def test_an_ignored_path_that_leads_nowhere_is_refused_with_the_possible_names(path, names) -> None:
    with pytest.raises(ContractError, match=names) as refusal:
        Arguments.of(place, ignore=(path,))
    assert repr(path) in str(refusal.value)


def order(note: str, *, name: str = "c", sku: str = "s") -> Order:
    return Order(
        customer=Customer(id=name, note=note),
        lines=[Line(sku, Decimal(1), note), Line("t", Decimal(2), note)],
        address={"city": "x", "note": note},
        extra={"a": Customer(id="a", note=note)},
        open={"note": note, "kept": 1},
    )


def test_ignored_members_do_not_count_and_their_neighbours_do() -> None:
    ignore = ["customer.note", "lines.note", "address.note", "extra.*.note", "open.note"]
    arguments = Arguments.of(place, ignore=[f"order.{path}" for path in ignore])
    assert canonical(arguments, order("one"), 1) == canonical(arguments, order("two"), 1)
    assert canonical(arguments, order("one", name="d"), 1) != canonical(arguments, order("one"), 1)
    assert canonical(arguments, order("one", sku="z"), 1) != canonical(arguments, order("one"), 1)
    for path in ignore:
        others = [f"order.{other}" for other in ignore if other != path]
        arguments = Arguments.of(place, ignore=others)
        assert canonical(arguments, order("one"), 1) != canonical(arguments, order("two"), 1)


def test_a_member_ignored_inside_a_set_leaves_the_set_a_set() -> None:
    def ship(lines: set[Line]) -> None: ...

    arguments = Arguments.of(ship, ignore=("lines.note",))
    one = [Line(str(n), Decimal(n), "x") for n in range(20)]
    other = [Line(str(n), Decimal(n), "y") for n in reversed(range(20))]
    assert canonical(arguments, one) == canonical(arguments, other)


# --- names that come later -----------------------------------------------------------------------


def register(entry: Entry, key: "semel.kernel.keys.Key", count: int) -> None: ...  # noqa: UP037


EARLY = Arguments.of(register, ignore=("entry.note",))
EARLY_WAS_READY = EARLY.ready
EARLY_KEYS = EARLY.key_parameters


class Entry(BaseModel):
    id: str
    note: str


def test_a_name_defined_later_is_resolved_at_the_first_use() -> None:
    assert not EARLY_WAS_READY
    assert EARLY_KEYS == ("key",)
    assert canonical(EARLY, {"id": "e", "note": "x"}, 1) == b'{"count":1,"entry":{"id":"e"}}'
    assert EARLY.ready


class Outer(BaseModel):
    inner: Inner


def nest(outer: Outer) -> None: ...


EARLY_NEST = Arguments.of(nest)


class Inner(BaseModel):
    id: str


def test_a_model_whose_fields_are_defined_later_is_resolved_at_the_first_use() -> None:
    assert canonical(EARLY_NEST, {"inner": {"id": "i"}}) == b'{"outer":{"inner":{"id":"i"}}}'


def paint(thing: Painted) -> None: ...


EARLY_PAINT = Arguments.of(paint, ignore=("thing.colour",))


class Painted(BaseModel):
    color: str


def test_checks_that_waited_for_a_name_are_made_at_the_first_use() -> None:
    with pytest.raises(ContractError, match="Possible names there: color"):
        EARLY_PAINT.bind((), {})


def test_a_name_that_never_comes_is_refused_at_the_first_use() -> None:
    def late(thing: int) -> None: ...

    late.__annotations__["thing"] = "Thing"
    arguments = Arguments.of(late)
    for _ in range(2):
        with pytest.raises(ContractError, match=r"cannot be resolved \(name 'Thing' is not defined\)"):
            arguments.bind((), {})


def test_names_of_the_place_of_definition_are_known() -> None:
    class Local(BaseModel):
        id: int

    class Captured(BaseModel):
        id: int

    def act(one: Local, two: list[Captured]) -> None:
        Captured(id=1)

    arguments = Arguments.of(act, local_names={"Local": Local})
    assert canonical(arguments, {"id": 1}, [Captured(id=2)]) == b'{"one":{"id":1},"two":[{"id":2}]}'


# --- stored and read back ------------------------------------------------------------------------


def test_every_usual_type_comes_back_as_itself() -> None:
    class Tags(RootModel[set[str]]): ...

    class Shared(BaseModel):
        model_config = ConfigDict(extra="allow", frozen=True)
        id: int = Field(alias="the-id")
        a: int = Field(1, alias="b")
        b: int = Field(2, alias="a")

        @computed_field  # type: ignore[prop-decorator]
        @property
        def twice(self) -> int:
            return self.id * 2

    def act(
        shared: Shared,
        line: Line,
        address: Address,
        point: Point,
        price: Decimal,
        at: datetime,
        on: date,
        when: time,
        wait: timedelta,
        ident: uuid.UUID,
        currency: Currency,
        data: bytes,
        tags: Tags,
        numbers: tuple[int, ...],
        by_id: dict[int, Decimal],
        either: int | str | None,
        share: float,
        path: Path,
        anything,
    ) -> None: ...

    arguments = Arguments.of(act, local_names=locals())
    given = {
        "shared": Shared.model_validate({"the-id": 1, "a": 3, "b": 4, "more": [1]}),
        "line": Line("s", Decimal("1.50"), "n"),
        "address": Address(city="x", note="y"),
        "point": Point(1, 2),
        "price": Decimal("0.10"),
        "at": datetime(2024, 1, 1, 12, 0, 0, 5, tzinfo=UTC),
        "on": date(2024, 1, 1),
        "when": time(12, 30),
        "wait": timedelta(days=-1, microseconds=3),
        "ident": uuid.UUID(int=7),
        "currency": Currency.EUR,
        "data": b"\xff\x00",
        "tags": Tags({"a", "b"}),
        "numbers": (1, 2),
        "by_id": {1: Decimal("1.0")},
        "either": "5",
        "share": 0.1,
        "path": Path("a"),
        "anything": {"a": [1, None, "x", 0.5]},
    }
    validated, restored = round_trip(arguments, **given)
    assert restored == validated == given
    assert {name: type(value) for name, value in restored.items()} == {n: type(v) for n, v in given.items()}


def test_bytes_that_are_no_text_come_back_wherever_they_are() -> None:
    def act(
        data: bytes,
        many: list[bytes],
        blob: Blob,
        chunk: Chunk,
        packed: Packed,
        by_name: dict[str, bytes],
    ) -> None: ...

    bad = b"\xff\x00"
    given = {
        "data": bad,
        "many": [bad],
        "blob": Blob(data=bad),
        "chunk": Chunk(bad),
        "packed": Packed(bad),
        "by_name": {"a": bad},
    }
    assert round_trip(Arguments.of(act), **given) == (given, given)


def test_a_model_that_writes_bytes_as_text_is_refused_other_bytes() -> None:
    class Page(BaseModel):
        data: bytes

    def act(page: Page) -> None: ...

    arguments = Arguments.of(act, local_names=locals())
    assert round_trip(arguments, page=Page(data=b"text"))[1] == {"page": Page(data=b"text")}
    with pytest.raises(InvalidArguments, match=r"cannot be written as JSON .*utf-8"):
        arguments.dump({"page": Page(data=b"\xff")})


def test_a_re_entry_gets_the_first_calls_ignored_arguments_and_defaults() -> None:
    def send(to: str, text: str, copies: int = 1) -> None: ...

    arguments = Arguments.of(send, ignore=("text",))
    stored = arguments.dump({"to": "ann", "text": "first"})
    assert arguments.restore(stored, {"to": "ann", "text": "second"}) == {
        "to": "ann",
        "text": "first",
        "copies": 1,
    }

    def send_twice(to: str, text: str, copies: int = 2) -> None: ...

    later = Arguments.of(send_twice, ignore=("text",))
    assert later.restore(stored, {"to": "ann", "text": "x"})["copies"] == 1


@pytest.mark.parametrize(("value", "place"), [(Vip(id="v"), "customer"), (NEW_YEAR, "anything")])
def test_what_would_come_back_changed_is_refused_before_the_effect(value, place) -> None:
    def act(customer: Customer, anything) -> None: ...

    arguments = Arguments.of(act)
    given = {"customer": Customer(id="c"), "anything": 1} | {place: value}
    with pytest.raises(InvalidArguments, match=f"{place} would not be read back"):
        arguments.dump(arguments.validate(given))


def test_a_tuple_for_a_sequence_may_come_back_as_a_list() -> None:
    def act(numbers: Sequence[int], anything) -> None: ...

    restored = round_trip(Arguments.of(act), numbers=(1, 2), anything={"a": (1,)})[1]
    assert restored == {"numbers": [1, 2], "anything": {"a": [1]}}


def test_stored_arguments_that_no_longer_fit_are_refused() -> None:
    def pay(amount: int) -> None: ...

    with pytest.raises(InvalidArguments, match="what the first call stored is not accepted now: amount"):
        Arguments.of(pay).restore(b'{"amount":"x"}', {"amount": 1})
    with pytest.raises(InvalidArguments, match="not accepted now"):
        Arguments.of(pay).restore(b'{"amount"', {"amount": 1})
    with pytest.raises(InvalidArguments, match="cannot be put into what the first call stored"):
        SECRETIVE.restore(b'{"amount"', secretive())


# --- secrets -------------------------------------------------------------------------------------


class Card(BaseModel):
    number: str
    holder: str

    @field_validator("number")
    @classmethod
    def is_long(cls, number: str) -> str:
        if len(number) < 4:
            raise ValueError(f"{number} is too short")
        return number


class Login(BaseModel):
    user: str
    password: SecretStr
    pin: Secret[int] | None = None
    salt: SecretBytes = SecretBytes(b"")
    children: list[Login] = []


def pay_by_card(amount: int, card: Card, token: str, logins: list[Login], note: str = "") -> None: ...


SECRETIVE = Arguments.of(
    pay_by_card, secret=("card.number", "token", "receipt.code"), ignore=("note", "card.holder")
)
SECRETS = ("4242-4242", "tok-9", "pass-1", "pass-2", "9876", "c2FsdA==")


def secretive(**changes: Any) -> dict[str, Any]:
    login = {
        "user": "u",
        "password": "pass-1",
        "salt": b"salt",
        "children": [{"user": "v", "password": "pass-2"}],
    }
    given: dict[str, Any] = {
        "amount": 1,
        "card": {"number": "4242-4242", "holder": "Ann"},
        "token": "tok-9",
        "logins": [{**login, "pin": 9876}],
        "note": "first",
    }
    return SECRETIVE.validate(SECRETIVE.bind((), given | changes))


def test_secrets_are_neither_in_the_canonical_nor_in_the_stored_form() -> None:
    validated = secretive()
    for form in (SECRETIVE.canonical(validated, STORE_KEY), SECRETIVE.dump(validated)):
        assert not [secret for secret in SECRETS if secret in form.decode()]
        assert b"salt" not in form.replace(b'"salt"', b"")


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "tok-8"},
        {"card": {"number": "4242-4243", "holder": "Ann"}},
        {"logins": [{"user": "u", "password": "pass-3"}]},
        {"logins": [{"user": "u", "password": "pass-1", "salt": b"pepper"}]},
    ],
)
def test_another_secret_is_another_action(changes) -> None:
    assert SECRETIVE.canonical(secretive(**changes), STORE_KEY) != SECRETIVE.canonical(secretive(), STORE_KEY)


def test_the_same_secret_is_the_same_action_under_one_store_key_only() -> None:
    assert SECRETIVE.canonical(secretive(), STORE_KEY) == SECRETIVE.canonical(secretive(), STORE_KEY)
    assert SECRETIVE.canonical(secretive(), STORE_KEY) != SECRETIVE.canonical(secretive(), b"other")


def test_a_re_entry_takes_only_the_secrets_from_the_present_call() -> None:
    stored = SECRETIVE.dump(secretive())
    present = secretive(token="tok-8", note="second", card={"number": "4242-4242", "holder": "Bob"})
    restored = SECRETIVE.restore(stored, present)
    assert restored == secretive(token="tok-8")
    assert restored["logins"][0].password.get_secret_value() == "pass-1"
    assert restored["logins"][0].pin.get_secret_value() == 9876
    assert restored["logins"][0].salt.get_secret_value() == b"salt"
    assert restored["logins"][0].children[0].password.get_secret_value() == "pass-2"


def test_a_secret_of_any_bytes_comes_back_from_the_present_call() -> None:
    def act(key: SecretBytes, raw: bytes, login: Login) -> None: ...

    arguments = Arguments.of(act, secret=("raw",))
    login = {"user": "u", "password": "", "salt": b"ascii"}
    given = arguments.validate({"key": b"\xff\x00", "raw": b"\xfe", "login": login})
    assert arguments.restore(arguments.dump(given), given)["raw"] == b"\xfe"


def test_a_secret_that_its_model_would_not_read_is_refused_before_the_effect() -> None:
    def act(login: Login) -> None: ...

    arguments = Arguments.of(act)
    with pytest.raises(InvalidArguments, match="secrets cannot be put"):
        arguments.dump(arguments.validate({"login": {"user": "u", "password": "", "salt": b"\xff"}}))


def test_a_secret_may_be_empty_or_none() -> None:
    def act(login: Login, hint: str | None, code: bool) -> None: ...

    arguments = Arguments.of(act, secret=("login.user", "hint", "code"))
    given = arguments.validate({"login": {"user": "", "password": ""}, "hint": None, "code": False})
    assert arguments.restore(arguments.dump(given), given) == given


def test_a_secret_that_json_does_not_know_still_comes_from_the_present_call() -> None:
    def act(amount: int, session) -> None: ...

    arguments = Arguments.of(act, secret=("session",))
    given = arguments.validate({"amount": 1, "session": NEW_YEAR})
    assert arguments.dump(given) == b'{"amount":1}'
    assert arguments.restore(b'{"amount":2}', given) == {**given, "amount": 2}


def test_a_first_call_with_more_secrets_than_the_present_one_is_not_re_entered() -> None:
    def act(logins: list[Login]) -> None: ...

    arguments = Arguments.of(act, ignore=("logins",))
    two = arguments.validate({"logins": [{"user": "u", "password": "a"}, {"user": "v", "password": "b"}]})
    one = arguments.validate({"logins": [{"user": "u", "password": "a"}]})
    with pytest.raises(InvalidArguments):
        arguments.restore(arguments.dump(two), one)


def test_a_serializer_that_moves_a_secret_is_not_trusted_with_one() -> None:
    class Flat(BaseModel):
        number: str

        @model_serializer
        def flat(self) -> dict[str, str]:
            return {"card_number": self.number}

    def act(flat: Flat) -> None: ...

    arguments = Arguments.of(act, secret=("flat.number",), local_names=locals())
    with pytest.raises(InvalidArguments, match="writes a secret to another place"):
        arguments.dump({"flat": Flat(number="4242")})


def test_a_refusal_never_holds_a_secret() -> None:
    bad = {
        "amount": "xyz",
        "card": {"number": "421", "holder": 7},
        "token": ["tok-9"],
        "logins": [{"user": "u", "password": ["pass-1"], "pin": "98x"}],
    }
    with pytest.raises(InvalidArguments) as refusal:
        SECRETIVE.validate(bad)
    text = str(refusal.value)
    assert not [secret for secret in ("421", "tok-9", "pass-1", "98x") if secret in text]
    assert "card.number: does not fit" in text
    assert "token: does not fit" in text
    assert "amount: Input should be a valid integer" in text


def test_a_secret_outside_every_bound_is_refused_without_its_value() -> None:
    with pytest.raises(InvalidArguments, match="a secret contains a NUL character") as refusal:
        SECRETIVE.canonical(secretive(token="tok-9\0"), STORE_KEY)
    assert "tok-9" not in str(refusal.value)


def test_the_secrets_of_a_call_are_named_in_every_spelling() -> None:
    found = SECRETIVE.secrets_of(secretive(token='to"k\n', note="no secret"))
    assert {
        'to"k\n',
        'to"k\\n',
        'to\\"k\\n',
        "pass-1",
        "pass-2",
        "9876",
        "salt",
        "4242-4242",
        "c2FsdA",
    } <= set(found)
    assert found == sorted(found, key=len, reverse=True)
    assert not {"Ann", "u", "no secret", "", "1"} & set(found)
    assert REFUND.secrets_of(PAID) == []


def test_secret_paths_that_are_no_arguments_are_left_to_the_result() -> None:
    assert SECRETIVE.unknown_secrets == ("receipt.code",)
    assert REFUND.unknown_secrets == ()


# --- schema --------------------------------------------------------------------------------------


def test_the_schema_is_what_a_model_may_send() -> None:
    def act(
        id: int,
        key: Key,
        note: Annotated[str, Field(max_length=5)] = "x",
        secret: str = "s",
    ) -> None: ...

    schema = Arguments.of(act, secret=("secret",), tool="acting").schema
    assert schema["title"] == "acting"
    assert schema["type"] == "object"
    assert schema["required"] == ["id"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"id", "note", "secret"}
    assert schema["properties"]["note"]["default"] == "x"
    assert schema["properties"]["note"]["maxLength"] == 5
    assert "default" not in schema["properties"]["secret"]
    orjson.dumps(schema)


def test_a_tool_without_arguments_has_an_empty_schema() -> None:
    def act() -> None: ...

    arguments = Arguments.of(act)
    assert arguments.schema["required"] == []
    assert arguments.schema["properties"] == {}
    assert canonical(arguments) == b"{}"
    assert arguments.restore(arguments.dump({}), {}) == {}


def test_constraints_of_an_annotation_hold() -> None:
    def act(percent: Annotated[int, Field(ge=0, le=100), AfterValidator(lambda n: n * 10)]) -> None: ...

    arguments = Arguments.of(act)
    assert canonical(arguments, "5") == b'{"percent":50}'
    with pytest.raises(InvalidArguments, match="less than or equal to 100"):
        canonical(arguments, 101)
