"""A runbook is a list of checks, each told as soon as it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Check:
    """One thing that has to hold, and what was seen."""

    name: str
    ok: bool
    seen: str


@dataclass
class Runbook:
    """The checks so far. `tell` hears each of them."""

    tell: Callable[[Check], None] = lambda _: None
    checks: list[Check] = field(default_factory=list)

    def check(self, name: str, ok: bool, seen: object = "") -> bool:
        self.checks.append(Check(name, bool(ok), str(seen)))
        self.tell(self.checks[-1])
        return bool(ok)

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)
