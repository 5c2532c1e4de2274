"""A shop's API: POST /charges/{order} charges a card at the payment provider."""

import os

import httpx
import semel
from fastapi import FastAPI

app = FastAPI()
provider = httpx.Client(base_url=os.environ["WORLD"], timeout=None)


@semel.tool_contract
def charge_card(order: str, amount_minor: int) -> dict[str, str]:
    answer = provider.post("/charges", json={"order": order, "amount_minor": amount_minor})
    charge: dict[str, str] = answer.json()
    return charge


@app.post("/charges/{order}")
def charge(order: str, amount_minor: int) -> dict[str, str]:
    return semel.step(conversation=order, step="charge").run(charge_card, order, amount_minor)
