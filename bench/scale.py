"""`python -m bench.scale`: the tables and the picture of docs/operate/scale.md, from measured costs.

python -m bench.scale --measure redis:1000000   measures, keeps it in docs/operate/scale.json, makes the page
python -m bench.scale                           makes the page from what is kept

The simulation (queueing.py) has a fixed seed: the same costs make the same page.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from bench.queueing import FleetLoad, SimulatedWait, around, simulate
from bench.run import machine
from bench.scale_costs import STORES, StoreCost, measured
from bench.scale_picture import Line, drawn
from bench.servers import PostgresServer, RedisServer
from semel.kernel.clock import SYSTEM, rfc3339

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "operate"
JSON, PAGE, PICTURE = FOLDER / "scale.json", FOLDER / "scale.md", FOLDER / "scale.svg"

_TABLES = re.compile(r"(?<=<!-- scale -->\n).*(?=<!-- /scale -->)", re.DOTALL)

TITLES = {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL"}

PROCESSES = 1_000
# Of a call's time at a store that is hardly used: beyond it, calls wait more for each other than for it.
KNEE = 2.0
# Enough that a hundredth of them is not chance.
CALLS = 10_000
SHARES = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95)
SECONDS_A_DAY = 86_400
# How long events are kept, unless ?audit=off.
EVENT_DAYS = 400


class StoreLayout(NamedTuple):
    """A store in the simulation: how many work side by side, and what a command takes one of them."""

    title: str
    workers: int
    command_s: float
    shards: int = 1

    @property
    def calls_per_s_max(self) -> float:
        return self.shards * self.workers / (2 * self.command_s)


def layouts(costs: Sequence[StoreCost]) -> list[StoreLayout]:
    """What is simulated: each store at its largest measured history, and some of them sharded."""
    by_store = {cost.store: cost for cost in costs}  # the last one has most records
    simulated = []
    if "sqlite" in by_store:
        best_per_s = max(cost.best_per_s for cost in costs if cost.store == "sqlite")
        simulated.append(StoreLayout("SQLite, one machine", 1, 1 / (2 * best_per_s)))
    if cost := by_store.get("redis"):
        command_s = cost.server_us / 2e6
        simulated += [
            StoreLayout("Redis, one server", 1, command_s),
            StoreLayout("Redis Cluster, 6 servers", 1, command_s, shards=6),
        ]
    if cost := by_store.get("postgres"):
        command_s = cost.server_us / 2e6
        simulated += [
            StoreLayout("PostgreSQL, 8 cores", 8, command_s),
            StoreLayout("PostgreSQL, 4 databases of 8 cores", 8, command_s, shards=4),
        ]
    return simulated


def waits(layout: StoreLayout) -> list[SimulatedWait]:
    """The fleet at several loads. Shards are alike: each has its part of the processes' calls."""
    return [
        simulate(
            FleetLoad(PROCESSES, share * layout.calls_per_s_max / layout.shards / PROCESSES),
            around(layout.command_s),
            layout.workers,
            CALLS,
        )
        for share in SHARES
    ]


def knee(seen: Sequence[SimulatedWait]) -> int:
    """The last of the loads at which 99 of 100 calls take at most twice as long as at the first, a tenth."""
    idle = seen[0].p99_s
    return max(number for number, wait in enumerate(seen) if wait.p99_s <= KNEE * idle)


# --- the page -----------------------------------------------------------------------------------------


def tables(kept: Mapping[str, Any]) -> tuple[str, str]:
    """What stands between the markers of the page, and the picture."""
    costs = [StoreCost(**cost) for cost in kept["costs"]]
    simulated = [(layout, waits(layout)) for layout in layouts(costs)]
    text = "\n\n".join(
        (
            _where(kept),
            "### Per call",
            _table(_CALL_HEADINGS, map(_call_row, costs)),
            "### Per million calls a day",
            _table(_DAY_HEADINGS, [_day_row(store, costs) for store in STORES]),
            "### 1 000 processes, simulated",
            f"![How long calls take as the fleet calls more]({PICTURE.name})",
            _table(_FLEET_HEADINGS, [_fleet_row(layout, seen) for layout, seen in simulated]),
        )
    )
    return text, drawn([_line(layout, seen) for layout, seen in simulated])


def _where(kept: Mapping[str, Any]) -> str:
    facts = kept["machine"]
    names = ("python", "built with", "sqlite", "redis", "postgresql", "system", "cores", "file system")
    words = "; ".join(f"{name} {facts[name]}" for name in names if name in facts)
    return f"Measured on {kept['date']}: {words}."


_CALL_HEADINGS = (
    "store", "records before it", "bytes of a settled record", "of these its events",
    "server, 1 caller", "caller",
    "server, 64 tasks", "caller, 64 tasks", "best rate of a process", "its connections", "load before",
)  # fmt: skip


