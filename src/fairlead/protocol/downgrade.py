"""What a peer of another revision gets to see: only the shapes that its revision knows.

An old client reads past a field it has not heard of, but fails on an unknown kind of content, a
question in an unknown form or structured output that is no object. So those are put into words it
knows, newer fields are left out, and what cannot be said at all is `Impossible`.

All of it works on encoded JSON. An object is opened as far as something in it may have to change,
and the rest is copied as text: numbers, escapes and fields nobody has heard of stay as they came.
What needs no change is returned itself; where a revision needs nothing for a method, nobody looks.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from .revisions import NEWEST, Revision

__all__ = [
    "CACHEABLE",
    "Impossible",
    "downgrade_capabilities",
    "downgrade_params",
    "downgrade_result",
    "upgrade_result",
]

CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""The methods whose results say how long they stay fresh, in the stateless revisions."""

Encoded = TypeVar("Encoded", Raw, bytes)


class Impossible(ValueError):
    """The peer's revision has no words for this. The text says which and why."""


def downgrade_result(method: str, result: Encoded, revision: Revision) -> Encoded:
    """The result of a request, as a peer that speaks `revision` knows it.

    Raises:
        Impossible: the result asks for input or names a task, which a peer with a handshake learns
            in other ways; or it is a sampled message that does not fit into one block.
    """
    plan = _results(revision)
    return _apply(plan.get(method, plan[_ANY]), result)


def downgrade_params(method: str, params: Encoded, revision: Revision) -> Encoded:
    """The params of a request or notification, as a peer that speaks `revision` knows them.

    Raises:
        Impossible: the peer cannot be asked this: an elicitation in a form or mode it does not
            have, or sampling with tools.
    """
    plan = _params(revision)
    return _apply(plan.get(method, plan[_ANY]), params)


def downgrade_capabilities(capabilities: Encoded, revision: Revision) -> Encoded:
    """The capabilities of a client or a server, without those that `revision` does not have."""
    return _apply(_capabilities(revision), capabilities)


def upgrade_result(
    method: str,
    result: Encoded,
    *,
    server_info: Raw | bytes | None = None,
    ttl_ms: int = 0,
    cache_scope: Literal["private", "public"] = "private",
) -> Encoded:
    """The result of a server with a handshake, with what a stateless caller expects besides.

    What is already there is left alone. Run `downgrade_result` first: it takes out what only
    handshake revisions have.
    """
    members = _members(result)
    if members is None:
        return result
    added: dict[str, Any] = {}
    if "resultType" not in members:
        added["resultType"] = "complete"
    if method in CACHEABLE and _string(members.get("resultType")) in (None, "complete"):
        fresh = {"ttlMs": ttl_ms, "cacheScope": cache_scope}
        added |= {name: value for name, value in fresh.items() if name not in members}
    meta = _members(members.get("_meta", Raw(b"{}")))
    if server_info is not None and meta is not None and _SERVER_INFO not in meta:
        added["_meta"] = {**meta, _SERVER_INFO: Raw(server_info)}
    return _like(result, _encode({**members, **added})) if added else result


# Which feature of a revision brings which member; a member that stands in no table is always kept.

_Table: TypeAlias = Mapping[str, str]

_BLOCK: Final[_Table] = {"_meta": "meta_everywhere"}
_ANNOTATIONS: Final[_Table] = {"lastModified": "last_modified"}
_NAMED: Final[_Table] = {"title": "titles", "icons": "icons", "_meta": "meta_everywhere"}
_TOOL: Final[_Table] = {
    **_NAMED,
    "outputSchema": "structured_output",
    "annotations": "tool_annotations",
    "execution": "core_tasks",
}
_IMPLEMENTATION: Final[_Table] = {
    "title": "titles",
    "icons": "icons",
    "description": "implementation_details",
    "websiteUrl": "implementation_details",
}
_CAPABILITIES: Final[_Table] = {
    "completions": "completions_capability",
    "elicitation": "elicitation",
    "tasks": "core_tasks",
    # New in the stateless revisions, but Apps use it before; extensions speak through `_meta`.
    "extensions": "meta_everywhere",
}
_ELICITATION: Final[_Table] = {
    "mode": "rich_elicitation",
    "elicitationId": "elicitation_ids",
    "task": "core_tasks",
}
_CACHE: Final[_Table] = {"ttlMs": "stateless", "cacheScope": "stateless"}
_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_META_KEYS: Final[_Table] = {
    _SERVER_INFO: "stateless",
    "io.modelcontextprotocol/protocolVersion": "stateless",
    "io.modelcontextprotocol/clientCapabilities": "stateless",
    "io.modelcontextprotocol/clientInfo": "stateless",
    "io.modelcontextprotocol/logLevel": "stateless",
    "io.modelcontextprotocol/subscriptionId": "stateless",
}
_EXTENSIONS: Final[_Table] = {"io.modelcontextprotocol/tasks": "stateless"}


