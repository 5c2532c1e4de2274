"""Two ways to fail: different actions that share a key, and a retry that gets a new one."""

from __future__ import annotations

import copy
import enum
import hashlib
import json
import os
import pickle
import subprocess
import sys
import uuid
from collections import OrderedDict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal, localcontext
from fractions import Fraction
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.keys import (
    Bag,
    Key,
    Uncanonical,
    UnknownType,
    canonical,
    derive,
    explicit,
    fingerprint,
    frame,
    secret_mark,
    step_seed,
    tool_frame,
)


class LastOctoberSunday(tzinfo):
    """Two hours ahead before the clock is set back, one hour after."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(hours=1 if at is not None and at.fold else 2)

    def dst(self, at: datetime | None) -> timedelta:
        return self.utcoffset(at) - timedelta(hours=1)

    def tzname(self, at: datetime | None) -> str:
        return "somewhere"


SOMEWHERE = LastOctoberSunday()
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)


class Currency(enum.Enum):
    EUR = "eur"
    USD = "usd"


class Size(enum.IntEnum):
    SMALL = 1


class Shout(str):
    """A text that prints otherwise than it is."""

    def __str__(self) -> str:
        return self.upper()


# --- the form, pinned ----------------------------------------------------------------------------

# A change of any of these bytes changes keys that are on their way, so it takes a new KEY_FORMAT.
FORMAT_1 = [
    ({"b": 1, "a": "x", "c": None, "d": True}, b'{"a":"x","b":1,"c":null,"d":true}'),
    ({}, b"{}"),
    ({"text": 'q"\\\n\x01ü€😀'}, '{"text":"q\\"\\\\\\n\\u0001ü€😀"}'.encode()),
    ({"max": 2**64 - 1, "min": -(2**63)}, b'{"max":18446744073709551615,"min":-9223372036854775808}'),
    ({"n": 2**64}, b'{"n":{"$int":"0x10000000000000000"}}'),
    ({"n": -(2**63) - 1}, b'{"n":{"$int":"-0x8000000000000001"}}'),
    ({"n": 0.1}, b'{"n":{"$float":"0.1"}}'),
    ({"n": 1e-07}, b'{"n":{"$float":"1e-07"}}'),
    ({"n": 5000.0}, b'{"n":5000}'),
    ({"n": -0.0}, b'{"n":0}'),
    ({"n": 2.0**64}, b'{"n":{"$int":"0x10000000000000000"}}'),
    ({"n": Decimal("1.50")}, b'{"n":{"$decimal":"15E-1"}}'),
    ({"n": Decimal("-0.00")}, b'{"n":{"$decimal":"0E0"}}'),
    ({"n": Decimal("-12300")}, b'{"n":{"$decimal":"-123E2"}}'),
    ({"at": datetime(2024, 2, 29, 12, tzinfo=UTC)}, b'{"at":{"$instant":"1709208000000000"}}'),
    (
        {"at": datetime.fromisoformat("2024-02-29T12:00:00.000005")},
        b'{"at":{"$naive":"2024-02-29T12:00:00.000005"}}',
    ),
    ({"on": date(2024, 2, 29)}, b'{"on":{"$date":"2024-02-29"}}'),
    ({"at": time(12, 30)}, b'{"at":{"$time":"12:30:00"}}'),
    ({"at": time(1, tzinfo=UTC)}, b'{"at":{"$time_utc":"3600000000"}}'),
    ({"for": timedelta(days=1, microseconds=-1)}, b'{"for":{"$duration":"86399999999"}}'),
    ({"id": uuid.UUID(int=1)}, b'{"id":{"$uuid":"00000000000000000000000000000001"}}'),
    ({"data": b"\xff\x00"}, b'{"data":{"$bytes":"/wA="}}'),
    ({"of": Currency.EUR, "size": Size.SMALL}, b'{"of":"eur","size":1}'),
    ({"items": [1, (2, [3])]}, b'{"items":[1,[2,[3]]]}'),
    ({"tags": {"b", "a", 1}}, b'{"tags":{"$set":["a","b",1]}}'),
    ({"$decimal": "15E-1"}, b'{"$$decimal":"15E-1"}'),
    ({"in": {"$": 1, "$$x": 2}}, b'{"in":{"$$":1,"$$$x":2}}'),
    (
        {1: "a", "1": "b", None: "c", 0.5: "d"},
        b'{"$1":"a","$null":"c","${\\"$float\\":\\"0.5\\"}":"d","1":"b"}',
    ),
    ({(1, "x"): 1}, b'{"$[1,\\"x\\"]":1}'),
    ({Currency.EUR: 1}, b'{"eur":1}'),
    ([1, "x"], b'[1,"x"]'),
    ("x", b'"x"'),
]


@pytest.mark.parametrize(("value", "expected"), FORMAT_1)
def test_format_1_does_not_change_by_a_byte(value, expected) -> None:
    assert canonical(value) == expected


def test_keys_of_format_1_do_not_change() -> None:
    seed = step_seed("default", "conv-42", ("refund-1",))
    key = derive(seed, tool_frame("issue_refund", 2), canonical({"amount_minor": 1_400_000}))
    assert key == "f8a051ea41a2d9611f50b924b50ba381291e2b243020d34d7eb0e8a87de6dc25"
    assert key.part("capture") == "14b9de2b0fa8e1ec229bdf9253bdb94ab8e61b03cc78a20963cefa15802ed283"
    assert str(key.uuid()) == "f8a051ea-41a2-8961-9f50-b924b50ba381"
    assert (
        explicit("default", "order-7") == "547c969d88969089db500dd44403387478a3461ea86234c1d8a23d4c0fe5a12f"
    )
    assert (
        fingerprint("issue_refund", b"{}").hex()
        == "6631f9d30bc190ffb2c9074ec73a26629e62d3998d1978422fa9a99797752e97"
    )
    assert secret_mark(b"k" * 32, "4242") == {
        "$hmac": "40ac6ea0841e029034c71746e9487f8d088d8511c9c2d656cc2ae1f77413395f"
    }


def test_a_key_is_the_hash_of_its_documented_parts() -> None:
    parts = [b"semel.key", b"1", b"t", b"c", b"\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\2bc", b"tool", b"3"]
    message = b"".join(len(part).to_bytes(8, "big") + part for part in parts) + b'{"x":1}'
    key = derive(step_seed("t", "c", ("a", "bc")), tool_frame("tool", 3), b'{"x":1}')
    assert key == hashlib.sha256(message).hexdigest()


# --- equal values, equal bytes; different values, different bytes --------------------------------


def meaning(value):
    """What a value says, as something Python compares: written apart from the code under test."""
    match value:
        case enum.Enum():
            return meaning(value.value)
        case None | bool() | str() | bytes():
            return (type(value).__name__, value)
        case int() | float():
            return ("number", Fraction(value))
        case Decimal():
            return ("decimal", Fraction(value))
        case datetime():
            return ("instant", value.astimezone(UTC)) if value.tzinfo else ("naive", value)
        case date() | timedelta() | uuid.UUID():
            return (type(value).__name__, value)
        case time():
            return ("time", value.utcoffset() is None, value)
        case list() | tuple():
            return ("list", tuple(map(meaning, value)))
        case set() | frozenset():
            return ("set", frozenset(map(meaning, value)))
        case dict():
            return ("dict", frozenset((meaning(key), meaning(member)) for key, member in value.items()))


# Small on purpose: what differs only in its type, or looks like a tag, has to come up often.
texts = st.sampled_from(
    ["", "a", "$", "$$", "$set", "$decimal", "1E0", "1", "0.5", "true", "ü", "eur"]
) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
zones = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30)), SOMEWHERE])
numbers = st.sampled_from([0, 1, -1, 2**63, 2**64, -(2**63) - 1, 0.5, 1.0, -0.0, 1e16, 2.0**64, 1e300])
anything_hashable = st.one_of(
    texts,
    numbers,
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.sampled_from(["1", "1.0", "0.5", "0", "-0", "1E2", "100", "1.00000000000000000000000000000001"]).map(
        Decimal
    ),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=zones),
    st.sampled_from([NEW_YEAR, NEW_YEAR.replace(tzinfo=None), NEW_YEAR.date()]),
    st.dates(),
    st.times(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=1))])),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([b"", b"a", b"1"]),
)


@st.composite
def named(draw):
    """Without enums, which Python keeps apart from their values and the canonical form does not."""
    # As a function, because Hypothesis would print the whole list of strategies at every turn.
    return draw(anything_hashable)


scalars = named() | st.sampled_from([*Currency, *Size])
hashables = named() | st.tuples(named(), named()) | st.frozensets(named(), max_size=2)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(texts, inner, max_size=3),
        st.dictionaries(named(), inner, max_size=2),
        st.sets(hashables, max_size=3),
    ),
    max_leaves=8,
)


@given(values, values)
def test_two_values_share_their_bytes_exactly_when_they_mean_the_same(one, other) -> None:
    assert (canonical({"v": one}) == canonical({"v": other})) == (meaning(one) == meaning(other))


@given(scalars, scalars)
def test_two_scalars_share_their_bytes_exactly_when_they_mean_the_same(one, other) -> None:
    assert (canonical(one) == canonical(other)) == (meaning(one) == meaning(other))


def respelled(value, draw):
    """Another spelling of the same value."""
    match value:
        case bool():
            return value
        case int() if float(value) == value and draw(st.booleans()):
            return float(value)
        case float() if value.is_integer() and draw(st.booleans()):
            return int(value)
        case Decimal():
            sign, digits, exponent = value.as_tuple()
            return Decimal((sign, (0, *digits, 0, 0), int(exponent) - 2))
        case datetime() if value.tzinfo and 2 < value.year < 9998:
            return value.astimezone(timezone(timedelta(minutes=draw(st.integers(-600, 600)))))
        case list() | tuple():
            return draw(st.sampled_from([list, tuple, deque]))(respelled(item, draw) for item in value)
        case dict():
            pairs = draw(st.permutations(list(value.items())))
            return OrderedDict((key, respelled(member, draw)) for key, member in pairs)
        case set() | frozenset():
            return draw(st.sampled_from([set, frozenset]))(draw(st.permutations(list(value))))
        case str() if not isinstance(value, enum.Enum):
            return Shout(value)
    return value


@given(values, st.data())
def test_another_spelling_of_a_value_has_the_same_bytes(value, data) -> None:
    assert canonical(respelled(value, data.draw)) == canonical(value)


plain_texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ["$", '","$', '{"$', "\\u0000", "\0", "\\", '"']
)
flat = st.dictionaries(plain_texts, plain_texts | st.integers() | st.booleans() | st.none())


@given(flat)
def test_the_short_way_and_the_long_way_write_the_same_bytes(value) -> None:
    def outcome(made) -> bytes | str:
        try:
            return canonical(made)
        except Uncanonical as error:
            return str(error)

    # A subclass of dict is never taken the short way.
    assert outcome(value) == outcome(OrderedDict(value))


@given(values)
def test_canonical_bytes_are_json(value) -> None:
    json.loads(canonical(value))


def test_the_order_of_sets_and_the_hash_seed_do_not_matter() -> None:
    program = (
        "from semel.kernel.keys import canonical\n"
        "names = {f'name-{n}' for n in range(50)}\n"
        "print(canonical({'tags': names, 'groups': {frozenset(names), frozenset({1, 'a', None})},"
        " 'members': {name: {name} for name in names}}).hex())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4294967295")
    }
    assert len(seen) == 1
    assert len(seen.pop()) > 1_000


def test_a_decimal_is_compared_by_all_its_digits_whatever_the_context() -> None:
    one, other = Decimal("1." + "0" * 40 + "1"), Decimal("1." + "0" * 40 + "2")
    with localcontext() as context:
        context.prec = 3
        context.capitals = 0
        assert canonical(one) != canonical(other)
        assert canonical(Decimal("1E+3")) == canonical(Decimal(1000)) == b'{"$decimal":"1E3"}'


def test_the_two_hours_of_a_night_with_summer_time_ending_are_two() -> None:
    first = datetime(2024, 10, 27, 2, 30, tzinfo=SOMEWHERE)
    assert canonical(first) != canonical(first.replace(fold=1))
    assert canonical(first) == canonical(datetime(2024, 10, 27, 0, 30, tzinfo=UTC))


def test_instants_at_both_ends_of_the_calendar_have_a_form() -> None:
    east, west = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
    assert canonical(datetime.min.replace(tzinfo=east)) != canonical(datetime.min.replace(tzinfo=UTC))
    assert canonical(datetime.max.replace(tzinfo=west)) != canonical(datetime.max.replace(tzinfo=UTC))


def test_a_subclass_counts_as_what_it_is_built_on() -> None:
    class Stamp(datetime):
        def isoformat(self, *_):
            return "whenever"

    assert canonical(Shout("quiet")) == b'"quiet"'
    assert canonical(Stamp.fromisoformat("2024-01-01T00:00Z")) == canonical(NEW_YEAR)
    assert canonical(MappingProxyType({"a": deque([1])})) == b'{"a":[1]}'
    assert canonical({"data": bytearray(b"a")}) == canonical({"data": memoryview(b"a")})


def test_a_bag_is_a_set_that_may_hold_equal_and_unhashable_elements() -> None:
    assert canonical(Bag([{"b": 1}, {"a": 1}])) == canonical(Bag([{"a": 1}, {"b": 1}]))
    assert canonical(Bag([1, 1])) != canonical(Bag([1]))
    assert canonical(Bag([1, 2])) == canonical({1, 2})


# --- what has no canonical form ------------------------------------------------------------------


def nested(levels: int):
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": float("nan")}, "a is nan, which is not a number that JSON has"),
        ({"a": [1, {"b": float("-inf")}]}, "a.1.b is -inf, which is not a number that JSON has"),
        ({"a": Decimal("Infinity")}, "a is Infinity, which is not a number that JSON has"),
        ({"a": Decimal("sNaN")}, "a is sNaN, which is not a number that JSON has"),
        ({"a": "x\ud800"}, "a contains a lone surrogate, which is not text"),
        ({"a": {"\udfff": 1}}, r"a.\udfff contains a lone surrogate, which is not text"),
        ({"a": "x\0y"}, "a contains a NUL character"),
        ({"a": {"\0": 1}}, r"a.\x00 contains a NUL character"),
        ({"a": object()}, "a is of type builtins.object, which has no canonical form"),
        ({"a": {"b": {1, 2j}}}, "is of type builtins.complex, which has no canonical form"),
        ({"of": {Currency.EUR: 1, "eur": 2}}, "of has two keys with one canonical form"),
        (float("inf"), "the value is inf, which is not a number that JSON has"),
    ],
)
def test_a_value_without_a_canonical_form_is_refused_with_its_place(value, complaint) -> None:
    with pytest.raises(Uncanonical) as refusal:
        canonical(value)
    assert str(refusal.value).endswith(complaint)


def test_sixty_four_levels_are_taken_and_one_more_is_not() -> None:
    assert canonical(nested(64)).count(b"[") == 64
    with pytest.raises(Uncanonical, match="nested deeper than 64 levels"):
        canonical(nested(65))
    with pytest.raises(Uncanonical, match="nested deeper than 2 levels"):
        canonical({"a": {"b": {}}}, depth_max=2)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list = []
    endless.append(endless)
    with pytest.raises(Uncanonical, match="nested deeper"):
        canonical(endless)


def test_a_foreign_type_can_be_unfolded_into_known_ones() -> None:
    unfolded = canonical({"z": 1j}, unfold=lambda value: [value.real, value.imag])
    assert unfolded == b'{"z":[0,1]}'
    with pytest.raises(UnknownType, match=r"z\.0 is of type builtins\.object"):
        canonical({"z": [object()]})


def test_an_endless_name_does_not_make_an_endless_complaint() -> None:
    with pytest.raises(Uncanonical) as refusal:
        canonical({"x" * 10_000: float("nan"), "y": 1})
    assert len(str(refusal.value)) < 200


# --- secrets -------------------------------------------------------------------------------------


def test_a_mark_tells_secrets_apart_and_depends_on_the_key() -> None:
    mark = secret_mark(b"k", "4242")
    assert mark == secret_mark(b"k", "4242")
    assert mark != secret_mark(b"k", "4243")
    assert mark != secret_mark(b"l", "4242")
    assert "4242" not in json.dumps(mark)


def test_a_caller_cannot_write_a_mark_by_hand() -> None:
    mark = secret_mark(b"k", "4242")
    assert canonical({"card": mark}) == b'{"card":{"$hmac":"' + mark["$hmac"].encode() + b'"}}'
    assert canonical({"card": dict(mark)}) != canonical({"card": mark})


def test_a_secret_without_a_canonical_form_is_refused_without_its_value() -> None:
    with pytest.raises(Uncanonical, match=r"^a secret contains a NUL character$"):
        secret_mark(b"k", "42\0")


# --- keys ----------------------------------------------------------------------------------------


@given(
    st.lists(texts | st.binary(max_size=3), max_size=4), st.lists(texts | st.binary(max_size=3), max_size=4)
)
def test_two_lists_of_parts_never_make_one_frame(one, other) -> None:
    def encoded(parts):
        return [part.encode() if isinstance(part, str) else part for part in parts]

    assert (frame(*one) == frame(*other)) == (encoded(one) == encoded(other))


def test_every_part_of_a_key_tells_actions_apart() -> None:
    def key(tenant="t", conversation="c", path=("s",), tool="f", major=1, arguments=b"{}") -> Key:
        return derive(step_seed(tenant, conversation, path), tool_frame(tool, major), arguments)

    keys = {
        key(),
        key(tenant="tc", conversation=""),
        key(tenant="u"),
        key(conversation="d"),
        key(path=("s", "s")),
        key(path=("ss",)),
        key(path=()),
        key(tool="g"),
        key(tool="f1", major=1),
        key(major=11),
        key(arguments=b"[]"),
    }
    assert len(keys) == 11
    assert key() == key()


def test_one_seed_serves_many_calls() -> None:
    seed = step_seed("t", "c", ("s",))
    first = derive(seed, tool_frame("f", 1), b"{}")
    derive(seed, tool_frame("g", 1), b"{}")
    assert derive(seed, tool_frame("f", 1), b"{}") == first


@pytest.mark.parametrize("text", ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 63 + "\n", "０" * 64])
def test_only_64_lower_case_hexadecimal_digits_are_a_key(text) -> None:
    with pytest.raises(ValueError, match="64 lower-case hexadecimal digits"):
        Key(text)


def test_a_key_is_text_and_survives_copying() -> None:
    key = Key("0f" * 32)
    assert isinstance(key, str)
    assert type(pickle.loads(pickle.dumps(key))) is Key
    assert type(copy.deepcopy(key)) is Key
    assert json.dumps(key) == f'"{key}"'


def test_the_parts_of_a_key_are_keys_of_their_own() -> None:
    key = Key("0f" * 32)
    assert isinstance(key.part("capture"), Key)
    assert key.part("capture") == key.part("capture")
    assert len({key, key.part("capture"), key.part("notify"), key.part("capture").part("capture")}) == 4


@given(st.binary(min_size=32, max_size=32))
def test_the_uuid_of_a_key_is_a_version_8_uuid(digest) -> None:
    made = Key(digest.hex()).uuid()
    assert (made.version, made.variant) == (8, uuid.RFC_4122)
    assert made.bytes[:6] == digest[:6]
    assert made.bytes[9:] == digest[9:16]


# --- keys that callers give ----------------------------------------------------------------------


def test_a_given_key_belongs_to_its_tenant() -> None:
    assert explicit("acme", "order-7") == explicit("acme", "order-7")
    assert len({explicit("acme", "order-7"), explicit("acme", "order-8"), explicit("globex", "order-7")}) == 3


def test_a_key_of_our_own_is_taken_as_it_is_and_its_text_is_not() -> None:
    key = Key("0f" * 32)
    assert explicit("acme", key) is key
    assert explicit("acme", str(key)) != key


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ("x" * 256, "is 256 bytes long; 255 are allowed"),
        ("ü" * 128, "is 256 bytes long; 255 are allowed"),
        ("a\nb", "control characters"),
        ("a\0b", "control characters"),
        ("a\x7f", "control characters"),
        ("a\x85", "control characters"),
        ("a\ud800", "lone surrogate"),
        (7, "has to be text, not int"),
        (None, "has to be text, not NoneType"),
    ],
)
def test_a_given_key_that_others_could_not_carry_is_refused(text, complaint) -> None:
    with pytest.raises(ValueError, match=complaint):
        explicit("acme", text)


def test_a_given_key_of_255_bytes_is_taken() -> None:
    assert isinstance(explicit("acme", "ü" * 127 + "x"), Key)


def test_a_fingerprint_knows_tool_and_arguments() -> None:
    prints = {
        fingerprint("f", b"{}"),
        fingerprint("g", b"{}"),
        fingerprint("f", b"[]"),
        fingerprint("f{", b"}"),
    }
    assert len(prints) == 4
    assert {len(one) for one in prints} == {32}
