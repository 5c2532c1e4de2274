"""idemkit on Redis, its store for most deployments; with typed codecs, not pickle, which it calls a risk."""

NAME, STORES = "idemkit", ("redis",)
INSTALL = ["idemkit==1.0.2", "redis==8.1.0", "hiredis==3.5.0"]
PROMISES = {
    "README, Method calls: the claim is atomic across processes; a duplicate waits": "races",
    "README, Limitations: method handlers heartbeat; leases by the storage clock": "slow-owner clocks-apart",
    "README, Limitations: fail_closed (the default) rejects": "store-away",
    "README, Glossary, Fingerprint: another payload is rejected; async first": "other-payload async",
}
BUSY = ("IdempotencyConflict",)


def options(effect, place):
    from idemkit import MethodConfig, RedisBackend

    returns = effect.__annotations__.get("return")
    codec = "dataclass" if hasattr(returns, "__dataclass_fields__") else "json"
    times = {"lease_ttl_seconds": place.lease_s, "expires_after_seconds": place.window_s}
    config = MethodConfig(
        key_fields=["order"],
        scope=lambda _: "shop",
        validation_fingerprint=lambda arguments: str(arguments["amount"]).encode(),
        result_codec="pydantic" if hasattr(returns, "model_dump") else codec,
        **{name: seconds for name, seconds in times.items() if seconds},
    )
    return {"backend": RedisBackend.from_url(place.url), "config": config}


def guard(effect, place):
    from idemkit import idempotent_sync

    return idempotent_sync(**options(effect, place))(effect)


def aguard(effect, place):
    from idemkit import idempotent

    return idempotent(**options(effect, place))(effect)