# How a change is described. Everything that builds one gives None if there is nothing to change.

_Members: TypeAlias = dict[str, Raw]
_Edit: TypeAlias = Callable[[_Members], bool]  # changes an object in place, and says whether it did
_Rewrite: TypeAlias = Callable[
    [Raw], Raw | None
]  # the value itself if unchanged, None to leave it out


def _all(*edits: _Edit | None) -> _Edit | None:
    """Several edits, one after the other."""
    steps = tuple(edit for edit in edits if edit is not None)
    if len(steps) < 2:
        return steps[0] if steps else None

    def edit(members: _Members) -> bool:
        changed = False
        for step in steps:
            changed = step(members) or changed
        return changed

    return edit


def _shape(*edits: _Edit | None) -> _Rewrite | None:
    """An object, edited. Anything else is not ours to mend."""
    edit = _all(*edits)
    if edit is None:
        return None

    def rewrite(raw: Raw) -> Raw:
        members = _members(raw)
        return _encode(members) if members is not None and edit(members) else raw

    return rewrite


def _without(table: _Table, revision: Revision) -> _Edit | None:
    """Leave out the members whose feature the revision does not have."""
    unknown = [name for name, feature in table.items() if not getattr(revision, feature)]
    if not unknown:
        return None

    def edit(members: _Members) -> bool:
        before = len(members)
        for name in unknown:
            members.pop(name, None)
        return len(members) < before

    return edit


def _within(name: str, rewrite: _Rewrite | None) -> _Edit | None:
    """Rewrite one member, if it is there."""
    if rewrite is None:
        return None

    def edit(members: _Members) -> bool:
        old = members.get(name)
        new = None if old is None else rewrite(old)
        if new is old:
            return False
        if new is None:
            del members[name]
        else:
            members[name] = new
        return True

    return edit


def _each(rewrite: _Rewrite | None) -> _Rewrite | None:
    """Rewrite each item of an array."""
    if rewrite is None:
        return None

    def rewrite_all(raw: Raw) -> Raw:
        old = _items(raw)
        if old is None:
            return raw
        new = [rewrite(item) for item in old]
        changed = any(after is not before for after, before in zip(new, old, strict=True))
        return _encode([item for item in new if item is not None]) if changed else raw

    return rewrite_all


def _each_member(rewrite: _Rewrite | None) -> _Rewrite | None:
    """Rewrite each value of an object that maps names to values of one kind."""
    if rewrite is None:
        return None

    def edit(members: _Members) -> bool:
        step = _all(*[_within(name, rewrite) for name in members])
        return step is not None and step(members)

    return _shape(edit)


def _keys(name: str, table: _Table, revision: Revision) -> _Edit | None:
    """Leave out keys of a map; when it has no others, the map too."""
    unknown = _shape(_without(table, revision))
    if unknown is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        rest = unknown(raw)
        return rest if rest is raw or _members(rest) else None

    return _within(name, rewrite)


def _refuse(reason: str) -> _Edit:
    def edit(members: _Members) -> bool:
        raise Impossible(reason)

    return edit


# Results and params, by method.

_ANY: Final = ""  # every method without an entry of its own


