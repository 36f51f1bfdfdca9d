"""Conversion of elicitation and sampling requests to the form of a revision."""

from msgspec import Raw

from ..json_edit import (
    Edit,
    RawMembers,
    Rewrite,
    all_of,
    each,
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
from .downgrade_content import edit_block, edit_tool_output, rewrite_block, rewrite_tool
from .downgrade_error import DowngradeError, refuse

__all__ = ["edit_elicitation", "edit_sampling", "rewrite_sampling_content"]


def edit_elicitation(revision: Revision) -> Edit | None:
    if not revision.elicitation:
        return refuse(f"MCP {revision} has no elicitation")
    schema = edit_object(
        without({"$schema": revision.rich_elicitation}),
        within("properties", each_member(_question(revision))),
    )
    known = {
        "mode": revision.rich_elicitation,
        "elicitationId": revision.elicitation_ids,
        "task": revision.core_tasks,
    }
    return all_of(_mode(revision), without(known), within("requestedSchema", schema))


def _mode(revision: Revision) -> Edit | None:
    """Build an edit that raises `DowngradeError` if the revision lacks the elicitation's mode."""
    if revision is NEWEST:
        return None
    modes = {"form", "url"} if revision.rich_elicitation else {"form"}

    def edit(members: RawMembers) -> bool:
        # A missing mode means a form.
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
    """Build the rewrite of a form property for the first revision that had forms."""
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
    """Convert titled choices (`oneOf`) to two parallel arrays."""
    choices = [members_of(choice) for choice in items_of(members.get("oneOf")) or ()]
    options = [choice for choice in choices if choice and "const" in choice]
    if not options or len(options) != len(choices):
        return False
    del members["oneOf"]
    members["enum"] = encoded([option["const"] for option in options])
    members["enumNames"] = encoded([option.get("title", option["const"]) for option in options])
    return True


def edit_sampling(revision: Revision) -> Edit | None:
    return all_of(
        _sampling_tools(revision),
        within("messages", each(_sampling_message(revision))),
    )


def _sampling_tools(revision: Revision) -> Edit | None:
    """Build an edit that removes an empty tool list and raises `DowngradeError` for any other list.

    Tools cannot simply be left out, because the model would produce a different result.
    """
    if revision.sampling_tools:
        return within("tools", each(rewrite_tool(revision)))

    def edit(members: RawMembers) -> bool:
        choice = members.pop("toolChoice", None)
        tools = members.pop("tools", None)
        if tools is not None and items_of(tools) != []:
            raise DowngradeError(f"MCP {revision} does not support tools in sampling")
        return tools is not None or choice is not None

    return edit


def _sampling_message(revision: Revision) -> Rewrite | None:
    return edit_object(
        # The revision that introduced tools in sampling also introduced `_meta`.
        without({"_meta": revision.sampling_tools}),
        within("content", rewrite_sampling_content(revision)),
    )


def rewrite_sampling_content(revision: Revision) -> Rewrite | None:
    """Build the rewrite of message content: one block,
    or an array of blocks if sampling has tools.
    """
    one = _sampling_block(revision)
    several = each(one)
    if one is None or several is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        blocks = items_of(raw)
        if blocks is None:
            return one(raw)
        if revision.sampling_tools:
            return several(raw)
        if len(blocks) != 1 or members_of(blocks[0]) is None:
            raise DowngradeError(f"MCP {revision} has one block of content per sampling message")
        return one(blocks[0])

    return rewrite


def _sampling_block(revision: Revision) -> Rewrite | None:
    if not revision.sampling_tools:
        refused = refuse(f"MCP {revision} does not support tools in sampling")
        return rewrite_block({"tool_use": refused, "tool_result": refused}, revision)
    block = edit_block(revision)
    output = all_of(block, edit_tool_output(revision))
    return rewrite_block({"tool_use": block, "tool_result": output}, revision)
