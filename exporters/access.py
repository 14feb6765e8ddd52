"""Who may read an endpoint: the address that it listens on, TLS, basic authentication, a token.

TLS and basic authentication as Prometheus exporters have them, except that the password is given (from the environment or a
file) and not its bcrypt hash, which would need one more dependency; a bearer token (Prometheus: `authorization:
{credentials_file: ...}`) opens it, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from rltriage.rules.config_checks import listen_address
from rltriage.rules.errors import DeliveryError


@dataclass(frozen=True, slots=True)
class Web:
    """How the endpoint is protected: PEM files for TLS, users with their passwords for basic authentication, a token."""

    cert_file: str = ""
    key_file: str = ""
    users: Mapping[str, str] | None = None
    token: str = ""

    def __repr__(self) -> str:
        token = "'***'" if self.token else "''"
        users = sorted(self.users or {})
        return f"Web(cert_file={self.cert_file!r}, key_file={self.key_file!r}, users={users}, token={token})"

    @property
    def asks(self) -> bool:
        """Whether a reader has to prove who they are."""
        return bool(self.users or self.token)

    def admits(self, authorization: str) -> bool:
        """Whether an Authorization header holds the token, or one of the users with the right password."""
        if not self.asks:
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return bool(self.token) and same(given.strip(), self.token)
        try:
            user, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:  # no base64, no UTF-8
            return False
        users = self.users or {}
        # An unknown user costs the same comparison as a known one.
        right = same(password, users.get(user, ""))
        return scheme.lower() == "basic" and user in users and right

    def challenges(self) -> list[str]:
        """What a refusal asks for, as values of WWW-Authenticate."""
        return ['Basic realm="rltriage"'] * bool(self.users) + ['Bearer realm="rltriage"'] * bool(self.token)


def claim(listen: str, web: Web, insecure: bool) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, or of a port of this machine alone, if this may be served as it is protected.

    Raises DeliveryError for what is no address, and for one that others can reach without TLS and authentication.
    """
    try:
        host, port = listen_address(listen)
    except ValueError as error:
        raise DeliveryError(str(error)) from None
    if not insecure and not is_local(host) and not (web.cert_file and web.asks):
        raise DeliveryError(
            f"{listen} can be reached from other machines without TLS and authentication: "
            "listen on 127.0.0.1, or configure both; serve and watch take --insecure"
        )
    return host, port


def same(given: str, secret: str) -> bool:
    """Whether two secrets are equal; the time that it takes says nothing about them, nor about their lengths."""
    one, other = (hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, secret))
    return hmac.compare_digest(one, other)


def is_local(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def tls_context(web: Web) -> ssl.SSLContext | None:
    """TLS 1.2 or newer with its certificate, None without one. Raises DeliveryError for files that do not fit."""
    if not web.cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(web.cert_file, web.key_file or None)
    except OSError as error:
        raise DeliveryError(
            f"cannot use the certificate {web.cert_file} with its key: {error}; give two PEM files that match"
        ) from None
    return context
