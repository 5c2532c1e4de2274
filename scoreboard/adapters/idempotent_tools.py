"""idempotent-tools on SQLite, its default store; a second caller waits for the first."""

NAME, STORES = "idempotent-tools", ("sqlite",)
INSTALL = ["idempotent-tools==0.1.1"]
PROMISES = {
    "README, Storage backends: thread-safe, stress-tested under concurrent threads": "race-of-tasks",
}
BUSY = ("DuplicateInFlightError", "TimeoutError")


def guard(effect, place):
    from idempotent_tools import SQLiteBackend, idempotent

    return idempotent(
        key_fn=lambda function, args, kwargs, context: args[0],
        backend=SQLiteBackend(db_path=place.url),
        ttl=place.window_s,
        on_duplicate="block",
        poll_timeout=10,
    )(effect)
