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
from bench.rivals import LEAVES_OUT
from bench.run import QUICK_ROUNDS, build, file_system, measure, names
from bench.sides import BareReplays, CachedReplays, StoreReplays, UnsettledLists, timed_refunds
from semel.audit.events import fold, told_by
from semel.kernel.record import Record
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore

# The warm-up round does the same work.
ROUNDS = QUICK_ROUNDS + 1

# What needs a server is in test_servers.py. Other packages may be missing, and then their rows say so.
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
    measured = [figure.row.name for figure in report.figures]
    left_out = [line.split()[2] for line in report.left_out]
    assert sorted(measured + left_out) == sorted(rows)
    assert all(any(rival in name for rival in LEAVES_OUT) for name in left_out)
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
        ("memory", "bare call"),
        ("sqlite-sync", "call"),
        ("sqlite-normal", "call"),
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


def test_another_package_ran_its_tool_for_each_new_call_and_for_no_other(report) -> None:
    sides = [side for sides in report.did.values() for side in sides.values() if "asked" in side]
    assert all(side["effects"] == side["asked"] for side in sides)
    assert bool(sides) is not bool(report.left_out)


@pytest.mark.parametrize(
    ("experiment", "side", "keys"),
    [
        ("edge-memory", "request", operations("edge-memory")),
        ("edge-memory", "replay", ROUNDS),
        ("edge-sqlite", "requests", operations("edge-sqlite")),
    ],
)
def test_every_key_reached_the_application_once_and_is_on_record(report, experiment, side, keys) -> None:
    did = {"keys": keys, "reached": keys, "settled": keys, "events": 2 * keys}
    assert report.did[experiment][side] == did


def test_each_import_was_made_in_an_interpreter_of_its_own(report) -> None:
    both = ("semel", "pydantic", "semel's names", "pydantic's names")
    assert report.did["import"] == {name: {"imports": ROUNDS} for name in both}


@pytest.mark.parametrize(
    ("experiment", "side", "calls"),
    [
        ("memory", "replay", ROUNDS),
        ("memory", "bare replay", ROUNDS),
        ("sqlite-replay", "store replay", 100),
        ("cache", "plain", ROUNDS),
        ("cache", "rich", ROUNDS),
        ("cache", "bare rich", ROUNDS),
    ],
)
def test_a_replay_leaves_no_further_record(report, experiment, side, calls) -> None:
    did = report.did[experiment][side]
    assert did["replays"] == operations(experiment)
    assert did["settled"] == did["calls"] == calls


def test_a_raw_select_finds_a_row_each_time(report) -> None:
    assert report.did["sqlite-replay"]["raw SELECT"] == {"rows read": operations("sqlite-replay")}


def test_growth_is_measured_on_a_long_history(report) -> None:
    did = report.did["sqlite-growth"]
    assert did["call, many"]["settled"] >= 2_000
    assert did["call, few"]["settled"] < 1_000


def test_a_list_of_what_is_unsettled_has_all_of_it_and_nothing_else(report) -> None:
    did, lists = report.did["sqlite-growth"], operations("sqlite-growth")
    listed = {"lists": lists, "listed": lists * UnsettledLists.IN_DOUBT}
    assert did["unsettled, few"] == did["unsettled, many"] == listed


def test_every_effect_belongs_to_a_call_and_none_to_a_replay(run) -> None:
    report, effects, _, _ = run
    calls = sum(side.get("calls", 0) for sides in report.did.values() for side in sides.values())
    copied = 2  # the calls whose records the two SQLite histories are copies of
    assert effects == calls + copied


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


def window_us(record: Record) -> int:
    assert record.expires_at is not None
    assert record.settled_at is not None
    return record.expires_at - record.settled_at


def test_by_hand_leaves_what_the_store_reads(tmp_path) -> None:
    path = str(tmp_path / "x.db")
    side = by_hand.ClaimAndSettle(path)
    side.round(3)
    side.close()
    with semel.open(f"sqlite:///{path}") as ledger, ledger.step(conversation="c", step="s"):
        timed_refunds(1)
        ours, *by_hands = ledger.records.list(limit=100)
        for record in by_hands:
            assert told_by(record) == fold(ledger.records.history(record.request.id))
            assert window_us(record) == window_us(ours)
            sizes = (
                {len(one.token) for one in (record, ours)},
                {len(one.request.id) for one in (record, ours)},
            )
            assert [len(each) for each in sizes] == [1, 1]
        assert len(by_hands) == 3


