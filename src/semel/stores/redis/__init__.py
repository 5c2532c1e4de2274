"""The store on a Redis server, or spread over a Redis Cluster.

store        what callers see                     commands     commands as script calls, answers as replies
records      lists of records, and one by its id  book         the pages on which they are listed
event_log    events and seals                     sweep        what lapsed, what is closed, what is too old
documents    documents                            queries      what all that is asked has in common
packed_records, packed_events, packed_documents   as bytes; first_form: as older releases wrote them
packing      what bytes have in common            scripts      steps/*.lua, one atomic step each
thread_connections, connection_pool   of threads, one each; what they ask: thread_requests
loop_connections                      of event loops, shared by their tasks
sentinel     which server is the primary now
nodes        which server has which lane          routing      where a request goes, and where it goes next
watcher      what others settle                   deferred     commands whose caller does not wait
settings     what the server says about itself    trouble      errors
options      the URL                              opening      the store's facts, and its lanes
"""

from semel.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
