"""A long history on a server, made in bulk: a million calls would take most of an hour.

On Redis the store's own steps make it, a thousand of them on their way at a time. On PostgreSQL two
statements do, which copy one settled record and its two events under keys of their own.
"""

from __future__ import annotations

import socket
from itertools import islice
from typing import Any

import hiredis
import psycopg
import redis

import semel
from bench.by_hand_redis import RequestWriter, Words
from bench.servers import PostgresServer, RedisServer
from bench.sides import timed_refunds
from bench.workload import seal
from semel.kernel.clock import SYSTEM

# So many steps are on their way at once: more would only fill the server's buffers.
_ROW = 1_000
_READ_BYTES = 1 << 20

_WINDOW_US = 86_400_000_000


def remember_in_redis(server: RedisServer, prefix: str, count: int) -> None:
    """So many settled records more, all of their events sealed."""
    with semel.open(server.url(prefix)) as ledger:
        requests = RequestWriter(ledger.store, server, prefix).requests(count)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            reader = hiredis.Reader()
            while row := list(islice(requests, _ROW)):
                _say(connection, reader, [call.claim for call in row])
                _say(connection, reader, [call.settle for call in row])
        seal(ledger.store)
        _file_as_closing(ledger.store, server)


def _file_as_closing(store: Any, server: RedisServer) -> None:
    """As the sweeper leaves them: pages of settled records are indexed by the end of their windows."""
    closes_at = SYSTEM.now_us() + _WINDOW_US
    client: Any = redis.Redis(port=server.port)
    for lane in store._translator.lanes:
        pages = filter(None, client.zrange(lane.pages, 0, -1))
        while row := list(islice(pages, _ROW)):
            client.zadd(lane.pages, dict.fromkeys(row, -closes_at))
    client.close()


def _say(connection: socket.socket, reader: hiredis.Reader, all_words: list[Words]) -> None:
    connection.sendall(b"".join(hiredis.pack_command(tuple(words)) for words in all_words))
    for _ in all_words:
        answer: Any
        while (answer := reader.gets()) is False:
            reader.feed(connection.recv(_READ_BYTES))
        if isinstance(answer, hiredis.ReplyError):
            raise answer


# The keys are random and come sorted by their address: indexes are built from left to right.
_RECORDS = """
INSERT INTO records (
    address, tenant, scope, key, id, tool, version, fingerprint, arguments, terms, conversation, step,
    principal, job_id, state, token, fence, attempts, entries, created_at, entered_at, settled_at, expires_at,
    outcome, note, by_whom, closes
)
WITH numbered AS MATERIALIZED (
    SELECT encode(sha256(int8send(n)), 'hex') AS key FROM generate_series(1, %s) AS n
), made AS MATERIALIZED (
    SELECT key, sha256(
        int4send(octet_length(tenant)) || convert_to(tenant, 'UTF8')
        || int4send(octet_length(scope)) || convert_to(scope, 'UTF8')
        || int4send(octet_length(key)) || convert_to(key, 'UTF8')
    ) AS address
    FROM numbered CROSS JOIN (SELECT tenant, scope FROM records LIMIT 1) AS whose
)
SELECT made.address, tenant, scope, made.key, 'rec_' || left(made.key, 32), tool, version, fingerprint,
    arguments, terms, 'history', step, principal, job_id, state, decode(left(made.key, 32), 'hex'), fence,
    attempts, entries, created_at, entered_at, settled_at, expires_at, outcome, note, by_whom, expires_at
FROM made CROSS JOIN (SELECT * FROM records WHERE state = 'done' LIMIT 1) AS one
ORDER BY made.address
"""
_EVENTS = """
INSERT INTO events (
    at_us, tenant, scope, key, record_id, kind, state, fence, tool, version, digest, expires_at, conversation,
    step, by_whom, note, times
)
SELECT one.at_us, r.tenant, r.scope, r.key, r.id, one.kind, one.state, one.fence, one.tool, one.version,
    one.digest, one.expires_at, 'history', one.step, one.by_whom, one.note, one.times
FROM records AS r
    CROSS JOIN (SELECT * FROM events WHERE kind IN ('claimed', 'settled') ORDER BY seq LIMIT 2) AS one
WHERE r.conversation = 'history'
"""


def remember_in_postgres(server: PostgresServer, schema: str, count: int, *, sealed: bool = True) -> None:
    """So many copies of one settled record and its two events; the tables are in order, all events sealed."""
    with semel.open(server.url(schema)) as ledger, ledger.step(conversation="first", step="refund-1"):
        timed_refunds(1)
    with psycopg.connect(server.conninfo(schema), autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(_RECORDS, (count,))
        connection.execute(_EVENTS)
    if sealed:
        with semel.open(f"{server.url(schema)}&timeout=10m") as ledger:
            seal(ledger.store)
    with psycopg.connect(server.conninfo(schema), autocommit=True) as connection:
        # As an old table is: looked through by the server's own housekeeping, and on disk.
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
