"""The shop: `uvicorn examples.shop.app:app`. Store, provider and gateways come from the environment."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import semel
from examples.shop import fulfilment
from examples.shop.downstream import take_payment
from semel.integrations.asgi import IdempotencyMiddleware

app = FastAPI()
app.add_middleware(
    IdempotencyMiddleware,
    ledger=semel.open(),
    required=True,
    # All that the handler does has a key that follows from the client's, so it may run again: whatever it did
    # before is met again, and not repeated.
    on_5xx="release",
    on_unknown="rerun",
)


class Order(BaseModel):
    order: str
    amount_minor: int


@app.post("/orders", status_code=201)
def place(order: Order) -> dict[str, str]:
    payment = take_payment(order.order, order.amount_minor)
    request_key = semel.current_key()
    assert request_key is not None  # the middleware requires one
    run = fulfilment.start(order.order, request_key.part("fulfil"))
    return {"order": order.order, "payment": payment, "run": run}


@app.exception_handler(semel.errors.SemelError)
@app.exception_handler(fulfilment.NoGateway)
async def not_now(_: Request, error: Exception) -> JSONResponse:
    """Whatever could not be had now may be had later, with the same key."""
    later = getattr(error, "retriable", True)
    return JSONResponse({"problem": str(error)}, 503 if later else 500, {"Retry-After": "1"})
