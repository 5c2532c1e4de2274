"""What the window runbook saw: two tables, and a plot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from semel.errors import OpenError
from semel.lab.runbooks.entity_traffic import PAYLOAD_BYTES_MAX, Life
from semel.lab.runbooks.window import WindowFigures

GROWTH = ("TRAFFIC", "DAY", "KEYS, MAP", "KEYS, WINDOW", "CARRIED, MAP", "CARRIED, WINDOW")
COSTS = ("LIVE KEYS", "PUSH µs", "EVICT µs PER KEY", "STATE BYTES PER KEY", "STATE BYTES")

# A year by its end; the first sample is a month.
_SHOWN_EVERY = 12


def growth_rows(seen: WindowFigures) -> Iterator[tuple[str, ...]]:
    for life in seen.lives:
        shown = [*life.samples[:-1:_SHOWN_EVERY], life.last]
        for one in shown:
            numbers = (one.map_keys, one.window_keys, one.map_bytes, one.window_bytes)
            yield life.traffic.name, str(one.day), *(f"{number:,}" for number in numbers)


def cost_rows(seen: WindowFigures) -> Iterator[tuple[str, ...]]:
    for cost in seen.costs:
        yield (
            f"{cost.keys:,}",
            f"{cost.push_us:.2f}",
            f"{cost.evict_us:.2f}",
            f"{cost.state_bytes:.0f}",
            f"{cost.state_bytes * cost.keys:,.0f}",
        )


def write(folder: Path, seen: WindowFigures) -> Path:
    """The plot, in the folder. OpenError if there is nothing to draw with."""
    pyplot = _pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4))
    for life in seen.lives:
        _plot_life(left, life)
    left.axhline(PAYLOAD_BYTES_MAX, color="grey", linestyle=":", label="one payload of Temporal")
    left.set(yscale="log", title="State carried", xlabel="days", ylabel="bytes of JSON")
    left.set_ylim(top=1e10)  # the legend is above the lines
    _plot_costs(right, seen)
    for axes in (left, right):
        axes.legend(fontsize=8, loc="upper left")
        axes.grid(alpha=0.3)
    figure.tight_layout()
    path = folder / "window.png"
    # Without the drawing program's name and version: the same figures give the same file.
    figure.savefig(path, dpi=90, metadata={"Software": None})
    pyplot.close(figure)
    return path


def _plot_life(axes: Any, life: Life) -> None:
    days = [sample.day for sample in life.samples]
    [line] = axes.plot(days, [one.window_bytes for one in life.samples], label=f"{life.traffic.name}: window")
    axes.plot(
        days,
        [one.map_bytes for one in life.samples],
        color=line.get_color(),
        linestyle="--",
        label=f"{life.traffic.name}: map that never forgets",
    )


def _plot_costs(axes: Any, seen: WindowFigures) -> None:
    keys = [cost.keys for cost in seen.costs]
    axes.plot(keys, [cost.push_us for cost in seen.costs], marker="o", label="push of a new key")
    axes.plot(keys, [cost.evict_us for cost in seen.costs], marker="s", label="evict, per key")
    axes.set(xscale="log", title="Cost", xlabel="live keys", ylabel="µs")
    axes.set_ylim(0, 2 * max(cost.push_us for cost in seen.costs))


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise OpenError(
            "The plot needs matplotlib; it was not written.",
            corrective_action='Install it: pip install "semel[lab]"; or leave out --report.',
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