def test_a_copied_history_is_a_history_that_the_store_reads(tmp_path) -> None:
    path = str(tmp_path / "x.db")
    with semel.open(f"sqlite:///{path}") as ledger:
        with ledger.step(conversation="c", step="s"):
            workload.pay(payment_id="p-1")
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
    side = CachedReplays("r", Ledger(CountingStore()), workload.pay, payment_id="p-1")
    # The call that is replayed is claimed and settled.
    assert asked_in_a_round(side, 12) == 2


def test_a_bare_replay_is_counted_and_not_performed() -> None:
    side = BareReplays("r", "refund", payment_id="p-1", amount_minor=1, reason="x")
    before = len(workload.effects)
    side.round(12)
    assert len(workload.effects) - before == 1
    assert side.did() == {"calls": 1, "settled": 1, "events": 2, "replays": 12}
    side.close()


def test_only_the_rows_that_were_asked_for_are_measured(tmp_path) -> None:
    report = measure(["cache-rich", "sqlite-replay"], quick=True, directory=str(tmp_path))
    measured = [figure.row.name for figure in report.figures]
    assert measured == ["cache-rich", "sqlite-replay-store"]


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


def test_what_the_other_side_leaves_out_is_said_once_and_figures_besides_stand_apart() -> None:
    rival = Row("r", "a call", Unit.TIMES, Goal("≤", 2), "ours", "theirs", "theirs 1.0 keeps no audit.")
    another = Row("s", "a replay", Unit.TIMES, Goal("≤", 2), "ours", "theirs", "theirs 1.0 keeps no audit.")
    beside = Row("t", "the time", Unit.MICROSECONDS, None, "ours", extra=True)
    report = BenchReport(False, {}, [Figure(row, (1.0,)) for row in (rival, beside, another)])
    for written in (render.markdown(report), render.plain(report)):
        assert written.count("theirs 1.0 keeps no audit.") == 1
        assert written.index("a replay") < written.index("the time")
    assert render.BESIDES in render.markdown(report)


def test_runs_are_put_together_from_what_they_answered() -> None:
    row, other = Row("r", "a", Unit.TIMES, Goal("≤", 2), "x", "y"), Row("s", "b", Unit.TIMES, None, "x", "y")
    first = BenchReport(
        False, {"cores": "2"}, [Figure(other, (3.0,))], left_out=["The row r is left out. No y."]
    )
    second = BenchReport(False, {"cores": "4"}, [Figure(row, (1.0, 2.0))])
    gone = BenchReport(False, {"cores": "4"}, [Figure(Row("t", "c", Unit.TIMES, None, "x", "y"), (1.0,))])
    runs = [render.as_json(each).encode() for each in (first, second, gone)]
    together = render.from_json(runs, [row, other])
    assert together.figures == [Figure(row, (1.0, 2.0)), Figure(other, (3.0,))]
    assert together.machine == {"cores": "2; 4"}
    assert together.left_out == []
    assert not together.quick


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"CONFIG_ARGS": "'--enable-optimizations' '--with-lto'", "PY_CFLAGS": "-O2 -O3", "Py_DEBUG": 0},
            "GCC 12.2.0, -O3, PGO, LTO, no debug",
        ),
        (
            {"CONFIG_ARGS": "'--with-lto=no'", "PY_CFLAGS": "-g -Og", "Py_DEBUG": 1},
            "GCC 12.2.0, -Og, no PGO, no LTO, debug",
        ),
        ({}, "GCC 12.2.0, optimisation unknown, no PGO, no LTO, no debug"),
    ],
)
def test_a_report_says_how_the_interpreter_was_built(config, said) -> None:
    assert build("GCC 12.2.0", config) == said


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
    crowd = {"sqlite-tasks": CROWD, "sqlite-threads": CROWD, "redis-tasks": CROWD}
    crowd |= {"postgres-tasks": 16, "postgres-threads": 16}
    crowded = [one for one in EXPERIMENTS if one.name in crowd]
    assert len(crowded) == len(crowd)
    assert all(one.operations % crowd[one.name] == 0 for one in crowded)
    assert all(one.quick_operations % crowd[one.name] == 0 for one in crowded)
