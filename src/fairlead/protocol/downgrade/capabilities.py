"""Capabilities of clients and servers, as a revision knows them."""

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
    """The capabilities of a client or a server, without those that `revision` does not have."""
    return apply(rewrite_capabilities(revision), capabilities)


@cache
def rewrite_capabilities(revision: Revision) -> Rewrite | None:
    """Clients and servers have theirs under different names, so one table serves both."""
    known = {
        "completions": revision.completions_capability,
        "elicitation": revision.elicitation,
        "tasks": revision.core_tasks,
        # New in the stateless revisions, but Apps use it before; extensions speak through `_meta`.
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
    """Leave out elicitation if it is by URL only: without its modes it would promise forms."""
    if revision.rich_elicitation:
        return None

    def edit(members: RawMembers) -> bool:
        modes = members_of(members.get("elicitation"))
        if not modes or "url" not in modes or "form" in modes:
            return False
        del members["elicitation"]
        return True

    return edit
