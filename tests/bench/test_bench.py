"""The bench does the work that it says it measures. How long it takes is not tested."""

from __future__ import annotations

import os
import sqlite3

import orjson
import pytest

import semel
from bench import by_hand, render, workload
from bench.experiments import CROWD, EXPERIMENTS
from bench.figures import BenchReport, Figure, Goal, Row, Unit, figure
from bench.run import QUICK_ROUNDS, file_system, measure, names
from bench.sides import CachedReplays, Doubts, StoreReplays
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore

# The warm-up round does the same work.
ROUNDS = QUICK_ROUNDS + 1

# What needs a server is in test_servers.py.
LOCAL = [one for one in EXPERIMENTS if one.needs is None]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bench")
    steps: list[tuple[str, int, int]] = []
    before = len(workload.effects)
    rows = [one.name for one in LOCAL]
    report = measure(rows, quick=True, directory=str(directory), progress=lambda *step: steps.append(step))
    return report, len(workload.effects) - before, steps, list(directory.iterdir())


@pytest.fixture
def report(run) -> BenchReport:
    return run[0]


def operations(name: str) -> int:
    return next(one.quick_operations for one in EXPERIMENTS if one.name == name) * ROUNDS


def test_every_row_has_a_figure(report) -> None:
    rows = [row.name for one in LOCAL for row in one.rows]
    assert [figure.row.name for figure in report.figures] == rows
    assert all(len(figure.rounds) == QUICK_ROUNDS for figure in report.figures)
    assert all(value > 0 for figure in report.figures for value in figure.rounds)


def test_a_name_means_one_row(report) -> None:
    assert len(names()) == len(set(names()))


def test_nothing_is_left_on_the_disk(run) -> None:
    assert run[3] == []


def test_progress_is_told_to_its_end(run) -> None:
    done = [step[1] for step in run[2]]
    totals = {step[2] for step in run[2]}
    assert done == list(range(len(done)))
    assert totals == {len(done)}


@pytest.mark.parametrize(
    ("experiment", "side"),
    [
        ("memory", "call"),
        ("sqlite-sync", "call"),
        ("sqlite-async", "call"),
        ("sqlite-tasks", "calls"),
        ("sqlite-threads", "calls"),
    ],
)
def test_every_guarded_call_left_a_settled_record_and_two_events(report, experiment, side) -> None:
    calls = operations(experiment)
    assert report.did[experiment][side] == {"calls": calls, "settled": calls, "events": 2 * calls}


@pytest.mark.parametrize("experiment", ["sqlite-sync", "sqlite-tasks", "sqlite-threads"])
def test_by_hand_leaves_the_same_records_and_events(report, experiment) -> None:
    calls = operations(experiment)
    assert report.did[experiment]["by hand"] == {"settled": calls, "events": 2 * calls}


@pytest.mark.parametrize("experiment", ["sqlite-sync", "sqlite-async"])
def test_two_bare_commits_are_two_for_every_call(report, experiment) -> None:
    assert report.did[experiment]["two bare commits"] == {"commits": 2 * operations(experiment)}


@pytest.mark.parametrize(
    ("experiment", "side", "calls"),
    [
        ("memory", "replay", ROUNDS),
        ("memory", "store replay", 500),
        ("sqlite-replay", "store replay", 100),
        ("sqlite-replay", "cache replay", ROUNDS),
        ("cache", "plain", ROUNDS),
        ("cache", "rich", ROUNDS),
    ],
)
def test_a_replay_leaves_no_further_record(report, experiment, side, calls) -> None:
    did = report.did[experiment][side]
    assert did["replays"] == operations(experiment)
    assert did["settled"] == did["calls"] == calls


def test_a_raw_select_finds_a_row_each_time(report) -> None:
    assert report.did["sqlite-replay"]["raw SELECT"] == {"rows read": operations("sqlite-replay")}


