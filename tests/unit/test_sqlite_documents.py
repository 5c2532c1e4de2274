"""Documents on SQLite beyond what every store does: the schema, shared transactions, indexes, damage."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from semel.errors import StoreCorrupt, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.stores.documents import Capacity, Commit, Committed, Count, Document, Draft, Entry, Fetch, Scan
from semel.stores.sqlite import SqliteStore, documents, statements
from semel.stores.sqlite.documents import Standing
from semel.stores.sqlite.schema import open_database
from tests.commands import A, claim

ON_RUNS = (Entry("runs", 1),)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "semel.db")


@pytest.fixture
def store(path: str) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path, busy_s=0.05)) as opened:
        yield opened


def commit(
    *put: Draft, expect: dict[str, str | None] | None = None, capacity: tuple[Capacity, ...] = ()
) -> Commit:
    return Commit("acme", SYSTEM.token().hex(), expect or {}, put, (), capacity)


def change(path: str, statement: str) -> None:
    """By another program, which minds no check."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA ignore_check_constraints = ON")
        other.execute(statement)


# --- the schema ------------------------------------------------------------------------------------------


def of_the_first_schema(path: str) -> sqlite3.Connection:
    return open_database(path, "full", SYSTEM, 1.0, statements.SCHEMAS[:1])[0]


def test_a_file_without_documents_gets_them_and_keeps_its_records(path: str) -> None:
    of_the_first_schema(path).close()
    change(path, "INSERT INTO semel_meta VALUES ('note', x'01')")
    with closing(SqliteStore(path)) as store:
        assert store.ask(commit(Draft("run", b"body", ON_RUNS))).done
        assert store.ask(Count("acme", "runs")) == 1
        assert store.perform(claim(A)).applied
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT value FROM semel_meta WHERE name = 'note'").fetchone() == (b"\x01",)
        assert other.execute("PRAGMA user_version").fetchone() == (len(statements.SCHEMAS),)


STEPS = [
    "LOOK_AT_DOCUMENTS",
    "FETCH_DOCUMENTS",
    "DROP_DOCUMENT",
    "REMOVE_ENTRY",
    "COUNT_INDEX",
    "SCAN_OLDEST",
    "SCAN_NEWEST",
    "TENANTS",
]


@pytest.mark.parametrize("step", STEPS)
def test_every_step_finds_its_rows_by_an_index_and_in_order(path: str, step: str) -> None:
    SqliteStore(path).close()
    text = getattr(statements, step)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?")).fetchall()
    lines = [line for *_, line in plan]
    assert any(line.startswith("SEARCH") for line in lines)
    assert [
        line for line in lines if line.startswith(("SCAN semel_documents", "SCAN semel_places", "USE TEMP"))
    ] == []


@pytest.mark.parametrize(("step", "bound"), [("SCAN_OLDEST", "score<?"), ("SCAN_NEWEST", "(score,id)<(?,?)")])
def test_a_scan_reads_no_entry_beyond_its_upper_bound(path: str, step: str, bound: str) -> None:
    SqliteStore(path).close()
    text = getattr(statements, step)
    with closing(sqlite3.connect(path)) as connection:
        plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", [None] * text.count("?")).fetchall()
    assert bound in plan[0][-1]


# --- shared transactions ---------------------------------------------------------------------------------


def test_commits_of_many_tasks_share_transactions(store: SqliteStore) -> None:
    async def write_all() -> list[Committed]:
        return await asyncio.gather(
            *(store.aask(commit(Draft(f"run-{number}", b"", ON_RUNS))) for number in range(100))
        )

    before = store.commits
    assert all(answer.done for answer in asyncio.run(write_all()))
    assert store.ask(Count("acme", "runs")) == 100
    # One for the first few, and one for all who came meanwhile; ten leaves room for a busy machine.
    assert store.commits - before <= 10


def test_a_commit_that_cannot_be_written_leaves_nothing_and_spares_those_beside_it(
    store: SqliteStore,
) -> None:
    impossible = Draft("bad", b"", (Entry("runs", 1 << 64),))

    async def write_all() -> list[Committed | BaseException]:
        commits = [commit(Draft(f"run-{number}", b"", ON_RUNS)) for number in range(5)]
        commits.insert(2, commit(Draft("first", b"", ON_RUNS), impossible))
        return await asyncio.gather(*map(store.aask, commits), return_exceptions=True)

    answers = asyncio.run(write_all())
    assert isinstance(answers.pop(2), StoreUnavailable)
    assert all(isinstance(answer, Committed) and answer.done for answer in answers)
    assert store.ask(Count("acme", "runs")) == 5
    assert store.ask(Fetch("acme", ("first", "bad"))).documents == {}


