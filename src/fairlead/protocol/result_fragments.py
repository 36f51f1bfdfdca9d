"""A part of a result, as interceptors, journals and tapes see it: as a notification.

On a wire it is an event of its own, or progress; there is no such message.
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
    """Some content blocks, a JSON array."""
    return Notification(FRAGMENT, Raw(b'{"content":%b}' % bytes(content)))


def fragment_content(note: Notification) -> Raw | None:
    """The content blocks of a part; None if somebody left none."""
    part = read_json(note.params, _Part, None)
    return None if part is None else part.content.copy()
