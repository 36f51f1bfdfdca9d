"""Summary of a recorded message, without decoding its content, which may be long."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...wire.json import UNREADABLE, read_json
from .format import TapeEntry

__all__ = ["MessageHeading", "message_heading", "summary", "summary_of"]


class MessageHeading(Struct):
    """The members of a message. Params, result and error are decoded only on request."""

    method: Any = None
    id: Any = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not UNSET

    @property
    def name(self) -> int | str | None:
        """The id, if its type is valid."""
        return self.id if isinstance(self.id, int | str) else None

    def read_params(self) -> dict[str, Any]:
        """Decode the params."""
        return read_json(self.params, dict[str, Any], {})

    def read_error(self) -> dict[str, Any]:
        """Decode the error."""
        return read_json(self.error, dict[str, Any], {})


_decode = msgspec.json.Decoder(MessageHeading).decode
_nothing = MessageHeading()


def message_heading(entry: TapeEntry) -> MessageHeading:
    """Return the members of an entry's message; none if the message is invalid."""
    try:
        return _decode(entry.message)
    except UNREADABLE:
        return _nothing


def summary_of(heading: MessageHeading) -> str:
    """Describe a message in a few words."""
    if heading.method is not None:
        target = _target(heading.params)
        return f"{heading.method} {target}" if target is not None else str(heading.method)
    if heading.error is not UNSET:
        told = heading.read_error()
        return f"error {told.get('code')}: {told.get('message')}"
    return "no message" if heading.result is UNSET else "result"


def summary(entry: TapeEntry) -> str:
    """Describe an entry's message in a few words."""
    return summary_of(message_heading(entry))


class _Aimed(Struct):
    name: Any = UNSET
    uri: Any = None


def _target(params: Raw | UnsetType) -> str | None:
    aimed = read_json(params, _Aimed, _Aimed())
    target = aimed.uri if aimed.name is UNSET else aimed.name
    return target if isinstance(target, str) else None
