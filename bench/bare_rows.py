"""The rows of a run's start, with the plain client library: sqlite3, redis-py, psycopg.

| row | for |
|---|---|
| run | itself, its lists (all, by status, by workflow and status), and the slot that it holds while active |
| key | the first answer, and the fingerprint of what it was given for |
| line of the timeline | what happened to the run |
| event | the audit |
| message | the bus; it is gone with the commit after the one that it came with |

Callers that wait at the same time are committed as one. Slots are counted from the runs that hold them.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from semel.kernel.clock import SYSTEM

STARTED, REPLAYED, REUSED, FULL, UNKNOWN = "started", "replayed", "reused", "full", "unknown"

Outcome = tuple[str, bytes]

# Of a tenant that was given no limit of its own, as by default.
ACTIVE_MAX = 10

# How long keys are kept, as by default: 90 days.
KEPT_US = 90 * 86_400_000_000

# Nobody asks within this time: the messages that were sent are taken out by a commit of their own.
_IDLE_S = 0.05


class RunRow(NamedTuple):
    """A start that is asked for, as it would be written."""

    tenant: str
    key_id: str
    key: str
    fingerprint: str
    run_id: str
    workflow: str
    input: bytes
    answer: bytes
    now_us: int

    def message(self) -> bytes:
        return b'{"kind":"run.started","run_id":"%b"}' % self.run_id.encode()

    def line(self) -> bytes:
        return b'{"at_us":%d,"kind":"run_started"}' % self.now_us


class RunRows(Protocol):
    async def open(self) -> None: ...

    async def define(self, tenant: str, workflow: str) -> None: ...

    async def limit(self, tenant: str, active_max: int) -> None: ...

    async def start(self, row: RunRow) -> Outcome: ...

    async def end(self, tenant: str, run_id: str, status: str) -> None: ...

    async def listed(self, tenant: str) -> list[dict[str, str]]: ...

    async def close(self) -> None: ...


def open_rows(url: str) -> RunRows:
    """By the URL of a store of ours, beside whose tables or keys these have names of their own."""
    parts = urlsplit(url)
    options = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.scheme == "sqlite":
        return SqliteRows(parts.path.removeprefix("/"))
    if parts.scheme == "redis":
        return RedisRows(f"redis://{parts.netloc}", options["prefix"])
    return PostgresRows(f"postgresql://{parts.netloc}{parts.path}", options["schema"])


class Waiting(NamedTuple):
    row: RunRow
    answer: asyncio.Future[Outcome]


def _reply(batch: Sequence[Waiting], outcomes: Sequence[Outcome]) -> None:
    for waiting, outcome in zip(batch, outcomes, strict=True):
        if not waiting.answer.done():
            waiting.answer.set_result(outcome)


def _fail(batch: Sequence[Waiting], error: BaseException) -> None:
    for waiting in batch:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)


# --- SQLite: a thread that writes -----------------------------------------------------------------

_TABLES = """
CREATE TABLE bare_workflows (tenant TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (tenant, id));
CREATE TABLE bare_tenants (tenant TEXT PRIMARY KEY, active_max INTEGER NOT NULL);
CREATE TABLE bare_runs (
    tenant TEXT NOT NULL, id TEXT NOT NULL, workflow TEXT NOT NULL, status TEXT NOT NULL,
    created_us BIGINT NOT NULL, input {bytes} NOT NULL, PRIMARY KEY (tenant, id)
);
CREATE INDEX bare_runs_all ON bare_runs (tenant, created_us);
CREATE INDEX bare_runs_status ON bare_runs (tenant, status, created_us);
CREATE INDEX bare_runs_workflow ON bare_runs (tenant, workflow, status, created_us);
CREATE TABLE bare_keys (
    tenant TEXT NOT NULL, id TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL,
    run_id TEXT NOT NULL, answer {bytes} NOT NULL, created_us BIGINT NOT NULL, expires_us BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX bare_keys_all ON bare_keys (tenant, created_us);
CREATE INDEX bare_keys_expiry ON bare_keys (expires_us);
CREATE TABLE bare_timeline (
    tenant TEXT NOT NULL, run_id TEXT NOT NULL, seq INTEGER NOT NULL, body {bytes} NOT NULL,
    PRIMARY KEY (tenant, run_id, seq)
);
CREATE TABLE bare_events (
    seq {serial}, at_us BIGINT NOT NULL, tenant TEXT NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL,
    digest TEXT NOT NULL
);
CREATE TABLE bare_outbox (
    tenant TEXT NOT NULL, id TEXT NOT NULL, body {bytes} NOT NULL, PRIMARY KEY (tenant, id)
);
"""
_SQLITE_TABLES = _TABLES.format(bytes="BLOB", serial="INTEGER PRIMARY KEY")
_FIND_KEY = "SELECT fingerprint, answer FROM bare_keys WHERE tenant = ? AND id = ?"
_RULES = """
SELECT coalesce(t.active_max, ?) FROM bare_workflows w LEFT JOIN bare_tenants t USING (tenant)
WHERE w.tenant = ? AND w.id = ?
"""
_COUNT = "SELECT count(*) FROM bare_runs WHERE tenant = ? AND status = 'running'"
_INSERTS = (
    "INSERT INTO bare_runs VALUES (:tenant, :run_id, :workflow, 'running', :now_us, :input)",
    "INSERT INTO bare_keys "
    "VALUES (:tenant, :key_id, :key, :fingerprint, :run_id, :answer, :now_us, :expires_us)",
    "INSERT INTO bare_timeline VALUES (:tenant, :run_id, 1, :line)",
    "INSERT INTO bare_events VALUES (NULL, :now_us, :tenant, :run_id, 'started', :fingerprint)",
    "INSERT INTO bare_outbox VALUES (:tenant, :run_id, :message)",
)


class SqliteRows:
    """One thread writes: what waits while it commits is the next commit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._sent: list[tuple[str, str]] = []

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_SQLITE_TABLES)
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    async def start(self, row: RunRow) -> Outcome:
        waiting = Waiting(row, self._loop.create_future())
        self._queue.put(waiting)
        return await waiting.answer

    def _write(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=_IDLE_S if self._sent else None)
            except queue.Empty:
                self._commit([])
                continue
            asked = [first]
            while not self._queue.empty():
                asked.append(self._queue.get())
            batch = [waiting for waiting in asked if waiting is not None]
            try:
                outcomes = self._commit([waiting.row for waiting in batch])
            except BaseException as error:
                self._loop.call_soon_threadsafe(_fail, batch, error)
                raise
            self._loop.call_soon_threadsafe(_reply, batch, outcomes)
            if None in asked:
                return

    def _commit(self, rows: list[RunRow]) -> list[Outcome]:
        connection, sent = self._connection, self._sent
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM bare_outbox WHERE tenant = ? AND id = ?", sent)
        admitted: dict[tuple[str, str], tuple[str, bytes]] = {}
        free: dict[tuple[str, str], list[int]] = {}
        outcomes = [self._admit(row, admitted, free) for row in rows]
        new = [
            row._asdict() | {"expires_us": row.now_us + KEPT_US, "line": row.line(), "message": row.message()}
            for row, (outcome, _) in zip(rows, outcomes, strict=True)
            if outcome == STARTED
        ]
        for insert in _INSERTS:
            connection.executemany(insert, new)
        connection.execute("COMMIT")
        # Handed to the bus of this process, which takes them.
        self._sent = [(row["tenant"], row["run_id"]) for row in new]
        return outcomes

    def _admit(
        self,
        row: RunRow,
        admitted: dict[tuple[str, str], tuple[str, bytes]],
        free: dict[tuple[str, str], list[int]],
    ) -> Outcome:
        """Judged by what is committed, and what was admitted before it in this commit."""
        place = row.tenant, row.key_id
        earlier = admitted.get(place) or self._connection.execute(_FIND_KEY, place).fetchone()
        if earlier is not None:
            return (REPLAYED, earlier[1]) if earlier[0] == row.fingerprint else (REUSED, b"{}")
        of = row.tenant, row.workflow
        if of not in free:
            free[of] = self._free(*of)
        slots = free[of]
        if not slots:
            return UNKNOWN, b"{}"
        if slots[0] <= 0:
            return FULL, b"{}"
        slots[0] -= 1
        admitted[place] = row.fingerprint, row.answer
        return STARTED, row.answer

    def _free(self, tenant: str, workflow: str) -> list[int]:
        """The tenant's free slots; nothing if it has no such workflow."""
        rules = self._connection.execute(_RULES, (ACTIVE_MAX, tenant, workflow)).fetchone()
        if rules is None:
            return []
        return [rules[0] - self._connection.execute(_COUNT, (tenant,)).fetchone()[0]]

    # Between the rounds, so on a connection of its own, which does not wait for the writer.

    async def define(self, tenant: str, workflow: str) -> None:
        self._aside("INSERT OR IGNORE INTO bare_workflows VALUES (?, ?)", (tenant, workflow))

    async def limit(self, tenant: str, active_max: int) -> None:
        self._aside("INSERT OR REPLACE INTO bare_tenants VALUES (?, ?)", (tenant, active_max))

    async def end(self, tenant: str, run_id: str, status: str) -> None:
        self._aside("UPDATE bare_runs SET status = ? WHERE tenant = ? AND id = ?", (status, tenant, run_id))

    async def listed(self, tenant: str) -> list[dict[str, str]]:
        select = "SELECT id, status FROM bare_runs WHERE tenant = ? ORDER BY created_us DESC"
        return [{"run_id": id_, "status": status} for id_, status in self._aside(select, (tenant,))]

    def _aside(self, statement: str, parameters: tuple[str | int, ...]) -> list[Any]:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=60)
        try:
            return connection.execute(statement, parameters).fetchall()
        finally:
            connection.close()

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._connection.close()


