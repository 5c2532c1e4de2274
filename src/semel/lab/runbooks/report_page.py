"""What a runbook leaves in the folder of its `--report`: one page, its pictures beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from semel.lab.runbooks.runbook import Runbook

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}
th,td{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th{font-size:.75rem}
td:first-child,th:first-child,td:nth-child(2){text-align:left}
img{max-width:100%}
"""


def write_checks(folder: Path, name: str, summary: str, book: Runbook) -> Path:
    """`NAME.html`: each check, whether it held, and what was seen."""
    rows = [("ok" if check.ok else "FAILED", check.name, check.seen) for check in book.checks]
    held = sum(check.ok for check in book.checks)
    body = f"<p>{html.escape(summary)}</p><p>{held} of {len(rows)} checks hold.</p>"
    return write_page(folder, name, name, body + table(("", "check", "seen"), rows))


def write_page(folder: Path, name: str, title: str, body: str) -> Path:
    """`NAME.html` in the folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}.html"
    page.write_text(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Semel: {name}</title>"
        f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>{body}</html>",
        encoding="utf-8",
    )
    return page


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>" for cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
