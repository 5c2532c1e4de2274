"""`python -m bench.redis_parts`: the bytes of a settled record in Redis, by key of the server and by field.

By key: what `MEMORY USAGE` says, with the server's own of an object, an entry and a name. By field: what
stands in the record and in its two events.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

import click
import redis

import semel
from bench.plan import ExperimentResources
from bench.redis_memory import seal, used
from bench.run import run_resources
from bench.servers import RedisServer
from bench.sides import SyncCalls
from semel.stores.redis import packed_records

RECORDS = 20_000
PREFIX = "sizes"

# Of a record that was entered once and settled by its owner.
_HEAD_BYTES = 39


def by_key(client: Any, records: int) -> Counter[str]:
    """Bytes per record of what is named by each key; records, and what else is many, together."""
    sizes: Counter[str] = Counter()
    for key in client.scan_iter(count=1_000):
        name = key.split(b"}:")[1]
        sizes[name.partition(b":")[0].decode(errors="replace")] += client.memory_usage(key, samples=0)
    return Counter({name: round(size / records) for name, size in sizes.items()})


def by_field(data: bytes) -> dict[str, int]:
    """The bytes of a plain record, all of them."""
    record = packed_records.record_of(data)
    request = record.request
    terms = packed_records.packed_terms(request.terms, request.job_id)
    texts = (
        *request.at[:2],
        request.tool,
        request.version,
        request.conversation,
        request.step,
        request.principal,
    )
    fields = {
        "token: random, and the process that holds the key": len(record.token),
        "fingerprint": len(request.fingerprint),
        "key": 32,
        "id": 16,
        "tenant, scope, tool, version, conversation, step, principal": sum(
            len(text.encode()) for text in texts
        ),
        "terms, deflated, and job": len(terms),
        "arguments": len(request.arguments),
        "digest of the outcome": 32,
        "outcome": len(record.outcome or b""),
        "head: state, times, link to the last event, page": _HEAD_BYTES,
        "checksum": 4,
    }
    return fields | {"lengths": len(data) - sum(fields.values())}


def measured(server: RedisServer, records: int) -> tuple[float, Counter[str], dict[str, int], list[int]]:
    """Bytes per record, the same by key, those of a record by field, and the lengths of its two events."""
    side = SyncCalls("semel", semel.open(server.url(PREFIX)))
    try:
        side.round(10)
        seal(side)
        before = used(server)
        side.round(records)
        seal(side)
        each = (used(server) - before) / records
        with redis.Redis(port=server.port) as client:
            kept: Any = client
            name = next(key for key in kept.scan_iter(match=b"*}:r:*") if 300 < kept.strlen(key) < 600)
            events = [
                len(entry[b"e"]) for _, entry in kept.xrange(f"{PREFIX}:{{{PREFIX}.00}}:events", count=2)
            ]
            return each, by_key(kept, records), by_field(kept.get(name)), events
    finally:
        side.close()


@click.command()
@click.option("--records", default=RECORDS)
@click.option(
    "--dir", "directory", type=click.Path(exists=True, file_okay=False), help="Where files are made."
)
def main(records: int, directory: str | None) -> None:
    """The bytes of a settled record in Redis."""
    with run_resources(directory) as shared, ExitStack() as opened:
        resources = ExperimentResources(shared.directory / "redis-parts", True, shared, opened)
        resources.directory.mkdir()
        each, keys, fields, events = measured(resources.redis(), records)
    click.echo(f"{each:.0f} bytes per record, of them")
    for name, size in keys.most_common():
        if size:
            click.echo(f"  {size:5} {name}")
    click.echo(f"a record has {sum(fields.values())} bytes, of them")
    for name, size in fields.items():
        click.echo(f"  {size:5} {name}")
    click.echo(f"its events have {' and '.join(map(str, events))} bytes")


if __name__ == "__main__":
    main(prog_name="python -m bench.redis_parts")
