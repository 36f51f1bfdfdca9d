"""Published MCP revisions and their properties.

Differences between revisions are confined to this package: code above it reads the properties of a
`Revision` and never compares dates.
"""

from enum import StrEnum

__all__ = [
    "HANDSHAKE",
    "NEWEST",
    "NEWEST_HANDSHAKE",
    "STATELESS",
    "Revision",
    "find_revision",
    "negotiate_revision",
]


class Revision(StrEnum):
    """A published revision. Revisions are dates that compare as strings, so `<` means older."""

    V2024_11_05 = "2024-11-05"
    V2025_03_26 = "2025-03-26"
    V2025_06_18 = "2025-06-18"
    V2025_11_25 = "2025-11-25"
    V2026_07_28 = "2026-07-28"

    def __init__(self, date: str) -> None:
        # Attributes instead of properties, because nearly every message reads one of them.
        self.stateless = date >= "2026-07-28"  # requests contain their own metadata
        self.handshake = not self.stateless  # a conversation starts with `initialize`
        self.batches = date == "2025-03-26"  # a peer may send JSON-RPC arrays
        # An HTTP event stream can be resumed after the connection is lost.
        self.resumable = "2025-03-26" <= date <= "2025-11-25"
        # Event streams start with an id, so that the server may close them at any time.
        self.polling = date == "2025-11-25"
        self.audio = date >= "2025-03-26"
        self.tool_annotations = date >= "2025-03-26"
        self.progress_message = date >= "2025-03-26"
        # Completions have a capability; 2024-11-05 has only the method.
        self.completions_capability = date >= "2025-03-26"
        self.resource_links = date >= "2025-06-18"
        self.titles = date >= "2025-06-18"
        self.last_modified = date >= "2025-06-18"  # in annotations
        self.completion_context = date >= "2025-06-18"
        # `_meta` is allowed in tools, resources, prompts and content blocks.
        self.meta_everywhere = date >= "2025-06-18"
        self.elicitation = date >= "2025-06-18"
        # Elicitation has the URL mode, titled and multiple choices, and defaults for all types.
        self.rich_elicitation = date >= "2025-11-25"
        self.icons = date >= "2025-11-25"
        # An implementation may have a description and a website.
        self.implementation_details = date >= "2025-11-25"
        # A URL elicitation has an id, with which its completion is reported.
        self.elicitation_ids = date == "2025-11-25"
        self.sampling_tools = date >= "2025-11-25"
        self.core_tasks = date == "2025-11-25"
        # Structured output may be any JSON value; before, it must be an object.
        self.any_structured_value = date >= "2026-07-28"
        # True if errors for unreadable requests have `id: null`; otherwise they have no id.
        self.null_error_id = not self.stateless


HANDSHAKE = tuple(r for r in Revision if not r.stateless)
STATELESS = tuple(r for r in Revision if r.stateless)
NEWEST_HANDSHAKE = HANDSHAKE[-1]
NEWEST = STATELESS[-1]


def find_revision(name: str) -> Revision | None:
    """Return the revision with this name; None if it is not supported."""
    return _BY_NAME.get(name)


def negotiate_revision(requested: str) -> Revision:
    """Return the revision with which a server responds to `initialize`.

    This is the requested revision if it is supported and has a handshake, otherwise the newest
    revision with a handshake.
    """
    revision = find_revision(requested)
    return NEWEST_HANDSHAKE if revision is None or revision.stateless else revision


_BY_NAME = {revision.value: revision for revision in Revision}
