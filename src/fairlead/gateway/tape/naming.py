"""Messages whose ids say what they are of, so that those of two tapes can be compared."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from ...protocol.caller import SUBSCRIPTION_KEY
from .format import Entry
from .heading import Heading, heading_of, summary_of
from .reader import plain

__all__ = ["Named", "Namer", "same_names"]

Named = tuple[Entry, dict[str, Any]]


def same_names(entries: Iterable[Entry]) -> Iterator[Named]:
    """Entries with their messages, in which every id says what it is of."""
    namer = Namer()
    for entry in entries:
        of = namer.of(entry, heading_of(entry))
        yield entry, Namer.named(entry, of)


class Namer:
    """Remembers what was asked, in the order of a tape."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str | None, str, Any], str] = {}

    def of(self, entry: Entry, heading: Heading) -> str | None:
        """What a message answers or cancels; None for one that says itself what it is."""
        asked, session = self._asked, entry.session
        if heading.method is None:
            way = entry.dir.reverse().value
            return f"of {asked.pop((session, way, heading.name), 'nothing')}"
        if heading.is_request:
            asked[session, entry.dir.value, heading.name] = summary_of(heading)
        elif heading.method == "notifications/cancelled":
            named = heading.read_params().get("requestId")
            known = named if isinstance(named, int | str) else None
            return f"of {asked.get((session, entry.dir.value, known), 'nothing')}"
        return None

    @staticmethod
    def named(entry: Entry, of: str | None) -> dict[str, Any]:
        """A message with its names; `of` is what was said of it."""
        message = plain(entry)
        params = message.get("params")
        if "method" not in message:
            message["id"] = of
        elif "id" in message:
            message["id"] = "its own"
        elif of is not None and isinstance(params, dict):
            params["requestId"] = of
        for holder in (params, message.get("result")):
            if isinstance(holder, dict):
                _untoken(holder)
        return message

    @staticmethod
    def content(entry: Entry) -> int:
        """The same number for messages that carry the same, whatever their names are.

        Long results are not opened for that: should only names in them differ, so do the numbers,
        and whoever looks closer will see.
        """
        try:
            members = _members(entry.message)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return 0  # no message
        members.pop("id", None)
        carried = {name: bytes(raw) for name, raw in members.items()}
        cancels = carried.get("method") == b'"notifications/cancelled"'
        if cancels or b"progressToken" in carried.get("params", b""):
            carried["params"] = _without_names(members.get("params", Raw(b"{}")), cancels=cancels)
        return hash(tuple(sorted(carried.items())))


_members = msgspec.json.Decoder(dict[str, Raw]).decode


def _without_names(params: Raw, *, cancels: bool) -> bytes:
    held = msgspec.json.decode(params)
    if not isinstance(held, dict):
        return bytes(params)
    if cancels:
        held.pop("requestId", None)
    _untoken(held)
    try:
        return msgspec.json.encode(held)
    except OverflowError:  # a number too long for the encoder
        return bytes(params)


def _untoken(holder: dict[str, Any]) -> None:
    meta = holder.get("_meta")
    for place in (holder, meta):
        if isinstance(place, dict) and "progressToken" in place:
            place["progressToken"] = "a token"
    if isinstance(meta, dict) and SUBSCRIPTION_KEY in meta:
        meta[SUBSCRIPTION_KEY] = "a subscription"
