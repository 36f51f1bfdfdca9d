"""Subscriptions: a long-lived request in which a stateless server reports changes."""

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = ["ListenParams", "SubscriptionFilter"]


class SubscriptionFilter(Struct, frozen=True, kw_only=True, rename="camel"):
    """Changes that a client subscribes to, or that a server agrees to report."""

    tools_list_changed: bool | UnsetType = UNSET
    prompts_list_changed: bool | UnsetType = UNSET
    resources_list_changed: bool | UnsetType = UNSET
    resource_subscriptions: list[str] | UnsetType = UNSET  # URIs
    task_ids: list[str] | UnsetType = UNSET  # task ids (tasks extension)


class ListenParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Params that open a subscription; the filter cannot be changed later."""

    notifications: SubscriptionFilter
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
