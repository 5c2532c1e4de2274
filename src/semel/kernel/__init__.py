"""What everything stands on: the record and its pure transitions, keys, clock, limits. No store, no network."""
