"""How values become PostgreSQL's bytes, and what every statement file says about itself; no server needed."""

from __future__ import annotations

import struct
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.record import Address
from semel.stores.postgres.findings import durability
from semel.stores.postgres.packing import (
    READERS,
    array,
    digest,
    encoded,
    escaped,
    number,
    row_of,
    text,
    unescaped,
)

texts = st.text(alphabet=st.one_of(st.sampled_from("\x00\x01\x0201a"), st.characters(codec="utf-8")))

BYTEA, TEXT, INT8 = 17, 25, 20


@given(texts)
def test_every_text_comes_back_and_holds_no_nul_on_the_way(value):
    packed = text(value)
    assert packed is not None
    assert b"\x00" not in packed
    assert READERS[TEXT](packed) == value


@given(texts, texts)
def test_escaping_keeps_the_order_of_texts(one, other):
    assert (escaped(one).encode() < escaped(other).encode()) == (one < other)


@given(texts)
def test_what_needs_no_escape_is_left_as_it_is(value):
    if "\x00" not in value and "\x01" not in value:
        assert escaped(value) == unescaped(value) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_number_comes_back(value):
    packed = number(value)
    assert packed is not None
    assert READERS[INT8](packed) == value


@given(st.tuples(texts, texts, texts), st.tuples(texts, texts, texts))
def test_different_addresses_have_different_digests(one, other):
    assert (digest(Address(*one)) == digest(Address(*other))) == (one == other)


@given(st.lists(texts))
def test_texts_that_are_packed_together_are_packed_like_each_alone(values):
    assert list(encoded(*values)) == [text(value) for value in values]


def unpacked(packed: bytes) -> list[bytes | None]:
    """The values of an array of one dimension, as PostgreSQL reads it."""
    dimensions, _, oid, count, first = struct.unpack_from("!iiiii", packed)
    assert (dimensions, oid, first) == (1, BYTEA, 1)
    values: list[bytes | None] = []
    at = 20
    while at < len(packed):
        (size,) = struct.unpack_from("!i", packed, at)
        values.append(None if size < 0 else packed[at + 4 : at + 4 + size])
        at += 4 + max(0, size)
    assert len(values) == count
    return values


same_size = st.integers(0, 40).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1)
)


@given(st.one_of(same_size, st.lists(st.none() | st.binary(max_size=40), min_size=1)))
def test_an_array_holds_its_values_whether_they_have_one_size_or_not(values):
    assert unpacked(array("bytea", values)) == values


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, INT8, 999_999]), st.none() | st.binary(min_size=8, max_size=8)))
)
def test_a_row_that_comes_as_one_value_has_its_columns_also_of_types_that_are_not_known(columns):
    values = [(oid, value if oid != TEXT else value and b"some text") for oid, value in columns]
    packed = struct.pack("!i", len(values)) + b"".join(
        struct.pack("!Ii", oid, -1 if value is None else len(value)) + (value or b"") for oid, value in values
    )
    read = [None if value is None else READERS.get(oid, bytes)(value) for oid, value in values]
    assert row_of(packed) == tuple(read)


STEPS = sorted(
    path.name for path in (files("semel.stores.postgres") / "steps").iterdir() if path.name.endswith(".sql")
)


@pytest.mark.parametrize("name", STEPS)
def test_every_step_opens_with_a_map(name):
    lines = (files("semel.stores.postgres") / "steps" / name).read_text().splitlines()
    assert lines[0].startswith(f"-- {name.removesuffix('.sql')}: ")
    assert any(line.startswith("-- answers") for line in lines)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "a failover to a standby may lose the last ones"),
        ({"fsync": "off"}, "may destroy the whole database"),
        ({"full_page_writes": "off"}, "may damage pages"),
        ({"synchronous_commit": "off"}, "synchronous_commit=on"),
        ({"synchronous_standby_names": "two"}, "a failover to it loses nothing"),
        ({"synchronous_standby_names": "two", "synchronous_commit": "local"}, "may lose the last ones"),
        ({"synchronous_standby_names": "two", "synchronous_commit": "remote_write"}, "not yet on its disk"),
    ],
)
def test_durability_is_told_in_words(settings, words):
    assert words in durability(settings)
