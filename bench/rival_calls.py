"""The same refund, guarded by another package: a process that is asked for calls by lines.

    .venv-rivals/bin/python bench/rival_calls.py PACKAGE STORE WHERE TASKS

`calls 500` does so many new calls, `replays 500` one new call and so many repeats of it; the answer is the
seconds that one took. `effects` is answered with how often the tool ran. It ends when its input does.

It runs in an environment that has no Semel, so it imports nothing of the bench. Each package is used as its
own documentation advises for a tool with a key of its own, with the check of the payload switched on where
there is one, and nothing else switched on or off.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from time import perf_counter
from typing import Any

effects = 0

# Of the round: like a step it is a part of each key, so that no round meets the keys of an earlier one.
conversation = ""


def refund(payment_id: str, amount_minor: int, reason: str) -> dict[str, str]:  # noqa: ARG001
    global effects
    effects += 1
    return {"refund_id": payment_id}


async def arefund(payment_id: str, amount_minor: int, reason: str) -> dict[str, str]:
    return refund(payment_id, amount_minor, reason)


# --- the packages: each gives the guarded tool, and what a round is made in -----------------------


def exactly_once(store: str, where: str, asynchronous: bool) -> tuple[Callable[..., Any], Any]:
    stores: dict[str, Callable[[], Any]] = {
        "memory": lambda: import_module("exactly_once.stores.memory").MemoryStore(),
        "sqlite": lambda: import_module("exactly_once.stores.sqlite").SQLiteStore(where),
        "redis": lambda: import_module("exactly_once.stores.redis").RedisStore(where),
    }
    guard = import_module("exactly_once").once(
        stores[store](),
        key=lambda payment_id, **_: f"{conversation}:refund:{payment_id}",
        fingerprint=lambda payment_id, amount_minor, **_: [payment_id, amount_minor],
    )
    return guard(arefund if asynchronous else refund), nullcontext


def agent_once(store: str, where: str, asynchronous: bool) -> tuple[Callable[..., Any], Any]:
    assert (store, asynchronous) == ("sqlite", False)
    once = import_module("once").Once(where)
    return once.tool(exclude=("reason",))(refund), lambda: once.scope(conversation)


def idemkit(store: str, where: str, asynchronous: bool) -> tuple[Callable[..., Any], Any]:
    assert (store, asynchronous) == ("redis", True)
    package = import_module("idemkit")
    backend = import_module("idemkit.backends.redis").RedisBackend.from_url(where)
    config = package.MethodConfig(
        key_fields=["payment_id"],
        scope=lambda _: conversation,
        validation_fingerprint=lambda arguments: str(arguments["amount_minor"]).encode(),
    )
    return package.idempotent(backend=backend, config=config)(arefund), nullcontext


def powertools(store: str, where: str, asynchronous: bool) -> tuple[Callable[..., Any], Any]:
    assert (store, asynchronous) == ("redis", False)
    package = import_module("aws_lambda_powertools.utilities.idempotency")
    caches = import_module("aws_lambda_powertools.utilities.idempotency.persistence.cache")
    client = import_module("redis").Redis.from_url(where)
    config = package.IdempotencyConfig(
        event_key_jmespath="[conversation, payment_id]", payload_validation_jmespath="amount_minor"
    )

    # It takes one argument that holds all the others.
    def of_data(*, data: dict[str, Any]) -> dict[str, str]:
        return refund(data["payment_id"], data["amount_minor"], data["reason"])

    guarded = package.idempotent_function(
        of_data,
        data_keyword_argument="data",
        persistence_store=caches.CachePersistenceLayer(client=client),
        config=config,
    )

    def call(**arguments: Any) -> Any:
        return guarded(data={"conversation": conversation, **arguments})

    return call, nullcontext


def fastapi_idempotency_key(store: str, where: str, asynchronous: bool) -> tuple[Callable[..., Any], Any]:
    """A request to an application behind its middleware, as bench/edge_sides.py makes it."""
    assert asynchronous
    package = import_module("fastapi_idempotency_key")
    backends = import_module("fastapi_idempotency_key.backends")
    backend = backends.MemoryBackend() if store == "memory" else backends.SQLiteBackend(where)

    async def application(_: Any, receive: Any, send: Any) -> None:
        await receive()
        refund("", 0, "")
        headers = [(b"content-type", b"application/json"), (b"content-length", b"19")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"charged":1400000}'})

    guarded = package.IdempotencyMiddleware(application, backend=backend)

    async def call(payment_id: str, **_: Any) -> None:
        async def receive() -> dict[str, Any]:
            return {
                "type": "http.request",
                "body": b'{"order":4711,"amount_minor":1400000}',
                "more_body": False,
            }

        async def send(message: dict[str, Any]) -> None:
            pass

        headers = [
            (b"host", b"shop"),
            (b"authorization", b"Bearer of-the-bench"),
            (b"content-type", b"application/json"),
            (b"idempotency-key", f"{conversation}:{payment_id}".encode()),
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/charges",
            "query_string": b"",
            "headers": headers,
        }
        await guarded(scope, receive, send)

    return call, nullcontext


PACKAGES = {
    "fastapi-idempotency-key": fastapi_idempotency_key,
    "exactly-once": exactly_once,
    "agent-once": agent_once,
    "idemkit": idemkit,
    "powertools": powertools,
}


# --- rounds ---------------------------------------------------------------------------------------


def arguments(number: int) -> dict[str, Any]:
    return {"payment_id": f"p-{number:06}", "amount_minor": 1_400_000, "reason": "damaged"}


@contextmanager
def round_of(number: int, within: Callable[[], Any]) -> Iterator[None]:
    global conversation
    conversation = f"round-{number}"
    with within():
        yield


def timed(tool: Callable[..., Any], work: str, count: int) -> float:
    if work == "replays":
        tool(**arguments(0))
    numbers = [0] * count if work == "replays" else range(count)
    all_arguments = [arguments(number) for number in numbers]
    began = perf_counter()
    for each in all_arguments:
        tool(**each)
    return (perf_counter() - began) / count


async def atimed(tool: Callable[..., Awaitable[Any]], work: str, count: int, tasks: int) -> float:
    each = count // tasks

    async def one_after_the_other(first: int) -> None:
        for number in range(first, first + each):
            await tool(**arguments(first if work == "replays" else number))

    if work == "replays":
        await asyncio.gather(*(tool(**arguments(task * each)) for task in range(tasks)))
    began = perf_counter()
    await asyncio.gather(*(one_after_the_other(task * each) for task in range(tasks)))
    return (perf_counter() - began) / (each * tasks)


def main(package: str, store: str, where: str, tasks: int) -> None:
    """`tasks` is 0 for a synchronous caller."""
    tool, within = PACKAGES[package](store, where, tasks > 0)
    print("ready", flush=True)
    with asyncio.Runner() as runner:
        for number, line in enumerate(sys.stdin):
            work, *count = line.split()
            if work == "effects":
                print(effects, flush=True)
                continue
            with round_of(number, within):
                if tasks:
                    took = runner.run(atimed(tool, work, int(count[0]), tasks))
                else:
                    took = timed(tool, work, int(count[0]))
            print(took, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