# --- batches on the event loop --------------------------------------------------------------------


class LoopBatches:
    """What is asked for while a batch is on its way is the next batch."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def start(self, row: RunRow) -> Outcome:
        waiting = Waiting(row, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())
        return await waiting.answer

    async def _write(self) -> None:
        await SYSTEM.asleep(0)  # whoever is ready in this turn of the loop comes along
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                _reply(batch, await self._commit([waiting.row for waiting in batch]))
            except BaseException as error:
                _fail(batch, error)
        self._writing = None

    async def _commit(self, rows: list[RunRow]) -> list[Outcome]:
        raise NotImplementedError


# --- Redis: a script, many of them in one pipeline ------------------------------------------------

# What a tenant has stands in one slot of a cluster; the script checks before it writes.
_SCRIPT = """
local admitted = redis.call('HMGET', KEYS[1], 'fingerprint', 'answer')
if admitted[1] then
    return {admitted[1] == ARGV[1] and 'replayed' or 'reused', admitted[2]}
end
if redis.call('SISMEMBER', KEYS[9], ARGV[7]) == 0 then
    return {'unknown', '{}'}
end
local active_max = redis.call('GET', KEYS[10]) or ARGV[2]
if redis.call('ZCARD', KEYS[4]) >= tonumber(active_max) then
    return {'full', '{}'}
