"""Private stores, one for each trial: a Redis or PostgreSQL server of its own, or a file.

Each can be lost and come back with what it kept, and be held: there, but not answering.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.servers import PostgresServer, PrivateServer, RedisServer


class Store(Protocol):
    kind: str

    @property
    def where(self) -> str:
        """An address, or the path of a file."""

    def lose(self) -> None:
        """From now on nobody is served."""

    def find(self) -> None:
        """It is back, with what it kept."""

    def hold(self) -> None:
        """It is there and does not answer."""

    def let_go(self) -> None: ...

    def size(self) -> int:
        """Bytes that it takes now."""

    def writers(self) -> list[int]:
        """The processes that force its data to disk; none where its callers do."""


class _Server(PrivateServer):
    """Killed and started again in the same directory."""

    _command: Sequence[str]

    def _start(self, command: Sequence[str]) -> None:
        self._command = command
        super()._start(command)

    def lose(self) -> None:
        self.close()

    def find(self) -> None:
        self._start(self._command)

    def hold(self) -> None:
        for pid in self.writers():
            os.kill(pid, signal.SIGSTOP)

    def let_go(self) -> None:
        for pid in self.writers():
            os.kill(pid, signal.SIGCONT)

    def writers(self) -> list[int]:
        assert self._process is not None
        pid = self._process.pid
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


class RedisStore(_Server, RedisServer):
    kind = "redis"

    @property
    def where(self) -> str:
        return f"{self.address}/0"

    def size(self) -> int:
        import redis

        with redis.Redis.from_url(self.address) as client:
            information: Any = client.info("memory")
            return int(information["used_memory"])


class PostgresStore(_Server, PostgresServer):
    kind = "postgres"
    _template: Path | None = None

    def _make(self) -> None:
        """The database is made once and copied for each server."""
        made = type(self)._template
        if made is not None:
            shutil.copytree(made, self.directory / "data")
            self._own(self.directory / "data")
            return
        super()._make()

    def _own(self, folder: Path) -> None:
        if "user" in self._as_user:
            subprocess.run(["chown", "-R", str(self._as_user["user"]), str(folder)], check=True)

    @property
    def where(self) -> str:
        return f"postgresql://semel@127.0.0.1:{self.port}/postgres"

    def size(self) -> int:
        import psycopg

        with psycopg.connect(self.where, autocommit=True) as connection:
            connection.execute("VACUUM")
            row = connection.execute(
                "SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c JOIN pg_namespace n"
                " ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname !~ '^pg_|^information_'"
            ).fetchone()
        return int(row[0] or 0) if row else 0

    @classmethod
    def keep_template(cls, folder: Path) -> None:
        """A database as its makers set it up, to copy."""
        with PostgresServer(folder / "template-server") as server:
            server.close()
            shutil.copytree(server.directory / "data", folder / "template")
        (folder / "template" / "postmaster.pid").unlink(missing_ok=True)
        cls._template = folder / "template"


# Holds the write lock of the file that it is given until its input ends.
_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


class NothingToHold(Exception):
    """The library keeps its records elsewhere, where nobody can lock them."""


class SqliteStore:
    """A file. It cannot be away; another process that holds its write lock is the nearest there is."""

    kind = "sqlite"

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory, self.where = directory, str(directory / "records.db")
        self._holder: subprocess.Popen[str] | None = None

    def hold(self) -> None:
        if not os.path.exists(self.where):
            raise NothingToHold("the library keeps no SQLite file that another process could lock")
        self._holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, self.where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "held\n"

    def let_go(self) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.communicate("")

    lose, find = hold, let_go

    def size(self) -> int:
        with closing(sqlite3.connect(self.where)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return sum(each.stat().st_size for each in self.directory.rglob("*") if each.is_file())

    def writers(self) -> list[int]:
        return []


@contextmanager
def opened(kind: str, directory: Path) -> Iterator[Store]:
    """A new store of this kind, gone at the end."""
    if kind == "sqlite":
        store = SqliteStore(directory)
        try:
            yield store
        finally:
            store.let_go()
            shutil.rmtree(directory, ignore_errors=True)
        return
    with RedisStore(directory) if kind == "redis" else PostgresStore(directory) as server:
        yield server
