"""The adapters, as rows: one for each library and store, each with an environment of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.servers import REPOSITORY
from scoreboard.worker import load

ADAPTERS = Path(__file__).parent / "adapters"
ENVIRONMENTS = REPOSITORY / ".venv-scoreboard"

# One of the results that libraries are given is a model of this package; it is in every environment.
SHARED = "pydantic==2.14.3"

# Names for several trials, so that an adapter's promises stay short.
SETS = {
    "races": "race-of-processes race-of-tasks",
    "kills": "killed-inside killed-after killed-settling",
    "freezes": "frozen-completes frozen-fails slow-owner",
    "interrupts": "cancelled interrupted exiting",
    "outages": "store-away store-lost store-back",
}


class NotInstalled(Exception):
    """The environment of a library could not be made; the text is pip's last line."""


@dataclass(frozen=True, eq=False)
class Library:
    """What an adapter says of itself."""

    name: str
    file: Path
    stores: Sequence[str]
    install: Sequence[str]
    promises: Mapping[str, Sequence[str]]
    busy: Sequence[str]
    is_async: bool
    is_sync: bool
    python: Path

    @property
    def version(self) -> str:
        """As it is pinned; nothing for what has no package."""
        name, _, version = next(iter(self.install), "").partition("==")
        return version if name.partition("[")[0] == self.name else ""

    def promised(self, trial: str) -> str | None:
        """Where its documentation promises what the trial looks for; None where it does not."""
        return next((where for where, trials in self.promises.items() if trial in trials), None)


@dataclass(frozen=True, eq=False)
class Row:
    library: Library
    store: str

    @property
    def title(self) -> str:
        return f"{self.library.name} · {self.store}"


def library(file: Path, python: Path | None = None) -> Library:
    adapter = load(str(file))
    return Library(
        name=adapter.NAME,
        file=file,
        stores=adapter.STORES,
        install=adapter.INSTALL,
        promises={where: _trials(words) for where, words in adapter.PROMISES.items()},
        busy=adapter.BUSY,
        is_async=hasattr(adapter, "aguard"),
        is_sync=hasattr(adapter, "guard"),
        python=python or ENVIRONMENTS / file.stem / "bin" / "python",
    )


def _trials(words: str) -> list[str]:
    return [trial for word in words.split() for trial in SETS.get(word, word).split()]


def libraries(only: Sequence[str] = ()) -> list[Library]:
    """All of them, ours first and those by hand last; or those whose name or file is asked for."""
    every = [library(file) for file in sorted(ADAPTERS.glob("*.py")) if file.name != "__init__.py"]
    unknown = set(only) - {name for each in every for name in (each.name, each.file.stem)}
    if unknown:
        raise SystemExit(f"scoreboard: there is no library {', '.join(sorted(unknown))}.")
    chosen = [each for each in every if not only or {each.name, each.file.stem} & set(only)]
    return sorted(
        chosen, key=lambda each: (each.file.stem.startswith("by_hand"), each.name != "semel", each.name)
    )


def install(library: Library) -> None:
    """Its environment has what it pins. Made anew only when that changed."""
    folder = library.python.parent.parent
    stamp, wanted = folder / ".installed", "\n".join([*library.install, SHARED])
    # What is in this tree is installed by reference, so that it is never an older one.
    words = [word for each in library.install for word in (("-e", each) if each.startswith(".") else (each,))]
    if stamp.exists() and stamp.read_text() == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [
        str(library.python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *words,
        SHARED,
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotInstalled(done.stderr.strip().split("\n")[-1])
    stamp.write_text(wanted)
