"""The bench's rows about the gateway do the work that they measure. How long it takes is not tested."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from bench.bare_rows import RunRow, SqliteRows
from bench.experiments import EXPERIMENTS
from bench.figures import BenchReport
from bench.gateway_rows import CROWD, LOCK_SHARE, TENANTS
from bench.gateway_sides import ACTIVE_MAX, Beginnings, Starts, StoreStarts, bare, check, gateway, tenants
from bench.http_load import HttpLoad, HttpReply, request
from bench.release import RELEASE_0_1, WHY_NOT, release_tree
from bench.run import QUICK_ROUNDS, measure
from bench.servers import PostgresServer, RedisServer, ServerMissing
from semel.flow.assembly import Policy
from semel.stores.documents import Count
from semel.stores.urls import open_store
from tests.bench.test_servers import need, open_to_all
from tests.patience import PATIENCE_S

# The warm-up round does the same work.
ROUNDS = QUICK_ROUNDS + 1

GATEWAY = [one for one in EXPERIMENTS if one.name.startswith("gateway-")]


def operations(name: str) -> int:
    return next(one.quick_operations for one in GATEWAY if one.name == name) * ROUNDS


# --- a quick run ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> BenchReport:
    rows = [one.name for one in GATEWAY if one.needs == "gateway"]
    return measure(rows, quick=True, directory=str(tmp_path_factory.mktemp("bench")))


def on_a_server(kind: str) -> BenchReport:
    need(kind)
    with open_to_all() as directory:
        rows = [one.name for one in GATEWAY if one.needs == kind]
        return measure(rows, quick=True, directory=str(directory))


@pytest.fixture(scope="module")
def redis() -> BenchReport:
    return on_a_server("redis")


@pytest.fixture(scope="module")
def postgres() -> BenchReport:
    return on_a_server("postgres")


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def store(request) -> str:
    return request.param


@pytest.fixture
def report(store, request) -> BenchReport:
    return request.getfixturevalue("local" if store == "sqlite" else store)


def test_every_row_of_the_gateway_has_a_figure(local) -> None:
    rows = [row.name for one in GATEWAY if one.needs == "gateway" for row in one.rows]
    left_out = [line.split()[2] for line in local.left_out]
    assert sorted([figure.row.name for figure in local.figures] + left_out) == sorted(rows)
    assert all(value > 0 for figure in local.figures for value in figure.rounds)
    # A shallow clone has no earlier release, and says so.
    assert set(left_out) <= {"gateway-sqlite-release"}


@pytest.mark.parametrize(
    ("experiment", "side"),
    [
        ("gateway", "starts"),
        ("gateway", "bare"),
        ("gateway", "release 0.1"),
        ("gateway-hot", "http"),
        ("gateway-hot", "bare"),
        ("gateway-hot", "atomic"),
        ("gateway-two", "one"),
        ("gateway-two", "two"),
    ],
)
def test_every_start_left_a_run_and_its_slot_is_free_again(report, store, experiment, side) -> None:
    starts = operations(f"{experiment}-{store}")
    did = report.did[f"{experiment}-{store}"]
    # A shallow clone has no earlier release, and says so.
    assert (side in did) is not any(
        "release 0.1" in line and side == "release 0.1" for line in report.left_out
    )
    if side in did:
        assert did[side] == {"starts": starts, "runs": starts, "active": 0}


def test_the_lock_admitted_its_share(report, store) -> None:
    by_lock = round(operations(f"gateway-hot-{store}") * LOCK_SHARE)
    assert report.did[f"gateway-hot-{store}"]["lock"] == {"starts": by_lock, "runs": by_lock, "active": 0}


def test_what_is_sent_on_schedule_is_started_too(local) -> None:
    starts = operations("gateway-latency")
    assert local.did["gateway-latency"]["half"] == {"starts": starts, "runs": starts, "active": 0}


def test_memory_is_read_after_few_runs_and_after_many(local) -> None:
    assert local.did["gateway-memory"] == {"few": {"runs": 100}, "many": {"runs": 300}}
    size = next(figure for figure in local.figures if figure.row.name == "gateway-memory-bytes")
    assert size.value > 10_000_000  # more than an interpreter with nothing in it


def test_a_gateway_began_in_every_round(local) -> None:
    assert local.did["gateway-start"]["ready"] == {"beginnings": ROUNDS}


def test_a_round_of_starts_fits_into_the_limits_as_they_are_by_default() -> None:
    spread = {
        f"gateway{of}-{store}": TENANTS for store in ("sqlite", "redis", "postgres") for of in ("", "-two")
    }
    spread |= {"gateway-latency": TENANTS}
    for one in GATEWAY:
        assert one.operations <= spread.get(one.name, one.operations) * ACTIVE_MAX


def test_every_caller_of_the_crowd_admits_a_run_in_a_round() -> None:
    hot = [one for one in GATEWAY if "-hot-" in one.name]
    assert len(hot) == 3
    assert all(one.operations * LOCK_SHARE >= CROWD for one in hot)


# --- the sides ------------------------------------------------------------------------------------


def test_a_refused_start_is_not_counted_as_one(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    with gateway(tmp_path, url, "--dev") as served:
        side = Starts("starts", [served], tenants(1), connections=2)
        with pytest.raises(RuntimeError, match="answered 429"):
            side.round(ACTIVE_MAX + 1)
        side.close()


def test_a_gateway_that_does_not_start_says_why(tmp_path) -> None:
    with pytest.raises(ServerMissing, match=r"semel does not start: .*--nonsense"):
        gateway(tmp_path, f"sqlite:///{tmp_path / 'x.db'}", "--nonsense")


def test_a_gateway_is_gone_when_its_beginning_was_measured(tmp_path) -> None:
    side = Beginnings("ready", tmp_path, f"sqlite:///{tmp_path / 'x.db'}")
    assert side.round(1) > 0
    ports = [int(log.stem) for log in tmp_path.glob("*.log")]
    assert len(ports) == 1
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(asyncio.open_connection("127.0.0.1", ports[0]))


def test_a_round_at_the_store_leaves_no_message_behind(tmp_path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    side = StoreStarts("atomic", url, Policy("atomic"), callers=4)
    side.round(8)
    side.close()
    store = open_store(url)
    assert store.ask(Count("hot", "runs/status/succeeded")) == 8
    assert store.ask(Count("hot", "outbox")) == 0
    store.close()


# --- the bare application -------------------------------------------------------------------------


@contextmanager
def bare_url(kind: str, directory: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'bare.db'}"
        return
    need(kind)
    server = RedisServer(directory / kind) if kind == "redis" else PostgresServer(directory / kind)
    with server:
        yield server.url("bare")


@pytest.fixture
def bare_app(store) -> Iterator[HttpLoad]:
    """One connection to a bare application, which knows the workflow of one tenant with a limit of two."""
    with open_to_all() as directory, bare_url(store, directory) as url, bare(directory, url) as served:
        load = HttpLoad([served.port], 4)
        define = [
            asked("PUT", "workflows/w", b"{}"),
            asked("PUT", "tenants/acme", b'{"max_concurrent_runs":2}'),
        ]
        load.crowd(define)
        yield load
        load.close()


def asked(method: str, path: str, body: bytes = b"", key: str = "") -> bytes:
    return request(method, f"/api/v1/{path}", {"X-Tenant-ID": "acme", "Idempotency-Key": key}, body)


def started(load: HttpLoad, *keys: str, body: bytes = b'{"order":1}') -> list[HttpReply]:
    replies, _ = load.crowd([asked("POST", "workflows/w/runs", body, key) for key in keys])
    return replies


def test_the_bare_application_replays_the_first_answer(bare_app) -> None:
    (first,) = started(bare_app, "k")
    again = started(bare_app, "k", "k", body=b'{ "order": 1 }')
    assert [(reply.status, reply.body) for reply in again] == [(200, first.body)] * 2
    assert orjson.loads(first.body).keys() == {"run_id", "workflow_id", "status"}


def test_the_bare_application_refuses_a_key_for_another_payload(bare_app) -> None:
    started(bare_app, "k")
    assert [reply.status for reply in started(bare_app, "k", body=b'{"order":2}')] == [409]


def test_the_bare_application_starts_no_workflow_that_it_does_not_know(bare_app) -> None:
    replies, _ = bare_app.crowd([asked("POST", "workflows/other/runs", b"{}", "k")])
    assert [reply.status for reply in replies] == [404]
    assert listed(bare_app) == []


def test_equal_keys_at_the_same_time_are_one_run_at_the_bare_application(bare_app) -> None:
    replies = started(bare_app, *["k"] * 20)
    assert len({reply.body for reply in replies}) == 1
    assert len(listed(bare_app)) == 1


def test_the_bare_application_keeps_the_limit_and_frees_a_slot_when_a_run_ends(bare_app) -> None:
    replies = started(bare_app, *(f"k-{number}" for number in range(20)))
    assert sorted(reply.status for reply in replies) == [200] * 2 + [429] * 18
    run_id = listed(bare_app)[0]["run_id"]
    bare_app.crowd([asked("POST", f"runs/{run_id}/complete", b'{"status":"succeeded"}')])
    assert [reply.status for reply in started(bare_app, "later", "too late")] in ([200, 429], [429, 200])
    assert sorted(run["status"] for run in listed(bare_app)) == ["running", "running", "succeeded"]


def listed(load: HttpLoad) -> list[dict[str, str]]:
    replies, _ = load.crowd([asked("GET", "runs?limit=200")])
    items: list[dict[str, str]] = orjson.loads(replies[0].body)["items"]
    return items


def test_the_bare_application_commits_all_rows_of_a_start_together(tmp_path) -> None:
    """As many rows as a start of ours has: run, key, line of the timeline, event; the message has left."""
    path = str(tmp_path / "x.db")
    rows = SqliteRows(path)

    async def start_some() -> list[str]:
        await rows.open()
        await rows.define("acme", "w")
        new = [new_run(number) for number in range(5)]
        outcomes = await asyncio.gather(*map(rows.start, new))
        await rows.start(new_run(5))
        await rows.close()
        return [outcome for outcome, _ in outcomes]

    assert asyncio.run(start_some()) == ["started"] * 5
    connection = sqlite3.connect(path)
    tables = ("runs", "keys", "timeline", "events")
    counts = [connection.execute(f"SELECT count(*) FROM bare_{table}").fetchone()[0] for table in tables]
    assert counts == [6, 6, 6, 6]
    # Those of the last commit are taken out by the next one.
    assert connection.execute("SELECT count(*) FROM bare_outbox").fetchone()[0] <= 1
    connection.close()


def new_run(number: int) -> RunRow:
    return RunRow("acme", f"id-{number}", f"k-{number}", "print", f"run_{number}", "w", b"{}", b"{}", number)


def test_a_clone_without_the_release_says_so(tmp_path) -> None:
    assert release_tree(tmp_path, repository=tmp_path) is None
    assert RELEASE_0_1[:7] in WHY_NOT


def test_an_answer_other_than_200_is_an_error() -> None:
    check([HttpReply(200, b"", 0.0)])
    with pytest.raises(RuntimeError, match="503: no gate"):
        check([HttpReply(200, b"", 0.0), HttpReply(503, b"no gate", 0.0)])


# --- the client -----------------------------------------------------------------------------------


class Echo:
    """Answers each request with its own body, in two pieces, and notes how many connections there were."""

    def __init__(self) -> None:
        self.port = self.connections = self.most_at_once = self._at_once = 0
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        async with server:
            self.port = server.sockets[0].getsockname()[1]
            self._begun.set()
            await self._stop.wait()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                await self._answer(reader, writer)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        body = await reader.readexactly(int(head.split(b"Content-Length: ")[1].split()[0]))
        said = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        writer.write(said[:20])
        await asyncio.sleep(0)  # the others have their turn between the two pieces
        self._at_once -= 1
        writer.write(said[20:])

    def __enter__(self) -> Echo:
        self._thread.start()
        assert self._begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@contextmanager
def echoing(connections: int):
    with Echo() as echo:
        load = HttpLoad([echo.port], connections)
        yield echo, load
        load.close()


def bodies(count: int) -> list[bytes]:
    return [request("POST", "/", {}, f"number {n}".encode()) for n in range(count)]


def test_replies_come_in_the_order_of_their_requests() -> None:
    with echoing(8) as (_, load):
        replies, took = load.crowd(bodies(100))
    assert [reply.body for reply in replies] == [f"number {n}".encode() for n in range(100)]
    assert took > 0


def test_a_connection_serves_many_requests() -> None:
    with echoing(4) as (echo, load):
        load.crowd(bodies(100))
        assert echo.connections == 4
        assert 1 < echo.most_at_once <= 4


def test_a_scheduled_request_waits_for_a_connection_on_the_clock() -> None:
    with echoing(1) as (_, load):
        replies = load.schedule(bodies(50), 1e9)
    assert [reply.body for reply in replies] == [f"number {n}".encode() for n in range(50)]
    # All are due at once, and one connection serves them one after the other.
    assert [reply.took_s for reply in replies] == sorted(reply.took_s for reply in replies)