def test_a_locked_file_is_unavailable_and_then_available_again(store: SqliteStore, path: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            store.ask(commit(Draft("run", b"")))
        assert store.ask(Fetch("acme", ("run",))).documents == {}
        other.execute("ROLLBACK")
    assert store.ask(commit(Draft("run", b""))).done


def test_an_index_far_beyond_its_limit_is_not_counted_to_the_end(store: SqliteStore) -> None:
    assert store.ask(commit(*(Draft(f"run-{number}", b"", ON_RUNS) for number in range(1_200)))).done
    answer = store.ask(commit(capacity=(Capacity("runs", 100),)))
    assert (answer.done, answer.full, answer.count) == (False, Capacity("runs", 100), 1_100)
    assert store.ask(Count("acme", "runs")) == 1_200


def test_what_a_transaction_has_counted_stays_right_while_it_writes(path: str) -> None:
    """Each index is counted once in a transaction, and followed from there."""
    chance, indexes = random.Random(5), ("slots", "slots/w", "runs")
    with closing(SqliteStore(path)), closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        standing: Standing = {}
        full = 0
        for _ in range(300):
            put = tuple(
                Draft(
                    f"run-{chance.randrange(20)}",
                    b"",
                    tuple(Entry(name, chance.randrange(3)) for name in indexes if chance.random() < 0.5),
                )
                for _ in range(chance.randrange(3))
            )
            drop = tuple(f"run-{chance.randrange(20)}" for _ in range(chance.randrange(3)))
            capacity = tuple(Capacity(name, chance.choice((4, 8, 1_000))) for name in indexes)
            query = Commit("acme", SYSTEM.token().hex(), {}, put, drop, capacity)
            answer, _ = documents.commit(connection, query, 0, standing)
            full += answer.full is not None
            for name in indexes:
                count = documents.count(connection, Count("acme", name), 0)
                assert standing.get((name, "acme"), count) == count
                if answer.full is not None and answer.full.index_name == name:
                    assert answer.count == count >= answer.full.limit
        assert 0 < full < 300
        counted = [
            statement for statement in asked if "count(*)" in statement and "LIMIT -1" not in statement
        ]
        assert len(counted) == len(indexes)


def test_a_transaction_counts_anew_what_others_may_have_written(path: str) -> None:
    limit = (Capacity("runs", 2),)
    with closing(SqliteStore(path)) as one, closing(SqliteStore(path)) as other:
        assert one.ask(commit(Draft("first", b"", ON_RUNS), capacity=limit)).done
        assert other.ask(commit(Draft("second", b"", ON_RUNS), capacity=limit)).done
        assert one.ask(commit(Draft("third", b"", ON_RUNS), capacity=limit)).count == 2


# --- damage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "assignment",
    [
        "body = 'text'",
        "tag = x'00'",
        "places = x'5b5d'",
        "places = ''",
        "places = '{'",
        "places = '7'",
        "places = '[1]'",
        "places = '[[\"runs\"]]'",
        'places = \'[["runs", "1"]]\'',
        "places = '[[\"runs\", 1.5]]'",
        "places = '[[null, 1]]'",
    ],
)
def test_a_damaged_document_is_neither_absent_nor_shown(
    store: SqliteStore, path: str, assignment: str
) -> None:
    assert store.ask(commit(Draft("run", b"body", ON_RUNS))).done
    change(path, f"UPDATE semel_documents SET {assignment}")
    with pytest.raises(StoreCorrupt):
        store.ask(Fetch("acme", ("run",)))
    with pytest.raises(StoreCorrupt):
        store.ask(Scan("acme", "runs", 1))
    with pytest.raises(StoreCorrupt):
        store.ask(commit(Draft("run", b"new"), expect={"run": None}))


def test_a_document_with_damaged_places_is_not_replaced(store: SqliteStore, path: str) -> None:
    assert store.ask(commit(Draft("run", b"body", ON_RUNS))).done
    change(path, "UPDATE semel_documents SET places = '['")
    with pytest.raises(StoreCorrupt):
        store.ask(commit(Draft("other", b""), Draft("run", b"new")))
    assert store.ask(Fetch("acme", ("other",))).documents == {}


def test_a_place_without_its_document_is_damage_and_not_absence(store: SqliteStore, path: str) -> None:
    assert store.ask(commit(Draft("run", b"body", ON_RUNS))).done
    change(path, "DELETE FROM semel_documents")
    for newest in (False, True):
        with pytest.raises(StoreCorrupt, match="'run'"):
            store.ask(Scan("acme", "runs", 1, newest))


def test_a_damaged_page_is_told(tmp_path: Path) -> None:
    path = tmp_path / "semel.db"
    with closing(SqliteStore(str(path))) as store:
        assert store.ask(commit(*(Draft(f"run-{number}", b"x" * 500, ON_RUNS) for number in range(200)))).done
    content = bytearray(path.read_bytes())
    for start in range(0, len(content), 4_096):
        if b"x" * 500 in content[start : start + 4_096]:
            content[start : start + 64] = b"\xff" * 64
    path.write_bytes(content)
    with closing(SqliteStore(str(path))) as store, pytest.raises(StoreCorrupt):
        store.ask(Scan("acme", "runs", 1_000))


def test_a_place_given_twice_is_one_place(store: SqliteStore) -> None:
    asked = commit(Draft("run", b"", ON_RUNS * 2))
    assert store.ask(asked).done
    assert list(store.ask(Scan("acme", "runs", 10)).documents) == [
        Document("run", b"", asked.tag, ON_RUNS * 2)
    ]
    assert store.ask(commit(Draft("run", b""))).done
    assert store.ask(Count("acme", "runs")) == 0
