"""exactly-once on PostgreSQL, which it documents as the strongest, with a lease and a fingerprint."""

NAME, STORES = "exactly-once", ("postgres",)
INSTALL = ["exactly-once==0.2.1", "psycopg[binary]==3.3.8"]
GUARANTEES = (
    "README, Guarantees & limits: entered at most once per key across retries, concurrent workers, crashes"
)
PROMISES = {
    GUARANTEES: "races kills freezes clocks-apart dead-owner",
    "README: async callables have the same semantics": "async cancelled",
    "core.py: an exception does not commit and does not release": "interrupted exiting",
    "core.py: on_store_down='fail' is the default; KeyReuseError": "store-away store-lost other-payload",
}
BUSY = ()


def guard(effect, place):
    from exactly_once import Store, once

    return once(
        Store.postgres(place.url),
        key=lambda order, amount: order,
        fingerprint=lambda order, amount: [order, amount],
        lease_ttl=place.lease_s,
    )(effect)


aguard = guard
