"""One call: the decorated tool, its step, the decider (`guard.py`, read it first) and the two drivers."""
