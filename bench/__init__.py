"""`make bench`: the figures, side by side with raw store operations, in one run.

Everything is on that is on by default: audit, heartbeat, cache. "By hand" is the same durable writes with
plain sqlite3 (by_hand.py), redis-py (by_hand_redis.py) or pgbench (by_hand_postgres.py), as durable as the
other side: SQLite with synchronous FULL; Redis with an append-only file and appendfsync everysec; PostgreSQL
with fsync and synchronous_commit on. Servers are the bench's own; without them their rows are left out.

The sides of an experiment take turns, 15 rounds of them. A ratio is made of the two sides of one round, which
met the same noise, and the figure is the median of the rounds: on a busy machine the mean follows the worst
round, and the best round flatters.

A guarded call is one with new arguments in an open step; opening the step is not counted. Rows about a
million records make them in bulk first: by the store's own commands in memory, by its steps in a pipeline on
Redis, by two statements in SQLite and PostgreSQL. All their events are sealed before it counts.

It is no part of the wheel: it runs where the repository is. `python -m bench --help` says how.
"""
