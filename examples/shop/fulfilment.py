"""What follows an order: a run, which either of two gateways starts, and a worker that does its only step."""

from __future__ import annotations

import os
from itertools import cycle, islice

import semel
from examples.shop.downstream import send_parcel
from semel.client import Gateway, Problem

WORKFLOW = "fulfil"
STEPS = [{"id": "ship", "topic": "parcel.send"}]

# One try each, and then the other: where there is but one, the client's own tries are enough.
_gateways = [
    Gateway(url, try_for="2s", tries=1)
    for url in os.environ.get("SHOP_GATEWAYS", "http://127.0.0.1:8765").split(",")
]

# Each gateway three times: it may be on its way back.
_TRIES = 3


class NoGateway(Exception):
    """No gateway took the run; whether one started it is known to its key alone."""


def start(order: str, key: semel.Key) -> str:
    """The run's id, from whichever gateway answers: they share a store, so they know the key. NoGateway."""
    for gateway in islice(cycle(_gateways), _TRIES * len(_gateways)):
        try:
            return gateway.runs.start(WORKFLOW, {"order": order}, key).run_id
        except Problem as problem:
            if not problem.retriable:
                raise
    raise NoGateway


@semel.handler("parcel.send")
def ship(job: semel.Job) -> dict[str, str]:
    return {"parcel": send_parcel(job.input["order"])}
