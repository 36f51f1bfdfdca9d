"""What somebody asks of the admin API, read."""

from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from ..errors import ChannelClosed, ConfigError
from ..limits import ADMIN_BODY_BYTES
from ..transport.http.asgi import AsgiCall, TooLarge

__all__ = ["Mistake", "body_of", "number_of", "query_of"]

MAX_BODY: Final = ADMIN_BODY_BYTES.value


class Mistake(ConfigError):
    """Whoever asked did not say it right."""


async def body_of(call: AsgiCall, kind: Any) -> Any:
    """What was sent, as a value of this type; nothing is an empty object.

    Raises:
        Mistake: it is something else.
        ConfigError: whoever sent it has gone.
    """
    try:
        raw = await call.body(MAX_BODY)
        return msgspec.json.decode(raw or b"{}", type=kind)
    except TooLarge:
        ADMIN_BODY_BYTES.hit()
        raise Mistake(f"that is more than {MAX_BODY} bytes") from None
    except ChannelClosed:
        raise ConfigError("nobody is there any more") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Mistake(f"the body cannot be read: {exc}") from None


def query_of(call: AsgiCall) -> dict[str, str]:
    """What stands behind the `?`; the last one of a name counts."""
    query = parse_qs(call.scope.get("query_string", b"").decode("latin-1"))
    return {name: values[-1] for name, values in query.items()}


def number_of(text: str) -> int:
    """Raises `Mistake` for what is none."""
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Mistake(f"{text[:50]!r} is no number")
    return int(text)
