"""`INSERT … ON CONFLICT DO NOTHING` by hand: a row claims, an update keeps the result. A connection per
thread.
"""

import json
import threading

NAME, STORES = "INSERT … ON CONFLICT by hand", ("postgres",)
INSTALL = ["psycopg[binary]==3.3.8"]
PROMISES = {"PostgreSQL, INSERT: ON CONFLICT DO NOTHING inserts no second row": "races"}
BUSY = ("InFlight",)
TABLE = "CREATE TABLE IF NOT EXISTS done (key text PRIMARY KEY, result text)"
CLAIM = "INSERT INTO done (key) VALUES (%s) ON CONFLICT DO NOTHING RETURNING key"


def guard(effect, place):
    import psycopg

    own = threading.local()
    with psycopg.connect(place.url) as first:
        first.execute("SELECT pg_advisory_xact_lock(1)")
        first.execute(TABLE)

    def call(order, amount):
        if not hasattr(own, "connection"):
            own.connection = psycopg.connect(place.url, autocommit=True)
        run = own.connection.execute
        if run(CLAIM, (order,)).fetchone():
            value = effect(order, amount)
            run("UPDATE done SET result = %s WHERE key = %s", (json.dumps(value), order))
            return value
        (kept,) = run("SELECT result FROM done WHERE key = %s", (order,)).fetchone()
        if kept is None:
            raise place.refused("InFlight")
        return json.loads(kept)

    return call
