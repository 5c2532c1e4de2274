"""The function of a signature gives what the general way gives, byte for byte, or leaves the answer to it."""

from __future__ import annotations

import enum
import gc
import inspect
import linecache
import traceback
import types
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    SecretStr,
    computed_field,
    field_validator,
    model_serializer,
)

from semel.contract import shapes
from semel.contract.arguments import Arguments
from semel.contract.values import Unstorable, Values
from semel.errors import SemelError
from semel.kernel.limits import ARGUMENT_BYTES_MAX

STORE_KEY = b"k" * 32
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
BERLIN = datetime(1850, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
ABSENT: Any = inspect.Parameter.empty


class Currency(enum.Enum):
    EUR = "eur"
    USD = "usd"


class Colour(str, enum.Enum):  # noqa: UP042  as people wrote it before there was a StrEnum
    RED = "red"
    BLUE = "$blue"


class Size(enum.IntEnum):
    S = 1
    XL = -(1 << 63)


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    order_id: str = Field(alias="orderId")
    note: str | None = None
    lines: list[Line] = []
    labels: dict[str, int] = Field(default_factory=dict)
    rate: float = 0.5
    paid_at: datetime | None = None
    currency: Currency = Currency.EUR

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True, frozen=False)


class WithValidator(BaseModel):
    sku: str

    @field_validator("sku")
    @classmethod
    def _upper(cls, sku: str) -> str:
        return sku.upper()


class WithSerializer(BaseModel):
    sku: str

    @model_serializer
    def _written(self) -> dict[str, Any]:
        return {"sku": self.sku + "!"}


class WithComputed(BaseModel):
    sku: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> str:
        return self.sku * 2


class Excluded(BaseModel):
    sku: str = Field(default="", exclude=True)


class Extras(BaseModel):
    model_config = ConfigDict(extra="allow")


class Again(BaseModel):
    model_config = ConfigDict(revalidate_instances="always")
    sku: str = ""


class Tree(BaseModel):
    children: list[Tree] = []


class Initialised(BaseModel):
    sku: str

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)


class AfterInit(BaseModel):
    sku: str

    def model_post_init(self, context: Any, /) -> None:
        self.sku += "!"


class Root(RootModel[int]):
    pass


@dataclass
class Data:
    sku: str = ""


class Point(NamedTuple):
    x: int


class Mixed(enum.Enum):
    A = "a"
    B = 1


class Huge(enum.IntEnum):
    XXL = 1 << 70


class Rights(enum.IntFlag):
    R = 1
    W = 2


class SubLine(Line):
    pass


class Basket(BaseModel):
    sku: str

    @cached_property
    def loud(self) -> str:
        return self.sku.upper()


class Text(str):
    pass


class Whole(int):
    pass


class Moment(datetime):
    pass


WITHOUT_COUNT = Line(sku="s")
del WITHOUT_COUNT.__dict__["count"]
WITHOUT_COUNT.__dict__["other"] = 1


# --- the two ways side by side --------------------------------------------------------------------


def general(arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bytes]:
    validated = arguments.validate(arguments.bind(args, kwargs))
    return validated, arguments.canonical(validated, STORE_KEY)


