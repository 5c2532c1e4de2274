"""docs/evidence.md: what the soaks did and found, made of docs/evidence.json, which `make soak` writes.

python -m tools.evidence   makes the page anew from the JSON
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.pages import ROOT

JSON = ROOT / "docs" / "evidence.json"

# What can be counted, and the heading of its column.
COUNTS = {
    "operations": "operations",
    "effects": "effects",
    "kills": "kills",
    "freezes": "freezes",
    "interrupts": "interrupts",
    "partitions": "partitions",
    "clock_steps": "clock steps",
    "acknowledged": "acknowledged",
    "lost": "lost",
    "twice": "twice",
    "noticed": "noticed",
}
_OF_A_SOAK = ("operations", "effects", "kills", "freezes", "interrupts", "partitions", "clock_steps")
_OF_A_FAILOVER = ("acknowledged", "lost", "twice", "noticed")

Row = Mapping[str, Any]


def joined(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """One row for each test and store, in the order in which they ran: what its runs did, added up."""
    together: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["test"], row["store"], row.get("failover", ""))
        known = together.setdefault(key, {**row, "runs": 0, "seconds": 0.0, "violations": 0, "counts": {}})
        known["runs"] += 1
        known["seconds"] += row["seconds"]
        known["violations"] += row["violations"]
        counts = {name: known["counts"].get(name, 0) + number for name, number in row["counts"].items()}
        known["counts"] |= counts
    for row in together.values():
        row["seconds"] = round(row["seconds"])
    return list(together.values())


def publish(report: Mapping[str, Any], target: Path = JSON) -> None:
    """The JSON and the page beside it say the same."""
    target.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    target.with_suffix(".md").write_text(rendered(report), encoding="utf-8")


def rendered(report: Mapping[str, Any]) -> str:
    rows = report["rows"]
    failovers = [row for row in rows if "failover" in row]
    soaks = [row for row in rows if "failover" not in row]
    return _PAGE.format(
        verdict=_verdict(report),
        totals=_totals(rows),
        soaks=_table(("what holds", "store", "runs", *_named(_OF_A_SOAK), "violations"), map(_soak, soaks)),
        failovers=_table(
            ("what happens", "what may be lost", *_named(_OF_A_FAILOVER), "violations"),
            map(_failover, failovers),
        ),
        short=_SHORT if report["short"] else "",
        untried=_untried(report.get("untried", ())),
    )


def _verdict(report: Mapping[str, Any]) -> str:
    violations = sum(row["violations"] for row in report["rows"])
    machine = report["machine"]
    minutes = report["seconds"] / 60
    found = f"**violations found: {violations}**" if violations else "no violation was found"
    return (
        f"{report['date']}, commit `{report['commit']}`: in {minutes:.0f} minutes {found}. Storms took "
        f"{report['storm_s']:g} s each. {machine['cores']} cores, {machine['system']}, {machine['python']} "
        f"({machine['built with']}), load before {machine['load before']}."
    )


def _untried(tests: Sequence[str]) -> str:
    """Of what was skipped nothing is known."""
    return f"\nNot tried, because something is missing here: {', '.join(tests)}.\n" if tests else ""


def _totals(rows: Sequence[Row]) -> str:
    total = {name: sum(row["counts"].get(name, 0) for row in rows) for name in _OF_A_SOAK}
    return ", ".join(f"{_number(total[name])} {COUNTS[name]}" for name in _OF_A_SOAK)


def _named(counts: Iterable[str]) -> list[str]:
    return [COUNTS[name] for name in counts]


def _soak(row: Row) -> list[str]:
    sentence = row["test"].removeprefix("test_").replace("_", " ")
    link = f"[{sentence}](../{row['file']})"
    counted = [_number(row["counts"].get(name)) for name in _OF_A_SOAK]
    return [link, row["store"] or "–", str(row["runs"]), *counted, str(row["violations"])]


def _failover(row: Row) -> list[str]:
    counted = [_number(row["counts"].get(name)) for name in _OF_A_FAILOVER]
    return [row["failover"], row["expected"], *counted, str(row["violations"])]


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", " ")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_SHORT = """
This was the short soak: shorter storms, and of the races and machines none. What the whole one adds is in the
tests with the mark `slow`.
"""

_PAGE = """# Evidence

What happened when Semel was attacked for as long as this machine was free, with other chances each time.
`make soak` writes this page and the [figures](evidence.json) that it is made of; nobody edits it by hand.

{verdict}

Altogether: {totals}.
{untried}{short}
## Storms and races

Processes, threads and tasks call the same keys, while they and the way to their store are attacked. Effects
are counted outside of Semel. An operation is one call that was answered, or one command to a store. A
violation is a test that did not hold, for whatever reason.

{soaks}

- **kills**: `kill -9` of a caller or of a server. Callers that kill themselves in the middle of an effect,
  which one in fifty does, are not counted.
- **freezes**: SIGSTOP, for a moment or past the lease, in which others go on.
- **partitions**: the way to the store loses requests, replies or both, or lets nobody in; then it works
  again. SQLite has no such way.
- **clock steps**: a caller's clock is set wrong by up to 5 s, many leases, forwards or back. Redis and
  PostgreSQL judge by their own clocks, SQLite by the callers'.

## Failovers

What each may lose is said first, in the tests themselves, and then counted. "Followed" means that the
replica was connected when the primary was killed under load; "was behind" that it was cut off before the
last calls. *Acknowledged*: calls that were answered with their result, before or after the failover. *Lost*:
of these, what the new primary does not know. *Twice*: effects that landed again when a new process repeated
every call; also those of calls that had been claimed, and whose result was not yet acknowledged. *Noticed*:
failovers after which the process that had seen the lost writes refused with `STORE_CORRUPT` and ran nothing.

{failovers}

[Guarantees](concepts/guarantees.md#what-cannot-be-promised) says what follows from this,
[PostgreSQL](operate/stores-postgres.md#failover) and [Redis](operate/stores-redis.md) how to lose less.

## Run it

<!-- not run: takes hours -->
```sh
make soak             # everything that is marked slow; some hours, and writes this page
make soak SHORT=yes   # storms of 40 s and the failovers; a quarter of an hour, and writes this page
```

`SEMEL_STORM_S` says how long each storm takes; a storm that fails names its `SEMEL_STORM_SEED`. With
`ARGS=` only some tests run, and the page stays as it is.
"""


def main() -> int:
    publish(json.loads(JSON.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
