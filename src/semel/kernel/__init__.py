"""What everything stands on: the record and its pure transitions, keys, clock, limits. No I/O."""
