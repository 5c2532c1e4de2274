"""What the contention runbook saw: a table, conclusions in words, plots, and one page that has all of it."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semel.errors import OpenError
from semel.lab.runbooks.contention import HOLD_S, LIMIT, Trial, best, recommendation
from semel.lab.runbooks.contention_callers import FIXED_S
from semel.lab.runbooks.report_page import table, write_page

COLUMNS = (
    "STRATEGY", "CLIENT", "CALLERS", "ADMITTED", "429", "503", "REQUEST P50 ms", "P95 ms",
    "ADMITTED AFTER P50 ms", "P95 ms", "LOOKS AT THE LOCK", "PEAK IN 10 ms", "LONGEST / MEAN GAP",
)  # fmt: skip

SWEEP_COLUMNS = ("LOCK WAIT", "CLIENT BUDGET s", "CALLERS", "ADMITTED", "429", "503", "REQUEST P95 ms")

_SLICE_S = 0.01

_COLOURS = {"atomic": "#1b7837", "lock jitter": "#2166ac", "lock fixed": "#b2182b"}
_OWN_COLOUR = "#444444"
# What the callers of a row do, for somebody who has not read how the runbook calls it.
_CALLERS_DO = {
    "none": "one try",
    "fixed": f"back after {1000 * FIXED_S:.0f} ms",
    "jitter": "back with jitter",
}
_ANSWERS = ((200, "admitted", "#1b7837"), (429, "429, no slot", "#f1a340"), (503, "503, no lock", "#b2182b"))


@dataclass(frozen=True)
class ContentionFindings:
    """All that was tried."""

    trials: Sequence[Trial]
    sweep: Sequence[Trial]
    left_out: Sequence[str] = ()

    def one(self, strategy: str, client: str, callers: int) -> Trial | None:
        wanted = (strategy, client, callers)
        return next((each for each in self.trials if each.variant[:3] == wanted), None)

    @property
    def counts(self) -> list[int]:
        return sorted({each.variant.callers for each in self.trials})

    def data(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "rows": [data(each) for each in self.trials],
            "sweep": [_sweep_data(each) for each in self.sweep],
            "conclusions": conclusions(self),
            "recommendation": recommendation(self.trials, self.sweep),
            "left_out": list(self.left_out),
        }


def data(trial: Trial) -> dict[str, Any]:
    variant = trial.variant
    return {
        "strategy": variant.strategy,
        "client": variant.client,
        "callers": variant.callers,
        "admitted": trial.admitted,
        "refused_429": trial.count(429),
        "refused_503": trial.count(503),
        "p50_ms": round(trial.latency_ms(0.5), 1),
        "p95_ms": round(trial.latency_ms(0.95), 1),
        "admitted_after_p50_ms": round(trial.admitted_after_ms(0.5), 1),
        "admitted_after_p95_ms": round(trial.admitted_after_ms(0.95), 1),
        "requests": len(trial.results.requests),
        "took_s": round(trial.results.took_s, 2),
        "lock_looks": len(trial.looks),
        "lock_looks_peak_10ms": trial.peak(),
        "longest_to_mean_gap": round(trial.spread(), 1),
    }


def _sweep_data(trial: Trial) -> dict[str, Any]:
    return {"lock_wait": trial.variant.lock_wait, "budget_s": trial.variant.budget_s} | data(trial)


def row(trial: Trial) -> tuple[str, ...]:
    names = (
        "strategy", "client", "callers", "admitted", "refused_429", "refused_503", "p50_ms", "p95_ms",
        "admitted_after_p50_ms", "admitted_after_p95_ms", "lock_looks", "lock_looks_peak_10ms",
        "longest_to_mean_gap",
    )  # fmt: skip
    values = data(trial)
    return tuple(_short(values[name]) for name in names)


def sweep_row(trial: Trial) -> tuple[str, ...]:
    names = ("lock_wait", "budget_s", "callers", "admitted", "refused_429", "refused_503", "p95_ms")
    values = _sweep_data(trial)
    return tuple(_short(values[name]) for name in names)


def _short(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value >= 10 else str(value)


# --- in words ---------------------------------------------------------------------------------------


def conclusions(seen: ContentionFindings) -> list[str]:
    """What changed what, in one sentence each."""
    return [
        sentence
        for callers in seen.counts
        for say in (_atomic_at_once, _atomic_changed, _lock_jitter_changed, _client_jitter_changed)
        if (sentence := say(seen, callers))
    ]


def _atomic_at_once(seen: ContentionFindings, callers: int) -> str:
    atomic, lock = seen.one("atomic", "none", callers), seen.one("lock jitter", "none", callers)
    if atomic is None or lock is None:
        return ""
    return (
        f"{callers} callers, one try each: atomic admission answered 95 % of them within "
        f"{atomic.latency_ms(0.95):.0f} ms, and all whom it refused were told that no slot is free; behind "
        f"the lock it took {lock.latency_ms(0.95):.0f} ms, and {lock.count(503)} were refused for want of it."
    )


def _atomic_changed(seen: ContentionFindings, callers: int) -> str:
    atomic, lock = seen.one("atomic", "jitter", callers), seen.one("lock jitter", "jitter", callers)
    if atomic is None or lock is None:
        return ""
    return (
        f"{callers} callers that come back with jitter: atomic admission let {_of(atomic)} through, the lock "
        f"{_of(lock)}, for which the store was asked for the lock {len(lock.looks)} times."
    )


def _lock_jitter_changed(seen: ContentionFindings, callers: int) -> str:
    bursts, coming_back = _by_looks(seen, "none", callers), _by_looks(seen, "jitter", callers)
    if bursts is None or coming_back is None:
        return ""
    return (
        f"{callers} callers, jitter in the looks at the lock: where each tries once, at most "
        f"{bursts[0].peak()} looks in 10 ms instead of {bursts[1].peak()}; of those that come back, "
        f"{_of(coming_back[0])} admitted instead of {_of(coming_back[1])}."
    )


def _by_looks(seen: ContentionFindings, client: str, callers: int) -> tuple[Trial, Trial] | None:
    """The same callers behind the lock, with jittered looks and with fixed ones."""
    jitter, fixed = seen.one("lock jitter", client, callers), seen.one("lock fixed", client, callers)
    return None if jitter is None or fixed is None else (jitter, fixed)


def _client_jitter_changed(seen: ContentionFindings, callers: int) -> str:
    strategy = "atomic" if seen.one("atomic", "jitter", callers) else seen.trials[0].variant.strategy
    jitter, fixed = seen.one(strategy, "jitter", callers), seen.one(strategy, "fixed", callers)
    if jitter is None or fixed is None:
        return ""
    return (
        f"{callers} callers, jitter in the clients ({strategy}): {len(jitter.results.requests)} requests for "
        f"{jitter.admitted} admitted, where clients with a fixed delay sent "
        f"{len(fixed.results.requests)} for {fixed.admitted}."
    )


def _of(trial: Trial) -> str:
    return f"{trial.admitted} of {trial.variant.callers}"


# --- the page ---------------------------------------------------------------------------------------


def write(folder: Path, seen: ContentionFindings) -> Path:
    """The page, with its plots beside it."""
    pyplot = _pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    drawings: dict[str, tuple[str, Callable[[Any, ContentionFindings], Any]]] = {
        "answers.png": (_answers_title(seen), _plot_answers),
        "latency.png": (_latency_title(seen), _plot_latency),
        "admitted.png": (_admitted_title(seen), _plot_admitted),
    }
    if any(each.looks for each in seen.trials):
        drawings["lock.png"] = (_looks_title(seen), _plot_looks)
    if seen.sweep:
        drawings["sweep.png"] = (_sweep_title(seen), _plot_sweep)
    for name, (title, draw) in drawings.items():
        figure = draw(pyplot, seen)
        figure.suptitle(title, fontsize=12)
        figure.tight_layout()
        figure.savefig(folder / name, dpi=110)
        pyplot.close(figure)
    titles = {name: title for name, (title, _) in drawings.items()}
    return write_page(folder, "contention", f"{LIMIT} slots, many callers", _body(seen, titles))


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


def _grid(pyplot: Any, rows: int, columns: int, height: float, **shared: Any) -> tuple[Any, Any]:
    figure, axes = pyplot.subplots(rows, columns, figsize=(11, height), squeeze=False, **shared)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    return figure, axes


def _colour(trial: Trial) -> str:
    return _COLOURS.get(trial.variant.strategy, _OWN_COLOUR)


def _label(trial: Trial) -> str:
    return f"{trial.variant.strategy}; {_CALLERS_DO[trial.variant.client]}"


def _answers_title(seen: ContentionFindings) -> str:
    callers = seen.counts[-1]
    lock = seen.one("lock jitter", "jitter", callers)
    if lock is None:
        return "How requests were answered"
    share = lock.count(503) / max(1, len(lock.results.requests))
    return f"At {callers} callers the lock turned away {share:.0%} of requests unheard; atomic admission none"


def _plot_answers(pyplot: Any, seen: ContentionFindings) -> Any:
    """For each row, which share of its requests was answered how."""
    figure, axes = _grid(pyplot, 1, len(seen.counts), 4.6)
    for panel, callers in zip(axes[0], seen.counts, strict=True):
        trials = [each for each in reversed(seen.trials) if each.variant.callers == callers]
        left = [0.0] * len(trials)
        for status, name, colour in _ANSWERS:
            shares = [100 * each.count(status) / max(1, len(each.results.requests)) for each in trials]
            panel.barh([_label(each) for each in trials], shares, left=left, color=colour, label=name)
            left = [before + share for before, share in zip(left, shares, strict=True)]
        panel.set_title(f"{callers} callers", fontsize=10)
        panel.set_xlabel("% of requests", fontsize=9)
    axes[0][0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=3, frameon=False)
    for panel in axes[0][1:]:
        panel.set_yticklabels([])
    return figure


def _latency_title(seen: ContentionFindings) -> str:
    callers = seen.counts[0]
    atomic, lock = seen.one("atomic", "none", callers), seen.one("lock jitter", "none", callers)
    if atomic is None or lock is None:
        return "How long a request takes"
    mine, others = atomic.latency_ms(0.5), lock.latency_ms(0.5)
    return (
        f"{callers} callers, one try each: atomic admission answered half of them in {mine:.0f} ms, "
        f"the lock in {others:.0f} ms"
    )


def _plot_latency(pyplot: Any, seen: ContentionFindings) -> Any:
    """For each row, from the median to the 95th of 100 requests."""
    figure, axes = _grid(pyplot, 1, len(seen.counts), 4.2, sharex=True)
    for panel, callers in zip(axes[0], seen.counts, strict=True):
        trials = [each for each in reversed(seen.trials) if each.variant.callers == callers]
        for place, trial in enumerate(trials):
            half, most = trial.latency_ms(0.5), trial.latency_ms(0.95)
            panel.plot([half, most], [place, place], color=_colour(trial), linewidth=3, alpha=0.5)
            panel.plot([half], [place], "o", color=_colour(trial))
            panel.plot([most], [place], "|", color=_colour(trial), markersize=12, markeredgewidth=2)
        panel.set_yticks(range(len(trials)), [_label(each) for each in trials])
        panel.set_xscale("log")
        panel.xaxis.set_major_locator(pyplot.matplotlib.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(pyplot.NullFormatter())
        panel.set_title(f"{callers} callers", fontsize=10)
        panel.set_xlabel("ms until the answer: dot half of them, bar 95 % (log)", fontsize=9)
        panel.grid(axis="x", alpha=0.3)
    for panel in axes[0][1:]:
        panel.set_yticklabels([])
    return figure


def _admitted_title(seen: ContentionFindings) -> str:
    callers = seen.counts[-1]
    atomic, lock = seen.one("atomic", "jitter", callers), seen.one("lock jitter", "jitter", callers)
    if atomic is None or lock is None:
        return "When callers are admitted"
    return (
        f"{callers} callers that come back with jitter: atomic admission let {atomic.admitted} through, "
        f"the lock {lock.admitted}"
    )


def _plot_admitted(pyplot: Any, seen: ContentionFindings) -> Any:
    """How many had been admitted when, of callers that come back."""
    figure, axes = _grid(pyplot, 1, len(seen.counts), 4.4)
    for panel, callers in zip(axes[0], seen.counts, strict=True):
        for trial in seen.trials:
            if trial.variant.callers == callers and trial.variant.client != "none":
                times = [0.0, *sorted(at for at, _ in trial.results.admitted)]
                style = "-" if trial.variant.client == "jitter" else ":"
                counts = range(len(times))
                panel.step(times, counts, style, where="post", color=_colour(trial), label=_label(trial))
        panel.set_title(f"{callers} callers", fontsize=10)
        panel.set_xlabel("s since the callers began", fontsize=9)
        panel.set_ylabel("callers admitted", fontsize=9)
        panel.grid(alpha=0.3)
    axes[0][0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False)
    return figure


def _looks_title(seen: ContentionFindings) -> str:
    callers = seen.counts[-1]
    bursts = _by_looks(seen, "none", callers)
    if bursts is None:
        return "Requests for the lock"
    return (
        f"{callers} callers, one try each: up to {bursts[0].peak()} requests for the lock in 10 ms "
        f"with jitter, {bursts[1].peak()} without"
    )


def _plot_looks(pyplot: Any, seen: ContentionFindings) -> Any:
    """The whole of each burst, to one scale for each number of callers."""
    locked = [each for each in seen.trials if each.looks]
    kinds = list(dict.fromkeys((each.variant.strategy, each.variant.client) for each in locked))
    figure, axes = _grid(
        pyplot, len(kinds), len(seen.counts), 1.35 * len(kinds) + 1.2, sharey="col", sharex=True
    )
    for across, callers in enumerate(seen.counts):
        for down, (strategy, client) in enumerate(kinds):
            panel, trial = axes[down][across], seen.one(strategy, client, callers)
            if trial is None:
                continue
            times, counts = _looks_by_slice(trial)
            panel.fill_between(times, counts, step="post", color=_colour(trial), linewidth=0)
            title = f"{callers} callers, {_label(trial)}: {len(trial.looks)} requests for the lock"
            panel.set_title(title, fontsize=8)
            panel.set_ylabel("in 10 ms", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("s since the callers began", fontsize=9)
    return figure


def _looks_by_slice(trial: Trial) -> tuple[list[float], list[int]]:
    counts = [0] * (int(trial.results.took_s / _SLICE_S) + 1)
    for at in trial.looks:
        counts[int(at / _SLICE_S)] += 1
    return [slot * _SLICE_S for slot in range(len(counts))], counts


def _sweep_title(seen: ContentionFindings) -> str:
    callers, chosen = seen.sweep[0].variant.callers, best(seen.sweep)
    assert chosen is not None
    return (
        f"{callers} callers behind the lock: best with --lock-wait {chosen.variant.lock_wait}, where callers "
        f"come back for {chosen.variant.budget_s:g} s"
    )


def _plot_sweep(pyplot: Any, seen: ContentionFindings) -> Any:
    waits = list(dict.fromkeys(each.variant.lock_wait for each in seen.sweep))
    budgets = sorted({each.variant.budget_s for each in seen.sweep})
    figure, axes = _grid(pyplot, 1, 2, 3.8)
    for number, budget_s in enumerate(budgets):
        chosen = [each for each in seen.sweep if each.variant.budget_s == budget_s]
        places = [waits.index(each.variant.lock_wait) + 0.35 * number for each in chosen]
        name = f"callers come back for {budget_s:g} s"
        axes[0][0].bar(places, [each.admitted for each in chosen], width=0.3, label=name)
        for place, each in zip(places, chosen, strict=True):
            axes[0][0].annotate(
                str(each.admitted), (place, each.admitted), ha="center", va="bottom", fontsize=8
            )
        late = [each.latency_ms(0.95) / 1000 for each in chosen]
        axes[0][1].bar(places, late, width=0.3, label=name)
    for panel, up in zip(axes[0], ("callers admitted", "s until 95 % of requests are answered"), strict=True):
        middle = [place + 0.175 * (len(budgets) - 1) for place in range(len(waits))]
        panel.set_xticks(middle, waits)
        panel.set_xlabel("--lock-wait", fontsize=9)
        panel.set_ylabel(up, fontsize=9)
    axes[0][0].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
    return figure


_SETTING = (
    f"A tenant may have {LIMIT} runs at once, and many callers want one. A gateway has to count the runs and "
    "start the next one without a second caller in between. The usual way is a lock for the tenant: whoever "
    "does not get it looks again, every 10 ms (fixed) or 10 ms on average (jitter), for as long as "
    "--lock-wait says, and is then refused with 503. Atomic admission is one step of the store, without a "
    "lock: a caller is admitted, or told 429 because no slot is free."
)

_LEGEND = (
    "P50 and P95: half of them, and 95 of 100, took no longer. Admitted after: from a caller's first try on. "
    f"Peak: the most looks at the lock in {1000 * _SLICE_S:.0f} ms. Gap: the longest time between two "
    "callers that were admitted, against the mean one; 1 is even."
)


def _course(seen: ContentionFindings) -> str:
    budgets = " or ".join(f"{each:g}" for each in sorted({each.variant.budget_s for each in seen.trials}))
    return (
        "Callers first try once, and no run ends: two are admitted, and what is seen is how the others are "
        f"answered. Then runs end after {1000 * HOLD_S:.0f} ms, and callers come back with the same key "
        f"until they are admitted or their budget of {budgets} s is spent: after a fixed "
        f"{1000 * FIXED_S:.0f} ms; or with exponential full jitter, and not before the answer's "
        "`Retry-After`. Those who come back are equally patient at every gateway: behind the lock they wait "
        "for the lock, with atomic admission for a slot (`Prefer: wait`), for as long. Gateway and callers "
        "are processes of their own."
    )


def _body(seen: ContentionFindings, plots: dict[str, str]) -> str:
    sentences = "".join(f"<li>{html.escape(each)}</li>" for each in conclusions(seen))
    story = "".join(f"<p>{html.escape(each)}</p>" for each in (_SETTING, _course(seen)))
    pictures = "".join(
        f'<h2>{html.escape(title)}</h2><img src="{name}" alt="{html.escape(title)}">'
        for name, title in plots.items()
    )
    left_out = "".join(f"<li>{html.escape(each)}</li>" for each in seen.left_out)
    return (
        f"{story}<h2>What was seen</h2><ul>{sentences}</ul>"
        f"<h2>Recommendation</h2><p>{html.escape(recommendation(seen.trials, seen.sweep))}</p>{pictures}"
        f"<h2>All figures</h2><p>{html.escape(_LEGEND)}</p>"
        f"{table(COLUMNS, [row(each) for each in seen.trials])}"
        + (
            f"<h2>Waits</h2>{table(SWEEP_COLUMNS, [sweep_row(each) for each in seen.sweep])}"
            if seen.sweep
            else ""
        )
        + (f"<h2>Left out for want of time</h2><ul>{left_out}</ul>" if left_out else "")
    )