@pytest.mark.parametrize(("store", "large"), [("memory", 2_000), ("sqlite", 2_000)])
def test_growth_is_measured_on_a_long_history(report, store, large) -> None:
    did = report.did[f"{store}-growth"]
    assert did["call, many"]["settled"] >= large
    assert did["call, few"]["settled"] < large / 2


def test_a_look_at_what_is_in_doubt_sees_all_of_it_and_nothing_else(report) -> None:
    did, looks = report.did["sqlite-growth"], operations("sqlite-growth")
    seen = {"looks": looks, "seen": looks * Doubts.IN_DOUBT}
    assert did["doubt, few"] == did["doubt, many"] == seen


def test_every_effect_belongs_to_a_call_and_none_to_a_replay(run) -> None:
    report, effects, _, _ = run
    calls = sum(side.get("calls", 0) for sides in report.did.values() for side in sides.values())
    # A side that begins anew in every round tells only of its last one.
    forgotten = (10 + operations("memory-growth") // ROUNDS) * (ROUNDS - 1)
    copied = 2  # the calls whose records the two SQLite histories are copies of
    assert effects == calls + forgotten + copied


def test_by_hand_commits_twice_for_every_call(tmp_path) -> None:
    side = by_hand.ClaimAndSettle(str(tmp_path / "x.db"))
    statements: list[str] = []
    side.connection.set_trace_callback(statements.append)
    side.round(4)
    side.connection.set_trace_callback(None)
    assert statements.count("COMMIT") == 8
    assert side.connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert side.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    side.close()


def test_a_copied_history_is_a_history_that_the_store_reads(tmp_path) -> None:
    path = str(tmp_path / "x.db")
    with semel.open(f"sqlite:///{path}") as ledger:
        with ledger.step(conversation="c", step="s"):
            workload.note(payment_id="p-1")
        workload.remember_in_bulk(path, 20)
        records = ledger.records.list(limit=100)
        assert len({record.request.at.key for record in records}) == 21
        assert all(len(ledger.records.history(record.request.id)) == 2 for record in records)


class CountingStore(MemoryStore):
    """Knows how often it was asked."""

    asked = 0

    def perform(self, command):
        self.asked += 1
        return super().perform(command)


def asked_in_a_round(side, count: int) -> int:
    store = side.ledger.store
    before = store.asked
    side.round(count)
    side.close()
    return store.asked - before


def test_a_replay_past_an_empty_cache_asks_the_store_each_time() -> None:
    assert asked_in_a_round(StoreReplays("r", Ledger(CountingStore()), keys=5), 12) == 12


def test_a_replay_from_the_cache_does_not_ask_the_store() -> None:
    side = CachedReplays("r", Ledger(CountingStore()), workload.note, payment_id="p-1")
    # The call that is replayed is claimed and settled.
    assert asked_in_a_round(side, 12) == 2


def test_only_the_rows_that_were_asked_for_are_measured(tmp_path) -> None:
    report = measure(["cache-rich", "memory"], quick=True, directory=str(tmp_path))
    measured = [figure.row.name for figure in report.figures]
    assert measured == ["memory-call", "memory-replay", "memory-store-replay", "cache-rich"]


def test_an_unknown_row_is_refused_before_anything_runs(tmp_path) -> None:
    with pytest.raises(ValueError, match="no row nonsense; there are memory, "):
        measure(["nonsense"], quick=True, directory=str(tmp_path))
    assert os.listdir(tmp_path) == []


# --- figures --------------------------------------------------------------------------------------


def row(unit: Unit, goal: Goal | None = None) -> Row:
    return Row("r", "work", unit, goal, "ours", "theirs")


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (Unit.TIMES, 2.0),
        (Unit.RATE, 0.5),
        (Unit.MICROSECONDS, 4e6),
        (Unit.MILLISECONDS, 4e3),
        (Unit.PER_SECOND, 0.25),
    ],
)
def test_a_figure_is_made_of_seconds_per_operation(unit, expected) -> None:
    assert figure(row(unit), {"ours": [4.0], "theirs": [2.0]}).rounds == (expected,)


