"""The store is away, is lost in the middle, and comes back."""

from __future__ import annotations

from scoreboard.caller import Scene
from scoreboard.cells import Cell, answered, broken, judged, kept, trial, weak

GROUP = "Store outages"

# A caller that waits longer for a store that is away holds up whoever waits for it.
HELD_S = 30.0


def _warm(scene: Scene) -> None:
    """The tables are there, as they are on any day on which a store is lost."""
    scene.caller().ask("call", order="warm")


@trial("Store away before the call", GROUP)
def store_away(scene: Scene) -> Cell:
    """The server is killed (SQLite: another process holds the write lock), then a process that had worked
    before calls. Looked for: no effect, and an error within 30 s.
    """
    caller = scene.caller()
    caller.ask("call", order="warm")
    scene.store.lose()
    answer = caller.ask("call", within_s=HELD_S, order="a")
    effects = scene.effects("a")  # before it is back: who still waits for it may go on then
    scene.store.find()
    facts = {"answer": answer, "effects": effects}
    if effects > 0:
        return broken(f"ran without its store; {answered(answer)}", **facts)
    if answer is None:
        return weak(f"no effect; no answer in {HELD_S:.0f} s", **facts)
    return kept(f"no effect; {answered(answer)} after {answer['seconds']:.1f} s", **facts)


@trial("Store lost in mid-effect", GROUP)
def store_lost(scene: Scene) -> Cell:
    """The server is killed when the effect has happened and its function has not returned. The function
    returns, the owner answers whatever it answers, the server comes back with what it kept, and others
    call: at once, and past the lease. Looked for: one effect. How long the owner was held is in the cell.
    """
    _warm(scene)
    owner = scene.caller()
    scene.enter(owner, "a")
    scene.store.lose()
    scene.gate("a").touch()
    began = owner.hear(HELD_S)
    scene.store.find()
    at_once = scene.caller().ask("call", order="a")
    scene.sleep(4.5)
    late = scene.caller().ask("call", order="a")
    cell = judged(scene.effects("a"), [at_once, late], owner=began)
    held = f"owner: {answered(began)}" + (
        f" after {began['seconds']:.1f} s" if began else f" in {HELD_S:.0f} s"
    )
    return type(cell)(cell.colour, f"{cell.seen}; {held}", cell.facts)


@trial("Store back", GROUP)
def store_back(scene: Scene) -> Cell:
    """A process calls, its server is killed and started again, and the same process calls with a new key
    until it is served. Looked for: within 10 s, with one effect.
    """
    caller = scene.caller()
    caller.ask("call", order="warm")
    scene.store.lose()
    scene.store.find()
    waited, tries = 0.0, 0
    while waited < 10:
        answer = caller.ask("call", order="a")
        tries += 1
        if answer is None:
            return broken("no answer when it was back")
        waited += answer["seconds"]
        if "value" in answer:
            facts = {"tries": tries, "seconds": round(waited, 2), "effects": scene.effects("a")}
            return (
                kept(f"served at try {tries}", **facts)
                if scene.effects("a") == 1
                else broken("2 effects", **facts)
            )
        scene.sleep(0.5)
        waited += 0.5
    return weak(f"not served in 10 s: {answered(answer)}", answer=answer)
