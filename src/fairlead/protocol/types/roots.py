"""Roots: the places on disk that a client lets a server work in."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import RequestParams

__all__ = ["ListRootsParams", "ListRootsResult", "Root"]

ListRootsParams = RequestParams


class Root(Struct, frozen=True, kw_only=True, rename="camel"):
    """One place, as a `file://` URI."""

    uri: str
    name: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ListRootsResult(Struct, frozen=True, kw_only=True, rename="camel"):
    """All roots of a client, each a `Root`."""

    roots: list[Raw]
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
