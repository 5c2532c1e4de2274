"""pyidempotent on Redis, its store for production. It is asynchronous first; its sync side starts a loop
per call.
"""

NAME, STORES = "pyidempotent", ("redis",)
INSTALL = ["pyidempotent==0.1.0", "redis==8.1.0", "hiredis==3.5.0"]
PROMISES = {
    "README: race-safe, SET NX and an atomic claim": "races async",
    "README, Request fingerprinting": "other-payload",
}
BUSY = ("IdempotencyProcessing",)


def aguard(effect, place):
    import redis.asyncio
    from pyidempotent import idempotent
    from pyidempotent.backends.redis import RedisBackend

    return idempotent(
        backend=RedisBackend(redis.asyncio.from_url(place.url)),
        ttl=int(place.window_s or 86_400),
        key_extractor=lambda order, amount, **_: order,
    )(effect)
