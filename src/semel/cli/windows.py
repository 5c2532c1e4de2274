"""`semel windows`: how late retries come, which window covers them, and what it would store."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import click
from rich.text import Text

from semel.cli.operations import Data
from semel.cli.output import Cell
from semel.cli.target import Target, lists_tenants, looks_at_store
from semel.kernel.durations import microseconds
from semel.windows.age_counters import ENTITY, KEY

# Where the columns of the small picture end: each of them is a bound that ages are counted by.
_COLUMNS = ("1s", "10s", "1m", "10m", "1h", "6h", "24h", "3d", "7d", "30d")
_COLUMNS_US = tuple(microseconds(text) for text in _COLUMNS)

_BARS = "·▁▂▃▄▅▆▇█"
_BAR_CHARACTERS = 40

_SIZES = (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000))

_TABLE = ("TOOL", "RETRIES", "AGES", "99.9 % WITHIN", "WINDOW", "KEEPS", "WOULD KEEP")


@click.command()
@click.option("--tool", metavar="NAME", help="Only this one, with all ages.")
@looks_at_store
@lists_tenants
def windows(target: Target, tool: str | None) -> None:
    """Retry ages seen per tool, the window that covers 99.9 % of them, and what it stores."""
    with target.out.progress("Reading ages and records"), target.lists() as lists:
        items = lists.windows(tool)
    if target.out.as_json:
        target.out.data({"items": items})
    elif not items:
        of = f" of {tool}" if tool else ""
        target.out.say(f"No retries{of} were seen{target.in_tenant}: there is nothing to choose by yet.")
    else:
        _tell(target, items, whole=tool is not None)


# --- for people -----------------------------------------------------------------------------------


def _tell(target: Target, items: Sequence[Data], *, whole: bool) -> None:
    target.table(items, _TABLE, _row)
    target.out.say()
    target.out.say(
        f"Ages, from left to right: under {', '.join(_COLUMNS)}, and more. Keeps: about, at the present rate."
    )
    if any(advice["kind"] == KEY for advice in items):
        target.out.say("Keys of clients are those of the gateway; their retries are sampled.")
    for advice in items:
        remarks = advice["remarks"]
        if whole or remarks:
            target.out.say()
            of = f", tenant {advice['tenant']}" if target.all_tenants else ""
            target.out.say(f"{_named(advice)}{of}", "bold red" if advice["too_short"] else "bold")
        if whole:
            target.out.table(("UNDER", "RETRIES", ""), _histogram(advice["ages"]))
        for remark in remarks:
            target.out.say(f"  {remark}")


def _row(advice: Data) -> Sequence[Cell]:
    return (
        _named(advice),
        f"{advice['retries']:,}",
        _picture(advice["ages"]),
        advice["covering"],
        Text(_window(advice), "bold red" if advice["too_short"] else ""),
        _stored(advice["window_keeps"]),
        _stored(advice["covering_keeps"]),
    )


def _named(advice: Data) -> str:
    of = {KEY: " (keys of clients)", ENTITY: " (windows of entities)"}
    return f"{advice['tool']}{of.get(advice['kind'], '')}"


def _window(advice: Data) -> str:
    return (advice["window"] or "unknown") + (" TOO SHORT" if advice["too_short"] else "")


def _stored(keeps: Data | None) -> str:
    return "-" if keeps is None else f"{keeps['records']:,} records, {_bytes(keeps['bytes'])}"


def _bytes(count: int) -> str:
    unit, size = next(((unit, size) for unit, size in _SIZES if count >= size), ("B", 1))
    return f"{count / size:.{0 if count >= 10 * size else 1}f} {unit}"


def _picture(ages: Sequence[Data]) -> str:
    """One character per column: the tallest is the most, and what is not nothing is visible."""
    columns = [0] * (len(_COLUMNS_US) + 1)
    for age in ages:
        columns[bisect_left(_COLUMNS_US, microseconds(age["under"]))] += age["retries"]
    tallest = max(columns)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // tallest)] for count in columns)


def _histogram(ages: Sequence[Data]) -> list[tuple[str, str, str]]:
    most = max(age["retries"] for age in ages)
    return [
        (age["under"], f"{age['retries']:,}", "█" * -(-age["retries"] * _BAR_CHARACTERS // most))
        for age in ages
    ]