def check(arguments: Arguments, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the exact way took these; what it gave is what the general way gives."""
    exact = arguments.exactly(args, kwargs)
    if exact is None:
        return False
    validated, canonical = general(arguments, args, kwargs)  # which raises nothing, then
    assert exact[1] == canonical
    assert same(exact[0], validated)
    stored = arguments.dump_exactly(exact)
    if stored is not None:
        assert stored == arguments.dump(validated)
    return True


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, BaseModel):
        return one is other
    return repr(one) == repr(other)


def tool_of(parameters: list[inspect.Parameter]) -> Any:
    def tool(**given): ...

    tool.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return tool


def parameter(name: str, kind: Any, default: Any = ABSENT, *, by_name: bool = False) -> inspect.Parameter:
    place = inspect.Parameter.KEYWORD_ONLY if by_name else inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(name, place, default=default, annotation=kind)


# --- generated signatures and values --------------------------------------------------------------

TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", "\0", "a\0b", "\\u0000", "\ud800", "$", "$int", "€", '","$x":"', "5", "true", "eur", "1.5", "a"]
)
INTEGERS = st.integers() | st.sampled_from(
    [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**400]
)
FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 1e16, 1e22, 5e-324, 0.1, 2.0**63, 2.0**64, 1e300])
DECIMALS = st.decimals() | st.sampled_from(
    [Decimal(text) for text in ("0", "-0", "1.50", "1E+30", "1E-30", "NaN", "sNaN", "Infinity", "15E400")]
)
ZONES = st.sampled_from(
    [None, UTC, timezone(timedelta(hours=5.5)), timezone(timedelta(0), "nought"), ZoneInfo("Europe/Berlin")]
)
MOMENTS = st.datetimes(timezones=ZONES) | st.sampled_from(
    [
        datetime(1, 1, 1),  # noqa: DTZ001  without a zone on purpose
        datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2024, 10, 27, 2, 30, fold=1),  # noqa: DTZ001
        BERLIN,
        Moment(2024, 1, 1, tzinfo=UTC),
    ]
)
LINES = st.builds(Line, sku=TEXTS.filter(lambda text: text.isascii()), count=INTEGERS)
ORDERS = st.builds(
    Order,
    order_id=st.sampled_from(["o-1", "$", "\0"]),
    note=st.none() | st.just("n"),
    lines=st.lists(LINES, max_size=2),
    labels=st.dictionaries(st.sampled_from(["a", "$a", "\0", "b c"]), INTEGERS, max_size=2),
    rate=FLOATS,
    paid_at=st.none() | MOMENTS,
    currency=st.sampled_from(Currency),
)


@st.composite
def spoilt(draw: st.DrawFn, models: st.SearchStrategy[Any]) -> Any:
    """A model whose fields were set, removed or added behind its back."""
    model = draw(models).model_copy()
    name = draw(st.sampled_from([*type(model).model_fields, "unknown"]))
    if draw(st.booleans()):
        model.__dict__[name] = draw(ANYTHING)
    else:
        model.__dict__.pop(name, None)
    return model


LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTEGERS,
    bool: st.booleans(),
    float: FLOATS,
    Decimal: DECIMALS,
    datetime: MOMENTS,
    date: st.dates(),
    uuid.UUID: st.uuids(),
    Currency: st.sampled_from(Currency),
    Colour: st.sampled_from(Colour),
    Size: st.sampled_from(Size),
    Huge: st.sampled_from(Huge),
    Literal["eur", "$b"]: st.sampled_from(["eur", "$b", "other"]),
    Annotated[int, Field(gt=0, le=10)]: st.integers(-1, 12),
    Annotated[str, Field(min_length=1, max_length=3)]: st.text(max_size=5),
    int | float: INTEGERS | FLOATS,
    bool | int | str: st.booleans() | INTEGERS | TEXTS,
    Line: LINES | st.deferred(lambda: spoilt(LINES)),
    Order: ORDERS | st.deferred(lambda: spoilt(ORDERS)),
}

# The usual values of some of these types, so that not every call has something odd in it.
USUAL: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(timezones=st.none() | st.just(UTC)),
    int | float: st.integers(-(2**63), 2**64 - 1) | st.floats(-1e300, 1e300),
    Line: st.builds(Line, sku=st.just("s"), count=st.integers(-9, 9)),
    Order: st.builds(Order, order_id=st.just("o-1"), rate=st.floats(0, 1), paid_at=st.just(NEW_YEAR)),
}


ANYTHING = st.one_of(
    *[values for kind, values in LEAVES.items() if kind not in (Line, Order)],
    st.none(),
    st.builds(Text, st.just("a")),
    st.builds(Whole, st.just(1)),
    st.builds(lambda: [1, "a"]),
    st.builds(lambda: {"a": 1, "$b": 2}),
    st.builds(lambda: {1: 1}),
    st.builds(tuple),
    st.builds(lambda: SubLine(sku="s")),
    st.just(object()),
)


@st.composite
def kinds(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """An annotation, and values of it: mostly of exactly its type."""
    kind: Any = draw(st.sampled_from(list(LEAVES)))
    values = draw(st.sampled_from([USUAL.get(kind, LEAVES[kind]), LEAVES[kind]]))
    names = draw(st.sampled_from([st.sampled_from(["a", "b c", "€"]), TEXTS]))
    shape = draw(st.sampled_from(["bare", "bare", "list", "dict", "lists"]))
    if shape == "list":
        kind, values = types.GenericAlias(list, (kind,)), st.lists(values, max_size=3)
    elif shape == "lists":
        of_lists = types.GenericAlias(list, (types.GenericAlias(list, (kind,)),))
        kind, values = of_lists, st.lists(st.lists(values, max_size=2), max_size=2)
    elif shape == "dict":
        kind, values = types.GenericAlias(dict, (str, kind)), st.dictionaries(names, values, max_size=2)
    if draw(st.booleans()):
        kind, values = kind | None, values | st.none()
    return kind, values


NAMES = ["a", "b", "type", "it", "arguments", "len", "str", "told_apart", "exact_arguments", "name", "form"]


@st.composite
def signatures(draw: st.DrawFn) -> tuple[Arguments, list[tuple[str, st.SearchStrategy[Any]]], int]:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    by_position = draw(st.integers(0, len(names)))
    parameters, values, defaulted = [], [], False
    for index, name in enumerate(names):
        kind, of_kind = draw(kinds())
        by_name = index >= by_position
        defaulted = draw(st.booleans()) if by_name else defaulted or draw(st.booleans())
        default = draw(of_kind) if defaulted else ABSENT
        parameters.append(parameter(name, kind, default, by_name=by_name))
        values.append((name, of_kind))
    ignore = draw(st.lists(st.sampled_from(names), unique=True)) if names else []
    try:
        made = Arguments.of(tool_of(parameters), ignore=ignore)
    except SemelError:  # a default that does not fit its annotation
        parameters = [each.replace(default=ABSENT) for each in parameters]
        made = Arguments.of(tool_of(parameters), ignore=ignore)
    return made, values, by_position


@st.composite
def calls(draw: st.DrawFn) -> tuple[Arguments, tuple[Any, ...], dict[str, Any]]:
    arguments, parameters, by_position = draw(signatures())
    wrong = draw(st.integers(0, 9))
    values = []
    for name, of_kind in parameters:
        values.append((name, draw(ANYTHING if wrong == 0 else of_kind)))
    split = draw(st.integers(0, by_position))
    args = tuple(value for _, value in values[:split])
    kwargs = {name: value for name, value in values[split:] if draw(st.integers(0, 4))}
    if wrong == 1:
        kwargs[draw(st.sampled_from([*NAMES, "unknown", "key"]))] = draw(ANYTHING)
    elif wrong == 2:
        args = (*args, draw(ANYTHING))
    return arguments, args, kwargs


@settings(max_examples=300)
@given(calls())
def test_the_exact_way_gives_what_the_general_way_gives(call: Any) -> None:
    check(*call)


# --- results --------------------------------------------------------------------------------------


def written(values: Values, value: Any) -> bytes | str:
    try:
        return values.dump(value)
    except Unstorable as reason:
        return str(reason)


@st.composite
def results(draw: st.DrawFn) -> tuple[Any, Any]:
    kind, values = draw(kinds())
    return kind, draw(ANYTHING if draw(st.integers(0, 9)) == 0 else values)


@given(results())
def test_a_result_of_exactly_its_type_is_written_as_one_that_is_read_back(result: Any) -> None:
    kind, value = result
    values, careful = Values.of(kind), Values.of(kind)
    careful._shape._exact = None
    data = written(careful, value)
    assert written(values, value) == data
    if values._shape._is_exact(value) and isinstance(data, bytes):
        assert shapes.difference(value, values.load(data)) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, Order(orderId="o-1", lines=[Line(sku="s")])),
        (list[Line], [Line(sku="s")]),
        (Decimal, Decimal(1)),
    ],
    ids=str,
)
def test_a_result_of_exactly_its_type_is_not_read_back(kind: Any, value: Any) -> None:
    assert Values.of(kind)._shape._is_exact(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Line, SubLine(sku="s")),
        (Line, Line(sku="s", count=1 << 64)),
        (Line, WITHOUT_COUNT),
        (Line, Line.model_construct(sku=5, count=1)),
        (Order, Order(orderId="o-1", rate=float("nan"))),
        (Decimal, Decimal("Infinity")),
        (dict[str, Decimal], {"\ud800": Decimal(1)}),
        (WithSerializer, WithSerializer(sku="s")),
        (WithValidator, WithValidator(sku="s")),
        (Excluded, Excluded(sku="s")),
        (Extras, Extras.model_validate({"sku": "s"})),
        (Root, Root(1)),
        (Data, Data()),
    ],
    ids=str,
)
def test_any_other_result_is_read_back_before_it_is_kept(kind: Any, value: Any) -> None:
    assert not Values.of(kind)._shape._is_exact(value)


# --- what it takes --------------------------------------------------------------------------------

TAKEN = [
    (str, "a"),
    (int, 5),
    (bool, True),
    (float, 0.1),
    (float, -0.0),
    (Decimal, Decimal("1.50")),
    (datetime, datetime(2024, 1, 1, tzinfo=UTC)),
    (date, date(2024, 1, 1)),
    (uuid.UUID, uuid.UUID(int=7)),
    (Currency, Currency.EUR),
    (Colour, Colour.BLUE),
    (Literal["eur", "usd"], "usd"),
    (Annotated[int, Field(gt=0)], 1),
    (Annotated[str, Field(max_length=3)], "abc"),
    (int | str, "a"),
    (str | None, None),
    (list[str], ["a"]),
    (list[list[float]], [[0.5], []]),
    (list[Line], [Line(sku="s")]),
    (dict[str, int], {"b c": 1}),
    (dict[str, list[int]] | None, {"b": [1]}),
    (Order, Order(orderId="o-1", lines=[Line(sku="s")], rate=1.5, paid_at=datetime(2024, 1, 1, tzinfo=UTC))),
    (Line | None, Line(sku="s", count=2)),
]


@pytest.mark.parametrize(("kind", "value"), TAKEN, ids=lambda each: str(each)[:40])
def test_the_exact_way_takes_the_usual_types(kind: Any, value: Any) -> None:
    arguments = Arguments.of(tool_of([parameter("value", kind), parameter("n", int, 1)]))
    assert check(arguments, (value,), {})
    assert check(arguments, (), {"value": value, "n": 1})
    assert check(arguments, (value, 2), {})
    ignoring = Arguments.of(tool_of([parameter("value", kind), parameter("n", int)]), ignore=("value",))
    assert check(ignoring, (value, 2), {})


@pytest.mark.parametrize("default", [1, True, 0, False, 1.0, "1"])
@pytest.mark.parametrize("value", [1, True, 0, False, 1.0, -0.0, "1"])
def test_an_argument_equals_its_default_only_if_it_is_of_the_same_type(default: Any, value: Any) -> None:
    arguments = Arguments.of(tool_of([parameter("value", bool | int | float | str, default)]))
    assert check(arguments, (value,), {})


LEFT = [
    Any,
    bytes,
    timedelta,
    tuple[int, ...],
    set[str],
    dict[int, str],
    dict[str, Any],
    SecretStr,
    Annotated[str, AfterValidator(str.upper)],
    Annotated[int, PlainSerializer(str)],
    Annotated[list[int], Field(max_length=2)],
    Annotated[float, Field(gt=0)],
    Annotated[str, Field(pattern="a")],
    Annotated[int, Field(strict=True)],
    Literal[1, "a"],
    Line | str,
    WithValidator,
    WithSerializer,
    WithComputed,
    Excluded,
    Extras,
    Again,
    Tree,
    Initialised,
    AfterInit,
    Root,
    Data,
    Point,
    Mixed,
    Huge,
    Rights,
]


@pytest.mark.parametrize("kind", LEFT, ids=str)
def test_what_is_not_known_to_come_through_as_it_is_takes_the_general_way(kind: Any) -> None:
    arguments = Arguments.of(tool_of([parameter("value", kind)]))
    assert arguments.exact_function is None


@pytest.mark.parametrize(
    ("kind", "default"),
    [(Line, Line(sku="s")), (int | str | None, 1), (str, "\0"), (list[int | bool], [1]), (datetime, BERLIN)],
    ids=str,
)
def test_a_default_that_could_be_mistaken_takes_the_general_way(kind: Any, default: Any) -> None:
    assert Arguments.of(tool_of([parameter("value", kind, default)])).exact_function is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (str, Text("a")),
        (int, Whole(1)),
        (int, True),
        (int, "5"),
        (int, 5.0),
        (int, 1 << 64),
        (float, 5),
        (float, float("nan")),
        (str, "a\0"),
        (str, "\ud800"),
        (list[str], ["a", Text("b")]),
        (list[str], ("a",)),
        (dict[str, str], {"$a": "b"}),
        (dict[str, str], {Text("a"): "b"}),
        (datetime, datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))),
        (Line, SubLine(sku="s")),
        (Line, {"sku": "s"}),
        (str, "a" * ARGUMENT_BYTES_MAX),
    ],
    ids=lambda each: str(each)[:40],
)
def test_what_is_not_exactly_of_its_type_takes_the_general_way(kind: Any, value: Any) -> None:
    for ignore in ((), ("value",)):
        arguments = Arguments.of(tool_of([parameter("value", kind)]), ignore=ignore)
        assert arguments.exact_function is not None
        exact = arguments.exactly((value,), {})
        # Whether what is ignored can be stored is found out when it is.
        assert exact is None or (ignore and arguments.dump_exactly(exact) is None)


def test_a_secret_argument_takes_the_general_way() -> None:
    def pay(card: str, amount: int) -> None: ...

    assert Arguments.of(pay, secret=("card",)).exact_function is None


def test_a_path_below_an_argument_takes_the_general_way() -> None:
    def pay(line: Line) -> None: ...

    assert Arguments.of(pay, ignore=("line.count",)).exact_function is None
    assert Arguments.of(pay, ignore=("line",)).exact_function is not None


def test_a_model_with_something_cached_in_it_takes_the_general_way() -> None:
    def pay(basket: Basket) -> None: ...

    arguments, basket = Arguments.of(pay), Basket(sku="s")
    assert check(arguments, (basket,), {})
    before = arguments.exactly((basket,), {})
    assert basket.loud == "S"
    assert arguments.exactly((basket,), {}) is None
    assert before is not None
    assert general(arguments, (basket,), {})[1] == before[1]


def test_calls_that_do_not_fit_the_parameters_take_the_general_way() -> None:
    def pay(to: str, amount: int, *, note: str = "") -> None: ...

    arguments = Arguments.of(pay)
    for args, kwargs in [
        ((), {}),
        (("a",), {}),
        (("a", 1, "n"), {}),
        (("a", 1), {"to": "b"}),
        (("a", 1), {"unknown": 1}),
        ((), {"to": "a", "amount": 1, 1: 2}),
    ]:
        assert arguments.exactly(args, kwargs) is None  # type: ignore[arg-type]


# --- copies, and what is stored -------------------------------------------------------------------


def test_lists_and_dicts_are_the_tools_own() -> None:
    def tag(tags: list[list[str]], labels: dict[str, list[int]], flat: list[int] | None = None) -> None: ...

    arguments = Arguments.of(tag)
    given = {"tags": [["a"]], "labels": {"n": [1]}, "flat": [1]}
    exact = arguments.exactly((), given)
    assert exact is not None
    validated = exact[0]
    validated["tags"][0].append("b")
    validated["labels"]["n"].append(2)
    validated["flat"].append(2)
    assert given == {"tags": [["a"]], "labels": {"n": [1]}, "flat": [1]}


def test_what_was_canonical_is_stored_as_it_is_where_nothing_was_left_out() -> None:
    def pay(to: str, amount: int, note: str | None = None) -> None: ...

    arguments = Arguments.of(pay)
    complete = arguments.exactly(("a", 1, "n"), {})
    assert complete is not None
    assert arguments.dump_exactly(complete) is complete[1]
    for args in [("a", 1), ("a", 1, None)]:
        exact = arguments.exactly(args, {})
        assert exact is not None
        assert exact[1] == b'{"amount":1,"to":"a"}'
        assert arguments.dump_exactly(exact) == b'{"amount":1,"note":null,"to":"a"}'


def test_what_is_too_large_to_store_is_left_to_the_general_way() -> None:
    def pay(to: str, note: str, size: str = "s" * 100) -> None: ...

    arguments = Arguments.of(pay, ignore=("note",))
    exact = arguments.exactly(("a", "n" * (ARGUMENT_BYTES_MAX - 50)), {})
    assert exact is not None
    assert arguments.dump_exactly(exact) is None


# --- a person reads it ----------------------------------------------------------------------------


def refund(payment_id: str, amount: int, reason: str | None = None) -> None: ...


def test_its_source_can_be_printed() -> None:
    exact = Arguments.of(refund).exact_function
    assert isinstance(exact, types.FunctionType)
    assert inspect.getsource(exact) == REFUND


REFUND = """\
def exact_arguments(payment_id, amount, reason=absent):
    'The arguments of refund if all have exactly their declared types, else None.'
    if type(payment_id) is not str:
        return None
    if type(amount) is not int:
        return None
    arguments = {'payment_id': payment_id, 'amount': amount}
    told_apart = {'payment_id': payment_id, 'amount': amount}
    if reason is not absent:
        if reason is not None and type(reason) is not str:
            return None
        arguments['reason'] = reason
        if reason is not None:  # else it is as if not given
            told_apart['reason'] = reason
    canonical = dumps(told_apart, None, SORTED)
    if len(canonical) > BYTES_MAX or (92 in canonical and holds_nul(canonical)):
        return None
    return arguments, canonical, len(told_apart) == 3
"""


def test_a_traceback_shows_its_lines() -> None:
    exact = Arguments.of(refund).exact_function
    assert exact is not None
    linecache.checkcache()  # as `traceback` does
    with pytest.raises(TypeError) as raised:
        exact("p-1", 1 << 70)
    shown = "".join(traceback.format_exception(raised.value))
    assert "canonical = dumps(told_apart, None, SORTED)" in shown
    assert "<semel: exact_arguments of refund" in shown


def test_its_source_goes_with_it() -> None:
    arguments = Arguments.of(refund)
    exact = arguments.exact_function
    assert isinstance(exact, types.FunctionType)
    file_name = exact.__code__.co_filename
    assert file_name in linecache.cache
    del exact, arguments
    gc.collect()
    assert file_name not in linecache.cache
