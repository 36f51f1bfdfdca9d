"""What a client or server says it can do.

These structs build a declaration and read its known members by name. Declarations are open maps, so
messages carry them whole, as `Raw`; `methods.has_capability` looks up a path in one and takes odd
values more calmly.
"""

from typing import Final

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = [
    "DECLARED",
    "ClientCapabilities",
    "ElicitationCapability",
    "ListChangedCapability",
    "MissingCapability",
    "ResourcesCapability",
    "SamplingCapability",
    "ServerCapabilities",
    "TasksCapability",
]

DECLARED: Final = Raw(b"{}")  # a capability that is there and says no more


class ListChangedCapability(Struct, frozen=True, kw_only=True, rename="camel"):
    """A feature that may tell when its list has changed: tools, prompts, roots."""

    list_changed: bool | UnsetType = UNSET


class ResourcesCapability(Struct, frozen=True, kw_only=True, rename="camel"):
    """Resources, and what a server tells about them unasked."""

    subscribe: bool | UnsetType = UNSET
    list_changed: bool | UnsetType = UNSET


class SamplingCapability(Struct, frozen=True, kw_only=True, rename="camel"):
    """Sampling, and whether a request may bring tools or ask for context (from 2025-11-25)."""

    tools: Raw | UnsetType = UNSET
    context: Raw | UnsetType = UNSET


class ElicitationCapability(Struct, frozen=True, kw_only=True, rename="camel"):
    """The ways in which a user can be asked; neither given means form (modes from 2025-11-25)."""

    form: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET


class TasksCapability(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which requests may run as tasks (2025-11-25): `{"tools": {"call": {}}}` and the like."""

    list_: Raw | UnsetType = field(default=UNSET, name="list")
    cancel: Raw | UnsetType = UNSET
    requests: dict[str, dict[str, Raw]] | UnsetType = UNSET


class ClientCapabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client can be asked for."""

    experimental: dict[str, Raw] | UnsetType = UNSET
    extensions: dict[str, Raw] | UnsetType = UNSET
    roots: ListChangedCapability | UnsetType = UNSET
    sampling: SamplingCapability | UnsetType = UNSET
    elicitation: ElicitationCapability | UnsetType = UNSET
    tasks: TasksCapability | UnsetType = UNSET


class ServerCapabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server offers."""

    experimental: dict[str, Raw] | UnsetType = UNSET
    extensions: dict[str, Raw] | UnsetType = UNSET
    tools: ListChangedCapability | UnsetType = UNSET
    resources: ResourcesCapability | UnsetType = UNSET
    prompts: ListChangedCapability | UnsetType = UNSET
    completions: Raw | UnsetType = UNSET
    logging: Raw | UnsetType = UNSET
    tasks: TasksCapability | UnsetType = UNSET


class MissingCapability(Struct, frozen=True, kw_only=True, rename="camel"):
    """Data of error -32021: what the client would have had to declare, as a map of capabilities."""

    required_capabilities: Raw
