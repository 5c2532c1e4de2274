"""What everything stands on: the record and its pure transitions, keys, clock, limits, answers. No I/O."""
