"""Elicitation requests, as a revision knows them."""

from ..json_edit import (
    Edit,
    RawMembers,
    Rewrite,
    all_of,
    each_member,
    edit_object,
    encoded,
    items_of,
    members_of,
    string_of,
    within,
    without,
)
from ..revisions import NEWEST, Revision
from .downgrade_error import DowngradeError, refuse
from .known_members import elicitation_members

__all__ = ["edit_elicitation"]


def edit_elicitation(revision: Revision) -> Edit | None:
    if not revision.elicitation:
        return refuse(f"MCP {revision} has no elicitation")
    schema = edit_object(
        without({"$schema": revision.rich_elicitation}),
        within("properties", each_member(_question(revision))),
    )
    return all_of(
        _mode(revision), without(elicitation_members(revision)), within("requestedSchema", schema)
    )


def _mode(revision: Revision) -> Edit | None:
    """See that the revision has this way of asking."""
    if revision is NEWEST:
        return None
    modes = {"form", "url"} if revision.rich_elicitation else {"form"}

    def edit(members: RawMembers) -> bool:
        mode = string_of(members["mode"]) if "mode" in members else "form"
        if mode not in modes:
            raise DowngradeError(f"MCP {revision} has no elicitation in mode {mode!r}")
        if mode == "url" and revision.elicitation_ids and "elicitationId" not in members:
            raise DowngradeError(
                f"MCP {revision} has no elicitation by URL without an elicitationId"
            )
        return False

    return edit


def _question(revision: Revision) -> Rewrite | None:
    """One property of a form, in the words of the first revision that had forms."""
    if revision.rich_elicitation:
        return None

    def edit(members: RawMembers) -> bool:
        kind = string_of(members.get("type"))
        if kind == "array":
            raise DowngradeError(f"MCP {revision} has no elicitation with several choices")
        titled = _name_choices(members)
        defaulted = kind != "boolean" and members.pop("default", None) is not None
        return titled or defaulted

    return edit_object(edit)


def _name_choices(members: RawMembers) -> bool:
    """Write titled choices, `oneOf`, as two parallel arrays."""
    choices = [members_of(choice) for choice in items_of(members.get("oneOf")) or ()]
    options = [choice for choice in choices if choice and "const" in choice]
    if not options or len(options) != len(choices):
        return False
    del members["oneOf"]
    members["enum"] = encoded([option["const"] for option in options])
    members["enumNames"] = encoded([option.get("title", option["const"]) for option in options])
    return True
