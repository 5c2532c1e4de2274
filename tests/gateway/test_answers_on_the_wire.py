"""Answers as bytes on a connection: whole, in order, and told apart."""

from __future__ import annotations

import socket

import pytest

from tests.gateway.conftest import Served
from tests.patience import PATIENCE_S

ALIVE = b'{"status":"alive"}'


def exchanged(shared: dict[str, Served], sent: bytes) -> bytes:
    """All that comes back until the gateway closes the connection."""
    port = int(shared["memory"].url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        connection.sendall(sent)
        return connection.makefile("rb").read()


def asked(method: str, *headers: str, version: str = "1.1", path: str = "/healthz") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: localhost", *headers, "", ""]).encode()


LAST = asked("GET", "Connection: close")


def test_pipelined_requests_are_answered_whole_and_in_order(shared: dict[str, Served]) -> None:
    nowhere = asked("GET", path="/nowhere")
    received = exchanged(shared, asked("GET") + nowhere + asked("GET") + LAST)
    first, second, third, fourth = received.split(b"HTTP/1.1 ")[1:]
    assert [first[:3], second[:3], third[:3], fourth[:3]] == [b"200", b"404", b"200", b"200"]
    assert b'"code":"not_found"' in second
    assert first.endswith(ALIVE)
    assert third.endswith(ALIVE)
    assert [b"connection: close" in each for each in (first, second, third, fourth)] == [False] * 3 + [True]


def test_head_is_answered_as_get_but_for_the_body(shared: dict[str, Served]) -> None:
    received = exchanged(shared, asked("HEAD") + LAST)
    head, get = received.split(b"HTTP/1.1 ")[1:]
    assert head.endswith(b"\r\n\r\n")
    assert f"content-length: {len(ALIVE)}\r\n".encode() in head
    assert get.endswith(b"\r\n\r\n" + ALIVE)


@pytest.mark.parametrize("sent", [asked("GET", version="1.0"), LAST, asked("HEAD", "Connection: close")])
def test_whoever_wants_one_answer_is_told_that_it_was_the_last(
    shared: dict[str, Served], sent: bytes
) -> None:
    received = exchanged(shared, sent)
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert received.count(b"connection: close\r\n") == 1


def test_an_answer_says_what_it_is_how_long_and_when(shared: dict[str, Served]) -> None:
    head, _, body = exchanged(shared, LAST).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert (status, body) == ("HTTP/1.1 200 OK", ALIVE)
    assert headers.keys() == {"date", "content-type", "content-length", "cache-control", "connection"}
    assert (headers["content-type"], headers["content-length"]) == ("application/json", str(len(ALIVE)))
