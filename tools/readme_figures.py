"""The page of figures, which `make bench` makes, and the README's rows of it.

python -m tools.readme_figures   brings the README in step with the page
"""

from __future__ import annotations

import re
import sys

from tools.pages import ROOT

README = ROOT / "README.md"
FIGURES = ROOT / "docs" / "figures.md"
PICTURE = ROOT / "docs" / "figures.svg"

_TABLES = re.compile(r"(?<=<!-- figures -->\n).*(?=<!-- /figures -->)", re.DOTALL)
# work | goal | here | reached or missed
_ROW = re.compile(r"^\| (?P<work>[^|]+?) \| [≤≥–][^|]*\|[^|]*\|[^|]*\|$", re.MULTILINE)


def rows(text: str) -> dict[str, str]:
    """The rows of figures in a text, by their work."""
    return {row["work"]: row[0] for row in _ROW.finditer(text)}


def in_step(readme: str, figures: str) -> str:
    """The README with the figures' own rows; KeyError for one that the page does not have."""
    measured = rows(figures)
    return _ROW.sub(lambda row: measured[row["work"]], readme)


def with_tables(page: str, tables: str) -> str:
    """The page with these tables between its markers; what people wrote around them stays."""
    changed, places = _TABLES.subn(lambda _: f"\n{tables}\n\n", page)
    assert places == 1, "docs/figures.md has lost its markers"
    return changed


def publish(tables: str, drawing: str) -> None:
    """Page, picture and README say the same; KeyError and nothing written if the README asks for more."""
    page = with_tables(FIGURES.read_text(encoding="utf-8"), tables)
    readme = in_step(README.read_text(encoding="utf-8"), page)
    for path, text in ((FIGURES, page), (PICTURE, drawing), (README, readme)):
        path.write_text(text, encoding="utf-8")


def main() -> int:
    README.write_text(
        in_step(README.read_text(encoding="utf-8"), FIGURES.read_text(encoding="utf-8")), encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
