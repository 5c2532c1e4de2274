"""idempotency on Redis, its store for distributed systems; a second caller waits, a failure is kept."""

NAME, STORES = "idempotency", ("redis",)
INSTALL = ["idempotency==0.1.0", "redis==7.4.0"]
PROMISES = {
    "README: atomic lock acquisition with SET NX; safe for distributed systems": "races",
    "README, How it works: the state is tracked, which handles crashes": "killed-inside killed-after",
}
BUSY = ("LockTimeoutError",)


def guard(effect, place):
    import redis
    from idempotency import idempotent
    from idempotency.stores import RedisStore

    store = RedisStore(redis.Redis.from_url(place.url), prefix="shop:")
    return idempotent(
        ttl=place.window_s or 86_400,
        store=store,
        key=lambda order, amount: order,
        on_duplicate="wait",
        on_failure="lock",
    )(effect)
