"""What a peer of another revision gets to see: only the shapes that its revision knows.

An old client reads past a field it has not heard of, but fails on an unknown kind of content, a
question in an unknown form or structured output that is no object. So those are put into words it
knows, newer fields are left out, and what cannot be said at all is `DowngradeError`.

All of it works on encoded JSON. An object is opened as far as something in it may have to change,
and the rest is copied as text: numbers, escapes and fields nobody has heard of stay as they came.
What needs no change is returned itself; where a revision needs nothing for a method, nobody looks.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from msgspec import Raw

from .json_edit import (
    Edit,
    Encoded,
    RawMembers,
    Rewrite,
    Table,
    all_of,
    apply,
    each,
    each_member,
    edit_object,
    encoded,
    items_of,
    members_of,
    same_type,
    string_of,
    type_of,
    within,
    without,
    without_keys,
)
from .methods import METHODS
from .revisions import NEWEST, Revision

__all__ = [
    "CACHEABLE",
    "DowngradeError",
    "downgrade_capabilities",
    "downgrade_params",
    "downgrade_result",
    "upgrade_result",
]

CACHEABLE: Final = frozenset(row.name for row in METHODS if row.cacheable)
"""The methods whose results say how long they stay fresh, in the stateless revisions."""


class DowngradeError(ValueError):
    """The peer's revision has no words for this. The text says which and why."""


def downgrade_result(method: str, result: Encoded, revision: Revision) -> Encoded:
    """The result of a request, as a peer that speaks `revision` knows it.

    Raises:
        Impossible: the result asks for input or names a task, which a peer with a handshake learns
            in other ways; or it is a sampled message that does not fit into one block.
    """
    plan = _results(revision)
    return apply(plan.get(method, plan[_ANY]), result)


def downgrade_params(method: str, params: Encoded, revision: Revision) -> Encoded:
    """The params of a request or notification, as a peer that speaks `revision` knows them.

    Raises:
        Impossible: the peer cannot be asked this: an elicitation in a form or mode it does not
            have, or sampling with tools.
    """
    plan = _params(revision)
    return apply(plan.get(method, plan[_ANY]), params)


def downgrade_capabilities(capabilities: Encoded, revision: Revision) -> Encoded:
    """The capabilities of a client or a server, without those that `revision` does not have."""
    return apply(_capabilities(revision), capabilities)


def upgrade_result(
    method: str, result: Encoded, *, server_info: Raw | bytes | None = None
) -> Encoded:
    """The result of a server with a handshake, with what a stateless caller expects besides.

    What is already there is left alone, and what may be kept is stale at once. Run
    `downgrade_result` first: it takes out what only handshake revisions have.
    """
    members = members_of(result)
    if members is None:
        return result
    added: dict[str, Any] = {}
    if "resultType" not in members:
        added["resultType"] = "complete"
    if method in CACHEABLE and string_of(members.get("resultType")) in (None, "complete"):
        fresh = {"ttlMs": 0, "cacheScope": "private"}
        added |= {name: value for name, value in fresh.items() if name not in members}
    meta = members_of(members.get("_meta", Raw(b"{}")))
    if server_info is not None and meta is not None and _SERVER_INFO not in meta:
        added["_meta"] = {**meta, _SERVER_INFO: Raw(server_info)}
    return same_type(result, encoded({**members, **added})) if added else result


# Which feature of a revision brings which member; a member that stands in no table is always kept.


_BLOCK: Final[Table] = {"_meta": "meta_everywhere"}
_ANNOTATIONS: Final[Table] = {"lastModified": "last_modified"}
_NAMED: Final[Table] = {"title": "titles", "icons": "icons", "_meta": "meta_everywhere"}
_TOOL: Final[Table] = {
    **_NAMED,
    "outputSchema": "structured_output",
    "annotations": "tool_annotations",
    "execution": "core_tasks",
}
_IMPLEMENTATION: Final[Table] = {
    "title": "titles",
    "icons": "icons",
    "description": "implementation_details",
    "websiteUrl": "implementation_details",
}
_CAPABILITIES: Final[Table] = {
    "completions": "completions_capability",
    "elicitation": "elicitation",
    "tasks": "core_tasks",
    # New in the stateless revisions, but Apps use it before; extensions speak through `_meta`.
    "extensions": "meta_everywhere",
}
_ELICITATION: Final[Table] = {
    "mode": "rich_elicitation",
    "elicitationId": "elicitation_ids",
    "task": "core_tasks",
}
_CACHE: Final[Table] = {"ttlMs": "stateless", "cacheScope": "stateless"}
_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_META_KEYS: Final[Table] = {
    _SERVER_INFO: "stateless",
    "io.modelcontextprotocol/protocolVersion": "stateless",
    "io.modelcontextprotocol/clientCapabilities": "stateless",
    "io.modelcontextprotocol/clientInfo": "stateless",
    "io.modelcontextprotocol/logLevel": "stateless",
    "io.modelcontextprotocol/subscriptionId": "stateless",
}
_EXTENSIONS: Final[Table] = {"io.modelcontextprotocol/tasks": "stateless"}


