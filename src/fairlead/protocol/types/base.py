"""What the shapes of all features share, and how they are read.

A value that a peer sent is read with `decode`, a list of them with `decode_items`: decoders are
built when a type is first read, and one bad item never loses the others.
"""

import types
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from ...wire.json import to_json

__all__ = [
    "HEADER_ANNOTATION",
    "Annotations",
    "BadItem",
    "CacheableResult",
    "Icon",
    "decode",
    "decode_items",
    "decoder",
    "encode",
]

# In the schema of a tool's argument: the HTTP header that repeats its value.
HEADER_ANNOTATION: Final = "x-mcp-header"

T = TypeVar("T")


class Icon(Struct, frozen=True, kw_only=True, rename="camel"):
    """A picture that a host may show next to a name."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET  # "48x48", or "any"
    theme: str | UnsetType = UNSET  # "light" or "dark"; a hint, so other words are let through


class Annotations(Struct, frozen=True, kw_only=True, rename="camel"):
    """Hints on whom a piece of content is for, and how much it matters."""

    audience: list[str] | UnsetType = UNSET  # of "user" and "assistant"
    priority: int | float | UnsetType = UNSET  # from 0 to 1
    last_modified: str | UnsetType = UNSET  # ISO 8601


class CacheableResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """A result that, in the stateless revisions, says how long and for whom it may be kept."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET  # "public" or "private"; read anything else as private
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class BadItem(Struct, frozen=True):
    """An item of a list that could not be read, and why."""

    index: int
    reason: str
    raw: bytes


def decoder(type_: type[T]) -> Decoder[T]:
    """The decoder for a type, built on first use."""
    key: Any = type_  # mypy does not believe that a `type[T]` can be hashed
    return _decoder(key)


def decode(raw: Raw | bytes, type_: type[T]) -> T:
    """Read a value that a peer sent.

    Many peers write `null` for an optional member that they should leave out; where the member
    could not be null, that is read as absent. Only values that do not fit at first pay for this.

    Raises:
        msgspec.DecodeError: the bytes are no JSON, or (`ValidationError`) not of that type.
    """
    try:
        try:
            return decoder(type_).decode(raw)
        except msgspec.ValidationError as misfit:
            return _mend(raw, type_, misfit)
    except (UnicodeDecodeError, RecursionError) as exc:  # both can hide in what came as `Raw`
        raise msgspec.DecodeError(str(exc)) from exc


def decode_items(items: Iterable[Raw], type_: type[T]) -> tuple[list[T], list[BadItem]]:
    """Read a peer's list item by item: those that could be read, and those that could not."""
    good: list[T] = []
    bad: list[BadItem] = []
    for index, item in enumerate(items):
        try:
            good.append(decode(item, type_))
        except msgspec.DecodeError as exc:
            bad.append(BadItem(index, str(exc), bytes(item)))
    return good, bad


def encode(value: Any) -> Raw:
    """A value as bytes, for the members that are kept as `Raw`."""
    return Raw(to_json(value))


@cache
def _decoder(type_: Any) -> Decoder[Any]:
    return Decoder(type_)


def _mend(raw: Raw | bytes, type_: type[T], misfit: msgspec.ValidationError) -> T:
    mended = _without_nulls(raw, type_)
    if mended is raw:
        raise misfit
    try:
        return decoder(type_).decode(mended)
    except msgspec.ValidationError:
        raise misfit from None  # it speaks of what the peer wrote, not of what we made of it


def _without_nulls(raw: Raw | bytes, type_: Any) -> Raw | bytes:
    """The same JSON without nulls where an optional member cannot be null; `raw` if it has none."""
    options = get_args(type_) if isinstance(type_, types.UnionType) else (type_,)
    structs = [
        option for option in options if isinstance(option, type) and issubclass(option, Struct)
    ]
    lists = [option for option in options if get_origin(option) is list]
    opening = bytes(raw).lstrip()[:1]
    if opening == b"{" and structs:
        return _members_without_nulls(raw, structs)
    if opening == b"[" and lists:
        (item_type,) = get_args(lists[0])
        items = _decoder(list[Raw]).decode(raw)
        mended = [_without_nulls(item, item_type) for item in items]
        if any(new is not old for new, old in zip(mended, items, strict=True)):
            return encode(mended)
    return raw


def _members_without_nulls(raw: Raw | bytes, structs: list[type[Struct]]) -> Raw | bytes:
    fields = {f.encode_name: f for type_ in structs for f in msgspec.structs.fields(type_)}
    members: dict[str, Raw] = _decoder(dict[str, Raw]).decode(raw)
    mended: dict[str, Raw | bytes] = {}
    for name, value in members.items():
        known = fields.get(name)
        if known is None:
            mended[name] = value
        elif bytes(value) != b"null" or known.required or Raw in get_args(known.type):
            mended[name] = _without_nulls(value, known.type)
    if len(mended) == len(members) and all(mended[name] is members[name] for name in members):
        return raw
    return encode(mended)