@cache
def _results(revision: Revision) -> dict[str, _Rewrite | None]:
    plain = _all(_complete(revision), _meta(revision))
    cached = _all(plain, _without(_CACHE, revision))
    prompt = _shape(
        _without(_NAMED, revision),
        _within("arguments", _each(_shape(_without({"title": "titles"}, revision)))),
    )
    contents = _each(_shape(_without(_BLOCK, revision)))
    resources = _each(_shape(_resource(revision)))
    return {
        _ANY: _shape(plain),
        "initialize": _shape(
            plain,
            _within("serverInfo", _shape(_without(_IMPLEMENTATION, revision))),
            _within("capabilities", _capabilities(revision)),
        ),
        "tools/list": _shape(cached, _within("tools", _each(_tool(revision)))),
        "tools/call": _shape(plain, _tool_output(revision)),
        "prompts/list": _shape(cached, _within("prompts", _each(prompt))),
        "prompts/get": _shape(
            plain, _within("messages", _each(_shape(_within("content", _content(revision)))))
        ),
        "resources/list": _shape(cached, _within("resources", resources)),
        "resources/templates/list": _shape(cached, _within("resourceTemplates", resources)),
        "resources/read": _shape(cached, _within("contents", contents)),
        "sampling/createMessage": _shape(plain, _within("content", _sampling_content(revision))),
        "roots/list": _shape(plain, _within("roots", _each(_shape(_without(_BLOCK, revision))))),
    }


@cache
def _params(revision: Revision) -> dict[str, _Rewrite | None]:
    plain = _meta(revision)
    task = _without({"task": "core_tasks"}, revision)
    return {
        _ANY: _shape(plain),
        "initialize": _shape(
            plain,
            _within("clientInfo", _shape(_without(_IMPLEMENTATION, revision))),
            _within("capabilities", _capabilities(revision)),
        ),
        "tools/call": _shape(plain, task),
        "completion/complete": _shape(
            plain,
            _without({"context": "completion_context"}, revision),
            _within("ref", _shape(_without({"title": "titles"}, revision))),
        ),
        "notifications/progress": _shape(
            plain, _without({"message": "progress_message"}, revision)
        ),
        "sampling/createMessage": _shape(plain, task, _sampling(revision)),
        "elicitation/create": _shape(plain, _elicitation(revision)),
    }


def _complete(revision: Revision) -> _Edit | None:
    """Take the type off a result; only a complete one means anything without."""
    if revision.stateless:
        return None

    def edit(members: _Members) -> bool:
        kind = members.pop("resultType", None)
        if kind is not None and _string(kind) != "complete":
            raise Impossible(f"MCP {revision} has only complete results, and this is another kind")
        return kind is not None

    return edit


def _meta(revision: Revision) -> _Edit | None:
    """Leave out the keys by which stateless peers introduce themselves on every message."""
    return _keys("_meta", _META_KEYS, revision)


# Tools.


def _tool(revision: Revision) -> _Rewrite | None:
    return _shape(
        _without(_TOOL, revision),
        _within("inputSchema", _schema(revision)),
        _within("outputSchema", _output_schema(revision)),
    )


def _schema(revision: Revision) -> _Rewrite | None:
    """Write a property whose schema is `true` or `false` as an object: it had to be one."""
    if revision.stateless:
        return None
    return _shape(_within("properties", _each_member(lambda raw: _AS_OBJECT.get(bytes(raw), raw))))


_AS_OBJECT: Final = {b"true": Raw(b"{}"), b"false": Raw(b'{"not":{}}')}


def _output_schema(revision: Revision) -> _Rewrite | None:
    """Leave out the schema of output that is not always an object, where it had to be one."""
    schema = _schema(revision)
    if revision.any_structured_value or schema is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        root = _members(raw)
        return schema(raw) if root and _string(root.get("type")) == "object" else None

    return rewrite


def _tool_output(revision: Revision) -> _Edit | None:
    """The answer of a tool: its blocks, and its structured value."""
    return _all(_structured(revision), _within("content", _each(_content(revision))))


def _structured(revision: Revision) -> _Edit | None:
    """Leave out a structured value that the revision cannot carry, and see that a text says it."""
    if revision.any_structured_value:
        return None

    def edit(members: _Members) -> bool:
        value = members.get("structuredContent")
        if value is None or (revision.structured_output and _members(value) is not None):
            return False
        del members["structuredContent"]
        blocks = _items(members.get("content")) or []
        if not any(_type(block) == "text" for block in blocks):
            text = bytes(value).decode(errors="replace")
            members["content"] = _encode([*blocks, {"type": "text", "text": text}])
        return True

    return edit


# Content blocks and resources.


def _content(revision: Revision) -> _Rewrite | None:
    """One block of a tool's answer or of a prompt."""
    block = _block(revision)
    resource = _within("resource", _shape(_without(_BLOCK, revision)))
    known = {"text": block, "image": block, "resource": _all(block, resource)}
    if revision.audio:
        known["audio"] = block
    if revision.resource_links:
        known["resource_link"] = _resource(revision)
    return _union(known, revision)


