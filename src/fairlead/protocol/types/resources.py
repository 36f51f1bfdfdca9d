"""Resources: what a server lets a host read."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

from .base import Annotations, CacheableResult, Icon, Page, PaginatedParams
from .content import ResourceContents

__all__ = [
    "ListResourceTemplatesParams",
    "ListResourceTemplatesResult",
    "ListResourcesParams",
    "ListResourcesResult",
    "ReadResourceParams",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceTemplate",
    "SubscribeParams",
    "UnsubscribeParams",
]

ListResourcesParams = PaginatedParams
ListResourceTemplatesParams = PaginatedParams


class Resource(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that can be read by its URI."""

    uri: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    size: int | UnsetType = UNSET  # in bytes, before any encoding
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ResourceTemplate(Struct, frozen=True, kw_only=True, rename="camel"):
    """A family of resources, by a URI with blanks (RFC 6570)."""

    uri_template: str
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    annotations: Annotations | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ListResourcesResult(Page, frozen=True, kw_only=True, rename="camel"):
    """One page of a server's resources, each a `Resource`."""

    resources: list[Raw]


class ListResourceTemplatesResult(Page, frozen=True, kw_only=True, rename="camel"):
    """One page of a server's templates, each a `ResourceTemplate`."""

    resource_templates: list[Raw]


class ReadResourceParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Reads a resource, or reads it again with the answers the server asked for."""

    uri: str
    input_responses: dict[str, Raw] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class ReadResourceResult(CacheableResult, frozen=True, kw_only=True, rename="camel"):
    """The contents of a resource, each a `ResourceContents`; a directory may hold several."""

    contents: list[Raw]


class SubscribeParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Starts or ends being told of changes to one resource (until 2025-11-25)."""

    uri: str
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


UnsubscribeParams = SubscribeParams
