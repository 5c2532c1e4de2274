"""Windows and wall clocks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scoreboard.caller import Caller, Nursery, Scene
from scoreboard.cells import Cell, absent, broken, effects_and, judged, kept, trial
from scoreboard.libraries import ENVIRONMENTS

GROUP = "Windows and clocks"
HOUR_S = 3_600


@trial("Window closes under a live claim", GROUP)
def window_closes(scene: Scene) -> Cell:
    """The window (how long a result is kept) is 3 s and the effect takes longer, by an owner that is alive.
    Another process calls when those 3 s are over. Looked for: one effect.
    """
    owner = scene.caller(window_s=3)
    scene.enter(owner, "a")
    scene.sleep(4.5)
    other = scene.caller(window_s=3)
    other.tell("call", order="a")
    early = other.hear(2.0)
    effects = scene.effects("a")
    scene.gate("a").touch()
    owner.hear()
    answer = early or other.hear()
    # What comes after the window may run again; what ran while the owner was at it may not.
    return judged(max(effects, 1), [answer])


@trial("Clocks an hour apart", GROUP)
def clocks_apart(scene: Scene) -> Cell:
    """While an owner that is alive is inside of the effect (lease 30 s, window 24 h), a process whose wall
    clock is an hour ahead calls; when the owner is done, one whose clock is an hour back does, as after a
    step of the clock. Looked for: one effect.
    """
    skewed = shifted_clock()
    if skewed is None:
        return absent("no C compiler here to shift a clock with")

    def caller(nursery: Nursery | None = None) -> Caller:
        return scene.caller(lease_s=30.0, window_s=86_400.0, nursery=nursery)

    owner = caller()
    scene.enter(owner, "a")
    ahead = caller(scene.nursery(LD_PRELOAD=str(skewed), SCOREBOARD_SHIFT_S=str(HOUR_S)))
    ahead.tell("call", order="a")
    early = ahead.hear(2.0)
    scene.gate("a").touch()
    owner.hear()
    answer = early or ahead.hear()
    back = caller(scene.nursery(LD_PRELOAD=str(skewed), SCOREBOARD_SHIFT_S=str(-HOUR_S)))
    last = back.ask("call", order="a")
    cell = judged(scene.effects("a"), [answer, last])
    if cell.facts["effects"] == 1 and not (last and "value" in last) and "value" not in (answer or {}):
        return kept(effects_and(1, answer, last), **cell.facts) if last else broken("no answer", **cell.facts)
    return cell


def shifted_clock() -> Path | None:
    """A library for LD_PRELOAD that moves the wall clock of a process, and no other clock."""
    compiler, source = shutil.which("cc"), Path(__file__).parent.parent / "shifted_clock.c"
    if compiler is None:
        return None
    made = ENVIRONMENTS / "shifted_clock.so"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        made.parent.mkdir(exist_ok=True)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"], check=True
        )
    return made
