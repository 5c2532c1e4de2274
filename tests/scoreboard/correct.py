"""An adapter that keeps every promise of the scoreboard: nothing is run again, whatever happened to the
first.
"""

import pickle
import sqlite3

NAME, STORES, INSTALL, BUSY = "correct", ("sqlite",), [], ()
PROMISES = {
    "here": "races async kills freezes interrupts outages window-closes clocks-apart other-payload "
    "dead-owner result-types plain-results"
}


def connected(place):
    connection = sqlite3.connect(place.url, isolation_level=None, timeout=5)
    connection.execute("CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, amount INT, result BLOB)")
    return connection


def claimed(place, order, amount):
    run = connected(place).execute
    if run(
        "INSERT INTO done (key, amount) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING 1", (order, amount)
    ).fetchall():
        return None
    ((known, kept),) = run("SELECT amount, result FROM done WHERE key = ?", (order,)).fetchall()
    if known != amount or kept is None:
        raise place.refused("OtherPayload" if known != amount else "InDoubt")
    return kept


def settled(place, order, value):
    connected(place).execute("UPDATE done SET result = ? WHERE key = ?", (pickle.dumps(value), order))
    return value


def guard(effect, place):
    def call(order, amount):
        kept = claimed(place, order, amount)
        return settled(place, order, effect(order, amount)) if kept is None else pickle.loads(kept)

    return call


def aguard(effect, place):
    async def call(order, amount):
        kept = claimed(place, order, amount)
        return settled(place, order, await effect(order, amount)) if kept is None else pickle.loads(kept)

    return call
