"""Conversion of client and server capabilities to the form of a revision."""

from functools import cache

from ..json_edit import (
    Edit,
    Encoded,
    RawMembers,
    Rewrite,
    apply,
    edit_object,
    members_of,
    within,
    without,
    without_keys,
)
from ..methods import TASKS_EXTENSION
from ..revisions import Revision

__all__ = ["downgrade_capabilities", "rewrite_capabilities"]


def downgrade_capabilities(capabilities: Encoded, revision: Revision) -> Encoded:
    """Return the capabilities of a client or server without those that `revision` lacks."""
    return apply(rewrite_capabilities(revision), capabilities)


@cache
def rewrite_capabilities(revision: Revision) -> Rewrite | None:
    """Build the function that rewrites capabilities for a revision.

    One table serves clients and servers, because their capabilities have different names.
    """
    known = {
        "completions": revision.completions_capability,
        "elicitation": revision.elicitation,
        "tasks": revision.core_tasks,
        # MCP Apps use extensions also in handshake revisions, if the revision has `_meta`.
        "extensions": revision.meta_everywhere,
    }
    modes = {"form": revision.rich_elicitation, "url": revision.rich_elicitation}
    sampling = {"tools": revision.sampling_tools, "context": revision.sampling_tools}
    return edit_object(
        without(known),
        _forms_only(revision),
        within("elicitation", edit_object(without(modes))),
        within("sampling", edit_object(without(sampling))),
        within("roots", edit_object(without({"listChanged": revision.handshake}))),
        without_keys("extensions", {TASKS_EXTENSION: revision.stateless}),
    )


def _forms_only(revision: Revision) -> Edit | None:
    """Build an edit that removes an elicitation capability that has only the URL mode.

    If only the mode were removed, the capability would announce support for forms.
    """
    if revision.rich_elicitation:
        return None

    def edit(members: RawMembers) -> bool:
        modes = members_of(members.get("elicitation"))
        if not modes or "url" not in modes or "form" in modes:
            return False
        del members["elicitation"]
        return True

    return edit
