"""Members that several types share, and the revisions that have them.

Members not listed here are always kept.
"""

from ..caller import (
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    SERVER_INFO_KEY,
    SUBSCRIPTION_KEY,
    VERSION_KEY,
)
from ..json_edit import Presence
from ..revisions import Revision

__all__ = ["block_members", "implementation_members", "meta_members", "named_members"]

_META = (
    VERSION_KEY,
    CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    SERVER_INFO_KEY,
    LOG_LEVEL_KEY,
    SUBSCRIPTION_KEY,
)


def block_members(revision: Revision) -> Presence:
    """Return the known members of content blocks and resource contents."""
    return {"_meta": revision.meta_everywhere}


def named_members(revision: Revision) -> Presence:
    """Return the known members of tools, prompts and resources."""
    return {
        "title": revision.titles,
        "icons": revision.icons,
        "_meta": revision.meta_everywhere,
    }


def implementation_members(revision: Revision) -> Presence:
    """Return the known members of `clientInfo` and `serverInfo`."""
    return {
        "title": revision.titles,
        "icons": revision.icons,
        "description": revision.implementation_details,
        "websiteUrl": revision.implementation_details,
    }


def meta_members(revision: Revision) -> Presence:
    """Return the `_meta` keys in which stateless peers describe themselves in every message."""
    return dict.fromkeys(_META, revision.stateless)
