"""Bodies are JSON in the strict sense, or refused before anything is made of them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.flow.problems import Refused
from semel.gateway.strict_json import parse


def code_of(text: bytes) -> str:
    with pytest.raises(Refused) as refusal:
        parse(text)
    return refusal.value.code


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b'{"a": "\n"}',
        b"\xef\xbb\xbf{}",
        b'{"a": "unterminated',
        b'"' + b'\\"' * 1000,
    ],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    assert code_of(text) == "body_not_json"


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1, "a": 1}',
        b'{"a": 1, "a": {"b": 1}}',
        b'{"a": 1, "b": {"c": 1, "c": 1}}',
        b'{"a": 1, "b": 2, "\\u0061": 3}',
        b'[{"b": {"a": 1, "\\u0061": 2}}]',
    ],
)
def test_a_name_given_twice_is_refused(text: bytes) -> None:
    assert code_of(text) == "body_not_json"


@pytest.mark.parametrize(
    "text", [b'{"a": ":{", "b:": [":", {"c": "\\":"}]}', b'{"a": {"a": {"a": 1}}}', b'":"']
)
def test_colons_and_brackets_in_texts_and_equal_names_in_different_objects_are_fine(text: bytes) -> None:
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_sixty_four_levels_are_read_and_one_more_is_not(opening: bytes, closing: bytes) -> None:
    inside = b"1" if opening != b"[" else b""
    assert parse(opening * 64 + inside + closing * 64) is not None
    assert code_of(opening * 65 + inside + closing * 65) == "body_too_deep"


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_a_depth_that_would_break_a_parser_never_reaches_one(text: bytes) -> None:
    assert code_of(text) == "body_too_deep"


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(parse(b"[" + b"[{}]," * 10_000 + b"1]")) == 10_001


@pytest.mark.parametrize(
    "text", [b"18446744073709551615", b"-9223372036854775808", b"0.12345678901234567890"]
)
def test_numbers_that_sixty_four_bits_hold_are_kept(text: bytes) -> None:
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize("text", [b"18446744073709551616", b"[1, -9223372036854775809]", b"1" * 40])
def test_an_integer_that_would_be_rounded_is_refused(text: bytes) -> None:
    assert code_of(text) == "request_invalid"


def test_nul_is_refused_and_its_spelling_is_not() -> None:
    assert code_of(b'{"a": "x\\u0000"}') == "request_invalid"
    assert code_of(b'{"a\\\\\\u0000": 1}') == "request_invalid"
    assert parse(b'{"a": "\\\\u0000"}') == {"a": "\\u0000"}


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner),
)


@given(_VALUES, st.booleans())
def test_every_other_value_comes_out_as_it_was_sent(value: Any, spelt: bool) -> None:
    assert parse(json.dumps(value, ensure_ascii=spelt).encode()) == value


@given(st.binary())
def test_any_bytes_are_a_value_or_a_refusal(text: bytes) -> None:
    # Anything but these two would be a crash of ours.
    with contextlib.suppress(Refused):
        parse(text)
