"""A small disk of its own for one test, which can be filled up without harm to anybody else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.missing import cannot

# A new SQLite store with its write-ahead log takes about 200 KiB; the rest is for the calls of one test.
DISK_BYTES = 2 << 20

_FILLER = "filler"


@contextmanager
def small_disk(at: Path, size: int = DISK_BYTES) -> Iterator[Path]:
    """A file system of this size at this folder; skips the test where mounting is not possible."""
    at.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "semel-test", str(at)]
    if not _runs(mount):
        cannot("no tmpfs could be mounted, which takes root: a full disk is not tested")
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def fill(disk: Path) -> None:
    """No byte is left."""
    with open(disk / _FILLER, "ab", buffering=0) as filler:
        for size in (1 << 16, 1 << 12, 1):
            _write_until_full(filler.fileno(), b"\0" * size)


def _write_until_full(filler: int, block: bytes) -> None:
    try:
        while True:
            os.write(filler, block)
    except OSError:
        pass


def free(disk: Path) -> None:
    """There is room again."""
    (disk / _FILLER).unlink()
