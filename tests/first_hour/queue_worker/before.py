"""A worker of a queue that delivers at least once: a message that was not acknowledged comes again."""

import os

import httpx

world = httpx.Client(base_url=os.environ["WORLD"], timeout=None)


def ship(order: str, address: str) -> dict[str, str]:
    answer = world.post("/parcels", json={"order": order, "address": address})
    parcel: dict[str, str] = answer.json()
    return parcel


while message := world.get("/queue").json():
    ship(**message["body"])
    world.post(f"/queue/{message['id']}/ack")
