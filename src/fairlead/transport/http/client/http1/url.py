"""Parsed URLs of servers."""

import base64
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from msgspec import Struct

from .....errors import ConfigError
from ....address_hint import shown_url, url_of_address

__all__ = ["EndpointUrl", "ascii_host", "basic_authorization", "host_of", "same_origin"]

_PORTS = {"http": 80, "https": 443}


class EndpointUrl(Struct, frozen=True):
    """URL of an HTTP endpoint, optionally on a unix socket."""

    url: str  # the URL without credentials
    socket: str | None = None  # the path of a unix socket
    authorization: str | None = None  # value of `Authorization` for the credentials in the URL

    @classmethod
    def parse(cls, url: str) -> "EndpointUrl":
        """Parse a URL. An empty path means `/mcp`; `unix:///run/x.sock#/mcp` selects a unix socket.

        Raises:
            ConfigError: The URL is invalid or has another scheme.
        """
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError:
            # Without the reason, which may quote a part of a password.
            raise ConfigError("Invalid server URL: its host or port is invalid") from None
        if parts.scheme == "unix":
            if not parts.path.startswith("/") or parts.netloc:
                raise ConfigError("Invalid unix socket URL: expected unix:///path/to.sock#/mcp")
            inner = "/" + (parts.fragment or "mcp").lstrip("/")
            return cls(f"http://localhost{inner}", unquote(parts.path))
        if parts.scheme not in _PORTS or not parts.hostname:
            probable = url_of_address(url.strip())
            hint = f"; did you mean {shown_url(probable)}?" if probable else ""
            raise ConfigError(f"Invalid server URL: expected http://, https:// or unix://{hint}")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = host if port is None else f"{host}:{port}"
        path = parts.path if parts.path not in ("", "/") or parts.query else "/mcp"
        # The fragment is dropped, as RFC 9110 (section 7.1) requires for request targets.
        plain = urlunsplit((parts.scheme, place, path or "/", parts.query, ""))
        return cls(plain, None, basic_authorization(parts.username, parts.password))

    def resolve(self, reference: str) -> str | None:
        """Resolve a reference sent by the server; return None if it points to another origin."""
        try:
            url = urljoin(self.url, reference.strip()).partition("#")[0]
        except ValueError:
            return None
        return url if same_origin(url, self.url) else None


def same_origin(one: str, other: str) -> bool:
    """Return True if two URLs have the same scheme, host and port."""
    return _origin(one) == _origin(other) is not None


def ascii_host(host: str) -> str:
    """Return a host name in the form in which it is resolved, and sent to a proxy.

    Raises:
        ValueError: The name is not a valid internationalised name.
    """
    # Also maps full-width digits and dots, so `１２７。0。0。1` is an IP address.
    return host if host.isascii() else host.encode("idna").decode("ascii")


def host_of(url: str) -> str:
    """Return the host for messages, without path and query, which may contain secrets."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "unknown host"
    except ValueError:
        return "unknown host"


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            # A URL with credentials sent by a server is never trusted, whatever its host.
            return None
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


def basic_authorization(username: str | None, password: str | None) -> str | None:
    """Return the header value for the percent-encoded credentials of a URL."""
    if username is None and password is None:
        return None
    pair = f"{unquote(username or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
