"""What the contention runbook saw: a table, plots, and one page that has both."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from semel.errors import OpenError
from semel.lab.runbooks.contention import Trial

COLUMNS = (
    "STRATEGY",
    "CLIENT",
    "CALLERS",
    "ADMITTED",
    "TOOK s",
    "REQUEST P50 ms",
    "P95 ms",
    "ADMITTED AFTER P50 ms",
    "P95 ms",
    "429 %",
    "503 %",
    "LOOKS AT THE LOCK",
    "PEAK IN 10 ms",
    "LONGEST / MEAN GAP",
)

# The same for a program.
KEYS = (
    "strategy",
    "client",
    "callers",
    "admitted",
    "took_s",
    "request_p50_ms",
    "request_p95_ms",
    "admitted_after_p50_ms",
    "admitted_after_p95_ms",
    "share_429_percent",
    "share_503_percent",
    "lock_looks",
    "lock_looks_peak_10ms",
    "longest_to_mean_gap",
)

# The shape of a burst is in its first second.
_SLICE_S, _SLICES = 0.01, 100


def row(outcome: Trial) -> tuple[str, ...]:
    variant = outcome.variant
    return (
        variant.strategy,
        variant.client,
        str(variant.callers),
        str(len(outcome.admitted)),
        f"{outcome.took_s:.2f}",
        f"{outcome.latency_ms(0.5):.1f}",
        f"{outcome.latency_ms(0.95):.1f}",
        f"{outcome.waited_ms(0.5):.0f}",
        f"{outcome.waited_ms(0.95):.0f}",
        f"{100 * outcome.share(429):.1f}",
        f"{100 * outcome.share(503):.1f}",
        str(len(outcome.looks)),
        str(outcome.peak(outcome.looks)),
        f"{outcome.spread():.1f}",
    )


def write(folder: Path, outcomes: Sequence[Trial]) -> Path:
    """The page, with its plots beside it."""
    pyplot = _pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    plots = {
        "lock.png": ("Requests on the lock key, per 10 ms", _plot_looks),
        "latency.png": ("How long a request takes", _plot_latency),
        "admitted.png": ("When callers are admitted", _plot_admitted),
    }
    for name, (title, draw) in plots.items():
        figure = draw(pyplot, outcomes)
        figure.suptitle(title)
        figure.tight_layout()
        figure.savefig(folder / name, dpi=110)
        pyplot.close(figure)
    page = folder / "contention.html"
    page.write_text(_page(outcomes, {name: title for name, (title, _) in plots.items()}), encoding="utf-8")
    return page


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise OpenError(
            "Plots need matplotlib; no report was written.",
            corrective_action='Install it: pip install "semel[lab]"; or leave out --report.',
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _plot_looks(pyplot: Any, outcomes: Sequence[Trial]) -> Any:
    """One small picture for each way to lock, all to one scale, so that bursts stand out."""
    locked = [outcome for outcome in outcomes if outcome.looks] or list(outcomes[:1])
    columns = len({outcome.variant.callers for outcome in locked})
    rows = -(-len(locked) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(11, 1.7 * rows + 1), sharex=True, sharey=True, squeeze=False
    )
    for number, outcome in enumerate(locked):
        panel = axes[number % rows][number // rows]
        panel.bar([1000 * _SLICE_S * slot for slot in range(_SLICES)], _looks_by_slice(outcome), width=10)
        panel.set_title(outcome.variant.name, fontsize=8)
        panel.set_ylabel("requests", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("ms since the callers began", fontsize=8)
    return figure


def _looks_by_slice(outcome: Trial) -> list[int]:
    counts = [0] * _SLICES
    for at in outcome.looks:
        if (slot := int(at / _SLICE_S)) < _SLICES:
            counts[slot] += 1
    return counts


def _plot_latency(pyplot: Any, outcomes: Sequence[Trial]) -> Any:
    def draw(panel: Any, outcome: Trial) -> None:
        took = sorted(1000 * took for _, took, _ in outcome.requests)
        panel.plot(took, _parts(len(took), len(took)), label=_label(outcome))
        panel.set_xscale("log")

    return _by_callers(pyplot, outcomes, draw, "ms", "share of requests")


def _plot_admitted(pyplot: Any, outcomes: Sequence[Trial]) -> Any:
    def draw(panel: Any, outcome: Trial) -> None:
        times = sorted(at for at, _ in outcome.admitted)
        panel.step(times, _parts(len(times), outcome.variant.callers), label=_label(outcome))

    return _by_callers(pyplot, outcomes, draw, "s since the callers began", "share of callers admitted")


def _by_callers(
    pyplot: Any, outcomes: Sequence[Trial], draw: Callable[[Any, Trial], None], across: str, up: str
) -> Any:
    """One picture for each number of callers, side by side."""
    counts = sorted({outcome.variant.callers for outcome in outcomes})
    figure, axes = pyplot.subplots(1, len(counts), figsize=(11, 4.2), squeeze=False)
    for panel, callers in zip(axes[0], counts, strict=True):
        for outcome in outcomes:
            if outcome.variant.callers == callers:
                draw(panel, outcome)
        panel.set_title(f"{callers} callers", fontsize=9)
        panel.set_xlabel(across)
        panel.set_ylabel(up)
        panel.legend(fontsize=7)
    return figure


def _parts(count: int, of: int) -> list[float]:
    return [(number + 1) / of for number in range(count)]


def _label(outcome: Trial) -> str:
    return f"{outcome.variant.strategy}, client {outcome.variant.client}"


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th{font-size:.75rem}
td:first-child,th:first-child{text-align:left}
img{max-width:100%}
"""


def _page(outcomes: Sequence[Trial], plots: dict[str, str]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row(outcome)) + "</tr>"
        for outcome in outcomes
    )
    pictures = "".join(
        f'<h2>{html.escape(title)}</h2><img src="{name}" alt="{title}">' for name, title in plots.items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Semel: contention</title>"
        f"<style>{_STYLE}</style><h1>One tenant, two slots, many callers</h1>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{pictures}</html>"
    )
