"""The bench's rows about servers do the work that they say they measure, on servers of the bench's own."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

import semel
from bench import render
from bench.experiments import EXPERIMENTS
from bench.figures import BenchReport
from bench.plan import Experiment
from bench.rivals import LEAVES_OUT
from bench.run import QUICK_ROUNDS, measure
from bench.servers import PostgresServer, RedisServer, ServerMissing
from bench.sides import UnsettledLists
from semel.audit.events import fold, told_by
from semel.kernel.record import Look, State
from semel.stores.base import SealEvents
from tests.missing import library

# The warm-up round does the same work.
ROUNDS = QUICK_ROUNDS + 1


DRIVERS = {"redis": ("hiredis", "redis"), "postgres": ("psycopg",)}


def need(kind: str) -> None:
    """Skips with one clear line where there is no such server or driver; in CI that is a failure."""
    for module in () if os.environ.get("CI") else DRIVERS[kind]:
        library(module)
    if kind == "redis":
        from tests.redis_server import need_redis

        need_redis()
    else:
        from tests.postgres_server import need_postgres

        need_postgres()


@contextmanager
def open_to_all():
    """A directory that a server finds which does not run as root."""
    directory = Path(tempfile.mkdtemp(prefix="semel-bench-test-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def of(kind: str) -> list[Experiment]:
    """The experiments on this server, but for those of the gateway: test_gateway.py has them."""
    return [one for one in EXPERIMENTS if one.needs == kind and not one.name.startswith("gateway-")]


def quick_run(kind: str) -> BenchReport:
    need(kind)
    with open_to_all() as directory:
        report = measure([one.name for one in of(kind)], quick=True, directory=str(directory))
        assert list(directory.iterdir()) == []
    return report


@pytest.fixture(scope="module")
def redis_report() -> BenchReport:
    return quick_run("redis")


@pytest.fixture(scope="module")
def postgres_report() -> BenchReport:
    return quick_run("postgres")


@pytest.fixture(params=["redis", "postgres"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def report(kind, request) -> BenchReport:
    return request.getfixturevalue(f"{kind}_report")


@pytest.fixture(scope="module")
def redis_server():
    need("redis")
    with open_to_all() as directory, RedisServer(directory / "redis") as server:
        yield server


@pytest.fixture(scope="module")
def postgres_server():
    need("postgres")
    with open_to_all() as directory, PostgresServer(directory / "postgres") as server:
        yield server


def operations(name: str) -> int:
    return next(one.quick_operations for one in EXPERIMENTS if one.name == name) * ROUNDS


# --- a quick run ----------------------------------------------------------------------------------


def test_every_row_of_a_server_has_a_figure(report, kind) -> None:
    rows = [row.name for one in of(kind) for row in one.rows]
    left_out = [line.split()[2] for line in report.left_out]
    assert sorted([figure.row.name for figure in report.figures] + left_out) == sorted(rows)
    assert all(value > 0 for figure in report.figures for value in figure.rounds)
    # Other packages may be missing, and then their rows say so.
    assert all(any(rival in name for rival in LEAVES_OUT) for name in left_out)


@pytest.mark.parametrize(
    ("kind", "experiment", "side"),
    [
        ("redis", "redis-sync", "call"),
        ("redis", "redis-tasks", "calls"),
        ("postgres", "postgres-sync", "call"),
        ("postgres", "postgres-tasks", "calls"),
        ("postgres", "postgres-threads", "calls"),
    ],
)
def test_every_guarded_call_left_a_settled_record_and_two_events(report, experiment, side) -> None:
    calls = operations(experiment)
    assert report.did[experiment][side] == {"calls": calls, "settled": calls, "events": 2 * calls}


@pytest.mark.parametrize(
    ("kind", "experiment", "side"),
    [
        ("redis", "redis-sync", "by hand"),
        ("redis", "redis-tasks", "by hand"),
        ("postgres", "postgres-sync", "by hand"),
        ("postgres", "postgres-tasks", "pgbench"),
        ("postgres", "postgres-threads", "pgbench"),
    ],
)
def test_by_hand_leaves_the_same_records_and_events(report, experiment, side) -> None:
    calls = operations(experiment)
    assert report.did[experiment][side] == {"settled": calls, "events": 2 * calls}


def test_a_replay_leaves_no_further_record_and_by_hand_one_is_read(redis_report) -> None:
    count, did = operations("redis-replay"), redis_report.did["redis-replay"]
    assert did["replay"] == {"calls": 100, "settled": 100, "replays": count}
    assert did["the same step"] == {"records read": count}


def test_another_package_ran_its_tool_for_every_call(redis_report) -> None:
    sides = [side for sides in redis_report.did.values() for side in sides.values() if "asked" in side]
    assert all(side["effects"] == side["asked"] for side in sides)


def test_the_size_of_a_record_is_that_of_many(redis_report) -> None:
    assert redis_report.did["redis-bytes"]["semel"] == {"records": 200}
    (size,) = (each for each in redis_report.figures if each.row.name == "redis-bytes-record")
    # More than what it stores of the call itself, less than a page.
    assert 200 < size.value < 4_096


def test_growth_is_measured_on_a_long_history(report, kind) -> None:
    did = report.did[f"{kind}-growth"]
    assert did["call, many"]["settled"] >= 2_000
    assert did["call, few"]["settled"] < 1_000
    lists = operations(f"{kind}-growth")
    listed = {"lists": lists, "listed": lists * UnsettledLists.IN_DOUBT}
    assert did["unsettled, many"] == did["unsettled, few"] == listed


def test_the_report_says_which_server_and_how_durable(report, kind) -> None:
    said = {"redis": "appendfsync everysec", "postgres": "fsync and synchronous_commit on"}[kind]
    assert said in render.plain(report)


# --- the sides ------------------------------------------------------------------------------------


def settled_records(ledger: semel.Ledger, count: int):
    """So many, each with its two events, and found at its address."""
    records = ledger.records.list(limit=100)
    assert len(records) == count
    for record in records:
        assert record.state is State.DONE
        kinds = [event.kind for event in ledger.records.history(record.request.id)]
        assert kinds == ["claimed", "settled"]
        assert ledger.store.perform(Look(record.request.at)).record == record
    return records


def test_two_round_trips_by_hand_leave_what_the_store_would(redis_server) -> None:
    from bench.by_hand_redis import TwoRoundTrips

    side = TwoRoundTrips(redis_server, "pairs")
    side.round(3)
    side.close()
    with semel.open(redis_server.url("pairs")) as ledger:
        settled_records(ledger, 3)


def test_two_round_trips_are_two_requests(redis_server) -> None:
    import redis

    from bench.by_hand_redis import TwoRoundTrips

    def asked() -> int:
        with redis.Redis(port=redis_server.port) as client:
            calls = client.info("commandstats")
            return int(calls.get("cmdstat_fcall", {"calls": 0})["calls"])

    side = TwoRoundTrips(redis_server, "counted")
    before = asked()
    side.round(5)
    assert asked() - before == 10
    side.close()


def test_pgbench_leaves_what_the_store_would(postgres_server, tmp_path) -> None:
    from bench.by_hand_postgres import Pgbench

    side = Pgbench(postgres_server, tmp_path, "by_pgbench", clients=2)
    side.round(4)
    with semel.open(postgres_server.url("by_pgbench")) as ledger:
        records = ledger.records.list(limit=100)
        assert [record.state for record in records] == [State.DONE] * 4
        assert all(len(ledger.records.history(record.request.id)) == 2 for record in records)


def test_two_statements_leave_what_the_store_would(postgres_server) -> None:
    from bench.by_hand_postgres import TwoStatements

    side = TwoStatements(postgres_server, "by_psycopg")
    side.round(3)
    side.close()
    with semel.open(postgres_server.url("by_psycopg")) as ledger:
        records = ledger.records.list(limit=100)
        assert len(records) == 3
        for record in records:
            assert told_by(record) == fold(ledger.records.history(record.request.id))


def test_a_history_made_in_a_pipeline_is_one_that_the_store_reads(redis_server) -> None:
    from bench.histories import remember_in_redis

    remember_in_redis(redis_server, "history", 20)
    with semel.open(redis_server.url("history")) as ledger:
        settled_records(ledger, 20)
        assert ledger.store.ask(SealEvents()) is None


def test_a_copied_history_is_one_that_the_store_reads(postgres_server) -> None:
    from bench.histories import remember_in_postgres

    remember_in_postgres(postgres_server, "history", 20)
    with semel.open(postgres_server.url("history")) as ledger:
        records = settled_records(ledger, 21)
        assert len({record.request.at.key for record in records}) == 21
        assert ledger.store.ask(SealEvents()) is None


# --- the servers ----------------------------------------------------------------------------------


def test_redis_keeps_an_append_only_file(redis_server) -> None:
    with semel.open(redis_server.url("words")) as ledger:
        assert "appendfsync everysec" in ledger.durability


def test_postgresql_writes_to_disk_before_it_answers(postgres_server) -> None:
    import psycopg

    with psycopg.connect(postgres_server.conninfo("public")) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute(f"SHOW {setting}").fetchone() == ("on",)


def test_a_server_is_gone_when_it_is_closed() -> None:
    need("redis")
    with open_to_all() as directory:
        with RedisServer(directory / "redis") as server:
            socket.create_connection(("127.0.0.1", server.port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        assert list(directory.iterdir()) == []


def test_without_a_server_its_rows_are_left_out_and_the_others_run(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    report = measure(["redis", "cache"], quick=True, directory=str(tmp_path))
    assert [figure.row.name for figure in report.figures] == ["cache-plain", "cache-rich"]
    missing = "The rows of redis are left out. Redis is not installed: apt-get install redis-server"
    assert report.left_out == [missing]
    assert missing in render.plain(report)
    assert missing in render.markdown(report)
    assert render.data(report)["left_out"] == [missing]


@pytest.mark.parametrize(
    ("server", "module", "kind", "extra"),
    [
        (RedisServer, "hiredis", "redis", "redis"),
        (RedisServer, "redis", "redis", "dev"),
        (PostgresServer, "psycopg", "postgres", "postgres"),
    ],
)
def test_a_missing_driver_is_named(server, module, kind, extra, tmp_path, monkeypatch) -> None:
    need(kind)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ServerMissing, match=rf'\({module}\): pip install "semel\[{extra}\]"'):
        server(tmp_path / "server")
    assert os.listdir(tmp_path) == []
