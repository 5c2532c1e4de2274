"""An owner that is cancelled, interrupted, or exits in the middle of the effect."""

from __future__ import annotations

import signal

from scoreboard.caller import Scene
from scoreboard.cells import Cell, absent, judged, trial

GROUP = "Interrupted owners"


def _after(scene: Scene, ended: object) -> Cell:
    answer = scene.caller().ask("call", order="a")
    return judged(scene.effects("a"), [answer], owner=ended)


@trial("Cancelled", GROUP)
def cancelled(scene: Scene) -> Cell:
    """The task that runs the effect is cancelled when the effect has happened and its function has not
    returned, as by a time-out. Then another process calls. Looked for: one effect, and an answer.
    """
    if not scene.row.library.is_async:
        return absent("no async side")
    owner = scene.caller()
    plan = {"gate": str(scene.gate("a"))}
    owner.tell("cancel", order="a", plan=plan)
    return _after(scene, owner.hear())


@trial("Interrupted", GROUP)
def interrupted(scene: Scene) -> Cell:
    """The same with Ctrl-C: SIGINT comes in the middle of the effect."""
    owner = scene.caller()
    scene.enter(owner, "a")
    owner.signal(signal.SIGINT)
    return _after(scene, owner.hear())


@trial("Exiting", GROUP)
def exiting(scene: Scene) -> Cell:
    """The same with `SystemExit`, raised after the effect has happened, as by a server that is shut down."""
    owner = scene.caller()
    return _after(scene, owner.ask("call", order="a", plan={"end": "exit"}))
