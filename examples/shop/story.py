"""The shop is open for a while, each part is killed at random all the time, and then the books are read."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx

import semel
from examples.shop.buyers import Click, shopping
from examples.shop.fulfilment import STEPS, WORKFLOW
from examples.shop.parts import PATIENCE_S, Part, Shop, opened
from examples.shop.provider import PARCELS, PAYMENTS
from semel.client import AsyncGateway

BUYERS = ("ann", "bob", "eve", "kim", "lee", "max")

# Between two deaths, on average less than a start takes: something is always down.
_KILL_PAUSE_S = (0.2, 1.2)
_PATIENCE = timedelta(seconds=PATIENCE_S)


@dataclass(frozen=True, slots=True)
class Ending:
    """What the story says, and what is not as it should be."""

    lines: list[str]
    wrong: list[str]


def play(
    folder: Path, seconds: float, seed: int, store: str | None = None, more: Sequence[Part] = ()
) -> Ending:
    """Open, trade under fire, close, count. `more` parts are killed too."""
    with opened(folder, store, more) as shop:
        try:
            orders = asyncio.run(_trade(shop, seconds, seed))
        except (Exception, asyncio.CancelledError) as error:
            error.add_note(shop.log()[-20_000:])
            raise
    return told(shop, orders, seconds, seed)


async def _trade(shop: Shop, seconds: float, seed: int) -> list[Click]:
    """Every order is answered, and every run has ended."""
    close_at = time.monotonic() + seconds

    def is_open() -> bool:
        return time.monotonic() < close_at

    # Each its own chance, so that how quick one is does not change what another does.
    chances = {name: random.Random(f"{seed} {name}") for name in ("killer", *BUYERS)}
    async with httpx.AsyncClient(base_url=shop.address, timeout=10.0) as client:
        await prepare(shop)
        async with asyncio.timeout(seconds + PATIENCE_S), asyncio.TaskGroup() as group:
            group.create_task(_kill(shop.parts, chances["killer"], is_open))
            buying = [group.create_task(shopping(client, name, chances[name], is_open)) for name in BUYERS]
        async with asyncio.timeout(PATIENCE_S):
            await runs_end(shop)
    return [order for each in buying for order in each.result()]


async def prepare(shop: Shop) -> None:
    async with AsyncGateway(shop.gateways[0], within=_PATIENCE) as gateway:
        await gateway.workflows.put(WORKFLOW, STEPS)
        # Runs of dead workers hold their slots for a while: there have to be enough of them.
        await gateway.tenants.put("default", 1_000)


async def _kill(parts: list[Part], chance: random.Random, is_open: Callable[[], bool]) -> None:
    """One at a time, in an order that nobody knows, and each as often as any other."""
    deck: list[Part] = []
    while is_open() or not all(part.kills for part in parts):
        deck = deck or chance.sample(parts, len(parts))
        await asyncio.sleep(chance.uniform(*_KILL_PAUSE_S))
        if deck[-1].kill():
            deck.pop()


async def runs_end(shop: Shop) -> None:
    async with AsyncGateway(shop.gateways[0], within=_PATIENCE) as gateway:
        async for run in gateway.runs.list(status="running"):
            await gateway.runs.wait(run.run_id)


# --- what became of it ------------------------------------------------------------------------------


def told(shop: Shop, orders: list[Click], seconds: float, seed: int) -> Ending:
    books = shop.books()
    done = {kind: books.all_done(kind) for kind in (PAYMENTS, PARCELS)}
    asked = {kind: books.times_asked(kind) for kind in (PAYMENTS, PARCELS)}
    books.close()
    with semel.open(shop.store) as ledger:
        in_doubt = len(ledger.records.list(state="in_doubt"))
    kills = ", ".join(f"{part.name} {part.kills}" for part in shop.parts)
    lines = [
        f"In {seconds:g} seconds {sum(part.kills for part in shop.parts)} processes were killed: {kills}"
        f" (seed {seed}).",
        f"{len(orders)} orders were placed with {sum(each.clicks for each in orders)} clicks, which took "
        f"{sum(each.requests for each in orders)} requests until each click had its answer.",
        f"The provider was asked for money {asked[PAYMENTS]} times and took it {len(done[PAYMENTS])} times.",
        f"It was asked for a parcel {asked[PARCELS]} times and sent {len(done[PARCELS])}.",
        f"In doubt at the end: {in_doubt}.",
    ]
    paid = Counter(f"{line.for_order} ({line.amount_minor})" for line in done[PAYMENTS])
    sent = Counter(line.for_order for line in done[PARCELS])
    wrong = [
        *_not_once("paid", paid, {f"{each.order} ({each.amount_minor})" for each in orders}),
        *_not_once("sent", sent, {each.order for each in orders}),
        *(f"{each.order} had different answers" for each in orders if len(set(each.answers)) != 1),
        *(f"{each.order} lacks answers" for each in orders if len(each.answers) != each.clicks),
        *([f"{in_doubt} records are in doubt"] if in_doubt else []),
        *(f"{part.name} was never killed" for part in shop.parts if not part.kills),
    ]
    return Ending(lines, wrong)


def _not_once(verb: str, counted: Counter[str], wanted: set[str]) -> list[str]:
    # Also what nobody ordered.
    every = sorted({*counted, *wanted})
    return [f"{each} was {verb} {counted[each]} times" for each in every if (each in wanted) != counted[each]]