def test_of_several_callers_each_waits_as_long_as_all_calls_take() -> None:
    crowded = Row("r", "work", Unit.MILLISECONDS, None, "ours", callers=64)
    assert figure(crowded, {"ours": [0.001]}).rounds == (64.0,)


def test_a_ratio_is_made_within_its_round() -> None:
    made = figure(row(Unit.TIMES), {"ours": [1.0, 30.0, 2.0], "theirs": [1.0, 10.0, 1.0]})
    assert made.rounds == (1.0, 3.0, 2.0)
    assert made.value == 2.0
    assert made.spread == (1.5, 2.5)


@pytest.mark.parametrize(
    ("goal", "value", "verdict"),
    [
        (Goal("≤", 1.5), 1.5, "reached"),
        (Goal("≤", 1.5), 1.51, "missed"),
        (Goal("≥", 1.5), 1.5, "reached"),
        (Goal("≥", 1.5), 1.49, "missed"),
        (None, 1.0, ""),
    ],
)
def test_a_verdict_says_whether_the_goal_is_kept(goal, value, verdict) -> None:
    assert Figure(row(Unit.TIMES, goal), (value,)).verdict == verdict


# --- rendering ------------------------------------------------------------------------------------


def test_a_quick_run_says_that_it_means_nothing(report) -> None:
    assert "mean nothing" in render.plain(report)
    assert "mean nothing" in render.markdown(report)
    told = orjson.loads(render.as_json(report))
    assert told["comparable"] is False
    assert {each["verdict"] for each in told["figures"]} == {None}
    assert not {"reached", "missed"} & set(render.markdown(report).split())


def test_json_holds_every_round_and_what_was_done(report) -> None:
    told = orjson.loads(render.as_json(report))
    assert [len(each["rounds"]) for each in told["figures"]] == [QUICK_ROUNDS] * len(report.figures)
    assert told["did"] == report.did
    assert told["machine"]["sqlite"] == sqlite3.sqlite_version


def test_the_table_names_a_goal_that_was_missed() -> None:
    missed = Figure(Row("r", "a call", Unit.MICROSECONDS, Goal("≤", 15), "ours"), (20.0, 20.0, 21.0))
    rate = Figure(Row("s", "replays", Unit.PER_SECOND, Goal("≥", 250_000), "ours"), (1_234_567.0,))
    report = BenchReport(False, {"cores": "2"}, [missed, rate])
    assert report.missed == [missed]
    assert "| a call | ≤ 15.00 µs | 20.00 µs | missed |" in render.markdown(report)
    assert "| replays | ≥ 250 000 /s | 1 234 567 /s | reached |" in render.markdown(report)
    assert "mean nothing" not in render.plain(report)
    assert render.table(report).row_count == 2


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"/dev/a / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n/dev/b {tmp_path}/other xfs rw 0 0\n"
    )
    (tmp_path / "otherwise").mkdir()
    assert file_system(str(tmp_path / "otherwise"), str(mounts)) == "tmpfs"
    assert file_system("/", str(mounts)) == "ext4"
    assert file_system("/", str(tmp_path / "missing")) == "unknown"


def test_the_crowd_divides_its_work_evenly() -> None:
    crowd = {"sqlite-tasks": CROWD, "sqlite-threads": CROWD, "redis-tasks": CROWD, "redis-distance": CROWD}
    crowd |= {"postgres-tasks": 16, "postgres-threads": 16, "postgres-distance": CROWD}
    crowded = [one for one in EXPERIMENTS if one.name in crowd]
    assert len(crowded) == len(crowd)
    assert all(one.operations % crowd[one.name] == 0 for one in crowded)
    assert all(one.quick_operations % crowd[one.name] == 0 for one in crowded)