end
redis.call('HSET', KEYS[1], 'key', ARGV[3], 'fingerprint', ARGV[1], 'answer', ARGV[4], 'run', ARGV[5])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('HSET', KEYS[2], 'workflow', ARGV[7], 'status', 'running', 'created', ARGV[8], 'input', ARGV[9])
redis.call('ZADD', KEYS[3], ARGV[8], ARGV[5])
redis.call('ZADD', KEYS[4], ARGV[8], ARGV[5])
redis.call('ZADD', KEYS[5], ARGV[8], ARGV[5])
redis.call('RPUSH', KEYS[6], ARGV[10])
redis.call('RPUSH', KEYS[7], ARGV[11])
redis.call('HSET', KEYS[8], ARGV[5], ARGV[12])
return {'started', ARGV[4]}
"""


class RedisRows(LoopBatches):
    def __init__(self, url: str, prefix: str) -> None:
        super().__init__()
        self._url, self._prefix = url, prefix
        self._sent: list[RunRow] = []

    async def open(self) -> None:
        import redis.asyncio

        self._client: Any = redis.asyncio.Redis.from_url(self._url)
        self._sha = await self._client.script_load(_SCRIPT)

    def _name(self, tenant: str, *parts: str) -> str:
        return ":".join((self._prefix, f"{{{tenant}}}", *parts))

    def _words(self, row: RunRow) -> list[Any]:
        tenant, run = row.tenant, row.run_id
        event = f"{row.now_us} {tenant} {run} started {row.fingerprint}"
        keys = [
            self._name(tenant, "key", row.key_id),
            self._name(tenant, "run", run),
            self._name(tenant, "runs"),
            self._name(tenant, "status", "running"),
            self._name(tenant, "workflow", row.workflow, "running"),
            self._name(tenant, "timeline", run),
            self._name(tenant, "events"),
            self._name(tenant, "outbox"),
            self._name(tenant, "workflows"),
            self._name(tenant, "limit"),
        ]
        return [
            len(keys), *keys, row.fingerprint, ACTIVE_MAX, row.key, row.answer, run, KEPT_US // 1000,
            row.workflow, row.now_us, row.input, row.line(), event, row.message(),
        ]  # fmt: skip

    async def _commit(self, rows: list[RunRow]) -> list[Outcome]:
        sent, self._sent = self._sent, []
        async with self._client.pipeline(transaction=False) as pipeline:
            for row in rows:
                pipeline.evalsha(self._sha, *self._words(row))
            for row in sent:
                pipeline.hdel(self._name(row.tenant, "outbox"), row.run_id)
            answers = await pipeline.execute()
        outcomes = [(outcome.decode(), answer) for outcome, answer in answers[: len(rows)]]
        self._sent = [row for row, (outcome, _) in zip(rows, outcomes, strict=True) if outcome == STARTED]
        return outcomes

    async def define(self, tenant: str, workflow: str) -> None:
        await self._client.sadd(self._name(tenant, "workflows"), workflow)

    async def limit(self, tenant: str, active_max: int) -> None:
        await self._client.set(self._name(tenant, "limit"), active_max)

    async def end(self, tenant: str, run_id: str, status: str) -> None:
        run = self._name(tenant, "run", run_id)
        workflow, created = await self._client.hmget(run, "workflow", "created")
        async with self._client.pipeline() as pipeline:
            pipeline.hset(run, "status", status)
            for parts in (("status",), ("workflow", workflow.decode())):
                pipeline.zrem(self._name(tenant, *parts, "running"), run_id)
                pipeline.zadd(self._name(tenant, *parts, status), {run_id: float(created)})
            await pipeline.execute()

    async def listed(self, tenant: str) -> list[dict[str, str]]:
        ids = [id_.decode() for id_ in await self._client.zrevrange(self._name(tenant, "runs"), 0, -1)]
        runs = [await self._client.hget(self._name(tenant, "run", id_), "status") for id_ in ids]
        return [{"run_id": id_, "status": status.decode()} for id_, status in zip(ids, runs, strict=True)]

    async def close(self) -> None:
        await self._client.aclose()


# --- PostgreSQL: a function, many calls of it in one transaction ----------------------------------

# One tenant after the other: two that count at the same time would both find the last slot free.
_FUNCTION = """
CREATE FUNCTION bare_start(
    of_tenant text, key_id text, key_text text, print text, new_run text, of_workflow text, body bytea,
    said bytea, at_us bigint, active_max integer, kept_us bigint, line bytea, message bytea,
    OUT outcome text, OUT answered bytea
) LANGUAGE plpgsql AS $$
DECLARE
    first_print text;
    active integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(of_tenant, 0));
    SELECT k.fingerprint, k.answer INTO first_print, answered FROM bare_keys k
    WHERE k.tenant = of_tenant AND k.id = key_id;
    IF FOUND THEN
        outcome := CASE WHEN first_print = print THEN 'replayed' ELSE 'reused' END;
        RETURN;
    END IF;
    answered := said;
    SELECT coalesce(t.active_max, bare_start.active_max) INTO active_max
    FROM bare_workflows w LEFT JOIN bare_tenants t USING (tenant)
    WHERE w.tenant = of_tenant AND w.id = of_workflow;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    SELECT count(*) INTO active FROM bare_runs r WHERE r.tenant = of_tenant AND r.status = 'running';
    IF active >= active_max THEN
        outcome := 'full';
        RETURN;
    END IF;
    INSERT INTO bare_runs VALUES (of_tenant, new_run, of_workflow, 'running', at_us, body);
    INSERT INTO bare_keys VALUES (of_tenant, key_id, key_text, print, new_run, said, at_us, at_us + kept_us);
    INSERT INTO bare_timeline VALUES (of_tenant, new_run, 1, line);
    INSERT INTO bare_events (at_us, tenant, run_id, kind, digest)
    VALUES (at_us, of_tenant, new_run, 'started', print);
    INSERT INTO bare_outbox VALUES (of_tenant, new_run, message);
    outcome := 'started';
