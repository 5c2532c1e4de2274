"""Many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from scoreboard.caller import Scene
from scoreboard.cells import Cell, absent, broken, kept, trial

PROCESSES, TASKS, ROUNDS = 16, 64, 20
GROUP = "Races"


def _of_all(scene: Scene, values: int, errors: list[str], strange: int) -> Cell:
    counts = [scene.effects(f"race-{number}") for number in range(ROUNDS)]
    twice, never = sum(count > 1 for count in counts), sum(count == 0 for count in counts)
    facts = {"effects": counts, "values": values, "errors": sorted(set(errors)), "strange": strange}
    if twice or never or strange:
        seen = [f"{twice} of {ROUNDS} keys twice"] if twice else []
        seen += [f"{never} never"] if never else []
        seen += [f"{strange} other values"] if strange else []
        return broken(", ".join(seen), **facts)
    refusals = f"; {len(errors)} told {', '.join(sorted(set(errors)))}" if errors else ""
    return kept(f"{ROUNDS} keys, {sum(counts)} effects{refusals}", **facts)


@trial("16 processes at once", GROUP)
def race_of_processes(scene: Scene) -> Cell:
    """16 processes call with the same key at the same moment, 20 times with 20 keys. Looked for: 20
    effects. Each caller gets the value of the one effect or is refused; which of the two is the library's
    choice.
    """
    callers = [scene.caller() for _ in range(PROCESSES)]
    callers[0].ask("call", order="warm")  # tables are made before, as by a deployment
    values, errors, strange = 0, [], 0
    with ThreadPoolExecutor(PROCESSES) as threads:
        for number in range(ROUNDS):
            order = f"race-{number}"
            for caller in callers:
                caller.tell("call", order=order)
            answers = list(threads.map(lambda caller: caller.hear(60), callers))
            if None in answers:
                return broken(f"{answers.count(None)} of {PROCESSES} callers did not answer", answers=answers)
            real = scene.receipts(order)[:1]
            given = [each for each in answers if each is not None]
            values += sum("value" in each for each in given)
            strange += sum("value" in each and each["receipt"] not in (*real, None) for each in given)
            errors += [each["error"] for each in given if "error" in each]
    return _of_all(scene, values, errors, strange)


@trial("64 tasks at once", GROUP)
def race_of_tasks(scene: Scene) -> Cell:
    """64 asyncio tasks of one process (64 threads where a library has no async side) call with the same key
    at the same moment, 20 times with 20 keys. Looked for: 20 effects.
    """
    caller = scene.caller()
    caller.ask("call", order="warm")
    values, errors, strange = 0, [], 0
    for number in range(ROUNDS):
        order = f"race-{number}"
        answer = caller.ask("together", within_s=90, order=order, callers=TASKS)
        if answer is None or "failed" in answer:
            return broken(f"no answer of {TASKS} callers", answer=answer)
        real = scene.receipts(order)[:1]
        values += len(answer["receipts"])
        strange += sum(receipt not in (*real, None) for receipt in answer["receipts"])
        errors += answer["errors"]
    return _of_all(scene, values, errors, strange)


@trial("Async", GROUP)
def async_(scene: Scene) -> Cell:
    """An `async def` effect is called and called again on an event loop. Looked for: one effect, and its
    value again.
    """
    if not scene.row.library.is_async:
        return absent("no async side")
    caller = scene.caller()
    first, again = (caller.ask("call", order="a", mode="async") for _ in range(2))
    if first and again and first.get("value") == again.get("value") and scene.effects("a") == 1:
        return kept("replays")
    return broken(f"{scene.effects('a')} effects", first=first, again=again)
