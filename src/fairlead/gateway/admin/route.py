"""Routes of the gateway's pages, which `http_pages.py` and the `*_api.py` modules define."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from ...errors import ChannelClosed, ConfigError
from ...limits import ADMIN_BODY_BYTES
from ...protocol.caller import Principal
from ...transport.http.server.asgi import AsgiCall, BodyTooLarge

__all__ = ["BadRequest", "PageRequest", "Route", "mistakes", "number_of"]

MAX_BODY: Final = ADMIN_BODY_BYTES.value
_VALUE: Final = re.compile(r"\{(\w+)(:path)?\}")


class BadRequest(ConfigError):
    """The request itself is invalid."""


@contextmanager
def mistakes(*others: type[ConfigError]) -> Iterator[None]:
    """Raise `BadRequest` instead of `ConfigError`, except for the given subclasses."""
    try:
        yield
    except others:
        raise
    except ConfigError as exc:
        raise BadRequest(str(exc)) from exc


class PageRequest(Struct, frozen=True):
    """A request for a page: the call, the principal, and the values in the path."""

    call: AsgiCall
    principal: Principal
    values: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """The single value in the path."""
        return self.values[0]

    @property
    def number(self) -> int:
        """The single value in the path as a number. Raises `BadRequest` if it is not a number."""
        return number_of(self.value)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query. If a name occurs more than once, the last value counts."""
        query = parse_qs(self.call.scope.get("query_string", b"").decode("latin-1"))
        return {name: values[-1] for name, values in query.items()}

    async def body(self, kind: Any) -> Any:
        """Return the decoded body. A missing body is read as an empty object.

        Raises:
            BadRequest: The body is too large, or is not a value of this type.
            ConfigError: The client has disconnected.
        """
        try:
            raw = await self.call.body(MAX_BODY)
            return msgspec.json.decode(raw or b"{}", type=kind)
        except BodyTooLarge:
            ADMIN_BODY_BYTES.hit()
            raise BadRequest(f"the body is larger than {MAX_BODY} bytes") from None
        except ChannelClosed:
            raise ConfigError("the client has disconnected") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise BadRequest(f"invalid body: {exc}") from None


class Route:
    """An HTTP method and a path with the function that handles them.

    `{name}` in the path matches one segment, and `{name:path}` any number of segments. The handler
    returns the value to send as JSON, or an awaitable of it. Without a handler the route is
    disabled.
    """

    def __init__(
        self, method: str, path: str, handler: Callable[[PageRequest], object] | None
    ) -> None:
        self.method, self.path, self.handler = method, path, handler
        pattern = _VALUE.sub(lambda value: "(.*)" if value[2] else "([^/]+)", path)
        self._match = re.compile(pattern).fullmatch

    def values(self, path: str) -> tuple[str, ...] | None:
        """Return the values in a path; None if the path does not match."""
        found = self._match(path)
        return None if found is None else found.groups()

    def __str__(self) -> str:
        return f"{self.method} {_VALUE.sub(lambda value: value[1].upper(), self.path)}"


def number_of(text: str) -> int:
    """Parse a number of up to 15 digits. Raises `BadRequest` for any other text."""
    # `isdigit` alone accepts characters such as '²', which `int` refuses.
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise BadRequest(f"{text[:50]!r} is not a number")
    return int(text)
