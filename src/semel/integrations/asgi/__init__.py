"""An `Idempotency-Key` honoured in front of any ASGI application, by the guard of tool contracts.

middleware  which requests are guarded, and the order of checks
incoming    one request: its key, whose it is, its body
passage     the request on its way through the application: recorded while it streams, settled before its end
telling     what instrumentation hears of it
outgoing    what is answered in the application's place: a replay, a problem
"""

from semel.integrations.asgi.middleware import IdempotencyMiddleware

__all__ = ["IdempotencyMiddleware"]
