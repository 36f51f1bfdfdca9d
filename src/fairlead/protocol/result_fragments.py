"""A part of a result, as interceptors, journals and tapes see it: as a notification.

On a wire it is an event of its own, or progress; there is no such message.
"""

from typing import Final

import msgspec
from msgspec import Raw, Struct

from ..wire import Notification

__all__ = ["FRAGMENT", "fragment_content", "fragment_notification"]

FRAGMENT: Final = "notifications/fairlead/fragment"


class _Part(Struct):
    content: Raw


def fragment_notification(content: bytes | Raw) -> Notification:
    """Some content blocks, a JSON array."""
    return Notification(FRAGMENT, Raw(b'{"content":%b}' % bytes(content)))


def fragment_content(note: Notification) -> Raw | None:
    """The content blocks of a part; None if somebody left none."""
    if not isinstance(note.params, Raw):
        return None
    try:
        return msgspec.json.decode(note.params, type=_Part).content.copy()
    except (msgspec.DecodeError, RecursionError):
        return None
