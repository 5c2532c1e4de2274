"""Processes of pools, which are forked inside whatever call comes first, and serve later ones too."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import Any

_forgotten: list[ContextVar[Any]] = []


def forget_in_pools(variable: ContextVar[Any]) -> None:
    """In a process of a pool it is None: what it was in the parent ends there, which nobody here would see.

    A child of `os.fork` alone keeps it: it goes on in the block in which it was forked, and leaves it itself.
    """
    _forgotten.append(variable)


def _forget(_: object) -> None:
    for variable in _forgotten:
        variable.set(None)


def _forked() -> None:
    """Each process of a pool begins by doing what was asked for so. Pools were imported if there is one."""
    pools = sys.modules.get("multiprocessing.util")
    if pools is not None:
        pools.register_after_fork(_forget, _forget)


os.register_at_fork(after_in_child=_forked)