def _block(revision: Revision) -> _Edit | None:
    """What all kinds of block have in common."""
    return _all(_without(_BLOCK, revision), _annotations(revision))


def _resource(revision: Revision) -> _Edit | None:
    """A resource, a template, or a link to a resource."""
    return _all(_without(_NAMED, revision), _annotations(revision))


def _annotations(revision: Revision) -> _Edit | None:
    return _within("annotations", _shape(_without(_ANNOTATIONS, revision)))


def _union(known: Mapping[str, _Edit | None], revision: Revision) -> _Rewrite | None:
    """A block of one of the known types, edited; any other becomes a text about it.

    Nobody knows which types extensions will bring, so a peer of the newest revision gets them all.
    """
    if revision is NEWEST:
        return None

    def rewrite(raw: Raw) -> Raw:
        members = _members(raw)
        if members is None:
            return raw
        kind = _string(members.get("type"))
        if kind is not None and kind in known:
            edit = known[kind]
            return _encode(members) if edit is not None and edit(members) else raw
        text = _stand_in(kind, members, revision)
        replaced = {"type": _encode("text"), "text": _encode(text)}
        if "annotations" in members:
            replaced["annotations"] = members["annotations"]
        if (edit := known["text"]) is not None:
            edit(replaced)
        return _encode(replaced)

    return rewrite


def _stand_in(kind: str | None, members: _Members, revision: Revision) -> str:
    """What to say instead of a block that the revision does not have."""
    uri = _string(members.get("uri"))
    if kind == "resource_link" and uri is not None:
        name = _string(members.get("title")) or _string(members.get("name"))
        return f"{name}: {uri}" if name else uri
    what = _string(members.get("mimeType")) or "some"
    which = "without a type" if kind is None else f"of type {kind!r}"
    return f"[{what} content left out: MCP {revision} has no blocks {which}]"


# What servers ask of clients.


def _sampling(revision: Revision) -> _Edit | None:
    return _all(
        _sampling_tools(revision),
        _within("messages", _each(_sampling_message(revision))),
    )


def _sampling_tools(revision: Revision) -> _Edit | None:
    """Tools cannot be left out of the question, but an empty list of them can."""
    if revision.sampling_tools:
        return _within("tools", _each(_tool(revision)))

    def edit(members: _Members) -> bool:
        choice = members.pop("toolChoice", None)
        tools = members.pop("tools", None)
        if tools is not None and _items(tools) != []:
            raise Impossible(f"MCP {revision} has no tools in sampling")
        return tools is not None or choice is not None

    return edit


def _sampling_message(revision: Revision) -> _Rewrite | None:
    return _shape(
        _without({"_meta": "sampling_tools"}, revision),  # both came with the same revision
        _within("content", _sampling_content(revision)),
    )


def _sampling_content(revision: Revision) -> _Rewrite | None:
    """One block, or, since sampling has tools, an array of them."""
    one = _sampling_block(revision)
    several = _each(one)
    if one is None or several is None:
        return None

    def rewrite(raw: Raw) -> Raw | None:
        blocks = _items(raw)
        if blocks is None:
            return one(raw)
        if revision.sampling_tools:
            return several(raw)
        if len(blocks) != 1 or _members(blocks[0]) is None:
            raise Impossible(f"MCP {revision} has one block of content per sampling message")
        return one(blocks[0])

    return rewrite


def _sampling_block(revision: Revision) -> _Rewrite | None:
    block = _block(revision)
    known = {"text": block, "image": block}
    if revision.audio:
        known["audio"] = block
    if revision.sampling_tools:
        known |= {"tool_use": block, "tool_result": _all(block, _tool_output(revision))}
    else:
        refuse = _refuse(f"MCP {revision} has no use of tools in sampling")
        known |= {"tool_use": refuse, "tool_result": refuse}
    return _union(known, revision)


def _elicitation(revision: Revision) -> _Edit | None:
    if not revision.elicitation:
        return _refuse(f"MCP {revision} has no elicitation")
    schema = _shape(
        _without({"$schema": "rich_elicitation"}, revision),
        _within("properties", _each_member(_question(revision))),
    )
    return _all(
        _mode(revision), _without(_ELICITATION, revision), _within("requestedSchema", schema)
    )


