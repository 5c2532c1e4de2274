"""`INSERT … ON CONFLICT DO NOTHING` by hand in SQLite, in its write-ahead log. A connection per thread."""

import json
import sqlite3
import threading

NAME, STORES = "INSERT … ON CONFLICT by hand", ("sqlite",)
INSTALL = []
PROMISES = {"SQLite, UPSERT: DO NOTHING inserts no second row": "races"}
BUSY = ("InFlight",)
CLAIM = "INSERT INTO done (key) VALUES (?) ON CONFLICT DO NOTHING RETURNING key"


def guard(effect, place):
    own = threading.local()

    def connected():
        connection = sqlite3.connect(place.url, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, result TEXT)")
        return connection

    def call(order, amount):
        if not hasattr(own, "connection"):
            own.connection = connected()
        run = own.connection.execute
        if run(CLAIM, (order,)).fetchall():
            value = effect(order, amount)
            run("UPDATE done SET result = ? WHERE key = ?", (json.dumps(value), order))
            return value
        ((kept,),) = run("SELECT result FROM done WHERE key = ?", (order,)).fetchall()
        if kept is None:
            raise place.refused("InFlight")
        return json.loads(kept)

    return call
