"""One key, however a client spells it."""

from __future__ import annotations

import httpx
import pytest

from semel.flow.problems import Refused
from semel.gateway.idempotency import key_of
from tests.gateway.conftest import define, refused, start_run


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        (b"abc", "abc"),
        (b'"abc"', "abc"),
        (b'  "abc" ', "abc"),
        (b'"a \\"b\\" \\\\c"', 'a "b" \\c'),
        (b"a, b; c=1", "a, b; c=1"),
        ("schl\u00fcssel".encode(), "schl\u00fcssel"),
        (b"k" * 255, "k" * 255),
        (b'"' + b"k" * 255 + b'"', "k" * 255),
    ],
)
def test_quoted_and_bare_are_equal(sent: bytes, key: str) -> None:
    assert key_of([sent], []) == key


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b'""',
        b"   ",
        b"k" * 256,
        "\u00fc".encode() * 128,
        b"a\x01b",
        b"a\x7fb",
        "a\u0085b".encode(),
        b"\xff\xfe",
        b'"abc',
        b'"a"b"',
        b'"a";q=1',
        b'"a", "b"',
        b'"a\\b"',
    ],
)
def test_what_is_no_key_is_refused(sent: bytes) -> None:
    with pytest.raises(Refused) as refusal:
        key_of([sent], [])
    assert refusal.value.code == "idempotency_key_invalid"


def test_no_key_is_none() -> None:
    assert key_of([], []) is None


def test_the_same_key_given_in_several_ways_is_one() -> None:
    assert key_of([b"abc", b'"abc"'], ["abc", '"abc"']) == "abc"


@pytest.mark.parametrize(("headers", "queries"), [([b"a", b"b"], []), ([b"a"], ["b"]), ([], ["a", "b"])])
def test_two_different_keys_are_refused(headers: list[bytes], queries: list[str]) -> None:
    with pytest.raises(Refused, match="twice"):
        key_of(headers, queries)


WAYS = [
    {"headers": {"Idempotency-Key": "order-1"}},
    {"headers": {"Idempotency-Key": '"order-1"'}},
    {"headers": {"X-Idempotency-Key": "order-1"}},
    {"params": {"idempotency_key": "order-1"}},
    {"params": {"idempotency_key": '"order-1"'}},
    {"params": [("idempotency_key", "order-1"), ("idempotency_key", '"order-1"')]},
    {"headers": {"Idempotency-Key": "order-1", "X-Idempotency-Key": '"order-1"'}},
]


def test_every_way_to_send_a_key_meets_the_same_run(dev: httpx.Client) -> None:
    define(dev)
    first = start_run(dev, {"n": 1}, "order-1")
    for way in WAYS:
        again = dev.post("/api/v1/workflows/hello/runs", json={"n": 1}, **way)  # type: ignore[arg-type]
        assert again.content == first.content
        assert again.headers["idempotent-replayed"] == "true"


@pytest.mark.parametrize(
    "way",
    [
        {"headers": {"Idempotency-Key": ""}},
        {"headers": {"Idempotency-Key": "k" * 256}},
        {"headers": {b"Idempotency-Key": b"a\x80b"}},
        {"params": {"idempotency_key": ""}},
        {"params": {"idempotency_key": "a\nb"}},
        {"params": [("idempotency_key", "a"), ("idempotency_key", "b")]},
        {"headers": {"Idempotency-Key": "a"}, "params": {"idempotency_key": "b"}},
    ],
)
def test_a_wrong_key_is_told_before_body_and_workflow_are_looked_at(dev: httpx.Client, way) -> None:
    answer = dev.post("/api/v1/workflows/nowhere/runs", content=b"no json", **way)
    refused(answer, 400, "idempotency_key_invalid")
