"""The same two statements by hand: for one caller by psycopg, for many by pgbench, which is written in C.

One statement claims and writes its event, one settles and writes its event; each is a transaction. They write
the store's tables with the store's indexes, but ask nothing: no look at what was there, no answer, no batch.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from time import perf_counter

import psycopg

import semel
from bench.by_hand import ARGUMENTS, LEASE_US, OUTCOME, TERMS, WINDOW_US, key_of
from bench.servers import DATABASE, USER, PostgresServer
from semel.kernel import owner
from semel.kernel.clock import SYSTEM

# In braces what differs from call to call, and how it is given.
CLAIM = """
WITH given AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us, {address} AS address,
        {key} AS key, {token} AS token, {arguments}::bytea AS arguments, {lease_us}::bigint AS lease_us
), claimed AS (
    INSERT INTO records (
        address, tenant, scope, key, id, tool, version, fingerprint, arguments, terms, conversation, step,
        principal, job_id, state, token, fence, attempts, entries, created_at, entered_at, lease_until, note,
        by_whom, due
    )
    SELECT address, 'default', 'tool', key, 'rec_' || left(encode(token, 'hex'), 32), 'refund', '2.1.0',
        sha256(arguments), arguments, {terms}::text, 'conv-42', '["refund-1"]', 'support-bot', '', 'pending',
        token, now_us, 1, 1, now_us, now_us, now_us + lease_us, '', '', now_us + lease_us
    FROM given
    ON CONFLICT DO NOTHING
    RETURNING *
)
INSERT INTO events (
    at_us, tenant, scope, key, record_id, kind, state, fence, tool, version, digest, expires_at, conversation,
    step, by_whom, note, times
)
SELECT created_at, tenant, scope, key, id, 'claimed', state, fence, tool, version, fingerprint, expires_at,
    conversation, step, principal, note, 1
FROM claimed
"""
SETTLE = """
WITH given AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us, {address} AS address,
        {token} AS token, {outcome}::bytea AS outcome
), settled AS (
    UPDATE records SET state = 'done', lease_until = NULL, settled_at = now_us,
        expires_at = now_us + {window_us}::bigint, outcome = given.outcome
    FROM given
    WHERE records.address = given.address AND records.token = given.token AND state = 'pending'
    RETURNING records.*
)
INSERT INTO events (
    at_us, tenant, scope, key, record_id, kind, state, fence, tool, version, digest, expires_at, conversation,
    step, by_whom, note, times
)
SELECT settled_at, tenant, scope, key, id, 'settled', state, fence, tool, version, sha256(outcome),
    expires_at, conversation, step, principal, note, 1
FROM settled
"""

# pgbench draws two numbers, and the rest is made of them.
_DRAWN = {
    "address": "sha256(int8send(:number))",
    "key": "encode(sha256(int8send(:number)), 'hex')",
    "token": "int8send(:number) || int8send(:chance) || int8send(:number) || int8send(:chance)",
}
_VARIABLES = {name: f":{name}" for name in ("arguments", "terms", "lease_us", "outcome", "window_us")}

SCRIPT = f"""
\\set number random(1, 9000000000000000000)
\\set chance random(1, 9000000000000000000)
{CLAIM.format(**_DRAWN, **_VARIABLES)};
{SETTLE.format(**_DRAWN, **_VARIABLES)};
"""


class _AsParameters(dict[str, str]):
    """Everything is a parameter, in the order in which it stands."""

    def __missing__(self, name: str) -> str:
        return "%s::text" if name == "key" else "%s" if name.endswith("_us") else "%s::bytea"


class TwoStatements:
    """One caller with psycopg, its statements prepared, each a transaction."""

    name = "by hand"
    _CLAIM, _SETTLE = (each.format_map(_AsParameters(terms="%s")) for each in (CLAIM, SETTLE))

    def __init__(self, server: PostgresServer, schema: str) -> None:
        # The store makes its tables and indexes; after that it does nothing here.
        semel.open(server.url(schema)).close()
        self._connection = psycopg.connect(server.conninfo(schema), autocommit=True)
        self._made = 0

    def round(self, count: int) -> float:
        numbers = range(self._made, self._made + count)
        self._made += count
        keys = [key_of(number) for number in numbers]
        work = [(bytes.fromhex(key), key, owner.token(SYSTEM)) for key in keys]
        execute = self._connection.execute
        began = perf_counter()
        for address, key, token in work:
            execute(self._CLAIM, (address, key, token, ARGUMENTS, LEASE_US, TERMS), prepare=True)
            execute(self._SETTLE, (address, token, OUTCOME, WINDOW_US), prepare=True)
        return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return counted(self._connection)

    def close(self) -> None:
        self._connection.close()


_RATE = re.compile(r"^tps = ([\d.]+) \(without initial connection time\)", re.MULTILINE)
_DONE = re.compile(r"^number of transactions actually processed: (\d+)", re.MULTILINE)


class Pgbench:
    """So many connections, each one call after the other; connecting is not counted."""

    name = "pgbench"

    def __init__(self, server: PostgresServer, directory: Path, schema: str, clients: int) -> None:
        self._server, self.schema, self._clients = server, schema, clients
        # The store makes its tables and indexes; after that it does nothing here.
        semel.open(server.url(self.schema)).close()
        self._script = directory / "claim-and-settle.pgbench"
        self._script.write_text(SCRIPT, encoding="utf-8")

    def round(self, count: int) -> float:
        each = count // self._clients
        output = subprocess.run(
            [*self._command(), "-t", str(each)],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PGOPTIONS": f"-c search_path={self.schema}"},
        ).stdout
        rate, done = _RATE.search(output), _DONE.search(output)
        if rate is None or done is None or int(done[1]) != each * self._clients:
            raise RuntimeError(f"pgbench did not do its work: {' '.join(output.split())}")
        return 1 / float(rate[1])

    def _command(self) -> list[str]:
        given = {
            "arguments": f"\\x{ARGUMENTS.hex()}",
            "outcome": f"\\x{OUTCOME.hex()}",
            "terms": TERMS,
            "lease_us": str(LEASE_US),
            "window_us": str(WINDOW_US),
        }
        return [
            str(self._server.binaries / "pgbench"), "-n", "-M", "prepared", "-f", str(self._script),
            "-c", str(self._clients), "-j", "2", "-h", "127.0.0.1", "-p", str(self._server.port), "-U", USER,
            *(word for name, value in given.items() for word in ("-D", f"{name}={value}")), DATABASE,
        ]  # fmt: skip

    def did(self) -> dict[str, int]:
        with psycopg.connect(self._server.conninfo(self.schema)) as connection:
            return counted(connection)

    def close(self) -> None:
        """Nothing of it runs between the rounds."""


def counted(connection: psycopg.Connection[tuple[int]]) -> dict[str, int]:
    """Settled records, and the events that say so."""
    records = "SELECT count(*) FROM records WHERE state = 'done'"
    events = "SELECT count(*) FROM events WHERE kind <> 'dedup_hit'"
    settled, written = (connection.execute(each).fetchone() for each in (records, events))
    assert settled is not None
    assert written is not None
    return {"settled": settled[0], "events": written[0]}
