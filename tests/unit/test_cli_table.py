"""Tables fit the screen, and lose nothing by it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from semel.cli.table import table_lines

ID = "rec_0123456789abcdef0123456789abcdef"


def drawn(columns: list[str], rows: list[list[str]], width: int = 80) -> list[str]:
    lines = table_lines(
        [Text(name) for name in columns], [[Text(cell) for cell in row] for row in rows], width
    )
    return [line.plain for line in lines]


def test_what_fits_is_one_line_a_row() -> None:
    assert drawn(["RUN", "STATUS", "AGE"], [["run_1", "running", "3m"], ["run_22", "failed", "1h"]]) == [
        "RUN     STATUS   AGE",
        "run_1   running  3m",
        "run_22  failed   1h",
    ]


def test_a_record_fits_80_columns_with_its_conversation_below_it() -> None:
    columns = ["ID", "STATE", "ATTEMPTS", "AGE", "TOOL", "STEP"]
    rows = [[ID, "IN DOUBT", "1", "3m", "issue_refund", "conv-42 / refund-1"]]
    assert drawn(columns, rows) == [
        f"ID{'':36}STATE     ATTEMPTS  AGE  TOOL",
        f"{ID}  IN DOUBT  1         3m   issue_refund",
        "  step: conv-42 / refund-1",
    ]


def test_a_long_sentence_is_folded_within_its_column() -> None:
    lines = drawn(["", "WHAT", "FOUND"], [["ok", "durability", "every word of this sentence " * 5]])
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines[1:]).split()).count("every word of this sentence") == 5


def test_columns_without_an_entry_are_left_out() -> None:
    assert drawn(["ID", "NOTE", "AGE"], [["a", "", "1s"], ["b", "", "2s"]]) == ["ID  AGE", "a   1s", "b   2s"]


@pytest.mark.parametrize("width", [40, 80, 120])
@settings(max_examples=60)
@given(st.lists(st.lists(st.text("ab cü漢", max_size=90), min_size=4, max_size=4), min_size=1, max_size=4))
def test_no_line_is_wider_than_the_screen_and_no_character_is_lost(width: int, rows: list[list[str]]) -> None:
    rows = [[ID[:20], *row] for row in rows]
    lines = drawn(["ID", "B", "C", "D", "E"], rows, width)
    assert all(Text(line).cell_len <= width for line in lines)
    for letter in "aücb漢":
        written = sum(cell.count(letter) for row in rows for cell in row[1:])
        ids = sum(row[0].count(letter) for row in rows)
        labels = sum(line.startswith(f"  {letter}: ") for line in lines)
        assert sum(line.count(letter) for line in lines) == written + ids + labels
