"""kill -9, and how soon it is noticed."""

from __future__ import annotations

from scoreboard.caller import LEASE_S, Scene
from scoreboard.cells import Cell, broken, effects_and, judged, kept, trial, weak

GROUP = "Deaths"

# Past the lease, with room for a server's own rounding to whole seconds.
PAST_S = LEASE_S + 1.5

# How long the next caller is given to be told about an owner that died. A lease of a minute is longer.
NOTICED_S = 10.0


def after_death(scene: Scene, order: str) -> Cell:
    """What the next callers get, at once and past the lease."""
    at_once = scene.caller().ask("call", order=order)
    scene.sleep(PAST_S)
    late = scene.caller().ask("call", order=order)
    return judged(scene.effects(order), [at_once, late])


@trial("Killed inside of the effect", GROUP)
def killed_inside(scene: Scene) -> Cell:
    """The owner is killed (`kill -9`) when the effect has happened and its function has not returned.
    Others call at once, and again when a lease of 3 s has passed. Looked for: one effect, and callers that
    are answered: with an error, since nobody can know the result.
    """
    owner = scene.caller()
    owner.tell("call", order="a", plan={"end": "die"})
    owner.ended(20)
    return after_death(scene, "a")


@trial("Killed after the effect", GROUP)
def killed_after(scene: Scene) -> Cell:
    """The same, but killed when the function has returned, at the first thing that the library does next."""
    owner = scene.caller()
    owner.tell("call", order="a", plan={"end": "die-after"})
    if not owner.ended(20):
        owner.kill()
    return after_death(scene, "a")


@trial("Killed while settling", GROUP)
def killed_settling(scene: Scene) -> Cell:
    """The same, but the store stops answering before the function returns (its processes are stopped; for
    SQLite another process holds the write lock), and the owner is killed a second after: in the middle of
    recording the result. Then the store goes on. The value is a good answer too, where the record arrived.
    """
    owner = scene.caller()
    scene.enter(owner, "a")
    scene.store.hold()
    scene.gate("a").touch()
    scene.sleep(1.0)
    owner.kill()
    scene.store.let_go()
    return after_death(scene, "a")


@trial("Dead owner on the same machine", GROUP)
def dead_owner(scene: Scene) -> Cell:
    """The owner is killed inside of the effect, with the library's own default times. Another process on
    the same machine calls until it is told more than that somebody is still at it. Looked for: an answer
    within 10 s, and one effect.
    """
    owner = scene.caller(lease_s=None, window_s=None)
    owner.tell("call", order="a", plan={"end": "die"})
    owner.ended(20)
    caller, waited, answer = scene.caller(lease_s=None, window_s=None), 0.0, None
    while waited < NOTICED_S:
        answer = caller.ask("call", within_s=NOTICED_S - waited + 0.1, order="a")
        if answer is None:
            break
        waited += answer["seconds"]
        if answer.get("error") not in scene.row.library.busy:
            break
        scene.sleep(0.2)
        waited += 0.2
    effects, facts = scene.effects("a"), {"seconds": round(waited, 2), "answer": answer}
    if effects > 1:
        return broken(f"ran again after {waited:.1f} s", **facts)
    if answer is None or answer.get("error") in scene.row.library.busy:
        return weak(f"nothing new in {NOTICED_S:.0f} s", **facts)
    return kept(f"{effects_and(effects, answer)} after {waited:.1f} s", **facts)
