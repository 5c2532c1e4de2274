"""justonce on PostgreSQL, its store for a fleet; a second caller waits, a failure is not tried again."""

NAME, STORES, INSTALL = "justonce", ("postgres",), ["justonce==0.2.0", "psycopg[binary]==3.3.8"]
PROMISES = {
    "README, What it guarantees: two workers, same key: exactly one runs": "races",
    "README, Reconciliation: dies between effect and recording it: UNKNOWN": "killed-after killed-settling",
    "README, What it guarantees: another payload: KeyReuseError": "other-payload",
    "asyncio.py: the same for async functions": "async",
}
BUSY = ("OperationInFlightError", "InFlightTimeout")


def engine(kind, place):
    from justonce.core import OnInFlight
    from justonce.stores import PostgresStore

    times = {"ttl_seconds": place.lease_s, "retention_seconds": place.window_s}
    given = {name: seconds for name, seconds in times.items() if seconds}
    run = kind(PostgresStore(place.url), on_in_flight=OnInFlight.WAIT, wait_timeout=10, **given).run
    return lambda order, amount, pay: run(order, pay, payload=[order, amount], retry_on_failure=False)


def guard(effect, place):
    from justonce.core import Idempotent

    run = engine(Idempotent, place)
    return lambda order, amount: run(order, amount, lambda: effect(order, amount)).value


def aguard(effect, place):
    from justonce.asyncio import AsyncIdempotent

    run = engine(AsyncIdempotent, place)

    async def call(order, amount):
        return (await run(order, amount, lambda: effect(order, amount))).value

    return call
