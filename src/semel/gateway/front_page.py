"""`GET /`: the way to the console; where there is none, what is here, and what to type next."""

from __future__ import annotations

from html import escape

import semel
from semel.gateway.exchange import HttpReply
from semel.gateway.services import Services

MEDIA = "text/html; charset=utf-8"

DOCS = "https://github.com/semel-dev/semel/tree/main/docs"

_CONSOLE = 'pip install "semel[console]"'
_KEY = "semel keys create --tenant default --role admin --principal me"

_DEV = '<p>Nobody is asked who they are (<code>--dev</code>): see <a href="/api/v1/runs">the runs</a>.</p>'
_WITH_KEYS = f"<p>Make a key, where the store can be reached:</p>\n<pre>{escape(_KEY)}</pre>"

# No style, no script, nothing from elsewhere: it has to be read once.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'">
<title>Semel gateway</title>
</head>
<body>
<h1>Semel gateway {version}</h1>
<p>Runs, jobs, approvals and records are served under <code>/api/v1</code>.</p>
<ul>
<li><a href="/openapi.json">/openapi.json</a>: every address, what it takes and what it answers</li>
<li><a href="{docs}">The documentation</a></li>
<li><a href="/metrics">/metrics</a>, <a href="/healthz">/healthz</a>, <a href="/readyz">/readyz</a></li>
</ul>
<h2>Next</h2>
{next}
<p>To see and decide in a browser what needs a person, install the console and start the gateway again:</p>
<pre>{console}</pre>
</body>
</html>
"""


async def page(services: Services) -> HttpReply[str]:
    text = _PAGE.format(
        version=escape(semel.__version__),
        docs=escape(DOCS),
        next=_DEV if services.settings.dev else _WITH_KEYS,
        console=escape(_CONSOLE),
    )
    return HttpReply(text.encode(), media=MEDIA)


async def to_console(_: Services) -> HttpReply[str]:
    return HttpReply(b"", 303, MEDIA, location="/console/")