def _mode(revision: Revision) -> _Edit | None:
    """See that the revision has this way of asking."""
    if revision is NEWEST:
        return None
    modes = {"form", "url"} if revision.rich_elicitation else {"form"}

    def edit(members: _Members) -> bool:
        mode = _string(members["mode"]) if "mode" in members else "form"
        if mode not in modes:
            raise Impossible(f"MCP {revision} has no elicitation in mode {mode!r}")
        if mode == "url" and revision.elicitation_ids and "elicitationId" not in members:
            raise Impossible(f"MCP {revision} has no elicitation by URL without an elicitationId")
        return False

    return edit


def _question(revision: Revision) -> _Rewrite | None:
    """One property of a form, in the words of the first revision that had forms."""
    if revision.rich_elicitation:
        return None

    def edit(members: _Members) -> bool:
        kind = _string(members.get("type"))
        if kind == "array":
            raise Impossible(f"MCP {revision} has no elicitation with several choices")
        titled = _name_choices(members)
        defaulted = kind != "boolean" and members.pop("default", None) is not None
        return titled or defaulted

    return _shape(edit)


def _name_choices(members: _Members) -> bool:
    """Write titled choices, `oneOf`, as two parallel arrays."""
    choices = [_members(choice) for choice in _items(members.get("oneOf")) or ()]
    options = [choice for choice in choices if choice and "const" in choice]
    if not options or len(options) != len(choices):
        return False
    del members["oneOf"]
    members["enum"] = _encode([option["const"] for option in options])
    members["enumNames"] = _encode([option.get("title", option["const"]) for option in options])
    return True


# Capabilities.


@cache
def _capabilities(revision: Revision) -> _Rewrite | None:
    """Clients and servers have theirs under different names, so one table serves both."""
    modes = {"form": "rich_elicitation", "url": "rich_elicitation"}
    sampling = {"tools": "sampling_tools", "context": "sampling_tools"}
    return _shape(
        _without(_CAPABILITIES, revision),
        _forms_only(revision),
        _within("elicitation", _shape(_without(modes, revision))),
        _within("sampling", _shape(_without(sampling, revision))),
        _within("roots", _shape(_without({"listChanged": "handshake"}, revision))),
        _keys("extensions", _EXTENSIONS, revision),
    )


def _forms_only(revision: Revision) -> _Edit | None:
    """Leave out elicitation if it is by URL only: without its modes it would promise forms."""
    if revision.rich_elicitation:
        return None

    def edit(members: _Members) -> bool:
        modes = _members(members.get("elicitation"))
        if not modes or "url" not in modes or "form" in modes:
            return False
        del members["elicitation"]
        return True

    return edit


# JSON, opened one level at a time.

_encoder: Final = msgspec.json.Encoder()
_object_decoder: Final = msgspec.json.Decoder(dict[str, Raw])
_array_decoder: Final = msgspec.json.Decoder(list[Raw])
_string_decoder: Final = msgspec.json.Decoder(str)
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def _members(raw: Raw | bytes | None) -> _Members | None:
    """The members of an object, or None if it is none."""
    try:
        return None if raw is None else _object_decoder.decode(raw)
    except _UNREADABLE:
        return None


def _items(raw: Raw | None) -> list[Raw] | None:
    """The items of an array, or None if it is none."""
    try:
        return None if raw is None else _array_decoder.decode(raw)
    except _UNREADABLE:
        return None


def _string(raw: Raw | None) -> str | None:
    """The text of a string, or None if it is none."""
    try:
        return None if raw is None else _string_decoder.decode(raw)
    except _UNREADABLE:
        return None


def _type(block: Raw) -> str | None:
    members = _members(block)
    return None if members is None else _string(members.get("type"))


def _encode(value: object) -> Raw:
    return Raw(_encoder.encode(value))


def _apply(rewrite: _Rewrite | None, value: Encoded) -> Encoded:
    """Rewrite a message's part, which stays what it was if nothing in it changes."""
    if rewrite is None:
        return value
    raw = value if isinstance(value, Raw) else Raw(value)
    new = rewrite(raw)
    return value if new is None or new is raw else _like(value, new)


def _like(value: Encoded, new: Raw) -> Encoded:
    """What was handed in as bytes goes out as bytes: `Raw` is none, whatever its type stub says."""
    return new if isinstance(value, Raw) else bytes(new)
