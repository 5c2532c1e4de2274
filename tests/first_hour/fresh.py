"""A place where nobody has worked before: a copy of the repository, and a home without caches or settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.missing import cannot

ROOT = Path(__file__).resolve().parents[2]

# Where a person keeps the settings of pip; those of the machine and of the environment count anyway.
_PIP_SETTINGS = (".config/pip/pip.conf", ".pip/pip.conf")

# What a developer's shell has set, and a new one has not.
_OURS = ("SEMEL_", "PYTHON", "VIRTUAL_ENV", "PIP_CACHE_DIR", "MAKE", "MFLAGS")


def copied(folder: Path) -> Path:
    """The repository as a clone of it would be, with what is not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode != 0:
        cannot("this is no clone: git knows no files here")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def environment(home: Path) -> dict[str, str]:
    """That of a new shell under this home. Packages come from where this machine gets them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    settings = (Path.home() / name for name in _PIP_SETTINGS)
    own = next((str(path) for path in settings if path.exists()), None)
    if own is not None and "PIP_CONFIG_FILE" not in kept:
        kept["PIP_CONFIG_FILE"] = own
    # As in an environment that was activated: what is tested must not find this one's commands.
    path = kept["PATH"].split(os.pathsep)
    outside = [each for each in path if not (Path(each).parent / "pyvenv.cfg").exists()]
    return kept | {"HOME": str(home), "PATH": os.pathsep.join(outside)}
