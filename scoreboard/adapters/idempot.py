"""idempot on Redis, by the core that its adapters for web frameworks share. It is asynchronous only."""

import json

NAME, STORES = "idempot", ("redis",)
INSTALL = ["idempot==1.0.0", "redis==8.1.0", "hiredis==3.5.0"]
PROMISES = {
    "README, How it works: a concurrent one with the same key polls for the first response": "races",
    "README, Client Usage: same key, replayed response": "async",
}
BUSY = ("KeyConflictError",)


def aguard(effect, place):
    from idempot.backends.redis import RedisBackend
    from idempot.core import execute
    from idempot.models import StoredResponse

    backend, times = RedisBackend(place.url), {"ttl": place.window_s, "lock_timeout": place.lease_s}
    given = {name: int(seconds) for name, seconds in times.items() if seconds}

    async def call(order, amount):
        async def handler():
            body = json.dumps(await effect(order, amount)).encode()
            return StoredResponse(status_code=200, headers={}, body=body)

        return json.loads((await execute(backend, order, handler, **given)).body)

    return call
