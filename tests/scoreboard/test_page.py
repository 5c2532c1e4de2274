"""The page is what the results give, and says what it is made of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from scoreboard import page
from scoreboard.beside import beside, same
from scoreboard.cells import TRIALS, Cell, Colour, measured
from scoreboard.libraries import ADAPTERS, libraries
from scoreboard.picture import drawn
from scoreboard.results import Results, RowResult, load_results, save_results
from scoreboard.trials import figures

LINES_MAX = 40


def results() -> Results:
    def row(library: str, store: str, colour: Colour) -> RowResult:
        cells = {each.name: Cell(colour, f"{colour} & more", {"effects": 1}) for each in TRIALS}
        return RowResult(library, "1.0", store, "semel.py", dict.fromkeys(cells, "there"), cells)

    return Results(
        "2026-01-01", "a machine", [row("semel", "redis", Colour.KEPT), row("other", "redis", Colour.BROKEN)]
    )


@pytest.mark.parametrize("file", sorted(ADAPTERS.glob("*.py")), ids=lambda file: file.stem)
def test_an_adapter_has_forty_lines_at_most(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES_MAX


def test_every_adapter_pins_versions_and_names_no_place_to_install_from() -> None:
    pins = [each for library in libraries() for each in library.install if not each.startswith(".")]
    assert pins
    assert [pin for pin in pins if pin.count("==") != 1 or ":" in pin or " " in pin] == []


def test_promises_name_trials_that_there_are() -> None:
    known = {each.name for each in TRIALS}
    for library in libraries():
        named = {name for trials in library.promises.values() for name in trials}
        assert named, library.name
        assert named - known == set(), library.name


def test_every_trial_says_what_it_does_and_what_it_looks_for() -> None:
    assert len({each.anchor for each in TRIALS}) == len({each.name for each in TRIALS}) == len(TRIALS)
    assert [each.name for each in TRIALS if len(each.text) < 60] == []


def test_the_page_of_the_repository_is_what_its_results_give() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.rendered(load_results())
    assert page.PICTURE.read_text(encoding="utf-8") == drawn(load_results())


def test_every_cell_of_ours_is_green_or_explained() -> None:
    for row in load_results().rows:
        for name, cell in row.cells.items():
            if row.library == "semel" and cell.colour not in (Colour.KEPT, Colour.MEASURED):
                assert (row.library, name) in page.EXPLAINED, (row.store, name, cell)


def test_every_row_of_the_repository_has_every_cell() -> None:
    wanted = {(library.name, store) for library in libraries() for store in library.stores}
    rows = {row.name: row for row in load_results().rows}
    assert set(rows) == wanted
    shown = set[str]().union(*(row.cells for row in rows.values()))
    # Figures are taken by a run of their own, when the machine is quiet; verdicts are always there.
    assert {each.name for each in TRIALS if each.group != "Figures"} <= shown
    assert {name for row in rows.values() for name in shown - set(row.cells)} == set()


def test_results_are_read_back_as_they_were(tmp_path: Path) -> None:
    save_results(results(), tmp_path / "results.json")
    read = load_results(tmp_path / "results.json")
    assert page.rendered(read) == page.rendered(results())
    assert drawn(read) == drawn(results())


@pytest.mark.parametrize(
    ("ratio", "said"), [(0.0041, "0.0041"), (0.77, "0.77"), (1.04, "1.0"), (12.34, "12.3")]
)
def test_a_ratio_is_never_nothing(ratio: float, said: str) -> None:
    assert figures.times(ratio) == said


def test_what_is_tried_anew_takes_the_place_of_what_was_there() -> None:
    old = results()
    name = TRIALS[0].name
    anew = RowResult(
        "other", "1.1", "redis", "semel.py", {name: None}, {name: Cell(Colour.KEPT, "now it is", {})}
    )
    merged = old.updated(Results("2026-01-02", "another", [anew]), f"{name} of other")
    assert [row.library for row in merged.rows] == ["semel", "other"]
    assert merged.rows[1].cells[name].seen == "now it is"
    assert merged.rows[1].cells[TRIALS[1].name] == old.rows[1].cells[TRIALS[1].name]


def test_what_was_tried_at_another_time_or_elsewhere_does_not_date_the_rest(tmp_path: Path) -> None:
    old = results()
    merged = old.updated(Results("2026-01-02", "another", []), "async of other")
    merged = merged.updated(Results("2026-01-03", "a third", []), "async of other")
    merged = merged.updated(Results(old.date, old.machine, []), "exiting of other")
    save_results(merged, tmp_path / "results.json")
    said = page.rendered(load_results(tmp_path / "results.json"))
    assert "Tried on 2026-01-01: a machine. On 2026-01-03: async of other; a third.\n" in said


@pytest.mark.parametrize(
    ("was", "seen", "equal"),
    [
        (Cell(Colour.KEPT, "2 told", {}), Cell(Colour.KEPT, "5 told", {}), True),
        (Cell(Colour.KEPT, "2 told", {}), Cell(Colour.WEAK, "2 told", {}), False),
        (measured("a", ratio=1.0), measured("a", ratio=1.25), True),
        (measured("a", ratio=1.26), measured("a", ratio=1.0), False),
        (measured("a", ratio=1.0), measured("a", ratio=1.0, other=1.0), False),
        (measured("a", bytes=100), measured("a", bytes=121), False),
        (measured("a", fsyncs=200, calls=100), measured("a", fsyncs=210, calls=100), True),
        (measured("a", fsyncs=0, calls=100), measured("a", fsyncs=11, calls=100), False),
        (
            measured("a", records=1, **{"sync-call-us": 10}),
            measured("a", records=9, **{"sync-call-us": 90}),
            True,
        ),
    ],
)
def test_two_runs_are_the_same_within_what_the_page_says(was: Cell, seen: Cell, equal: bool) -> None:
    assert same(was, seen) is equal


@pytest.mark.parametrize(("store", "apart"), [("sqlite", 0), ("redis", 1)])
def test_many_callers_on_one_disk_may_be_further_apart(store: str, apart: int) -> None:
    def run_of(ratio: float) -> Results:
        cells = {"cost-of-many": measured("a", ratio=ratio)}
        return Results("2026-01-01", "", [RowResult("semel", "1.0", store, "semel.py", {}, cells)])

    assert list(beside(run_of(1.0), run_of(1.45)))[-1].startswith(f"beside 2026-01-01: 1 cells, {apart} ")


def test_a_run_says_what_the_run_before_saw_otherwise() -> None:
    now, name = results(), TRIALS[0].name
    assert list(beside(Results("", "", []), now)) == []
    cells = {**now.rows[0].cells, name: Cell(Colour.BROKEN, "2 effects", {})}
    before = replace(now, rows=[replace(now.rows[0], cells=cells), *now.rows[1:]])
    line, count = beside(before, now)
    assert (
        line == f"semel · redis: {name}: 2 effects (broken) before, {now.rows[0].cells[name].seen} (kept) now"
    )
    assert count.endswith(" cells, 1 further apart than the page says")


def test_each_cell_links_to_the_text_of_its_trial() -> None:
    text = page.rendered(results())
    headings = {
        line.lstrip("# ").lower().replace(" ", "-").replace(",", "")
        for line in text.splitlines()
        if line[:1] == "#"
    }
    linked = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert {each.anchor for each in TRIALS} <= linked
    assert linked <= headings


def test_the_picture_has_a_square_for_each_judged_cell() -> None:
    judged = [each for each in TRIALS if not each.alone]
    picture = drawn(results())
    assert picture.count('<rect class="kept"') == len(judged) + 1  # and one in the legend
    assert picture.count('<rect class="broken"') == len(judged) + 1
    assert "kept &amp; more" in picture
