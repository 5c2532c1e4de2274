"""How values become PostgreSQL's bytes, and what every statement file says about itself; no server needed."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.record import Address
from semel.stores.postgres.findings import durability
from semel.stores.postgres.packing import READERS, digest, escaped, number, text, unescaped

texts = st.text(alphabet=st.one_of(st.sampled_from("\x00\x01\x0201a"), st.characters(codec="utf-8")))

TEXT, INT8 = 25, 20


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
