"""People who click, some of them five times, and go on asking with the same key until they have an answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

_PAUSE_S = 0.3
_RETRIABLE = frozenset((409, 429, 500, 502, 503, 504))


class Refused(Exception):
    """The shop said no, for good."""


@dataclass(slots=True)
class Click:
    """One order, as often as its buyer clicks."""

    order: str
    amount_minor: int
    buyer: str
    clicks: int
    requests: int = 0
    answers: list[str] = field(default_factory=list)

    async def send(self, shop: httpx.AsyncClient, chance: random.Random) -> None:
        """Every click has an answer. Refused."""
        await asyncio.gather(*(self._send_once(shop, chance) for _ in range(self.clicks)))

    async def _send_once(self, shop: httpx.AsyncClient, chance: random.Random) -> None:
        headers = {"Authorization": f"Bearer of-{self.buyer}", "Idempotency-Key": self.order}
        body = {"order": self.order, "amount_minor": self.amount_minor}
        while True:
            self.requests += 1
            floor_s = 0.0
            try:
                answer = await shop.post("/orders", json=body, headers=headers)
            except httpx.TransportError:
                pass  # nobody knows what became of it: the key does
            else:
                if answer.is_success:
                    self.answers.append(answer.text)
                    return
                if answer.status_code not in _RETRIABLE:
                    raise Refused(f"{self.order}: {answer.status_code} {answer.text}")
                floor_s = float(answer.headers.get("Retry-After", 0))
            await asyncio.sleep(floor_s + chance.uniform(0, _PAUSE_S))


async def shopping(
    shop: httpx.AsyncClient, buyer: str, chance: random.Random, open_still: Callable[[], bool]
) -> list[Click]:
    """One order after the other while the shop is open; each is answered."""
    ordered: list[Click] = []
    while open_still():
        click = Click(
            f"{buyer}-{len(ordered) + 1}",
            chance.randint(1, 500) * 100,
            buyer,
            chance.choice((1, 1, 2, 5)),
        )
        ordered.append(click)
        await click.send(shop, chance)
    return ordered
