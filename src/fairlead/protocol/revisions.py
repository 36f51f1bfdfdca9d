"""The published revisions of the protocol, and what each of them has.

Differences between revisions end in this folder: code above it asks a `Revision` what it has and
never compares the dates themselves.
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
        """Whether requests carry their own metadata, instead of a handshake at the start."""
        return self >= Revision.V2026_07_28

    @property
    def handshake(self) -> bool:
        """Whether a conversation opens with `initialize`."""
        return not self.stateless

    @property
    def batches(self) -> bool:
        """Whether a peer may send JSON-RPC arrays."""
        return self is Revision.V2025_03_26

    @property
    def resumable(self) -> bool:
        """Whether a stream of events over HTTP can be taken up again after it broke."""
        return self in (Revision.V2025_03_26, Revision.V2025_06_18, Revision.V2025_11_25)

    @property
    def polling(self) -> bool:
        """Whether such a stream begins with an id, so that the server may hang up at will."""
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
        """2024-11-05 has the method but no flag for it."""
        return self >= Revision.V2025_03_26

    @property
    def structured_output(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def resource_links(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def titles(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def last_modified(self) -> bool:
        """Whether annotations may say when something last changed."""
        return self >= Revision.V2025_06_18

    @property
    def completion_context(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def meta_everywhere(self) -> bool:
        """Whether `_meta` may stand on tools, resources, prompts and content blocks."""
        return self >= Revision.V2025_06_18

    @property
    def elicitation(self) -> bool:
        return self >= Revision.V2025_06_18

    @property
    def rich_elicitation(self) -> bool:
        """URL mode, titled and multiple choice, defaults for every primitive."""
        return self >= Revision.V2025_11_25

    @property
    def icons(self) -> bool:
        return self >= Revision.V2025_11_25

    @property
    def implementation_details(self) -> bool:
        """Whether an implementation may describe itself and name its website."""
        return self >= Revision.V2025_11_25

    @property
    def elicitation_ids(self) -> bool:
        """Whether a URL elicitation has an id, by which the server reports its completion."""
        return self is Revision.V2025_11_25

    @property
    def sampling_tools(self) -> bool:
        return self >= Revision.V2025_11_25

    @property
    def core_tasks(self) -> bool:
        return self is Revision.V2025_11_25

    @property
    def any_structured_value(self) -> bool:
        """Whether structured output may be any JSON value; before, only an object."""
        return self >= Revision.V2026_07_28

    @property
    def null_error_id(self) -> bool:
        """Whether an error to an unreadable request says `id: null`; else it has no id."""
        return not self.stateless


HANDSHAKE = tuple(r for r in Revision if not r.stateless)
STATELESS = tuple(r for r in Revision if r.stateless)
NEWEST_HANDSHAKE = HANDSHAKE[-1]
NEWEST = STATELESS[-1]


def find_revision(name: str) -> Revision | None:
    """The revision of that name, or `None` if we do not speak it."""
    return _BY_NAME.get(name)


def negotiate_revision(requested: str) -> Revision:
    """What a server answers to `initialize`: what was asked for, else its newest with a handshake.

    A stateless revision is never negotiated by handshake, even if a client names one.
    """
    revision = find_revision(requested)
    return NEWEST_HANDSHAKE if revision is None or revision.stateless else revision


_BY_NAME = {revision.value: revision for revision in Revision}
