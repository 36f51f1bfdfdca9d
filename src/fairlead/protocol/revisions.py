"""Published revisions of the protocol and their properties.

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
    """One published revision. Dates compare as strings, so `<` and `>=` mean older and newer."""

    V2024_11_05 = "2024-11-05"
    V2025_03_26 = "2025-03-26"
    V2025_06_18 = "2025-06-18"
    V2025_11_25 = "2025-11-25"
    V2026_07_28 = "2026-07-28"

    @property
    def stateless(self) -> bool:
        """Return True if requests carry their own metadata instead of a handshake at the start."""
        return self >= Revision.V2026_07_28

    @property
    def handshake(self) -> bool:
        """Return True if a conversation starts with `initialize`."""
        return not self.stateless

    @property
    def batches(self) -> bool:
        """Return True if a peer may send JSON-RPC arrays."""
        return self is Revision.V2025_03_26

    @property
    def resumable(self) -> bool:
        """Return True if an event stream over HTTP can be resumed after a loss."""
        return self in (Revision.V2025_03_26, Revision.V2025_06_18, Revision.V2025_11_25)

    @property
    def polling(self) -> bool:
        """Return True if event streams start with an id, so that the server may close them at any
        time.
        """
        return self is Revision.V2025_11_25

    @property
    def audio(self) -> bool:
        return self >= Revision.V2025_03_26

    @property
    def tool_annotations(self) -> bool:
        return self >= Revision.V2025_03_26

    @property
    def progress_message(self) -> bool:
        return self >= Revision.V2025_03_26

    @property
    def completions_capability(self) -> bool:
        """Return True if completions have a capability; 2024-11-05 has only the method."""
        return self >= Revision.V2025_03_26

    @property
    def resource_links(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def titles(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def last_modified(self) -> bool:
        """Return True if annotations may contain the time of the last change."""
        return self >= Revision.V2025_06_18

    @property
    def completion_context(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def meta_everywhere(self) -> bool:
        """Return True if `_meta` is allowed in tools, resources, prompts and content blocks."""
        return self >= Revision.V2025_06_18

    @property
    def elicitation(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def rich_elicitation(self) -> bool:
        """Return True if elicitation has the URL mode, titled and multiple choice, and all
        defaults.
        """
        return self >= Revision.V2025_11_25

    @property
    def icons(self) -> bool:
        return self >= Revision.V2025_11_25

    @property
    def implementation_details(self) -> bool:
        """Return True if an implementation may have a description and a website."""
        return self >= Revision.V2025_11_25

    @property
    def elicitation_ids(self) -> bool:
        """Return True if a URL elicitation has an id, by which its completion is reported."""
        return self is Revision.V2025_11_25

    @property
    def sampling_tools(self) -> bool:
        return self >= Revision.V2025_11_25

    @property
    def core_tasks(self) -> bool:
        return self is Revision.V2025_11_25

    @property
    def any_structured_value(self) -> bool:
        """Return True if structured output may be any JSON value; before, it must be an object."""
        return self >= Revision.V2026_07_28

    @property
    def null_error_id(self) -> bool:
        """Return True if errors for unreadable requests have `id: null`, else they have none."""
        return not self.stateless


HANDSHAKE = tuple(r for r in Revision if not r.stateless)
STATELESS = tuple(r for r in Revision if r.stateless)
NEWEST_HANDSHAKE = HANDSHAKE[-1]
NEWEST = STATELESS[-1]


def find_revision(name: str) -> Revision | None:
    """Return the revision of that name, or `None` if it is not supported."""
    return _BY_NAME.get(name)


def negotiate_revision(requested: str) -> Revision:
    """Return the revision with which a server responds to `initialize`.

    This is the requested revision if it is supported, otherwise the newest one with a handshake. A
    stateless revision is never negotiated by handshake, even if a client names one.
    """
    revision = find_revision(requested)
    return NEWEST_HANDSHAKE if revision is None or revision.stateless else revision


_BY_NAME = {revision.value: revision for revision in Revision}
