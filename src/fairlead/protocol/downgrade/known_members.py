"""Which revisions have which members; a member without an entry here is always kept."""

from typing import Final

from ..json_edit import Presence
from ..revisions import Revision

__all__ = [
    "SERVER_INFO_KEY",
    "annotations_members",
    "block_members",
    "cache_members",
    "capabilities_members",
    "elicitation_members",
    "extensions_members",
    "implementation_members",
    "meta_members",
    "named_members",
    "tool_members",
]


SERVER_INFO_KEY: Final = "io.modelcontextprotocol/serverInfo"


def block_members(revision: Revision) -> Presence:
    """Members of every content block, and of the contents of resources."""
    return {
        "_meta": revision.meta_everywhere,
    }


def annotations_members(revision: Revision) -> Presence:
    """Members of the annotations of blocks and resources."""
    return {
        "lastModified": revision.last_modified,
    }


def named_members(revision: Revision) -> Presence:
    """Members of everything that has a name: tools, prompts, resources."""
    return {
        "title": revision.titles,
        "icons": revision.icons,
        "_meta": revision.meta_everywhere,
    }


def tool_members(revision: Revision) -> Presence:
    """Members of a tool."""
    return {
        **named_members(revision),
        "outputSchema": revision.structured_output,
        "annotations": revision.tool_annotations,
        "execution": revision.core_tasks,
    }


def implementation_members(revision: Revision) -> Presence:
    """Members of `clientInfo` and `serverInfo`."""
    return {
        "title": revision.titles,
        "icons": revision.icons,
        "description": revision.implementation_details,
        "websiteUrl": revision.implementation_details,
    }


def capabilities_members(revision: Revision) -> Presence:
    """Capabilities of clients and servers."""
    return {
        "completions": revision.completions_capability,
        "elicitation": revision.elicitation,
        "tasks": revision.core_tasks,
        # New in the stateless revisions, but Apps use it before; extensions speak through `_meta`.
        "extensions": revision.meta_everywhere,
    }


def extensions_members(revision: Revision) -> Presence:
    """Extensions among the capabilities."""
    return {
        "io.modelcontextprotocol/tasks": revision.stateless,
    }


def elicitation_members(revision: Revision) -> Presence:
    """Params of an elicitation."""
    return {
        "mode": revision.rich_elicitation,
        "elicitationId": revision.elicitation_ids,
        "task": revision.core_tasks,
    }


def cache_members(revision: Revision) -> Presence:
    """Members of a result that may be kept."""
    return {
        "ttlMs": revision.stateless,
        "cacheScope": revision.stateless,
    }


def meta_members(revision: Revision) -> Presence:
    """Keys of `_meta` by which stateless peers introduce themselves on every message."""
    return {
        SERVER_INFO_KEY: revision.stateless,
        "io.modelcontextprotocol/protocolVersion": revision.stateless,
        "io.modelcontextprotocol/clientCapabilities": revision.stateless,
        "io.modelcontextprotocol/clientInfo": revision.stateless,
        "io.modelcontextprotocol/logLevel": revision.stateless,
        "io.modelcontextprotocol/subscriptionId": revision.stateless,
    }