def _refuse(reason: str) -> Edit:
    def edit(members: RawMembers) -> bool:
        raise DowngradeError(reason)

    return edit


# Results and params, by method.

_ANY: Final = ""  # every method without an entry of its own


@cache
def _results(revision: Revision) -> dict[str, Rewrite | None]:
    plain = all_of(_complete(revision), _meta(revision))
    cached = all_of(plain, without(_CACHE, revision))
    prompt = edit_object(
        without(_NAMED, revision),
        within("arguments", each(edit_object(without({"title": "titles"}, revision)))),
    )
    contents = each(edit_object(without(_BLOCK, revision)))
    resources = each(edit_object(_resource(revision)))
    return {
        _ANY: edit_object(plain),
        "initialize": edit_object(
            plain,
            within("serverInfo", edit_object(without(_IMPLEMENTATION, revision))),
            within("capabilities", _capabilities(revision)),
        ),
        "tools/list": edit_object(cached, within("tools", each(_tool(revision)))),
        "tools/call": edit_object(plain, _tool_output(revision)),
        "prompts/list": edit_object(cached, within("prompts", each(prompt))),
        "prompts/get": edit_object(
            plain, within("messages", each(edit_object(within("content", _content(revision)))))
        ),
        "resources/list": edit_object(cached, within("resources", resources)),
        "resources/templates/list": edit_object(cached, within("resourceTemplates", resources)),
        "resources/read": edit_object(cached, within("contents", contents)),
        "sampling/createMessage": edit_object(
            plain, within("content", _sampling_content(revision))
        ),
        "roots/list": edit_object(
            plain, within("roots", each(edit_object(without(_BLOCK, revision))))
        ),
    }


@cache
def _params(revision: Revision) -> dict[str, Rewrite | None]:
    plain = _meta(revision)
    task = without({"task": "core_tasks"}, revision)
    return {
        _ANY: edit_object(plain),
        "initialize": edit_object(
            plain,
            within("clientInfo", edit_object(without(_IMPLEMENTATION, revision))),
            within("capabilities", _capabilities(revision)),
        ),
        "tools/call": edit_object(plain, task),
        "completion/complete": edit_object(
            plain,
            without({"context": "completion_context"}, revision),
            within("ref", edit_object(without({"title": "titles"}, revision))),
        ),
        "notifications/progress": edit_object(
            plain, without({"message": "progress_message"}, revision)
        ),
        "sampling/createMessage": edit_object(plain, task, _sampling(revision)),
        "elicitation/create": edit_object(plain, _elicitation(revision)),
    }


def _complete(revision: Revision) -> Edit | None:
    """Take the type off a result; only a complete one means anything without."""
    if revision.stateless:
        return None

    def edit(members: RawMembers) -> bool:
        kind = members.pop("resultType", None)
        if kind is not None and string_of(kind) != "complete":
            raise DowngradeError(
                f"MCP {revision} has only complete results, and this is another kind"
            )
        return kind is not None

    return edit


def _meta(revision: Revision) -> Edit | None:
    """Leave out the keys by which stateless peers introduce themselves on every message."""
    return without_keys("_meta", _META_KEYS, revision)


# Tools.


