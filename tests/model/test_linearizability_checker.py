"""The checker decides about the stores, so it is itself compared with a plain search through all orders."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.linearizability import History, Model, Op, Recorder, SearchTooLarge, check
from tests.model.record_model import ABSENT, STARTED, Question, Record, RecordModel, apply, every_question
from tests.patience import PATIENCE_S

NEVER = None


def op(process: str, name: str, args: tuple[Any, ...], result: Any, start: int, end: int | None) -> Op:
    return Op(process, name, args, result, start, end)


class Register:
    """The smallest model with lost updates: one value, written and read."""

    initial = 0

    def step(self, state: int, op: Op) -> int | None:
        if op.name == "write":
            return int(op.args[0])
        return state if not op.answered or op.result == state else None

    def only_reads(self, op: Op) -> bool:
        return op.name == "read"


def accepted(*ops: Op, model: Model[Any] | None = None) -> bool:
    return bool(check(ops, model or RecordModel()))


# --- histories that are right --------------------------------------------------------------------------


def test_an_empty_history_is_accepted() -> None:
    assert accepted()


def test_a_claim_its_settlement_and_a_later_read_are_accepted() -> None:
    assert accepted(
        op("p1", "claim", ("a",), STARTED, 0, 1),
        op("p1", "settle", ("a", "ok"), True, 2, 3),
        op("p2", "claim", ("b",), ("other", "done", "a"), 4, 5),
        op("p2", "look", (), ("done", "a", "ok"), 6, 7),
    )


def test_of_two_overlapping_claims_either_may_win() -> None:
    for winner, loser in (("a", "b"), ("b", "a")):
        assert accepted(
            op(winner, "claim", (winner,), STARTED, 0, 10),
            op(loser, "claim", (loser,), ("other", "pending", winner), 0, 10),
        )


def test_an_overlapping_read_may_see_the_record_before_or_after() -> None:
    for seen in (("absent", None, None), ("pending", "a", None)):
        assert accepted(op("p1", "claim", ("a",), STARTED, 0, 10), op("p2", "look", (), seen, 5, 6))


def test_an_end_and_a_start_at_the_same_instant_overlap() -> None:
    assert accepted(
        op("p1", "claim", ("a",), STARTED, 0, 5),
        op("p2", "look", (), ("absent", None, None), 5, 9),
    )


def test_an_unanswered_claim_may_have_happened() -> None:
    assert accepted(
        op("p1", "claim", ("a",), None, 0, NEVER),
        op("p2", "look", (), ("pending", "a", None), 10, 11),
    )


def test_an_unanswered_claim_may_never_happen() -> None:
    assert accepted(
        op("p1", "claim", ("a",), None, 0, NEVER),
        op("p2", "claim", ("b",), STARTED, 10, 11),
    )


def test_an_unanswered_settle_may_take_effect_long_after_it_began() -> None:
    assert accepted(
        op("p1", "claim", ("a",), STARTED, 0, 1),
        op("p1", "settle", ("a", "ok"), None, 2, NEVER),
        op("p2", "look", (), ("pending", "a", None), 10, 11),
        op("p2", "look", (), ("done", "a", "ok"), 12, 13),
    )


@pytest.mark.parametrize("starts", [(0, 1), (1, 0)])
def test_an_unanswered_operation_is_not_used_up_before_it_is_needed(starts: tuple[int, int]) -> None:
    assert accepted(
        op("p1", "write", (1,), None, starts[0], NEVER),
        op("p2", "write", (2,), None, starts[1], NEVER),
        op("p3", "read", (), 1, 10, 11),
        op("p3", "read", (), 2, 12, 13),
        model=Register(),
    )


def test_two_keys_do_not_mix() -> None:
    ops = [op(key, "claim", (key,), STARTED, 0, 1) for key in ("a", "b")]
    assert not accepted(*ops)
    assert accepted(*(replace(each, key=each.process) for each in ops))


# --- histories that are wrong --------------------------------------------------------------------------


def test_two_owners_are_rejected_even_when_their_claims_overlap() -> None:
    assert not accepted(
        op("p1", "claim", ("a",), STARTED, 0, 10),
        op("p2", "claim", ("b",), STARTED, 0, 10),
    )


def test_two_retakes_of_one_doubtful_record_are_rejected() -> None:
    assert not accepted(
        op("p1", "claim", ("a",), STARTED, 0, 1),
        op("p1", "park", ("a",), True, 2, 3),
        op("p2", "retake", ("b", "a"), True, 4, 9),
        op("p3", "retake", ("c", "a"), True, 4, 9),
    )


def test_a_lost_update_is_rejected() -> None:
    assert not accepted(
        op("p1", "write", (1,), None, 0, 1),
        op("p2", "write", (2,), None, 2, 3),
        op("p1", "read", (), 1, 4, 5),
        model=Register(),
    )


def test_a_stale_read_is_rejected() -> None:
    assert not accepted(
        op("p1", "claim", ("a",), STARTED, 0, 1),
        op("p2", "look", (), ("absent", None, None), 2, 3),
    )


def test_reads_that_go_back_in_time_are_rejected_while_the_write_still_runs() -> None:
    assert not accepted(
        op("p1", "claim", ("a",), STARTED, 0, 10),
        op("p2", "look", (), ("pending", "a", None), 1, 2),
        op("p3", "look", (), ("absent", None, None), 3, 4),
    )


def test_a_settle_that_vanished_is_rejected() -> None:
    assert not accepted(
        op("p1", "claim", ("a",), STARTED, 0, 1),
        op("p1", "settle", ("a", "ok"), True, 2, 3),
        op("p2", "look", (), ("pending", "a", None), 4, 5),
    )


def test_a_settle_by_an_owner_that_was_replaced_is_rejected() -> None:
    assert not accepted(
        op("p1", "claim", ("a",), STARTED, 0, 1),
        op("p1", "park", ("a",), True, 2, 3),
        op("p2", "retake", ("b", "a"), True, 4, 5),
        op("p1", "settle", ("a", "late"), True, 6, 7),
    )


def test_an_effect_before_its_unanswered_cause_began_is_rejected() -> None:
    assert not accepted(
        op("p2", "look", (), ("pending", "a", None), 0, 1),
        op("p1", "claim", ("a",), None, 2, NEVER),
    )


def test_an_unanswered_operation_takes_effect_at_most_once() -> None:
    assert not accepted(
        op("p1", "write", (1,), None, 0, NEVER),
        op("p2", "read", (), 1, 1, 2),
        op("p2", "write", (2,), None, 3, 4),
        op("p2", "read", (), 1, 5, 6),
        model=Register(),
    )


# --- what a verdict says -------------------------------------------------------------------------------


def test_a_rejection_shows_the_longest_order_and_what_could_not_follow() -> None:
    claim = op("p1", "claim", ("a",), STARTED, 1_000, 2_000)
    settle = op("p1", "settle", ("a", "ok"), None, 3_000, NEVER)
    done = op("p2", "look", (), ("done", "a", "ok"), 4_000, 5_000)
    second = op("p3", "claim", ("b",), STARTED, 6_000, 7_500)
    verdict = check([second, done, settle, claim], RecordModel())
    (failure,) = verdict.failures
    assert failure.order == (claim, settle, done)
    assert failure.stuck == (second,)
    assert str(verdict).splitlines() == [
        "key '': not linearizable. The longest order (times in µs):",
        "  [       0.000 ..        1.000] p1 claim('a') -> 'started'",
        "  [       2.000 ..            ?] p1 settle('a', 'ok') -> no answer",
        "  [       3.000 ..        4.000] p2 look() -> ('done', 'a', 'ok')",
        "  leads to Record(state='done', token='a', outcome='ok', entries=1), where none can follow of:",
        "  [       5.000 ..        6.500] p3 claim('b') -> 'started'",
    ]


def test_only_the_keys_that_fail_are_shown() -> None:
    good = Op("p1", "claim", ("a",), STARTED, 0, 1, key="good")
    bad = Op("p1", "claim", ("a",), ("other", "done", "b"), 0, 1, key="bad")
    verdict = check([good, bad], RecordModel())
    assert [failure.key for failure in verdict.failures] == ["bad"]
    assert "'good'" not in str(verdict)
    assert str(check([good], RecordModel())) == "linearizable, 1 keys"


def test_an_undecidable_history_is_an_error_and_not_a_verdict() -> None:
    writes = [op(f"p{n}", "write", (n,), None, 0, 9) for n in range(1, 10)]
    wrong_read = op("p0", "read", (), 77, 10, 11)
    with pytest.raises(SearchTooLarge):
        check([*writes, wrong_read], Register(), explored_max=100)
    assert not check([*writes, wrong_read], Register())


# --- simulated stores: every interleaving, no threads --------------------------------------------------

Task = Generator[None, None, Any]
Store = Callable[[list[Record], Question], Task]
Program = Generator[Question, Any, None]  # hears the answer to each question before it asks the next


def atomic(cell: list[Record], question: Question) -> Task:
    """A store that keeps its promise: one atomic step somewhere between question and answer."""
    yield
    cell[0], answer = apply(cell[0], *question)
    yield
    return answer


def select_then_insert(cell: list[Record], question: Question) -> Task:
    """A store that looks, decides, and writes what may no longer fit."""
    yield
    seen = cell[0]
    yield
    after, answer = apply(seen, *question)
    if after != seen:
        cell[0] = after
    yield
    return answer


class Client:
    """One process: asks its questions in turn, and may be killed in the middle of one."""

    def __init__(self, name: str, program: Program, store: Store, cell: list[Record]) -> None:
        self.name, self.program, self.store, self.cell = name, program, store, cell
        self.answer: Any = None
        self.asked: Op | None = None

    def advance(self, now: int) -> Op | None:
        """One step; gives the operation that was answered in it. Raises StopIteration when all is done."""
        if self.asked is None:
            question = self.program.send(self.answer)
            self.task = self.store(self.cell, question)
            self.asked = op(self.name, *question, None, now, NEVER)
        try:
            next(self.task)
        except StopIteration as stop:
            self.answer = stop.value
            answered, self.asked = replace(self.asked, result=self.answer, end_ns=now), None
            return answered
        return None


def simulate(store: Store, programs: Sequence[Program], schedule: Iterable[int]) -> History:
    """The history of clients that take steps as `schedule` says; who is in mid-call at its end was killed."""
    cell, history = [ABSENT], History()
    clients = [Client(f"p{n}", program, store, cell) for n, program in enumerate(programs)]
    alive = list(clients)
    for now, turn in enumerate(schedule):
        if not alive:
            break
        client = alive[turn % len(alive)]
        try:
            answered = client.advance(now)
        except StopIteration:
            alive.remove(client)
            continue
        if answered is not None:
            history.append(answered)
    history.extend(client.asked for client in clients if client.asked is not None)
    return history


def fixed(*programs: Sequence[Question]) -> list[Program]:
    """Programs that ask the same whatever they hear."""

    def recite(questions: Sequence[Question]) -> Program:
        # Not `yield from`: a list cannot be sent answers.
        for question in questions:  # noqa: UP028
            yield question

    return [recite(questions) for questions in programs]


questions = st.sampled_from(every_question(("a", "b")))
small_programs = st.lists(st.lists(questions, max_size=2), min_size=1, max_size=3)
programs = st.lists(st.lists(questions, max_size=6), min_size=1, max_size=5)
schedules = st.lists(st.integers(0, 59), max_size=160)


def assert_is_witness(order: Sequence[Op], model: Model[Any]) -> None:
    """`order` is what a verdict claims it to be: accepted by the model, and nobody before a predecessor."""
    assert replay(order, model)
    assert in_real_time(order)


def replay(order: Sequence[Op], model: Model[Any]) -> bool:
    state = model.initial
    for each in order:
        state = model.step(state, each)
        if state is None:
            return False
    return True


def precedes(first: Op, second: Op) -> bool:
    return first.end_ns is not None and first.end_ns < second.start_ns


def in_real_time(order: Sequence[Op]) -> bool:
    return not any(precedes(later, each) for n, each in enumerate(order) for later in order[n + 1 :])


def closed(order: Sequence[Op], history: Sequence[Op]) -> bool:
    """Nothing is left out that had to come before something in `order`."""
    left_out = [each for each in history if not any(each is placed for placed in order)]
    return not any(precedes(out, placed) for out in left_out for placed in order)


def answered_count(ops: Iterable[Op]) -> int:
    return sum(each.answered for each in ops)


def longest_by_trying_all(history: Sequence[Op], model: Model[Any]) -> int:
    """How many answered operations the longest order holds, found without any cleverness."""
    orders = (order for length in range(len(history) + 1) for order in permutations(history, length))
    return max(
        answered_count(order)
        for order in orders
        if replay(order, model) and in_real_time(order) and closed(order, history)
    )


@given(programs, schedules)
def test_what_an_atomic_store_does_is_always_accepted(
    programs: list[list[Question]], schedule: list[int]
) -> None:
    history = simulate(atomic, fixed(*programs), schedule)
    verdict = check(history, RecordModel())
    assert verdict, str(verdict)
    for part in verdict.keys:
        assert_is_witness(part.order, RecordModel())
        assert answered_count(part.order) == answered_count(history)


@given(programs, schedules, st.sets(st.integers(0, 29)))
def test_answers_that_nobody_heard_do_not_make_a_right_history_wrong(
    programs: list[list[Question]], schedule: list[int], unheard: set[int]
) -> None:
    history = simulate(atomic, fixed(*programs), schedule)
    heard = [
        replace(each, result=None, end_ns=NEVER) if n in unheard else each for n, each in enumerate(history)
    ]
    verdict = check(heard, RecordModel())
    assert verdict, str(verdict)


@given(small_programs, schedules, st.sampled_from([atomic, select_then_insert]))
def test_a_verdict_is_that_of_trying_all_orders(
    programs: list[list[Question]], schedule: list[int], store: Store
) -> None:
    assert_agrees_with_trying_all(simulate(store, fixed(*programs), schedule), RecordModel())


def interval(start: int, length: int | None) -> tuple[int, int | None]:
    return start, None if length is None else start + length


intervals = st.builds(interval, st.integers(0, 8), st.none() | st.integers(0, 6))
register_questions = st.tuples(st.just("write"), st.integers(0, 2).map(lambda value: (value,)), st.none()) | (
    st.tuples(st.just("read"), st.just(()), st.integers(0, 2))
)


@settings(max_examples=400)  # Six operations fall into a telling order rarely.
@given(st.lists(st.tuples(register_questions, intervals), max_size=6))
def test_a_verdict_about_invented_answers_is_that_of_trying_all_orders(
    invented: list[tuple[tuple[str, tuple[int, ...], int | None], tuple[int, int | None]]],
) -> None:
    history = [op(f"p{n}", *asked, *span) for n, (asked, span) in enumerate(invented)]
    assert_agrees_with_trying_all(history, Register())


def assert_agrees_with_trying_all(history: Sequence[Op], model: Model[Any]) -> None:
    verdict = check(history, model)
    longest = longest_by_trying_all(history, model)
    assert bool(verdict) == (longest == answered_count(history))
    for part in verdict.keys:
        assert_is_witness(part.order, model)
        assert answered_count(part.order) == longest
        assert not any(replay([*part.order, refused], model) for refused in part.stuck)


def test_two_claims_that_both_look_before_they_insert_are_rejected() -> None:
    both_look_first = [0, 1, 0, 1, 0, 1, 0, 1]

    def race(store: Store) -> History:
        return simulate(store, fixed([("claim", ("a",))], [("claim", ("b",))]), both_look_first)

    assert [each.result for each in race(select_then_insert)] == [STARTED, STARTED]
    assert not check(race(select_then_insert), RecordModel())
    assert check(race(atomic), RecordModel())


# --- the size that recordings of real processes have ---------------------------------------------------

PROCESSES, QUESTIONS_EACH = 16, 8
# Ten times what these histories take: one point per operation and a few more.
EXPLORED_ENOUGH = 1_500


def worker(name: str, chance: random.Random) -> Program:
    """Claims with a new token each time, gives up what it holds, and takes over what it sees in doubt."""
    answer, token = None, ""
    for number in range(QUESTIONS_EACH):
        fresh = f"{name}.{number}"
        match answer:
            case "started" | ("retake", True):
                answer = yield chance.choice(["park", "park", "release"]), (token,)
            case ("other", "in_doubt", seen):
                token = fresh
                answer = "retake", (yield "retake", (token, seen))
            case ("other", *_):
                answer = yield "look", ()
            case _:
                token = fresh
                answer = yield "claim", (token,)


def crowded(store: Store, seed: int, steps: int = 10_000) -> History:
    chance = random.Random(seed)
    workers = [worker(f"w{n}", chance) for n in range(PROCESSES)]
    # A number that all counts of living processes divide, so that each of them is as likely as the others.
    return simulate(store, workers, (chance.randrange(720_720) for _ in range(steps)))


def seeds() -> range:
    return range(20)


def test_sixteen_processes_on_one_key_are_accepted_with_little_search() -> None:
    for seed in seeds():
        history = crowded(atomic, seed)
        assert answered_count(history) == PROCESSES * QUESTIONS_EACH
        verdict = check(history, RecordModel(), explored_max=EXPLORED_ENOUGH)
        assert verdict, str(verdict)


def test_sixteen_processes_killed_in_the_middle_are_accepted_with_little_search() -> None:
    for seed in seeds():
        history = crowded(atomic, seed, steps=200)
        assert answered_count(history) < len(history)
        verdict = check(history, RecordModel(), explored_max=EXPLORED_ENOUGH)
        assert verdict, str(verdict)


def test_one_wrong_answer_among_sixteen_processes_is_found_with_little_search() -> None:
    for seed in seeds():
        history = crowded(atomic, seed)
        place = random.Random(seed).choice([n for n, each in enumerate(history) if each.name == "look"])
        history[place] = replace(history[place], result=("done", "w0.0", "never settled"))
        assert not check(history, RecordModel(), explored_max=EXPLORED_ENOUGH)


def test_sixteen_processes_that_look_before_they_insert_are_found_out() -> None:
    verdicts = [check(crowded(select_then_insert, seed), RecordModel(), EXPLORED_ENOUGH) for seed in seeds()]
    assert not all(verdicts)


# --- recording -----------------------------------------------------------------------------------------


def recorded(path: Path, *questions: Question) -> History:
    """What a lone client on its own record hears, by a clock that ticks at every look."""
    cell, ticks = [ABSENT], count()

    def ask(question: Question) -> Any:
        cell[0], answer = apply(cell[0], *question)
        return answer

    with Recorder(path, "p1", lambda: next(ticks)) as recorder:
        for question in questions:
            recorder.call("k", *question, partial(ask, question))
    return History.read(path)


def test_a_recorded_call_spans_its_question_and_its_answer(tmp_path: Path) -> None:
    assert recorded(tmp_path / "p1.jsonl", ("claim", ("a",)), ("look", ())) == [
        Op("p1", "claim", ("a",), STARTED, 1, 2, "k"),
        Op("p1", "look", (), ("pending", "a", None), 4, 5, "k"),
    ]


def test_a_history_reads_back_as_it_was_written(tmp_path: Path) -> None:
    history = History(
        [*crowded(atomic, seed=1, steps=200), Op("p", "x", ([1, [2]],), [None, "ü\n"], 0, 1, "k")]
    )
    history.write(tmp_path / "all.jsonl")
    assert History.read(tmp_path / "all.jsonl") == history


def test_files_of_several_clients_make_one_history(tmp_path: Path) -> None:
    paths = [tmp_path / "p1.jsonl", tmp_path / "p2.jsonl"]
    parts = [recorded(path, ("claim", (path.stem,))) for path in paths]
    assert History.read(*paths) == parts[0] + parts[1]


def test_a_recording_is_never_continued_by_another_client(tmp_path: Path) -> None:
    recorded(tmp_path / "p1.jsonl", ("look", ()))
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "p1.jsonl", "p1")


def test_a_recording_cut_at_any_byte_loses_at_most_what_was_not_heard(tmp_path: Path) -> None:
    whole = recorded(tmp_path / "whole.jsonl", ("claim", ("a",)), ("look", ()))
    data, cut = (tmp_path / "whole.jsonl").read_bytes(), tmp_path / "cut.jsonl"
    lines_before = [data[:length].count(b"\n") for length in range(len(data) + 1)]
    for length, lines in enumerate(lines_before):
        cut.write_bytes(data[:length])
        assert [each.answered for each in History.read(cut)] == [True] * (lines // 2) + [False] * (lines % 2)
        assert check(History.read(cut), RecordModel())
    assert History.read(cut) == whole


def test_a_damaged_line_inside_a_recording_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "p1.jsonl").write_bytes(b'{"number": 1, "proc\n{}\n')
    with pytest.raises(ValueError, match="Unterminated"):
        History.read(tmp_path / "p1.jsonl")


def test_a_call_that_raises_stays_unanswered(tmp_path: Path) -> None:
    def unreachable() -> None:
        raise ConnectionError

    with Recorder(tmp_path / "p1.jsonl", "p1") as recorder, pytest.raises(ConnectionError):
        recorder.call("k", "claim", ("a",), unreachable)
    (left,) = History.read(tmp_path / "p1.jsonl")
    assert (left.name, left.args, left.end_ns) == ("claim", ("a",), NEVER)


def test_an_operation_cannot_end_before_it_starts() -> None:
    with pytest.raises(ValueError, match="ended at 4, before 5"):
        op("p1", "look", (), None, 5, 4)


KILLED_WHILE_SETTLING = """
import os, pathlib, signal, sys
from tests.model.linearizability import Recorder
recorder = Recorder(pathlib.Path(sys.argv[1]), "victim")
recorder.call("k", "claim", ("a",), lambda: "started")
recorder.call("k", "settle", ("a", "ok"), lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_process_killed_in_the_middle_of_a_call_leaves_it_unanswered(tmp_path: Path) -> None:
    path = tmp_path / "victim.jsonl"
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", KILLED_WHILE_SETTLING, path], cwd=root, timeout=PATIENCE_S)
    assert ended.returncode == -signal.SIGKILL
    assert [(each.name, each.answered) for each in History.read(path)] == [("claim", True), ("settle", False)]


def test_threads_that_both_look_before_they_insert_are_found_out(tmp_path: Path) -> None:
    cell, both_looked = [ABSENT], threading.Barrier(2)

    def claim(token: str) -> Any:
        seen = cell[0]
        both_looked.wait(timeout=PATIENCE_S)
        cell[0], answer = apply(seen, "claim", (token,))
        return answer

    def client(token: str) -> None:
        with Recorder(tmp_path / f"{token}.jsonl", token) as recorder:
            recorder.call("k", "claim", (token,), partial(claim, token))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(client, ("a", "b")))
    verdict = check(History.read(*tmp_path.glob("*.jsonl")), RecordModel())
    assert [len(failure.order) for failure in verdict.failures] == [1]
