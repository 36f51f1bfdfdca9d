"""Types that all features share, and decoding of values from peers.

`decode` reads a value sent by a peer, and `decode_items` a list of values. Decoders are built on
first use. An invalid item of a list does not affect the others.
"""

import types
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.json import Decoder

from ...errors import RemoteProtocolError
from ...wire.error_codes import INVALID_REQUEST
from ...wire.json import to_json

__all__ = [
    "HEADER_ANNOTATION",
    "Annotations",
    "CacheableResult",
    "Icon",
    "decode",
    "decode_items",
    "decode_or_raise",
    "decoder",
    "encode",
]

# Member in a tool argument's schema that names the HTTP header for its value.
HEADER_ANNOTATION: Final = "x-mcp-header"

T = TypeVar("T")


class Icon(Struct, frozen=True, kw_only=True, rename="camel"):
    """Icon that a host may display next to a name."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET  # "48x48", or "any"
    theme: str | UnsetType = UNSET  # "light" or "dark"; a hint, so other values are accepted


class Annotations(Struct, frozen=True, kw_only=True, rename="camel"):
    """Hints about the audience and importance of content."""

    audience: list[str] | UnsetType = UNSET  # "user", "assistant" or both
    priority: int | float | UnsetType = UNSET  # importance, from 0 to 1
    last_modified: str | UnsetType = UNSET  # time in ISO 8601 format


class CacheableResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """Result with a time to live and a cache scope, in the stateless revisions."""

    ttl_ms: int | UnsetType = UNSET
    cache_scope: str | UnsetType = UNSET  # "public" or "private"; treat other values as private
    result_type: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class BadItem(Struct, frozen=True):
    """Item of a list that could not be decoded, with the reason."""

    index: int
    reason: str


def decoder(type_: type[T]) -> Decoder[T]:
    """Return the decoder for a type, built on first use."""
    key: Any = type_  # mypy does not accept a `type[T]` as hashable
    return _decoder(key)


def decode(raw: Raw | bytes, type_: type[T]) -> T:
    """Decode a value from a peer.

    Many peers write `null` for an optional member that they should leave out. Such a null is
    treated as an absent member, unless the member may be null. Values are examined for nulls only
    if decoding fails.

    Raises:
        msgspec.DecodeError: The bytes are not JSON, or (`ValidationError`) not of that type.
    """
    try:
        try:
            return decoder(type_).decode(raw)
        except msgspec.ValidationError as misfit:
            return _mend(raw, type_, misfit)
    # Invalid UTF-8 and excessive nesting inside a `Raw` are found only when it is decoded.
    except (UnicodeDecodeError, RecursionError) as exc:
        raise msgspec.DecodeError(str(exc)) from exc


def decode_or_raise(raw: Raw | bytes, type_: type[T], what: str) -> T:
    """Decode a value like `decode`, but raise an error in which `what` names the value.

    Raises:
        RemoteProtocolError: The value is not JSON, or not of that type.
    """
    try:
        return decode(raw, type_)
    except msgspec.DecodeError as exc:
        raise RemoteProtocolError(f"{what} is malformed: {exc}", code=INVALID_REQUEST) from exc


def decode_items(items: Iterable[Raw], type_: type[T]) -> tuple[list[T], list[BadItem]]:
    """Decode a list from a peer item by item, and return the valid and the invalid items."""
    good: list[T] = []
    bad: list[BadItem] = []
    for index, item in enumerate(items):
        try:
            good.append(decode(item, type_))
        except msgspec.DecodeError as exc:
            bad.append(BadItem(index, str(exc)))
    return good, bad


def encode(value: Any) -> Raw:
    """Encode a value for a member that is kept as `Raw`."""
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
        # The first error describes the peer's text; the second would describe the changed text.
        raise misfit from None


def _without_nulls(raw: Raw | bytes, type_: Any) -> Raw | bytes:
    """Return the JSON without nulls of members that cannot be null; `raw` itself if it has none."""
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
