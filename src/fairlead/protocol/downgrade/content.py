"""Content blocks and resources, as a revision knows them."""

from collections.abc import Mapping

from msgspec import Raw

from ..json_edit import (
    Edit,
    RawMembers,
    Rewrite,
    all_of,
    edit_object,
    encoded,
    members_of,
    string_of,
    within,
    without,
)
from ..revisions import NEWEST, Revision
from .known_members import annotations_members, block_members, named_members

__all__ = ["edit_block", "edit_resource", "rewrite_content", "rewrite_union"]


def rewrite_content(revision: Revision) -> Rewrite | None:
    """One block of a tool's answer or of a prompt."""
    block = edit_block(revision)
    resource = within("resource", edit_object(without(block_members(revision))))
    known = {"text": block, "image": block, "resource": all_of(block, resource)}
    if revision.audio:
        known["audio"] = block
    if revision.resource_links:
        known["resource_link"] = edit_resource(revision)
    return rewrite_union(known, revision)


def edit_block(revision: Revision) -> Edit | None:
    """Edit the members that all kinds of block have."""
    return all_of(without(block_members(revision)), _annotations(revision))


def edit_resource(revision: Revision) -> Edit | None:
    """A resource, a template, or a link to a resource."""
    return all_of(without(named_members(revision)), _annotations(revision))


def _annotations(revision: Revision) -> Edit | None:
    return within("annotations", edit_object(without(annotations_members(revision))))


def rewrite_union(known: Mapping[str, Edit | None], revision: Revision) -> Rewrite | None:
    """A block of one of the known types, edited; any other becomes a text about it.

    Extensions may bring further types, so a peer of the newest revision gets them all.
    """
    if revision is NEWEST:
        return None

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
        if (edit := known["text"]) is not None:
            edit(replaced)
        return encoded(replaced)

    return rewrite


def _stand_in(kind: str | None, members: RawMembers, revision: Revision) -> str:
    """Return the text that replaces a block of a type that the revision does not have."""
    uri = string_of(members.get("uri"))
    if kind == "resource_link" and uri is not None:
        name = string_of(members.get("title")) or string_of(members.get("name"))
        return f"{name}: {uri}" if name else uri
    what = string_of(members.get("mimeType")) or "some"
    which = "without a type" if kind is None else f"of type {kind!r}"
    return f"[{what} content left out: MCP {revision} has no blocks {which}]"
