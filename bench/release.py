"""The tree of release 0.1, taken from the history: what its gateway did is measured in the same run as ours.

It runs with the dependencies that are installed here. A clone without that commit has no such side.
"""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from bench.servers import REPOSITORY

RELEASE_0_1 = "561db28faae8aa2e28be272b535241653724f76d"

WHY_NOT = f"The history here has no commit {RELEASE_0_1[:7]}, which is release 0.1: `git fetch --unshallow`."


def release_tree(directory: Path, repository: Path = REPOSITORY) -> Path | None:
    """The sources of release 0.1, in a folder of this directory; None if the history does not have them."""
    command = ["git", "-C", str(repository), "archive", RELEASE_0_1, "src"]
    try:
        archive = subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    made = directory / "release-0.1"
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(made, filter="data")
    return made / "src"