def _tool(revision: Revision) -> Rewrite | None:
    return edit_object(
        without(_TOOL, revision),
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


_AS_OBJECT: Final = {b"true": Raw(b"{}"), b"false": Raw(b'{"not":{}}')}


def _output_schema(revision: Revision) -> Rewrite | None:
    """Leave out the schema of output that is not always an object, where it had to be one."""
    schema = _schema(revision)
    if revision.any_structured_value or schema is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        root = members_of(raw)
        return schema(raw) if root and string_of(root.get("type")) == "object" else None

    return rewrite


def _tool_output(revision: Revision) -> Edit | None:
    """The answer of a tool: its blocks, and its structured value."""
    return all_of(_structured(revision), within("content", each(_content(revision))))


def _structured(revision: Revision) -> Edit | None:
    """Leave out a structured value that the revision cannot carry, and see that a text says it."""
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


# Content blocks and resources.


def _content(revision: Revision) -> Rewrite | None:
    """One block of a tool's answer or of a prompt."""
    block = _block(revision)
    resource = within("resource", edit_object(without(_BLOCK, revision)))
    known = {"text": block, "image": block, "resource": all_of(block, resource)}
    if revision.audio:
        known["audio"] = block
    if revision.resource_links:
        known["resource_link"] = _resource(revision)
    return _union(known, revision)


def _block(revision: Revision) -> Edit | None:
    """What all kinds of block have in common."""
    return all_of(without(_BLOCK, revision), _annotations(revision))


def _resource(revision: Revision) -> Edit | None:
    """A resource, a template, or a link to a resource."""
    return all_of(without(_NAMED, revision), _annotations(revision))


def _annotations(revision: Revision) -> Edit | None:
    return within("annotations", edit_object(without(_ANNOTATIONS, revision)))


def _union(known: Mapping[str, Edit | None], revision: Revision) -> Rewrite | None:
    """A block of one of the known types, edited; any other becomes a text about it.

    Nobody knows which types extensions will bring, so a peer of the newest revision gets them all.
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
    """What to say instead of a block that the revision does not have."""
    uri = string_of(members.get("uri"))
    if kind == "resource_link" and uri is not None:
        name = string_of(members.get("title")) or string_of(members.get("name"))
        return f"{name}: {uri}" if name else uri
    what = string_of(members.get("mimeType")) or "some"
    which = "without a type" if kind is None else f"of type {kind!r}"
    return f"[{what} content left out: MCP {revision} has no blocks {which}]"


# What servers ask of clients.


def _sampling(revision: Revision) -> Edit | None:
    return all_of(
        _sampling_tools(revision),
        within("messages", each(_sampling_message(revision))),
    )


def _sampling_tools(revision: Revision) -> Edit | None:
    """Tools cannot be left out of the question, but an empty list of them can."""
    if revision.sampling_tools:
        return within("tools", each(_tool(revision)))

    def edit(members: RawMembers) -> bool:
        choice = members.pop("toolChoice", None)
        tools = members.pop("tools", None)
        if tools is not None and items_of(tools) != []:
            raise DowngradeError(f"MCP {revision} has no tools in sampling")
        return tools is not None or choice is not None

    return edit


def _sampling_message(revision: Revision) -> Rewrite | None:
    return edit_object(
        without({"_meta": "sampling_tools"}, revision),  # both came with the same revision
        within("content", _sampling_content(revision)),
    )


def _sampling_content(revision: Revision) -> Rewrite | None:
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
    block = _block(revision)
    known = {"text": block, "image": block}
    if revision.audio:
        known["audio"] = block
    if revision.sampling_tools:
        known |= {"tool_use": block, "tool_result": all_of(block, _tool_output(revision))}
    else:
        refuse = _refuse(f"MCP {revision} has no use of tools in sampling")
        known |= {"tool_use": refuse, "tool_result": refuse}
    return _union(known, revision)


def _elicitation(revision: Revision) -> Edit | None:
    if not revision.elicitation:
        return _refuse(f"MCP {revision} has no elicitation")
    schema = edit_object(
        without({"$schema": "rich_elicitation"}, revision),
        within("properties", each_member(_question(revision))),
    )
    return all_of(
        _mode(revision), without(_ELICITATION, revision), within("requestedSchema", schema)
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


# Capabilities.


@cache
def _capabilities(revision: Revision) -> Rewrite | None:
    """Clients and servers have theirs under different names, so one table serves both."""
    modes = {"form": "rich_elicitation", "url": "rich_elicitation"}
    sampling = {"tools": "sampling_tools", "context": "sampling_tools"}
    return edit_object(
        without(_CAPABILITIES, revision),
        _forms_only(revision),
        within("elicitation", edit_object(without(modes, revision))),
        within("sampling", edit_object(without(sampling, revision))),
        within("roots", edit_object(without({"listChanged": "handshake"}, revision))),
        without_keys("extensions", _EXTENSIONS, revision),
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
