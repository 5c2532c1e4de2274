"""What a run saw otherwise than the run before it, by the bounds that the page states."""

from __future__ import annotations

from collections.abc import Iterator

from scoreboard.cells import Cell, Colour
from scoreboard.results import Results

# Two runs of the same figure are at most so many times apart on a quiet machine.
RATIOS, BYTES = 1.25, 1.2

# Of many callers whose processes sync a file: what the disk does in a moment has its say.
RATIOS_ON_DISK = 1.5

# And fsyncs per call by this much.
FSYNCS = 0.1


def beside(before: Results, now: Results) -> Iterator[str]:
    """A line for each cell that differs by more than the page allows, and one that counts them."""
    old = {(row.name, name): cell for row in before.rows for name, cell in row.cells.items()}
    new = {(row.name, name): cell for row in now.rows for name, cell in row.cells.items()}
    both = [each for each in new if each in old]
    apart = [each for each in both if not same(old[each], new[each], _ratios(*each))]
    for each in apart:
        (library, store), name = each
        yield f"{library} · {store}: {name}: {_shown(old[each])} before, {_shown(new[each])} now"
    if both:
        yield f"beside {before.date}: {len(both)} cells, {len(apart)} further apart than the page says"


def _shown(cell: Cell) -> str:
    return f"{cell.seen} ({cell.colour})"


def _ratios(row: tuple[str, str], trial: str) -> float:
    return RATIOS_ON_DISK if (row[1], trial) == ("sqlite", "cost-of-many") else RATIOS


def same(was: Cell, seen: Cell, ratios: float = RATIOS) -> bool:
    if was.colour is not seen.colour:
        return False
    if seen.colour is not Colour.MEASURED:
        return True
    if was.facts.keys() != seen.facts.keys():
        return False
    return all(_near(name, was, seen, ratios) for name in seen.facts)


def _near(name: str, was: Cell, seen: Cell, ratios: float) -> bool:
    # Microseconds are the machine's, and how many records or calls there were is no figure of a library's.
    if name in ("records", "calls") or name.endswith("-us"):
        return True
    low, high = sorted(float(each.facts[name]) for each in (was, seen))
    if name == "fsyncs":
        return high - low <= FSYNCS * float(seen.facts["calls"])
    return high <= low * (BYTES if name == "bytes" else ratios)
