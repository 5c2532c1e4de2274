"""idempotency-kit on Redis, with its own adapters for results, fingerprints, and a store that is missed told.

It is asynchronous only.
"""

NAME, STORES = "idempotency-kit", ("redis",)
INSTALL = ["idempotency-kit[redis]==0.5.0", "redis==8.1.0", "hiredis==3.5.0"]
PROMISES = {
    "README: a retry waits for its result; the action runs once": "races async",
    "coordinator.py: the owner renews its reservation while the action runs": "slow-owner window-closes",
    "coordinator.py: on_storage_error='raise' does not run the action": "store-away",
    "README, Request Fingerprints": "other-payload",
}
BUSY = ("IdempotencyInProgressError",)


def aguard(effect, place):
    from idempotency_kit import AsyncIdempotencyCoordinator, JsonResultAdapter, PydanticResultAdapter
    from idempotency_kit.core.fingerprint import fingerprint_of
    from idempotency_kit.core.services.domain import IdempotencyDomainService
    from idempotency_kit.infra.storage.redis.aio.repository import RedisAsyncIdempotencyRepository
    from redis.asyncio import Redis

    lease = {"in_flight_lease_seconds": int(place.lease_s)} if place.lease_s else {}
    repository = RedisAsyncIdempotencyRepository(Redis.from_url(place.url))
    coordinator = AsyncIdempotencyCoordinator(
        repository, IdempotencyDomainService(), on_storage_error="raise", **lease
    )
    returns = effect.__annotations__.get("return")
    adapter = PydanticResultAdapter(returns) if hasattr(returns, "model_dump") else JsonResultAdapter()

    async def call(order, amount):
        about, ttl_s = fingerprint_of(amount=amount), int(place.window_s or 86_400)
        arguments = ("pay", order, ttl_s, adapter, effect, order, amount)
        return await coordinator.coordinate(*arguments, idempotency_fingerprint=about)

    return call
