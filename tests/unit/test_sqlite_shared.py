"""A SQLite file that an application owns, and files from before all of Semel's tables were called semel_…."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import semel
from semel.errors import ContractError, OpenError, StoreUnavailable
from semel.kernel.clock import SYSTEM
from semel.kernel.record import UNSETTLED, State
from semel.stores.base import CountUnsettled, FindRecord, Sweep
from semel.stores.sqlite import SqliteStore, statements
from semel.stores.sqlite.schema import APPLICATION_ID, open_database
from tests.commands import LEASE, SECOND, WINDOW, A, B, asked, claim, look, park, settle
from tests.fake_clock import FakeClock

# As an application may call its own: Semel's had these names once.
APPLICATIONS = """
PRAGMA user_version = 7;
PRAGMA application_id = 1234;
CREATE TABLE records (id INTEGER PRIMARY KEY, title TEXT);
CREATE INDEX records_by_due ON records (title);
CREATE TABLE events (what TEXT);
INSERT INTO records VALUES (1, 'mine');
INSERT INTO events VALUES ('mine too');
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "app.db")


def make_application(path: str, script: str = APPLICATIONS) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


def ask(path: str, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def names(path: str) -> set[str]:
    return {str(name) for (name,) in ask(path, "SELECT name FROM sqlite_master WHERE sql IS NOT NULL")}


def test_an_applications_database_is_refused_with_the_option_that_shares_it(path):
    make_application(path)
    before = Path(path).read_bytes()
    with pytest.raises(OpenError, match=r"another application.*shared=yes"):
        semel.open(f"sqlite:///{path}")
    assert Path(path).read_bytes() == before


def test_beside_an_applications_tables_semel_keeps_its_own_and_touches_nothing_else(path):
    make_application(path)
    theirs = names(path)
    for _ in range(2):
        with semel.open(f"sqlite:///{path}?shared=yes") as ledger:
            ledger.store.perform(claim(A))
            assert ledger.store.perform(look()).record is not None
    assert all(name.startswith("semel_") for name in names(path) - theirs)
    assert theirs < names(path)
    assert ask(path, "PRAGMA user_version") == [(7,)]
    assert ask(path, "PRAGMA application_id") == [(1234,)]
    assert ask(path, "SELECT title FROM records") == [("mine",)]
    assert ask(path, "SELECT what FROM events") == [("mine too",)]


def test_a_file_that_is_shared_from_the_beginning_stays_the_applications(path):
    semel.open(f"sqlite:///{path}?shared=yes").close()
    assert ask(path, "PRAGMA application_id") == ask(path, "PRAGMA user_version") == [(0,)]
    make_application(path)
    with pytest.raises(OpenError, match="shared=yes"):
        semel.open(f"sqlite:///{path}")
    semel.open(f"sqlite:///{path}?shared=yes").close()


def test_a_file_of_semels_own_may_be_opened_as_shared_and_stays_its_own(path):
    semel.open(f"sqlite:///{path}").close()
    semel.open(f"sqlite:///{path}?shared=yes").close()
    assert ask(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    semel.open(f"sqlite:///{path}").close()


def test_the_journal_becomes_the_write_ahead_log_whatever_it_was(path):
    make_application(path)
    assert ask(path, "PRAGMA journal_mode") == [("delete",)]
    semel.open(f"sqlite:///{path}?shared=yes").close()
    assert ask(path, "PRAGMA journal_mode") == [("wal",)]
    semel.open(f"sqlite:///{path}?shared=yes").close()


def test_a_newer_schema_beside_an_application_is_refused_and_an_older_one_brought_up_to_date(path):
    make_application(path)
    connection, _ = open_database(path, "full", SYSTEM, 1.0, statements.SCHEMAS[:2], shared=True)
    connection.close()
    with closing(SqliteStore(path, shared=True)) as store:
        assert store.ask(CountUnsettled()) == {}
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE semel_meta SET value = x'3939' WHERE name = 'schema'")
        connection.commit()
    with pytest.raises(OpenError, match="schema 99"):
        SqliteStore(path, shared=True)


def test_tables_called_semel_that_are_not_semels_are_refused(path):
    make_application(path, "CREATE TABLE semel_records (x);")
    with pytest.raises(OpenError, match="not Semel's"):
        SqliteStore(path, shared=True)
    assert names(path) == {"semel_records"}


def test_another_value_than_yes_or_no_is_refused(path):
    with pytest.raises(OpenError, match="shared"):
        semel.open(f"sqlite:///{path}?shared=perhaps")


# --- a tool on it ----------------------------------------------------------------------------------------


def test_a_tool_writes_the_applications_table_in_one_commit_with_its_record(path):
    make_application(path)

    @semel.tool_contract(class_="write-non-idempotent")
    def file_it(title: str, books: semel.Transaction = semel.filled) -> str:
        books.connection.execute("INSERT INTO records (title) VALUES (?)", (title,))
        return title

    with semel.open(f"sqlite:///{path}?shared=yes") as ledger:
        for _ in range(2):
            assert ledger.step(conversation="c", step="s").run(file_it, title="new") == "new"
    assert ask(path, "SELECT title FROM records ORDER BY id") == [("mine",), ("new",)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM semel_events",
        "UPDATE Semel_Records SET state = 'done'",
        "INSERT INTO semel_meta VALUES ('a', 'b')",
        "DROP TABLE semel_records",
        "ALTER TABLE semel_records RENAME TO gone",
        "CREATE TRIGGER t AFTER INSERT ON semel_records BEGIN DELETE FROM records; END",
        "CREATE TABLE semel_extra (x)",
        "WITH a AS (SELECT 1) DELETE FROM semel_seals",
    ],
)
def test_what_is_semels_cannot_be_written_over_a_tools_connection(path, statement):
    make_application(path)

    @semel.tool_contract(class_="write-non-idempotent")
    def meddle(books: semel.Transaction = semel.filled) -> None:
        books.connection.execute(statement)

    with semel.open(f"sqlite:///{path}?shared=yes") as ledger:
        before = ask(path, "SELECT count(*) FROM semel_events")
        with pytest.raises(ContractError, match="Semel's own"):
            ledger.step(conversation="c", step="s").run(meddle)
        # Claimed and released, and nothing else.
        assert ask(path, "SELECT count(*) FROM semel_events") == [(int(str(before[0][0])) + 2,)]
    assert "semel_records" in names(path)


def test_nor_by_a_handle_on_one_of_its_values(path):
    make_application(path, "CREATE TABLE files (note); INSERT INTO files VALUES ('....')")

    @semel.tool_contract(class_="write-non-idempotent")
    def meddle(table: str, books: semel.Transaction = semel.filled) -> None:
        with books.connection.blobopen(table, "note", 1) as value:
            value.write(b"mine")

    with semel.open(f"sqlite:///{path}?shared=yes") as ledger:
        step = ledger.step(conversation="c", step="s")
        step.run(meddle, table="files")
        with pytest.raises(ContractError, match="Semel's own"):
            step.run(meddle, table="Semel_Records")
    assert ask(path, "SELECT note FROM files") == [("mine",)]


# --- files from before -----------------------------------------------------------------------------------


def earlier(path: str, schema: int) -> sqlite3.Connection:
    """A file as an earlier release made it, which its process still has open."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    for script in statements.SCHEMAS[:schema]:
        connection.executescript(script.replace("semel_", ""))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.execute("INSERT INTO meta VALUES ('secret_key', ?)", (b"s" * 32,))
    return connection


@pytest.mark.parametrize("schema", [1, 2])
def test_a_file_with_tables_of_the_old_names_is_taken_over_with_its_records(path, schema):
    clock = FakeClock()
    with closing(earlier(path, schema)) as old, closing(SqliteStore(path, clock=clock)) as store:
        assert store.secret_key == b"s" * 32
        store.perform(claim(A))
        store.perform(park(A))
        assert store.ask(CountUnsettled())
        # Whoever still has it open with the old names is refused, and misled about nothing.
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            old.execute("SELECT * FROM records")
    assert all(name.startswith("semel_") for name in names(path))
    with closing(SqliteStore(path, clock=clock)) as store:
        assert store.ask(FindRecord("acme", asked(A).id)) is not None


def test_records_of_an_old_file_are_still_listed_swept_and_closed(path):
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock)) as store:
        store.perform(claim(A))
        store.perform(settle(A))
    # As the sweeper of an earlier release filed it: by the end of its window.
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE semel_records SET due = expires_at, closes = NULL")
        connection.commit()
    with closing(SqliteStore(path, clock=clock)) as store:
        assert store.ask(CountUnsettled(UNSETTLED)) == {}
        clock.advance(WINDOW / SECOND)
        assert store.ask(Sweep()).closed == 1


def test_a_claim_of_a_free_key_leaves_the_list_of_what_closes(path):
    clock = FakeClock()
    with closing(SqliteStore(path, clock=clock)) as store:
        store.perform(claim(A))
        store.perform(settle(A))
        clock.advance(LEASE / SECOND)
        store.ask(Sweep())
        assert ask(path, "SELECT due FROM semel_records WHERE closes IS NOT NULL") == [(None,)]
        clock.advance(WINDOW / SECOND)
        reply = store.perform(claim(B))
        assert reply.record is not None
        assert reply.record.state is State.PENDING
        assert ask(path, "SELECT due IS NOT NULL, closes FROM semel_records") == [(1, None)]


def test_a_file_that_is_busy_with_the_application_is_told_of(path):
    make_application(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailable, match="locked"):
            SqliteStore(path, shared=True, busy_s=0.05)
