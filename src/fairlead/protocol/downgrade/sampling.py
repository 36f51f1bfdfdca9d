"""Sampling requests and sampled messages, as a revision knows them."""

from msgspec import Raw

from ..json_edit import (
    Edit,
    RawMembers,
    Rewrite,
    all_of,
    each,
    edit_object,
    items_of,
    members_of,
    within,
    without,
)
from ..revisions import Revision
from .content import edit_block, rewrite_union
from .downgrade_error import DowngradeError, refuse
from .tools import edit_tool_output, rewrite_tool

__all__ = ["edit_sampling", "rewrite_sampling_content"]


def edit_sampling(revision: Revision) -> Edit | None:
    return all_of(
        _sampling_tools(revision),
        within("messages", each(_sampling_message(revision))),
    )


def _sampling_tools(revision: Revision) -> Edit | None:
    """Tools cannot be left out of the question, but an empty list of them can."""
    if revision.sampling_tools:
        return within("tools", each(rewrite_tool(revision)))

    def edit(members: RawMembers) -> bool:
        choice = members.pop("toolChoice", None)
        tools = members.pop("tools", None)
        if tools is not None and items_of(tools) != []:
            raise DowngradeError(f"MCP {revision} has no tools in sampling")
        return tools is not None or choice is not None

    return edit


def _sampling_message(revision: Revision) -> Rewrite | None:
    return edit_object(
        without({"_meta": revision.sampling_tools}),  # both came with the same revision
        within("content", rewrite_sampling_content(revision)),
    )


def rewrite_sampling_content(revision: Revision) -> Rewrite | None:
    """One block, or, since sampling has tools, an array of them."""
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
    block = edit_block(revision)
    known = {"text": block, "image": block}
    if revision.audio:
        known["audio"] = block
    if revision.sampling_tools:
        known |= {"tool_use": block, "tool_result": all_of(block, edit_tool_output(revision))}
    else:
        refused = refuse(f"MCP {revision} has no use of tools in sampling")
        known |= {"tool_use": refused, "tool_result": refused}
    return rewrite_union(known, revision)
