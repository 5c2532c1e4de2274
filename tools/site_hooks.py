"""What MkDocs is told beyond mkdocs.yml: links out of docs/, drawings that follow light and dark, new pages.

In the repository such a link is relative and holds there (`check_docs` checks it); on the site it becomes an
address of the repository. A drawing becomes a part of its page, where it has the page's colours. A page about
a framework is in the menu as soon as it is there: nobody has to write it into mkdocs.yml.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/semel-dev/semel/blob/main/"
FRAMEWORKS = "how-to/agents"

_LINK = re.compile(r"(?P<before>\]\()(?P<target>\.\./[^)\s]+)(?P<after>\))")
_DRAWING = re.compile(r"^!\[(?P<alt>[^\]]*)\]\((?P<target>[^)]*sequences/\w+\.svg)\)$", re.MULTILINE)
_FOR_THE_RUNNER = re.compile(r"^ *<!-- (not run|first): .+? -->\n", re.MULTILINE)


def on_config(config: Any, **_: Any) -> Any:
    """The menu with every page about a framework or an engine, those that it names first."""
    pages = sorted((ROOT / "docs" / FRAMEWORKS).glob("*.md"))
    with_new_pages(config.nav, [f"{FRAMEWORKS}/{path.name}" for path in pages])
    return config


def with_new_pages(menu: list[Any], pages: list[str]) -> None:
    """Append what is missing to the part of the menu that has the folder's index."""
    for entry in menu:
        for part in entry.values() if isinstance(entry, dict) else ():
            if not isinstance(part, list):
                continue
            if f"{FRAMEWORKS}/index.md" in part:
                named = [
                    path for each in part for path in (each.values() if isinstance(each, dict) else [each])
                ]
                part.extend(path for path in pages if path not in named)
            with_new_pages(part, pages)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page's text with such links, and without notes for whoever runs it."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def outside(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["target"]))
        if path.startswith("docs/"):
            return link[0]
        return f"{link['before']}{REPOSITORY}{path}{link['after']}"

    def inside(drawing: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, drawing["target"]))
        svg = (ROOT / path).read_text(encoding="utf-8")
        return f'<div class="drawing">\n{svg}</div>'

    text = _DRAWING.sub(inside, _FOR_THE_RUNNER.sub("", markdown))
    return _LINK.sub(outside, text)
