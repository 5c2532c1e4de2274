"""An owner that is stopped, or slow, past its lease."""

from __future__ import annotations

import signal

from scoreboard.caller import Scene
from scoreboard.cells import Cell, answered, judged, trial
from scoreboard.trials.deaths import PAST_S

GROUP = "Frozen and slow owners"


def _frozen(scene: Scene, **plan: str) -> Cell:
    owner = scene.caller()
    scene.enter(owner, "a", **plan)
    owner.signal(signal.SIGSTOP)
    scene.sleep(PAST_S)
    other = scene.caller().ask("call", order="a")
    scene.gate("a").touch()
    owner.signal(signal.SIGCONT)
    ended = owner.hear()
    third = scene.caller().ask("call", order="a")
    cell = judged(scene.effects("a"), [other, third], owner=ended)
    return type(cell)(cell.colour, f"{cell.seen}; owner: {answered(ended)}", cell.facts)


@trial("Frozen past the lease, then completes", GROUP)
def frozen_completes(scene: Scene) -> Cell:
    """The owner is stopped (`SIGSTOP`) inside of the effect for longer than its lease of 3 s, as in a long
    pause of a virtual machine. Another process calls. Then the owner goes on and its function returns, and
    a third calls. Looked for: one effect, and answers for all.
    """
    return _frozen(scene)


@trial("Frozen past the lease, then fails", GROUP)
def frozen_fails(scene: Scene) -> Cell:
    """The same, but the owner's function raises when it goes on: its failure must not free the key that is
    not its own any more.
    """
    return _frozen(scene, end="raise")


@trial("Slower than the lease", GROUP)
def slow_owner(scene: Scene) -> Cell:
    """The owner is alive and its effect takes longer than its lease of 3 s. Another process calls past
    that. Looked for: one effect; the other waits, or is refused.
    """
    owner = scene.caller()
    scene.enter(owner, "a")
    scene.sleep(PAST_S)
    other = scene.caller()
    other.tell("call", order="a")
    early = other.hear(2.0)
    scene.gate("a").touch()
    ended = owner.hear()
    answer = early or other.hear()
    third = scene.caller().ask("call", order="a")
    cell = judged(scene.effects("a"), [answer, third], owner=ended)
    return type(cell)(cell.colour, f"{cell.seen}; owner: {answered(ended)}", cell.facts)
