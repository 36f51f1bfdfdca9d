"""Subscriptions: one long request under which a stateless server tells what changes."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = ["ListenParams", "SubscriptionFilter"]


class SubscriptionFilter(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which changes a client wants to hear of, or which of those a server will tell."""

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET  # URIs
    task_ids: list[str] | UnsetType = UNSET  # of the tasks extension


class ListenParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Opens a subscription; its filter never changes."""

    notifications: SubscriptionFilter
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
