"""Bounds on everything that comes from outside, checked before the effect."""

# A record is meant for identifiers and amounts; a megabyte is already a document passed by value.
ARGUMENT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20

# Deeper than any hand-written payload, shallow enough for every JSON parser's stack.
DEPTH_MAX = 64

# What HTTP intermediaries and other providers accept as an idempotency key.
KEY_BYTES_MAX = 255

# Conversation and step names go into every event of a call.
NAME_BYTES_MAX = 512

# Error texts are for people; the HTML page of a proxy is cut off.
MESSAGE_CHARS_MAX = 2_000

# Where an exception came from: a hundred frames with long names.
TRACEBACK_BYTES_MAX = 16 * 1024

# How long a lost settlement is repeated in the foreground before the caller is told that it is in doubt. A
# server that restarts is back by then; the store's URL may say otherwise.
SETTLE_WAIT_S = 5.0

# Settled records kept in the process: enough for the hot keys of a busy worker, small beside its own memory.
CACHE_RECORDS_MAX = 8_192
CACHE_BYTES_MAX = 16 << 20
