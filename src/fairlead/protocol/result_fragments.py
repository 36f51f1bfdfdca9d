"""Part of a result, represented as a notification for interceptors, journals and tapes.

The protocol has no such notification: fragments are sent as events of their own or as progress.
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
    """Return a notification with content blocks, which are given as a JSON array."""
    return Notification(FRAGMENT, Raw(b'{"content":%b}' % bytes(content)))


def fragment_content(note: Notification) -> Raw | None:
    """Return the content blocks of a fragment, None if an interceptor removed them."""
    part = read_json(note.params, _Part, None)
    # A copy, because a `Raw` keeps the whole message in memory.
    return None if part is None else part.content.copy()
