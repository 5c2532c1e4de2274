"""The ledger that users open, and what it does beside calls.

ledger        one tenant's way to a store             running    the calls under way
default       the one that nobody has to open
keeper        leases, late writes, counts             closing    calls are let end, then the store is closed
sweep         lapsed leases, closed windows, seals    counters   replays and refusals
records       records for people                      explain    a record in words
catalogue     what tools there are                    probing    probes in the background
request_keys  keys that came with requests for runs and jobs, whose windows the sweeper closes
doctor        is this store safe                      beyond     what knows of runs, handed over
"""
