"""kasper-idempotent on Redis, its store for several processes. It keeps results by pickle."""

NAME, STORES = "kasper-idempotent", ("redis",)
INSTALL = ["kasper-idempotent==0.1.0", "redis==8.1.0", "hiredis==3.5.0"]
PROMISES = {
    "README, How it works: the atomic claim prevents both from executing": "races",
    "README: sync and async handlers": "async",
}
BUSY = ("InProgress",)


def guard(effect, place):
    from kasper_idempotent import RedisStore, idempotent

    window_s = int(place.window_s or 86_400)
    return idempotent(store=RedisStore(place.url), key=lambda order, amount: order, ttl=window_s)(effect)


aguard = guard
