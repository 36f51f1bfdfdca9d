"""Result fragments, represented as notifications for interceptors, journals and tapes.

MCP has no such notification: fragments are sent as separate events or as progress.
"""

from typing import Final

from msgspec import Raw, Struct

from ..wire import Notification
from ..wire.json import read_json

__all__ = ["FRAGMENT", "fragment_content", "fragment_notification"]

FRAGMENT: Final = "notifications/fairlead/fragment"


class _Part(Struct):
    content: Raw


def fragment_notification(content: bytes | Raw) -> Notification:
    """Build a notification from content blocks, which are given as a JSON array."""
    return Notification(FRAGMENT, Raw(b'{"content":%b}' % bytes(content)))


def fragment_content(note: Notification) -> Raw | None:
    """Return a fragment's content blocks; None if an interceptor removed them."""
    part = read_json(note.params, _Part, None)
    # A copy, because a `Raw` keeps the whole message in memory.
    return None if part is None else part.content.copy()
