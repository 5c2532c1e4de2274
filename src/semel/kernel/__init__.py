"""What everything stands on: the record and its pure transitions, keys, clock, limits. No store, no network.

record     what is known of one key, and how it may change; the specification of every store
keys       canonical bytes, keys, fingerprints: what makes two calls one action
clock      time and chance, and nowhere else          durations  as people write them
limits     bounds on whatever comes from outside      owner      whose attempt; is its process gone
waiting    threads that wait for threads              large      JSON that is carried as bytes
answers    everything that is shown as JSON, typed    own_thread a blocking function, awaited
key_header the key that a client sends                problem_details  a refusal over HTTP
late_imports  a fork waits for those of first use    pools  what their processes do not inherit
"""
