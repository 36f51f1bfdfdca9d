"""Conversion of content blocks, resources and tools to the form of a revision."""

from collections.abc import Mapping
from typing import Final

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
    type_of,
    within,
    without,
)
from ..revisions import NEWEST, Revision
from .known_members import block_members, named_members

__all__ = [
    "edit_block",
    "edit_resource",
    "edit_tool_output",
    "rewrite_block",
    "rewrite_content",
    "rewrite_contents",
    "rewrite_tool",
]


def rewrite_content(revision: Revision) -> Rewrite | None:
    """Build the rewrite of a content block in a tool result or prompt."""
    resource = within("resource", rewrite_contents(revision))
    further = {"resource": all_of(edit_block(revision), resource)}
    if revision.resource_links:
        further["resource_link"] = edit_resource(revision)
    return rewrite_block(further, revision)


def edit_block(revision: Revision) -> Edit | None:
    """Build the edit of the members that all block types share."""
    return all_of(without(block_members(revision)), _annotations(revision))


def rewrite_contents(revision: Revision) -> Rewrite | None:
    """Build the rewrite of resource contents, or of a root."""
    return edit_object(without(block_members(revision)))


def edit_resource(revision: Revision) -> Edit | None:
    """Build the edit of a resource, a resource template, or a resource link."""
    return all_of(without(named_members(revision)), _annotations(revision))


def _annotations(revision: Revision) -> Edit | None:
    return within("annotations", edit_object(without({"lastModified": revision.last_modified})))


def rewrite_block(further: Mapping[str, Edit | None], revision: Revision) -> Rewrite | None:
    """Build the function that rewrites a content block for an older revision.

    `further` has the edits for block types other than text, image and audio. Blocks whose type the
    revision lacks become text. Returns None for the newest revision: its blocks are sent unchanged,
    because extensions may add block types.
    """
    if revision is NEWEST:
        return None
    block = edit_block(revision)
    known = {"text": block, "image": block, **further}
    if revision.audio:
        known["audio"] = block

    def rewrite(raw: Raw) -> Raw:
        members = members_of(raw)
        if members is None:
            return raw
        kind = string_of(members.get("type"))
        if kind is not None and kind in known:
            edit = known[kind]
            return encoded(members) if edit is not None and edit(members) else raw
        text = _stand_in(kind, members, revision)
        replaced = {"type": encoded("text"), "text": encoded(text)}
        if "annotations" in members:
            replaced["annotations"] = members["annotations"]
        if block is not None:
            block(replaced)
        return encoded(replaced)

    return rewrite


def _stand_in(kind: str | None, members: RawMembers, revision: Revision) -> str:
    """Return the text block that replaces a block whose type the revision lacks."""
    uri = string_of(members.get("uri"))
    if kind == "resource_link" and uri is not None:
        name = string_of(members.get("title")) or string_of(members.get("name"))
        return f"{name}: {uri}" if name else uri
    what = string_of(members.get("mimeType")) or "some"
    which = "without a type" if kind is None else f"of type {kind!r}"
    return f"[{what} content omitted: MCP {revision} has no blocks {which}]"


# Boolean schemas and the equivalent objects.
_AS_OBJECT: Final = {b"true": Raw(b"{}"), b"false": Raw(b'{"not":{}}')}


def rewrite_tool(revision: Revision) -> Rewrite | None:
    return edit_object(
        without(
            {
                **named_members(revision),
                "annotations": revision.tool_annotations,
                "execution": revision.core_tasks,
            }
        ),
        within("inputSchema", _schema(revision)),
        within("outputSchema", _output_schema(revision)),
    )


def _schema(revision: Revision) -> Rewrite | None:
    """Build a rewrite that replaces boolean property schemas,
    which older revisions do not allow.
    """
    if revision.stateless:
        return None
    return edit_object(
        within("properties", each_member(lambda raw: _AS_OBJECT.get(bytes(raw), raw)))
    )


def _output_schema(revision: Revision) -> Rewrite | None:
    """Build a rewrite that removes an output schema that also allows values other than objects."""
    schema = _schema(revision)
    if revision.any_structured_value or schema is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        root = members_of(raw)
        return schema(raw) if root and string_of(root.get("type")) == "object" else None

    return rewrite


def edit_tool_output(revision: Revision) -> Edit | None:
    """Build the edit of a tool result: its content blocks and its structured value."""
    return all_of(_structured(revision), within("content", each(rewrite_content(revision))))


def _structured(revision: Revision) -> Edit | None:
    """Build an edit that replaces a structured value with text if the revision does not support it.

    The value is added as text only if the result has no text block.
    """
    if revision.any_structured_value:
        return None

    def edit(members: RawMembers) -> bool:
        value = members.get("structuredContent")
        # Revisions without structured output allow additional members, and the official SDK sends
        # structured objects in every revision.
        if value is None or members_of(value) is not None:
            return False
        del members["structuredContent"]
        blocks = items_of(members.get("content")) or []
        if not any(type_of(block) == "text" for block in blocks):
            text = bytes(value).decode(errors="replace")
            members["content"] = encoded([*blocks, {"type": "text", "text": text}])
        return True

    return edit
