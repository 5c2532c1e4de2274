"""One key from the click to the payment, through all parts of the example shop, each a process of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import httpx
import pytest

from examples.shop.buyers import Click
from examples.shop.parts import PATIENCE_S, Shop, opened
from examples.shop.provider import PARCELS, PAYMENTS, Done
from examples.shop.story import prepare, runs_end
from tests.faults.places import PLACES


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: place.name)
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with opened(folder, request.param.url(folder)) as shop:
        asyncio.run(prepare(shop))
        yield shop


def clicked(shop: Shop, order: str, buyer: str = "ann", times: int = 5) -> list[str]:
    """What the buyer is answered, who clicks so many times at once."""
    click = Click(order, 14_000, buyer, times)

    async def main() -> None:
        async with httpx.AsyncClient(base_url=shop.address, timeout=PATIENCE_S) as client:
            await click.send(client, random.Random(7))

    asyncio.run(main())
    return click.answers


def done(shop: Shop, kind: str, order: str) -> list[Done]:
    books = shop.books()
    lines = [line for line in books.all_done(kind) if line.for_order == order]
    books.close()
    return lines


def test_one_click_sent_five_times_is_one_payment_and_five_equal_answers(shop: Shop) -> None:
    answers = clicked(shop, "order-1")
    assert answers == [answers[0]] * 5
    (payment,) = done(shop, PAYMENTS, "order-1")
    assert payment.amount_minor == 14_000
    assert payment.key[:12] in answers[0]
    asyncio.run(runs_end(shop))
    assert len(done(shop, PARCELS, "order-1")) == 1


def test_another_buyers_equal_key_is_another_order(shop: Shop) -> None:
    answers = [clicked(shop, "order-2", buyer, times=1) for buyer in ("ann", "bob")]
    assert answers[0] != answers[1]
    assert len(done(shop, PAYMENTS, "order-2")) == 2


@pytest.mark.full
def test_whoever_asks_when_all_that_answered_is_dead_has_the_same_answer(shop: Shop) -> None:
    answers = clicked(shop, "order-3")
    for part in shop.parts:
        part.kill()
    answers += clicked(shop, "order-3")
    assert answers == [answers[0]] * 10
    asyncio.run(runs_end(shop))
    assert [len(done(shop, kind, "order-3")) for kind in (PAYMENTS, PARCELS)] == [1, 1]
