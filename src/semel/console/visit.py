"""One request as a page gets it: who is signed in, what they may ask, and how a page is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

import semel
from semel.console import words
from semel.console.operations import RouteOperations
from semel.console.protection import HEADERS
from semel.console.sessions import ConsoleSession
from semel.gateway import problems
from semel.gateway.services import Services
from semel.questions.refusals import Refusal
from semel.stores.urls import hide_password

ROOT = "/console"


def environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("semel.console"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        # Every value that a page shows; what a form sends back, or is copied, is written with `|e`, as it is.
        finalize=words.seen,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(version=semel.__version__, root=ROOT)
    templates.filters.update(
        exact=words.exact, pretty=words.pretty, whole=words.whole, brief=words.brief, plain=words.plain
    )
    return templates


_TEMPLATES = environment()


@dataclass
class PageVisit:
    """`form` has what was sent, if anything was."""

    request: Request
    services: Services
    session: ConsoleSession
    operations: RouteOperations
    now_us: int
    alone: bool
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Mapping[str, str]:
        return self.request.path_params

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def page(
        self, template: str, *, refused: Refusal | None = None, state: str = "", **facts: Any
    ) -> Response:
        """A page; if something was `refused`, the page says why, with the status that a route would give.

        What its address says of what was done is shown only where it agrees with the `state` of the thing.
        """
        told = self.query.get("told", "")
        if state not in _SO_WHILE.get(told, (state,)):
            told = ""
        status = 200 if refused is None else problems.status_of(refused)
        return rendered(template, status, **self._facts(refused, told), **facts)

    def refused(self, problem: Refusal) -> Response:
        """A page that says only why there is no other."""
        return rendered("refused.html", problems.status_of(problem), **self._facts(), problem=problem)

    def _facts(self, refused: Refusal | None = None, told: str = "") -> dict[str, Any]:
        operations, session = self.operations, self.session
        return {
            "me": session.caller,
            "may": operations.may,
            "token": session.form_token,
            "ago": lambda at: words.distance(at, self.now_us),
            "refused": refused,
            "told": TOLD.get(told),
            "undone": told in _UNDONE,
            "form": self.form,
            "alone": self.alone,
            "here": self.request.url.path,
            "address": address_of(self.request),
            "tenant": session.tenant,
            "command": self.command,
        }

    def command(self, *words: str, local: bool = False) -> str:
        """What does the same on a command line; `local`: where the store itself can be reached.

        No key and no password: it would stay on the screen.
        """
        import shlex

        where = ["--tenant", self.session.tenant] if self.session.tenant != "default" else []
        settings = self.services.settings
        if self.alone and hide_password(settings.url) == settings.url:
            where = ["--url", settings.url, *where]
        elif not (self.alone or local):
            here = f"{self.request.url.scheme}://{self.request.headers.get('host', '')}"
            where = ["--server", settings.public_url or here, *where]
        return shlex.join(["semel", *words, *where])

    def then(self, address: str, told: str) -> Response:
        """Done: the browser goes to the page that shows it, so that a reload does nothing again."""
        return redirect(f"{ROOT}{address}?told={told}")


def address_of(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


def rendered(template: str, status: int = 200, **facts: Any) -> HTMLResponse:
    defaults = {
        "me": None, "refused": None, "told": None, "undone": False, "alone": False, "here": "", "tenant": "",
    }  # fmt: skip
    return HTMLResponse(_TEMPLATES.get_template(template).render(defaults | facts), status, headers=HEADERS)


def redirect(address: str) -> RedirectResponse:
    return RedirectResponse(address, 303, headers=HEADERS)


# What a page says of what was just done: by a name in its address, so that no address can say anything else.
TOLD = {
    "signed-in-again": "Not done yet: your session had ended. You are signed in again, and what you entered "
    "is in its field. Look once more and send it.",
    "happened": "Settled: it happened. Whoever waits for this call, or repeats it, reads this answer; "
    "it does not run again. If the result was wrong, correct it below.",
    "did-not-happen": "Settled: it did not happen. The key is free: the next call with it runs.",
    "said-before": "The same was said before; this changed nothing.",
    "amended": "The result is corrected. Replays give it from now on.",
    "probed": "The probe was asked and could tell: the record is settled as it said.",
    "probe-cannot-tell": "The probe was asked, and cannot tell. Nothing was changed: ask the downstream.",
    "approved": "Approved. The job runs as soon as a worker, or the next call, takes it.",
    "rejected": "Rejected. It does not run; whoever asks is told so.",
    "already-approved": "It was approved before: your click repeated the decision and changed nothing.",
    "already-rejected": "It was rejected before: your click repeated the decision and changed nothing.",
    "cancelled": "Cancelled. Work that a worker already began is not undone.",
    "cancelled-before": "It was cancelled before; this changed nothing.",
    "rerun": "This is the new run.",
    "rerun-before": "This run was already begun by the same click; nothing was begun again.",
    "retried": "Sent again. It is handled as soon as a consumer takes it.",
    "retried-before": "It was sent again before; this changed nothing.",
}

# A kept address, or one that somebody sends, says it again later: in which states it is still so.
_SO_WHILE = {
    "happened": ("done",),
    "did-not-happen": ("cleared",),
    "said-before": ("done", "cleared"),
    "amended": ("done",),
    "probed": ("done", "cleared"),
    "probe-cannot-tell": ("in_doubt",),
    "approved": ("approved",),
    "already-approved": ("approved",),
    "rejected": ("rejected",),
    "already-rejected": ("rejected",),
    "cancelled": ("cancelled",),
    "cancelled-before": ("cancelled",),
}

_UNDONE = ("signed-in-again", "probe-cannot-tell")
