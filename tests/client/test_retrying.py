"""What is tried again, when and for how long: the decider alone, told what came of each try."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from semel.client import Problem, StillRunning, operations
from semel.client.retrying import (
    PAUSE_S_MAX,
    Asking,
    ListedPage,
    Patience,
    PauseFor,
    Silence,
    Try,
    WireAnswer,
)
from semel.flow.problems import KINDS
from tests.fake_clock import FakeClock

STARTED = {"run_id": "run_1", "workflow_id": "hello", "status": "running"}
LOST = Silence("ReadError", begun=True)
NOBODY = Silence("ConnectError", begun=False)


def done(body: Any = STARTED, **headers: str) -> WireAnswer:
    return WireAnswer(200, {"content-type": "application/json", **headers}, json.dumps(body).encode())


def refused(code: str, *, retriable: bool, status: int = 503, **headers: str) -> WireAnswer:
    body = {
        "type": "t",
        "title": "T",
        "status": status,
        "detail": "No.",
        "code": code,
        "retriable": retriable,
    }
    media = {"content-type": "application/problem+json"}
    return WireAnswer(status, media | headers, json.dumps(body | {"more": 1}).encode())


def page(status: int = 502, **headers: str) -> WireAnswer:
    return WireAnswer(status, {"content-type": "text/html"} | headers, b"<h1>Bad gateway</h1>")


class Story:
    """An intention pursued with these answers; time passes only in pauses, and `slow_s` with each try."""

    def __init__(
        self, asking: Asking[Any], *answers: WireAnswer | Silence, slow_s: float = 0, **more: Any
    ) -> None:
        self.clock = FakeClock()
        self.tries: list[Try] = []
        self.pauses: list[float] = []
        self.answer: Any = None
        self.problem: Problem | None = None
        patience = Patience(self.clock, "http://g", **({"within_s": 30.0, "try_for_s": 5.0} | more))
        script = iter(answers)
        deciding = asking.decide(patience)
        came: Any = None
        try:
            while True:
                wish = deciding.send(came)
                if isinstance(wish, PauseFor):
                    self.pauses.append(wish.seconds)
                    self.clock.advance(wish.seconds)
                    came = None
                else:
                    self.tries.append(wish)
                    self.clock.advance(slow_s)
                    came = next(script)
        except StopIteration as end:
            self.answer = end.value
        except Problem as problem:
            self.problem = problem


def start(key: str | None = None) -> Asking[Any]:
    return operations.start_run("hello", {"n": 1}, key)


def test_every_try_has_the_same_key_and_the_same_bytes_and_a_name_of_its_own() -> None:
    story = Story(
        start(), LOST, NOBODY, page(), refused("internal_error", retriable=True, status=500), done()
    )
    assert story.answer.run_id == "run_1"
    assert len(story.tries) == 5
    assert len({(each.content, each.headers["Idempotency-Key"], each.path) for each in story.tries}) == 1
    assert len({each.request_id for each in story.tries}) == 5
    assert all(each.headers["X-Request-Id"] == each.request_id.encode() for each in story.tries)


def test_a_key_that_is_given_is_the_key_and_two_intentions_have_two() -> None:
    assert Story(start("order-1"), LOST, done()).tries[1].headers["Idempotency-Key"] == b"order-1"
    keys = {Story(start(), done()).tries[0].headers["Idempotency-Key"] for _ in range(2)}
    assert len(keys) == 2


def test_a_problem_has_the_key_with_which_to_ask_again() -> None:
    story = Story(start(), *[LOST] * 99)
    assert story.problem is not None
    assert (story.problem.code, story.problem.retriable) == ("unreachable", True)
    assert story.problem.key is not None
    assert {each.headers["Idempotency-Key"] for each in story.tries} == {story.problem.key.encode()}


@pytest.mark.parametrize("code", sorted(code for code, kind in KINDS.items() if kind.retriable))
def test_what_the_gateway_calls_retriable_is_tried_again(code: str) -> None:
    assert Story(start(), refused(code, retriable=True), done()).answer.run_id == "run_1"


@pytest.mark.parametrize("code", sorted(code for code, kind in KINDS.items() if not kind.retriable))
def test_what_it_does_not_is_raised_at_once(code: str) -> None:
    story = Story(start("k"), refused(code, retriable=False, status=409))
    assert story.problem is not None
    assert (story.problem.code, story.problem.status, story.problem.key) == (code, 409, "k")
    assert (story.problem.message, story.problem.details) == ("No.", {"more": 1})
    assert (len(story.tries), story.pauses) == (1, [])


def test_a_code_of_a_later_gateway_is_believed_about_itself() -> None:
    assert Story(start(), refused("quite_new", retriable=True), done()).answer
    assert Story(start(), refused("quite_new", retriable=False)).problem.code == "quite_new"


# --- when -------------------------------------------------------------------------------------------


def test_pauses_are_drawn_from_nothing_to_a_bound_that_doubles() -> None:
    story = Story(start(), *[LOST] * 99, within_s=10_000.0)
    bounds = [min(PAUSE_S_MAX, 0.1 * 2**number) for number in range(1, len(story.pauses) + 1)]
    assert all(0 <= pause <= bound for pause, bound in zip(story.pauses, bounds, strict=True))
    late = story.pauses[10:]
    assert (
        min(late) < PAUSE_S_MAX / 4 < 3 * PAUSE_S_MAX / 4 < max(late)
    )  # full jitter, not some around a mean


@pytest.mark.parametrize(
    "answer",
    [
        refused("max_concurrent_runs_reached", retriable=True, status=429, **{"retry-after": "7"}),
        page(503, **{"retry-after": "7"}),
        page(
            503, **{"retry-after": "Wed, 18 Nov 2026 12:00:07 GMT", "date": "Wed, 18 Nov 2026 12:00:00 GMT"}
        ),
    ],
    ids=["refusal", "stranger", "a moment"],
)
def test_retry_after_is_the_floor_of_the_pause(answer: WireAnswer) -> None:
    story = Story(start(), answer, answer, done())
    assert story.answer
    assert all(7 <= pause <= 7 + PAUSE_S_MAX for pause in story.pauses)
    assert story.pauses[0] != story.pauses[1]


@pytest.mark.parametrize("value", ["soon", "-1", "1e9", "", "²", "Mon, 01 Jan 99999999999 00:00:00 GMT"])
def test_a_retry_after_that_says_nothing_is_no_floor(value: str) -> None:
    now = "Wed, 18 Nov 2026 12:00:00 GMT"
    story = Story(start(), page(503, **{"retry-after": value, "date": now}), done())
    assert story.pauses[0] <= 0.2


def test_what_is_told_to_come_back_after_the_end_is_raised_at_once_and_says_when() -> None:
    full = refused("max_concurrent_runs_reached", retriable=True, status=429, **{"retry-after": "31"})
    story = Story(start("k"), full)
    assert story.problem is not None
    assert (story.problem.retry_after_s, story.problem.key, story.pauses) == (31.0, "k", [])


# --- for how long -----------------------------------------------------------------------------------


@pytest.mark.parametrize("slow_s", [0.0, 0.7, 5.0])
def test_no_try_is_longer_than_its_time_and_all_of_them_end_in_time(slow_s: float) -> None:
    story = Story(start(), *[LOST] * 99, slow_s=slow_s, within_s=12.0)
    assert story.problem is not None
    assert all(0 < each.for_s <= 5.0 for each in story.tries)
    began = 0.0
    for each, pause in zip(story.tries, [*story.pauses, 0.0], strict=True):
        assert began + each.for_s <= 12.0 + 1e-9
        began += slow_s + pause
    assert len(story.tries) > 1


def test_a_budget_shorter_than_a_try_is_the_bound_of_the_try() -> None:
    assert [each.for_s for each in Story(start(), LOST, within_s=2.0, tries=1).tries] == [2.0]


def test_there_are_no_more_tries_than_were_said() -> None:
    assert len(Story(start(), *[LOST] * 9, tries=3).tries) == 3
    assert Story(start(), LOST, LOST, done(), tries=3).answer


def test_what_the_gateway_is_asked_to_wait_is_not_taken_from_a_try() -> None:
    waiting = operations.start_run("hello", {}, wait="10s")
    (sent,) = Story(waiting, done()).tries
    assert (sent.headers["Prefer"], sent.for_s) == (b"wait=10", 15.0)
    (leasing,) = Story(operations.lease_jobs(["a"], wait_s=60), done({"jobs": []})).tries
    assert leasing.for_s == 65.0


# --- what is not safe to repeat ---------------------------------------------------------------------

FREE = done({"jobs": []})


@pytest.mark.parametrize(
    "answer",
    [NOBODY, refused("too_many_requests", retriable=True), refused("gateway_stopping", retriable=True)],
)
def test_a_lease_that_was_certainly_not_begun_is_tried_again(answer: WireAnswer | Silence) -> None:
    assert Story(operations.lease_jobs(["a"]), answer, FREE).answer.jobs == []


@pytest.mark.parametrize(
    "answer",
    [LOST, page(), refused("internal_error", retriable=True), refused("store_unavailable", retriable=True)],
)
def test_a_lease_that_may_have_been_given_is_not_asked_for_again(answer: WireAnswer | Silence) -> None:
    story = Story(operations.lease_jobs(["a"]), answer, FREE)
    assert story.problem is not None
    assert (len(story.tries), story.problem.retriable) == (1, True)


def test_a_deletion_whose_answer_was_lost_is_a_deletion() -> None:
    gone = refused("workflow_not_found", retriable=False, status=404)
    story = Story(operations.delete_workflow("hello"), LOST, gone)
    assert (story.answer.deleted, story.answer.replayed) == (True, True)
    for before in ((), (NOBODY,), (refused("too_many_requests", retriable=True),)):
        assert Story(operations.delete_workflow("hello"), *before, gone).problem.code == "workflow_not_found"


# --- what is no answer of a gateway -----------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        page(502),
        page(404),
        page(301, location="https://elsewhere"),
        WireAnswer(200, {"content-type": "text/html"}, b"<h1>Welcome</h1>"),
        WireAnswer(200, {"content-type": "application/json"}, b'{"hello": "world"}'),
        WireAnswer(200, {"content-type": "application/json"}, b"[]"),
        WireAnswer(204, {}, b""),
        WireAnswer(503, {"content-type": "application/problem+json"}, b'{"title": "Upstream"}'),
        WireAnswer(503, {"content-type": "application/problem+json"}, b"oops"),
        WireAnswer(
            503, {"content-type": "application/problem+json"}, b'{"code": 1, "retriable": 1, "detail": ""}'
        ),
        WireAnswer(503, {"content-type": "application/problem+json"}, b"[1]"),
    ],
)
@pytest.mark.parametrize("asking", [start, operations.get_tenant], ids=["start", "tenant"])
def test_a_strangers_answer_is_a_bad_gateway_and_tried_again(
    answer: WireAnswer, asking: Callable[[], Asking[Any]]
) -> None:
    story = Story(asking(), *[answer] * 99)
    assert story.problem is not None
    assert (story.problem.code, story.problem.retriable) == ("bad_gateway", True)
    assert story.problem.status == answer.status
    assert len(story.tries) > 2


def test_a_page_of_something_else_than_a_list_is_a_bad_gateway() -> None:
    wrong: tuple[Any, ...] = ({}, {"items": 1}, [], {"items": [{"job_id": 1}]})
    for body in wrong:
        request = operations.list_jobs().request()
        assert request is not None
        assert Story(request, done(body), tries=1).problem.code == "bad_gateway"


def test_members_of_a_later_gateway_are_in_the_raw_answer() -> None:
    story = Story(start(), done(STARTED | {"colour": "green"}))
    assert story.answer.raw["colour"] == "green"


# --- following a run --------------------------------------------------------------------------------


def run(status: str, ended_at: str | None = None) -> WireAnswer:
    at = "2026-11-18T12:00:00Z"
    return done(
        STARTED | {"status": status, "input": {}, "result": None, "error": None, "created_at": at,
                   "started_at": at, "ended_at": ended_at, "rerun_of": None, "steps": []}
    )  # fmt: skip


RUNNING, ENDED = run("running"), run("failed", "2026-11-18T12:00:09Z")


def followed(*answers: WireAnswer | Silence, within: str | None = None, **more: Any) -> Story:
    return Story(operations.wait_for_run("run_1", within), *answers, **more)


def test_a_run_is_looked_at_less_and_less_often_and_never_in_step() -> None:
    story = followed(*[RUNNING] * 200, ENDED, within="1h")
    assert story.answer.status == "failed"
    assert story.pauses[0] <= 0.05
    assert all(0.999 <= pause <= 2.0 for pause in story.pauses[20:])
    assert len(set(story.pauses)) == len(story.pauses)


@pytest.mark.parametrize("status", ["running", "waiting"])
def test_a_run_that_goes_on_is_still_running_when_time_is_over(status: str) -> None:
    story = followed(*[run(status)] * 99, within="20s")
    assert isinstance(story.problem, StillRunning)
    assert story.problem.run.status == status
    assert sum(story.pauses) == pytest.approx(20.0)
    assert "after 20s" in story.problem.message


def test_without_a_time_of_its_own_a_wait_takes_as_long_as_everything_else() -> None:
    assert sum(followed(*[RUNNING] * 99).pauses) == pytest.approx(30.0)


def test_a_gateway_that_is_away_for_a_while_does_not_end_the_wait() -> None:
    assert followed(RUNNING, NOBODY, LOST, page(), RUNNING, ENDED).answer.status == "failed"
    away = followed(RUNNING, *[NOBODY] * 99)
    assert isinstance(away.problem, StillRunning)
    assert isinstance(away.problem.__cause__, Problem)
    assert followed(*[NOBODY] * 99).problem.code == "unreachable"
    gone = refused("run_not_found", retriable=False, status=404)
    assert followed(RUNNING, gone).problem.code == "run_not_found"


def test_lists_ask_for_the_next_page_with_what_the_last_one_said() -> None:
    pages = operations.list_jobs(topic="a", limit=250)
    asked: list[dict[str, str]] = []
    for items, cursor in ((200, "c-1"), (50, "c-2")):
        request = pages.request()
        assert request is not None
        asked.append(dict(request.query))
        pages.took(ListedPage([None] * items, cursor))  # type: ignore[list-item]
    assert pages.request() is None
    assert asked == [{"topic": "a", "limit": "200"}, {"topic": "a", "limit": "50", "cursor": "c-1"}]
