"""What keeps pages of others out: Host, Origin, tokens of forms, and what a browser is told to refuse."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping

from semel.flow.problems import Refused
from semel.gateway.settings import GatewaySettings, is_loopback

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not `no-referrer`: with it a browser sends no Origin along with a form.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]@/\\]+)(:[0-9]*)?")


class Protection:
    def __init__(self, settings: GatewaySettings, secret_key: bytes) -> None:
        self._settings = settings
        self._key = hmac.new(secret_key, b"console forms", hashlib.sha256).digest()

    @property
    def secure(self) -> bool:
        """Whether browsers come by HTTPS only."""
        return (self._settings.public_url or "").startswith("https://")

    def check_host(self, headers: Mapping[str, str]) -> None:
        """The request names a host that is ours: a name of somebody else's may lead here too."""
        host = headers.get("host", "").lower()
        public = self._settings.public_url
        if host not in _names_of(public) if public else not self._is_ours(host):
            raise _not_ours("This console is not served under that name; see --public-url. Nothing was done.")

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match["name"].strip("[]")
        if is_loopback(name) or name == self._settings.host.strip("[]").lower():
            return True
        return not is_loopback(self._settings.host) and _is_address(name)

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """The form that is sent stood on a page of ours."""
        own = self._settings.public_url or f"http://{headers.get('host', '').lower()}"
        if headers.get("origin", "").lower() != own:
            raise _not_ours("This was not sent by a page of this console. Nothing was done.")

    def token_before(self, nonce: str) -> str:
        """Of the form with which somebody signs in, who has no session yet."""
        return hmac.new(self._key, nonce.encode(), hashlib.sha256).hexdigest()


def _names_of(public_url: str) -> tuple[str, ...]:
    """As browsers name the host, and as proxies do that add the port which goes without saying."""
    scheme, _, name = public_url.partition("://")
    return name, f"{name}:{443 if scheme == 'https' else 80}"


def _not_ours(message: str) -> Refused:
    """Whatever somebody's roles allow."""
    refused = Refused("forbidden", message)
    refused.title = "The request did not come by this console's own name and pages."
    return refused


def is_token(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _is_address(name: str) -> bool:
    """No name at all, so none that could be made to lead here."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