END $$
"""
_CALL = f"SELECT * FROM bare_start({', '.join(['%b'] * 13)})"


class PostgresRows(LoopBatches):
    def __init__(self, url: str, schema: str) -> None:
        super().__init__()
        self._url, self._schema = url, schema
        self._sent: list[tuple[str, str]] = []

    async def open(self) -> None:
        self._connection = await self._connected()
        await self._connection.execute(f"CREATE SCHEMA {self._schema}")
        await self._connection.execute(_TABLES.format(bytes="BYTEA", serial="BIGSERIAL PRIMARY KEY"))
        await self._connection.execute(_FUNCTION)

    async def _connected(self) -> Any:
        import psycopg

        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        await connection.execute(f"SET search_path TO {self._schema}")
        return connection

    async def _commit(self, rows: list[RunRow]) -> list[Outcome]:
        # In the order of tenants: two processes that lock several never wait for each other.
        order = sorted(range(len(rows)), key=lambda at: rows[at].tenant)
        outcomes: list[Outcome] = [(FULL, b"")] * len(rows)
        sent, self._sent = self._sent, []
        delete = "DELETE FROM bare_outbox WHERE tenant = %s AND id = %s"
        async with self._connection.pipeline(), self._connection.transaction():
            cursors = [
                await self._connection.execute(_CALL, self._given(rows[at]), prepare=True) for at in order
            ]
            for place in sent:
                await self._connection.execute(delete, place, prepare=True)
        for at, cursor in zip(order, cursors, strict=True):
            outcomes[at] = await cursor.fetchone()
        self._sent = [
            (row.tenant, row.run_id)
            for row, (outcome, _) in zip(rows, outcomes, strict=True)
            if outcome == STARTED
        ]
        return outcomes

    @staticmethod
    def _given(row: RunRow) -> tuple[Any, ...]:
        return *row, ACTIVE_MAX, KEPT_US, row.line(), row.message()

    async def define(self, tenant: str, workflow: str) -> None:
        insert = "INSERT INTO bare_workflows VALUES (%s, %s) ON CONFLICT DO NOTHING"
        await self._connection.execute(insert, (tenant, workflow))

    async def limit(self, tenant: str, active_max: int) -> None:
        insert = "INSERT INTO bare_tenants VALUES (%s, %s)"
        await self._connection.execute(insert, (tenant, active_max))

    async def end(self, tenant: str, run_id: str, status: str) -> None:
        update = "UPDATE bare_runs SET status = %s WHERE tenant = %s AND id = %s"
        await self._connection.execute(update, (status, tenant, run_id), prepare=True)

    async def listed(self, tenant: str) -> list[dict[str, str]]:
        select = "SELECT id, status FROM bare_runs WHERE tenant = %s ORDER BY created_us DESC"
        found = await (await self._connection.execute(select, (tenant,))).fetchall()
        return [{"run_id": id_, "status": status} for id_, status in found]

    async def close(self) -> None:
        await self._connection.close()
