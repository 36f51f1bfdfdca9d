"""Resources: a server's data that a host can read."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Annotations, Icon

__all__ = ["Resource", "ResourceTemplate"]


class Resource(Struct, frozen=True, kw_only=True, rename="camel"):
    """Resource that can be read by its URI."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET  # size in bytes, before any encoding
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ResourceTemplate(Struct, frozen=True, kw_only=True, rename="camel"):
    """Family of resources, described by a URI template (RFC 6570)."""

    uri_template: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