def _call_row(cost: StoreCost) -> Iterator[str]:
    served = cost.store != "sqlite"
    yield TITLES[cost.store]
    yield _spaced(cost.records)
    yield _spaced(cost.bytes_per_record)
    yield _spaced(cost.event_bytes) if cost.event_bytes else "–"
    yield f"{_spaced(cost.server_us)} µs" if served else "–"
    yield f"{_spaced(cost.caller_us)} µs"
    yield f"{_spaced(cost.tasks_server_us)} µs" if served else "–"
    yield f"{_spaced(cost.tasks_caller_us)} µs"
    yield f"{_spaced(cost.best_per_s)} /s"
    yield str(cost.connections) if served else "a file"
    yield cost.load


_DAY_HEADINGS = (
    "store", "records, for each day of the window", "events, after 400 days", "server's processor",
    "callers' processors",
)  # fmt: skip


def _day_row(store: str, costs: Sequence[StoreCost]) -> Iterator[str]:
    """Of a million calls a day: costs with the longest history, and what is known of events with another."""
    own = [cost for cost in costs if cost.store == store]
    most, event_bytes = own[-1], max(cost.event_bytes for cost in own)
    yield TITLES[store]
    yield f"{(most.bytes_per_record - event_bytes) / 1e3:.2f} GB"
    yield f"{EVENT_DAYS * event_bytes / 1e3:.0f} GB"
    yield f"{most.server_us / 60:.0f} min" if most.server_us else "–"
    yield f"{most.caller_us / 60:.0f} min"


_FLEET_HEADINGS = ("store", "busy to the last", "knee", "calls a day at the knee", "99 of 100 calls there")


def _fleet_row(layout: StoreLayout, seen: Sequence[SimulatedWait]) -> Iterator[str]:
    at_knee = seen[knee(seen)]
    best = SHARES[knee(seen)] * layout.calls_per_s_max
    yield layout.title
    yield f"{_spaced(round(layout.calls_per_s_max))} calls/s"
    yield f"{_spaced(round(best))} calls/s"
    yield f"{best * SECONDS_A_DAY / 1e6:.0f} million"
    yield f"{at_knee.p99_s * 1e3:.1f} ms"


def _line(layout: StoreLayout, seen: Sequence[SimulatedWait]) -> Line:
    points = [
        (share * layout.calls_per_s_max, wait.p99_s * 1e3) for share, wait in zip(SHARES, seen, strict=True)
    ]
    return Line(layout.title, tuple(points), knee(seen))


def _table(headings: Sequence[str], rows: Any) -> str:
    lines = [headings, ["---"] * len(headings), *map(tuple, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _spaced(number: float) -> str:
    return f"{number:,}".replace(",", " ")


def write() -> None:
    """The page and its picture say what the JSON says."""
    text, picture = tables(json.loads(JSON.read_text(encoding="utf-8")))
    page, places = _TABLES.subn(lambda _: f"\n{text}\n\n", PAGE.read_text(encoding="utf-8"))
    assert places == 1, "docs/operate/scale.md has lost its markers"
    PAGE.write_text(page, encoding="utf-8")
    PICTURE.write_text(picture, encoding="utf-8")


def keep(cost: StoreCost, facts: dict[str, str]) -> None:
    """Beside what is known of other stores and histories."""
    kept = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {"costs": []}
    others = [one for one in kept["costs"] if (one["store"], one["records"]) != (cost.store, cost.records)]
    cost = cost._replace(load=facts.pop("load before", "").partition(" ")[0])
    costs = sorted([*others, cost._asdict()], key=lambda one: (STORES.index(one["store"]), one["records"]))
    measured = {"date": rfc3339(SYSTEM.now_us())[:10], "machine": facts, "costs": costs}
    JSON.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


@click.command()
@click.option("--measure", "chosen", metavar="STORE:RECORDS", multiple=True, help="Measure this first.")
@click.option("--dir", "directory", default=".", help="Where files are made.")
def main(chosen: tuple[str, ...], directory: str) -> None:
    """Tables and picture of docs/operate/scale.md."""
    for each in chosen:
        store, _, records = each.partition(":")
        if store not in STORES or not records.isdecimal():
            raise click.BadParameter(f"{each}: one of {', '.join(STORES)}, a colon, and how many records")
        facts = machine(os.path.abspath(directory)) | {
            "redis": RedisServer.described(),
            "postgresql": PostgresServer.described(),
        }
        cost = measured(store, int(records), directory)
        keep(cost, facts)
        click.echo(str(cost))
    write()


if __name__ == "__main__":
    main(prog_name="python -m bench.scale")
