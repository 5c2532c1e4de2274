"""What a repeat is given."""

from __future__ import annotations

from collections.abc import Mapping

from scoreboard.caller import Scene
from scoreboard.cells import Cell, answered, broken, kept, trial
from scoreboard.values import KINDS, UNDECLARED, Kind

GROUP = "Answers"


@trial("Another payload under the same key", GROUP)
def other_payload(scene: Scene) -> Cell:
    """A call is done; another process calls with the same key and another amount. Looked for: an error, and
    no effect of the second.
    """
    first = scene.caller().ask("call", order="a", amount=5)
    second = scene.caller().ask("call", order="a", amount=6)
    facts = {"first": first, "second": second, "effects": scene.effects("a")}
    if scene.effects("a") > 1:
        return broken("ran again", **facts)
    if second is None or "value" in second:
        return broken("gave the first one’s value" if second else "no answer", **facts)
    return kept(answered(second), **facts)


@trial("Result types", GROUP)
def result_types(scene: Scene) -> Cell:
    """Eight functions return a str, a nested dict, a dataclass, a pydantic model, a Decimal, a datetime, a
    UUID and an enum, as their annotations declare. Another process repeats each call. Looked for: eight
    effects, and for each repeat what the first caller got, of the same type.
    """
    return _repeated(scene, KINDS)


@trial("Results that are not declared", GROUP)
def plain_results(scene: Scene) -> Cell:
    """Eight functions without a return annotation return plain data: a dict of JSON's kinds, a tuple, a
    set, bytes, a Decimal, a datetime, a dict with keys that are numbers, a dict with a Decimal in it.
    Another process repeats each call. Looked for: eight effects, and for each repeat what the first caller
    got, of the same type.
    """
    return _repeated(scene, UNDECLARED)


def _repeated(scene: Scene, kinds: Mapping[str, Kind]) -> Cell:
    first, other = scene.caller(), scene.caller()
    lost = []
    for kind in kinds:
        original = first.ask("call", order=kind, kind=kind)
        again = other.ask("call", order=kind, kind=kind)
        same = original and again and "value" in original and original.get("value") == again.get("value")
        if not same or scene.effects(kind) != 1:
            lost.append(kind)
    seen = f"{len(kinds) - len(lost)} of {len(kinds)}"
    return broken(f"{seen}; not {', '.join(lost)}", lost=lost) if lost else kept(seen, lost=lost)
