"""Streams, connections, background work, websockets, and clients that go away, over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest
from websockets.sync.client import connect

from tests.edge.serving import USER, ShopProcess, Shops, shops
from tests.edge.test_rows import is_replay, problem
from tests.gateway.serving import until
from tests.patience import PATIENCE_S

PART_BYTES = 65_536
MEGABYTE = 1 << 20


@pytest.fixture(scope="module", params=["fastapi", "django"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopProcess]:
    folder = tmp_path_factory.mktemp("shop")
    with shops(folder) as start:
        yield start(request.param, f"sqlite:///{folder / 'semel.db'}")


@pytest.fixture
def fastapi_shop(start: Shops, tmp_path_factory: pytest.TempPathFactory) -> ShopProcess:
    return start("fastapi", f"sqlite:///{tmp_path_factory.mktemp('store') / 'semel.db'}")


def raw_request(path: str, body: str, key: str, *, length: int | None = None) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: shop",
        "Authorization: Bearer of-ann",
        f"Idempotency-Key: {key}",
        "Content-Type: text/plain",
        f"Content-Length: {len(body) if length is None else length}",
    ]
    return "\r\n".join([*lines, "", body]).encode()


def connected(shop: ShopProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", shop.port), timeout=PATIENCE_S)


def read_answers(connection: socket.socket, count: int) -> list[bytes]:
    """Whole answers that announce their length."""
    answers: list[bytes] = []
    data = b""
    while len(answers) < count:
        head, end, rest = data.partition(b"\r\n\r\n")
        lengths = [
            int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
        ]
        if end and len(rest) >= lengths[0]:
            answers.append(head + end + rest[: lengths[0]])
            data = rest[lengths[0] :]
            continue
        read = connection.recv(PART_BYTES)
        assert read, f"closed after {data!r}"
        data += read
    return answers


def test_a_stream_goes_through_as_it_comes(shop: ShopProcess, key: str, what: str) -> None:
    headers = {**USER, "Idempotency-Key": key}
    path = "/stream?parts=4&gated=true"
    with shop.client.stream("POST", path, content=what, headers=headers) as answer:
        parts = answer.iter_bytes(PART_BYTES)
        assert len(next(parts)) == PART_BYTES  # while the rest waits at the gate
        problem(shop.client.post(path, content=what, headers=headers), 409, "idempotency_in_flight")
        shop.open_gate(what)
        assert sum(map(len, parts)) == 3 * PART_BYTES
    # The last byte was not sent before its record: whoever has it is replayed.
    again = shop.client.post(path, content=what, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert len(again.content) == 4 * PART_BYTES
    assert shop.effects(what) == 1


def test_fifty_megabytes_go_through_in_bounded_memory(shop: ShopProcess, key: str, what: str) -> None:
    shop.post("/stream?parts=1", what, key=f"{key}-before")  # whatever the first stream needs is there
    before, sent, path = shop.client.get("/peak").json(), 50 * MEGABYTE, "/stream?parts=800"
    headers = {**USER, "Idempotency-Key": key}
    with shop.client.stream("POST", path, content=what, headers=headers) as answer:
        assert answer.status_code == 201
        assert sum(map(len, answer.iter_bytes())) == sent
    # At most one is kept, and twice that may be on its way.
    assert shop.client.get("/peak").json() - before < 16 * MEGABYTE
    problem(shop.client.post(path, content=what, headers=headers), 409, "result_unavailable")


def test_a_client_that_goes_away_meets_the_answer_when_it_comes_back(
    shop: ShopProcess, key: str, what: str
) -> None:
    with connected(shop) as connection:
        connection.sendall(raw_request("/slow", what, key))
        shop.until_effect(what)
    answer = shop.post("/slow", what, key=key)
    problem(answer, 409, "idempotency_in_flight")
    shop.open_gate(what)
    again = until(lambda: _done(shop.post("/slow", what, key=key)), "the handler has ended")
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert shop.effects(what) == 1


def test_a_stream_whose_client_goes_away_is_finished_and_recorded(
    shop: ShopProcess, key: str, what: str
) -> None:
    path = "/stream?parts=4&gated=true"
    with connected(shop) as connection:
        connection.sendall(raw_request(path, what, key))
        assert b" 201 " in connection.recv(1_000)
    shop.open_gate(what)
    shop.until_effect(f"{what} streamed")
    again = until(lambda: _done(shop.post(path, what, key=key)), "the stream has ended")
    assert (again.headers["Idempotent-Replayed"], len(again.content)) == ("true", 4 * PART_BYTES)
    assert shop.effects(what) == 1


def test_a_request_that_never_was_whole_leaves_nothing(shop: ShopProcess, key: str, what: str) -> None:
    with connected(shop) as connection:
        connection.sendall(raw_request("/charges", what, key, length=len(what) + 1))
        assert shop.post("/charges", f"{what} meanwhile", key=f"{key}-2").status_code == 201
    assert shop.post("/charges", what, key=key).json()["id"] == 1


def _done(answer: httpx.Response) -> httpx.Response | None:
    return None if answer.status_code == 409 else answer


def test_pipelined_and_repeated_on_one_connection(shop: ShopProcess, key: str, what: str) -> None:
    request = raw_request("/charges", what, key)
    other = raw_request("/charges", f"{what} other", f"{key}-2")
    with connected(shop) as connection:
        connection.sendall(request + request + other + request)
        first, again, different, last = read_answers(connection, 4)
    assert b"idempotent-replayed: true" not in first.lower() + different.lower()
    assert all(b"idempotent-replayed: true" in each.lower() for each in (again, last))
    bodies = [each.partition(b"\r\n\r\n")[2] for each in (first, again, last)]
    assert bodies == [bodies[0]] * 3
    assert shop.effects(what) == 1


def test_after_a_refusal_the_connection_serves_on(shop: ShopProcess, key: str, what: str) -> None:
    request = raw_request("/charges", what, key)
    with connected(shop) as connection:
        connection.sendall(request + raw_request("/charges", "other", key) + request)
        answers = read_answers(connection, 3)
    assert [answer[9:12] for answer in answers] == [b"201", b"422", b"201"]


@pytest.mark.parametrize("key_header", [{}, {"Idempotency-Key": "k"}])
def test_websockets_pass(key_header: dict[str, str], fastapi_shop: ShopProcess) -> None:
    with connect(f"ws://127.0.0.1:{fastapi_shop.port}/socket", additional_headers=key_header) as connection:
        connection.send("hello")
        assert connection.recv() == f"hello {key_header.get('Idempotency-Key')}"


def test_background_work_goes_on_after_the_answer_and_is_not_repeated(
    fastapi_shop: ShopProcess, key: str, what: str
) -> None:
    shop = fastapi_shop
    first = shop.post("/background", what, key=key)
    # It still waits, and the answer is on record.
    assert is_replay(shop.post("/background", what, key=key), first)
    assert shop.effects(f"{what} later") == 0
    shop.open_gate(what)
    shop.until_effect(f"{what} later")
    assert is_replay(shop.post("/background", what, key=key), first)
    assert (shop.effects(what), shop.effects(f"{what} later")) == (1, 1)


def test_a_synchronous_handler_runs_on_a_thread_in_the_step_of_its_request(
    shop: ShopProcess, key: str, what: str
) -> None:
    body = f'{{"what": "{what}"}}'
    answer = shop.post("/pay", body, key=key, headers={"Content-Type": "application/json"})
    assert answer.json()["thread"] is True
    assert shop.effects(f"{what} paid with {answer.json()['paid']}") == 1
