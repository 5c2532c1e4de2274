"""The ledger that users open, and what it does beside calls: renewing, sweeping, counting, explaining."""
