"""Editing of encoded JSON that decodes only the values that change.

Changes are composed of small functions: an `Edit` changes a decoded object in place and returns
True if it changed anything; a `Rewrite` returns a changed or unchanged value. Functions that build
an edit or a rewrite return None if nothing can change, so that whole branches are left out.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from ..wire.json import UNREADABLE

__all__ = [
    "Edit",
    "Encoded",
    "Presence",
    "RawMembers",
    "Rewrite",
    "all_of",
    "apply",
    "each",
    "each_member",
    "edit_object",
    "encoded",
    "items_of",
    "members_of",
    "same_type",
    "string_of",
    "type_of",
    "within",
    "without",
    "without_keys",
]

Encoded = TypeVar("Encoded", Raw, bytes)

# Member names, with True for those that the reader knows.
Presence: TypeAlias = Mapping[str, bool]

RawMembers: TypeAlias = dict[str, Raw]
# Changes an object in place and returns True if it did.
Edit: TypeAlias = Callable[[RawMembers], bool]
# Returns the same object if the value stays unchanged, and None to remove the value.
Rewrite: TypeAlias = Callable[[Raw], Raw | None]


def all_of(*edits: Edit | None) -> Edit | None:
    """Combine several edits, applied in order."""
    steps = tuple(edit for edit in edits if edit is not None)
    if len(steps) < 2:
        return steps[0] if steps else None

    def edit(members: RawMembers) -> bool:
        changed = False
        for step in steps:
            changed = step(members) or changed
        return changed

    return edit


def edit_object(*edits: Edit | None) -> Rewrite | None:
    """Build the rewrite of an object. Values that are not objects stay unchanged."""
    edit = all_of(*edits)
    if edit is None:
        return None

    def rewrite(raw: Raw) -> Raw:
        members = members_of(raw)
        return encoded(members) if members is not None and edit(members) else raw

    return rewrite


def without(known: Presence) -> Edit | None:
    """Build an edit that removes the members that the reader does not know."""
    unknown = [name for name, present in known.items() if not present]
    if not unknown:
        return None

    def edit(members: RawMembers) -> bool:
        before = len(members)
        for name in unknown:
            members.pop(name, None)
        return len(members) < before

    return edit


def within(name: str, rewrite: Rewrite | None) -> Edit | None:
    """Build an edit that rewrites one member if it is present."""
    if rewrite is None:
        return None

    def edit(members: RawMembers) -> bool:
        old = members.get(name)
        new = None if old is None else rewrite(old)
        if new is old:
            return False
        if new is None:
            del members[name]
        else:
            members[name] = new
        return True

    return edit


def each(rewrite: Rewrite | None) -> Rewrite | None:
    """Build a rewrite of each item of an array."""
    if rewrite is None:
        return None

    def rewrite_all(raw: Raw) -> Raw:
        old = items_of(raw)
        if old is None:
            return raw
        new = [rewrite(item) for item in old]
        changed = any(after is not before for after, before in zip(new, old, strict=True))
        return encoded([item for item in new if item is not None]) if changed else raw

    return rewrite_all


def each_member(rewrite: Rewrite | None) -> Rewrite | None:
    """Build a rewrite of each value in an object that maps names to values of one type."""
    if rewrite is None:
        return None

    def edit(members: RawMembers) -> bool:
        step = all_of(*[within(name, rewrite) for name in members])
        return step is not None and step(members)

    return edit_object(edit)


def without_keys(name: str, known: Presence) -> Edit | None:
    """Build an edit that removes unknown keys from a map,
    and the map itself if it becomes empty.
    """
    unknown = edit_object(without(known))
    if unknown is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        rest = unknown(raw)
        return rest if rest is raw or members_of(rest) else None

    return within(name, rewrite)


_encoder: Final = msgspec.json.Encoder()
_object_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
_array_decoder: Final = msgspec.json.Decoder(list[Raw])
_string_decoder: Final = msgspec.json.Decoder(str)


def members_of(raw: Raw | bytes | None) -> RawMembers | None:
    """Return the members of an object; None for any other value."""
    try:
        return None if raw is None else _object_decoder.decode(raw)
    except UNREADABLE:
        return None


def items_of(raw: Raw | None) -> list[Raw] | None:
    """Return the items of an array; None for any other value."""
    try:
        return None if raw is None else _array_decoder.decode(raw)
    except UNREADABLE:
        return None


def string_of(raw: Raw | None) -> str | None:
    """Return the string that a JSON value contains; None for any other value."""
    try:
        return None if raw is None else _string_decoder.decode(raw)
    except UNREADABLE:
        return None


def type_of(block: Raw) -> str | None:
    members = members_of(block)
    return None if members is None else string_of(members.get("type"))


def encoded(value: object) -> Raw:
    return Raw(_encoder.encode(value))


def apply(rewrite: Rewrite | None, value: Encoded) -> Encoded:
    """Rewrite an encoded value. If nothing changes, the same object is returned."""
    if rewrite is None:
        return value
    raw = value if isinstance(value, Raw) else Raw(value)
    new = rewrite(raw)
    return value if new is None or new is raw else same_type(value, new)


def same_type(value: Encoded, new: Raw) -> Encoded:
    """Convert `new` to the type of `value`: a `Raw` is not `bytes`, despite its type stub."""
    return new if isinstance(value, Raw) else bytes(new)
