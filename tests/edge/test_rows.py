"""Every row of the middleware's table, asked of a real FastAPI and a real Django application."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.edge.serving import USER, ShopProcess


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["code"], body["status"], body["type"]) == (code, status, f"urn:semel:problem:{code}")
    assert body["title"]
    assert body["detail"]
    assert "Idempotent-Replayed" not in answer.headers
    return body


def is_replay(answer: httpx.Response, first: httpx.Response) -> bool:
    return (
        answer.headers.get("Idempotent-Replayed") == "true"
        and answer.status_code == first.status_code
        and answer.content == first.content
    )


def test_the_first_has_the_applications_answer_and_a_repeat_has_it_again(
    shop: ShopProcess, key: str, what: str
) -> None:
    first = shop.post("/charges", what, key=key)
    assert first.status_code == 201
    assert first.json()["id"] == 1
    assert "Idempotent-Replayed" not in first.headers
    assert first.cookies["session"] == "secret"
    again = shop.post("/charges", what, key=f'"{key}"')
    assert is_replay(again, first)
    assert "Set-Cookie" not in again.headers
    kept = ("content-type", "content-length", "x-shop", "link")
    assert [again.headers.get_list(name) for name in kept] == [first.headers.get_list(name) for name in kept]
    assert shop.effects(what) == 1


def test_without_a_key_nothing_is_guarded(shop: ShopProcess, what: str) -> None:
    answers = [shop.post("/charges", what) for _ in range(2)]
    assert [answer.json()["id"] for answer in answers] == [1, 2]
    assert answers[0].json()["step"] is None


@pytest.mark.parametrize("method", ["PUT", "HEAD"])
def test_another_method_is_not_guarded(method: str, shop: ShopProcess, key: str, what: str) -> None:
    for _ in range(2):
        assert shop.post("/charges", what, key=key, method=method).status_code == 201
    assert shop.effects(what) == 2


def test_both_headers_count_and_have_to_agree(shop: ShopProcess, key: str, what: str) -> None:
    first = shop.post("/charges", what, headers={"X-Idempotency-Key": key})
    assert is_replay(shop.post("/charges", what, key=key, headers={"X-Idempotency-Key": key}), first)
    problem(
        shop.post("/charges", what, key=key, headers={"X-Idempotency-Key": "b"}),
        400,
        "idempotency_key_invalid",
    )
    assert shop.effects(what) == 1


def test_one_that_still_runs_is_in_flight(shop: ShopProcess, key: str, what: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shop.post, "/slow", what, key=key)
        shop.until_effect(what)
        second = shop.post("/slow", what, key=key)
        body = problem(second, 409, "idempotency_in_flight")
        assert body["retriable"] is True
        assert int(second.headers["Retry-After"]) >= 1
        shop.open_gate(what)
        assert first.result().status_code == 201
    assert is_replay(shop.post("/slow", what, key=key), first.result())
    assert shop.effects(what) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"body": "other"},
        {"path": "/charges?a=1"},
        {"path": "/orders/7/refund"},
        {"method": "PATCH"},
        {"headers": {"Content-Type": "text/html"}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_request_with_the_key_is_refused(
    other: dict[str, Any], shop: ShopProcess, key: str, what: str
) -> None:
    first = shop.post("/charges", what, key=key)
    sent = {"path": "/charges", "body": what, **other}
    body = problem(shop.post(**sent, key=key), 422, "idempotency_key_reused")
    assert body["retriable"] is False
    assert first.text not in str(body)
    assert shop.effects(what) == 1
    assert is_replay(shop.post("/charges", what, key=key), first)


def test_an_answer_in_doubt_is_unknown(shop: ShopProcess, key: str, what: str) -> None:
    first = shop.post("/status/502", what, key=key, variant="in-doubt")
    assert (first.status_code, first.json()["id"]) == (502, 1)
    body = problem(shop.post("/status/502", what, key=key, variant="in-doubt"), 409, "outcome_unknown")
    assert body["record_id"].startswith("rec_")
    assert shop.effects(what) == 1


def test_an_answer_longer_than_max_body_is_streamed_whole_and_not_kept(
    shop: ShopProcess, key: str, what: str
) -> None:
    first = shop.post("/stream?parts=3", what, key=key, variant="small")
    assert (first.status_code, len(first.content)) == (201, 3 * 65_536)
    body = problem(shop.post("/stream?parts=3", what, key=key, variant="small"), 409, "result_unavailable")
    assert body["record_id"].startswith("rec_")
    assert shop.effects(what) == 1


def test_a_stream_is_replayed_to_the_byte(shop: ShopProcess, key: str, what: str) -> None:
    first = shop.post("/stream?parts=5", what, key=key)
    assert len(first.content) == 5 * 65_536
    assert is_replay(shop.post("/stream?parts=5", what, key=key), first)
    assert shop.effects(what) == 1


def test_a_longer_request_is_not_handed_on(shop: ShopProcess, key: str, what: str) -> None:
    long = what + "x" * 1_000
    body = problem(shop.post("/charges", long, key=key, variant="small"), 413, "body_too_large")
    assert body["limit"] == 1_000
    assert shop.effects(long) == 0
    # Nothing is kept of it: the same key is free.
    assert shop.post("/charges", what, key=key, variant="small").status_code == 201


def test_a_longer_request_whose_length_nobody_announced_is_not_handed_on(shop: ShopProcess, key: str) -> None:
    parts = (b"y" * 600 for _ in range(2))
    headers = {**USER, "Idempotency-Key": key, "X-Variant": "small"}
    problem(shop.client.post("/charges", content=parts, headers=headers), 413, "body_too_large")


def test_a_key_is_missed_where_it_is_required(shop: ShopProcess, key: str, what: str) -> None:
    problem(shop.post("/charges", what, variant="required"), 400, "idempotency_key_missing")
    assert shop.effects(what) == 0
    assert shop.post("/charges", what, key=key, variant="required").status_code == 201


@pytest.mark.parametrize("bad", ["", '""', '"open', "k" * 256, "a\tb"])
def test_what_is_no_key_is_refused(bad: str, shop: ShopProcess, what: str) -> None:
    problem(shop.post("/charges", what, key=bad), 400, "idempotency_key_invalid")
    assert shop.effects(what) == 0


def test_a_key_belongs_to_its_caller(shop: ShopProcess, key: str, what: str) -> None:
    users = [
        {"Authorization": "Bearer of-ann"},
        {"Authorization": "Bearer of-bob"},
        {"X-API-Key": "Bearer of-ann"},
        {"Cookie": "session=of-ann"},
        {"Cookie": "sessionid=of-ann"},
        {"Cookie": "theme=dark; session=of-bob"},
    ]
    answers = [
        shop.post("/charges", f"{what} {number}", key=key, user=user) for number, user in enumerate(users)
    ]
    assert [answer.status_code for answer in answers] == [201] * len(users)
    again = [
        shop.post("/charges", f"{what} {number}", key=key, user=user) for number, user in enumerate(users)
    ]
    assert all(map(is_replay, again, answers))


def test_a_key_without_a_caller_is_refused_unless_all_are_one(shop: ShopProcess, key: str, what: str) -> None:
    problem(shop.post("/charges", what, key=key, user={}), 400, "idempotency_caller_unknown")
    problem(
        shop.post("/charges", what, key=key, user={"Cookie": "theme=dark; session="}),
        400,
        "idempotency_caller_unknown",
    )
    assert shop.effects(what) == 0
    first = shop.post("/charges", what, key=key, user={}, variant="shared")
    assert is_replay(shop.post("/charges", what, key=key, user={}, variant="shared"), first)
    assert shop.effects(what) == 1


def test_two_applications_on_one_ledger(shop: ShopProcess, key: str, what: str) -> None:
    one, other = (shop.post("/charges", what, key=key, variant=variant) for variant in ("", "other-app"))
    assert (one.json()["id"], other.json()["id"]) == (1, 2)
    assert one.json()["key"] != other.json()["key"]


def test_only_these_paths_are_guarded(shop: ShopProcess, key: str, what: str) -> None:
    for path, effects in (("/charges", 1), ("/orders/7/refund", 2), ("/status/201", 4)):
        for _ in range(2):
            answer = shop.post(path, what, key=f"{key}{path}", variant="some-paths")
            assert answer.status_code == 201
        assert shop.effects(what) == effects


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 413, 415, 422, 429])
def test_a_refusal_of_the_application_frees_the_key_for_any_request(
    status: int, shop: ShopProcess, key: str, what: str
) -> None:
    for number in (1, 2):
        assert shop.post(f"/status/{status}", what, key=key).json()["id"] == number
    corrected = shop.post("/charges", f"{what} corrected", key=key)
    assert corrected.status_code == 201
    assert is_replay(shop.post("/charges", f"{what} corrected", key=key), corrected)


@pytest.mark.parametrize("status", [200, 302, 402, 409, 500, 503])
def test_any_other_answer_is_replayed(status: int, shop: ShopProcess, key: str, what: str) -> None:
    first = shop.post(f"/status/{status}", what, key=key)
    assert first.status_code == status
    assert is_replay(shop.post(f"/status/{status}", what, key=key), first)
    assert shop.effects(what) == 1


def test_an_exception_counts_as_a_failure_of_the_server(shop: ShopProcess, key: str, what: str) -> None:
    assert shop.post("/raises", what, key=key).status_code == 500
    again = shop.post("/raises", what, key=key)
    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (500, "true")
    assert shop.effects(what) == 1


def test_an_exception_is_in_doubt_where_failures_are(shop: ShopProcess, key: str, what: str) -> None:
    assert shop.post("/raises", what, key=key, variant="in-doubt").status_code == 500
    problem(shop.post("/raises", what, key=key, variant="in-doubt"), 409, "outcome_unknown")
    assert shop.effects(what) == 1


def test_a_failure_frees_the_key_where_that_is_chosen(shop: ShopProcess, key: str, what: str) -> None:
    for path in ("/raises", "/status/503"):
        assert shop.post(path, what, key=key, variant="release").status_code >= 500
    assert shop.effects(what) == 2


def test_what_is_in_doubt_runs_again_where_that_is_chosen(shop: ShopProcess, key: str, what: str) -> None:
    for number in (1, 2):
        answer = shop.post("/status/500", what, key=key, variant="rerun")
        assert (answer.status_code, answer.json()["id"]) == (500, number)


def test_a_redirect_to_the_other_slash_takes_the_key_along(shop: ShopProcess, key: str, what: str) -> None:
    wrong, right = ("/slashed", "/slashed/") if shop.framework == "django" else ("/charges/", "/charges")
    redirected = shop.post(wrong, what, key=key)
    assert redirected.status_code in (301, 307)
    assert httpx.URL(redirected.headers["Location"]).path == right
    first = shop.post(right, what, key=key)
    assert first.status_code == 201
    # Whoever begins anew at the wrong address asks for the same.
    assert is_replay(shop.post(wrong, what, key=key), first)
    assert shop.effects(what) == 1


def test_the_request_is_a_step_of_what_the_handler_calls(shop: ShopProcess, key: str, what: str) -> None:
    body = f'{{"what": "{what}"}}'
    answers = [
        shop.post("/pay", body, key=key, headers={"Content-Type": "application/json"}) for _ in range(5)
    ]
    assert {answer.text for answer in answers} == {answers[0].text}
    paid = answers[0].json()["paid"]
    assert [line for line in shop.lines() if line.startswith(f"{what} paid")] == [f"{what} paid with {paid}"]


def test_a_handler_that_runs_again_meets_the_keys_of_its_tools(
    shop: ShopProcess, key: str, what: str
) -> None:
    body = f'{{"what": "{what}", "fails": "once"}}'
    headers = {"Content-Type": "application/json"}
    answers = [shop.post("/pay", body, key=key, headers=headers, variant="release") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [502, 201, 201]
    assert len({answer.json()["paid"] for answer in answers}) == 1
    assert shop.effects(what) == 2  # the handler ran again
    assert sum(line.startswith(f"{what} paid") for line in shop.lines()) == 1


def test_sixty_four_at_once_are_one(shop: ShopProcess, key: str, what: str) -> None:
    with ThreadPoolExecutor(64) as pool:
        sent = [pool.submit(shop.post, "/slow", what, key=key) for _ in range(64)]
        shop.until_effect(what)
        shop.open_gate(what)
        answers = [each.result() for each in sent]
    assert shop.effects(what) == 1
    assert {answer.status_code for answer in answers} <= {201, 409}
    assert len({answer.content for answer in answers if answer.status_code == 201}) == 1
    assert sum("Idempotent-Replayed" not in answer.headers for answer in answers if answer.is_success) == 1
    for answer in answers:
        if answer.status_code == 409:
            problem(answer, 409, "idempotency_in_flight")
