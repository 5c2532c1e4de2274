"""The README as a package index shows it: there the files that it links to are elsewhere.

A hook of the build (pyproject.toml): links within the repository become addresses of this release's files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# Where an address stands: [text](here), [name]: here, <img src="here">.
_TARGET = re.compile(r'(?P<before>\]\(|^\[[^\]]+\]:\s+|\s(?:src|href)=")(?P<target>[^)\s"]+)', re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z]+:|#")
_PICTURES = (".svg", ".png", ".gif", ".jpg", ".webp")


def published(text: str, repository: str, version: str) -> str:
    """The text with absolute links: pages to read at `repository`, pictures as they are."""

    def address(found: re.Match[str]) -> str:
        target = found["target"]
        if _ELSEWHERE.match(target):
            return found[0]
        form = "raw" if target.endswith(_PICTURES) else "blob"
        return f"{found['before']}{repository}/{form}/v{version}/{target.removeprefix('./')}"

    return _TARGET.sub(address, text)


class PublishedReadme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        shown = published(text, metadata["urls"]["Repository"], metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
