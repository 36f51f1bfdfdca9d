"""Tools, their schemas and their results, as a revision knows them."""

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
from ..revisions import Revision
from .content import rewrite_content
from .known_members import tool_members

__all__ = ["edit_tool_output", "rewrite_tool"]


_AS_OBJECT: Final = {b"true": Raw(b"{}"), b"false": Raw(b'{"not":{}}')}


def rewrite_tool(revision: Revision) -> Rewrite | None:
    return edit_object(
        without(tool_members(revision)),
        within("inputSchema", _schema(revision)),
        within("outputSchema", _output_schema(revision)),
    )


def _schema(revision: Revision) -> Rewrite | None:
    """Write a property whose schema is `true` or `false` as an object: it had to be one."""
    if revision.stateless:
        return None
    return edit_object(
        within("properties", each_member(lambda raw: _AS_OBJECT.get(bytes(raw), raw)))
    )


def _output_schema(revision: Revision) -> Rewrite | None:
    """Leave out the schema of output that is not always an object, where it had to be one."""
    schema = _schema(revision)
    if revision.any_structured_value or schema is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        root = members_of(raw)
        return schema(raw) if root and string_of(root.get("type")) == "object" else None

    return rewrite


def edit_tool_output(revision: Revision) -> Edit | None:
    """The answer of a tool: its blocks, and its structured value."""
    return all_of(_structured(revision), within("content", each(rewrite_content(revision))))


def _structured(revision: Revision) -> Edit | None:
    """Remove a structured value that the revision cannot carry; add it as text if there is none."""
    if revision.any_structured_value:
        return None

    def edit(members: RawMembers) -> bool:
        value = members.get("structuredContent")
        if value is None or (revision.structured_output and members_of(value) is not None):
            return False
        del members["structuredContent"]
        blocks = items_of(members.get("content")) or []
        if not any(type_of(block) == "text" for block in blocks):
            text = bytes(value).decode(errors="replace")
            members["content"] = encoded([*blocks, {"type": "text", "text": text}])
        return True

    return edit
