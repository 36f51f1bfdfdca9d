"""Where a server is: its URL, taken apart once."""

import base64
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from msgspec import Struct

from .....errors import ConfigError

__all__ = ["EndpointUrl", "basic_authorization", "host_of", "same_origin"]

_PORTS = {"http": 80, "https": 443}


class EndpointUrl(Struct, frozen=True):
    """An HTTP endpoint, perhaps behind a unix socket."""

    url: str  # what is asked for, without credentials
    socket: str | None = None  # the path of a unix socket
    authorization: str | None = None  # of credentials that stood in the URL

    @classmethod
    def parse(cls, url: str) -> "EndpointUrl":
        """Read a URL. Without a path it means `/mcp`; `unix:///run/x.sock#/mcp` names a socket.

        Raises:
            ConfigError: if no server can be reached by it.
        """
        try:
            parts = urlsplit(url.strip())
            port = parts.port
        except ValueError as exc:
            raise ConfigError(f"Not a URL: {exc}") from exc
        if parts.scheme == "unix":
            if not parts.path.startswith("/") or parts.netloc:
                raise ConfigError("A unix socket is written unix:///path/to.sock#/mcp")
            inner = "/" + (parts.fragment or "mcp").lstrip("/")
            return cls(f"http://localhost{inner}", unquote(parts.path))
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ConfigError("The URL of a server begins with http://, https:// or unix://")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = host if port is None else f"{host}:{port}"
        path = parts.path if parts.path not in ("", "/") or parts.query else "/mcp"
        plain = urlunsplit((parts.scheme, place, path or "/", parts.query, ""))
        return cls(plain, None, basic_authorization(parts.username, parts.password))

    def resolve(self, reference: str) -> str | None:
        """What a reference of the server means; None if it leads to another origin."""
        try:
            url = urljoin(self.url, reference.strip()).partition("#")[0]
        except ValueError:
            return None
        return url if same_origin(url, self.url) else None


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs lead to the same scheme, host and port."""
    return _origin(one) == _origin(other) is not None


def host_of(url: str) -> str:
    """Who it is, for people: without path and query, which may hold secrets."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "another place"
    except ValueError:
        return "another place"


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        if parts.username is not None or parts.password is not None:
            return None  # somebody else's credentials are nobody's origin
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None


def basic_authorization(username: str | None, password: str | None) -> str | None:
    """Return the header value for the percent-encoded credentials of a URL."""
    if username is None and password is None:
        return None
    pair = f"{unquote(username or '')}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
