"""Messages of the newest revision with every optional member, and the published schemas."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from hypothesis import strategies as st

from fairlead.protocol.downgrade.params import downgrade_params
from fairlead.protocol.downgrade.results import downgrade_result
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision

SCHEMAS = Path(__file__).parent.parent / "protocol" / "schemas"

V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25 = HANDSHAKE
BEFORE_2025_11_25 = [V2024_11_05, V2025_03_26, V2025_06_18]

ICONS = [{"src": "https://example.com/i.png", "sizes": ["48x48"], "theme": "dark"}]
ANNOTATIONS = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"}
META = {"com.example/x": 1}
NAMED = {"title": "A title", "description": "About it", "icons": ICONS, "_meta": META}
BLOCK = {"annotations": ANNOTATIONS, "_meta": META}
PAGE = {"uri": "file:///a", "mimeType": "text/plain", "text": "a", "_meta": META}
BLOB = {"uri": "file:///b", "mimeType": "image/png", "blob": "AAAA", "_meta": META}
TEXT = {"type": "text", "text": "hello", **BLOCK}
IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png", **BLOCK}
AUDIO = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav", **BLOCK}
LINK = {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 1, **NAMED, **BLOCK}
EMBEDDED = {"type": "resource", "resource": PAGE, **BLOCK}
BLOCKS = [TEXT, IMAGE, AUDIO, LINK, EMBEDDED, {"type": "resource", "resource": BLOB}]
SERVER = {
    "name": "s",
    "version": "1",
    "title": "S",
    "description": "A server",
    "websiteUrl": "https://example.com",
    "icons": ICONS,
}
TOOLS: list[dict[str, Any]] = [
    {
        "name": "weather",
        "inputSchema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"place": {"$ref": "#/$defs/Place"}, "rest": True, "none": False},
            "required": ["place"],
            "$defs": {"Place": {"type": "string"}},
        },
        "outputSchema": {"type": "object", "properties": {"celsius": {"type": "number"}}},
        "annotations": {"title": "Weather", "readOnlyHint": True, "openWorldHint": False},
        **NAMED,
    },
    {
        "name": "list",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "array", "items": {"type": "string"}},
    },
]
COMPLETE = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": SERVER}}
CACHED = {**COMPLETE, "ttlMs": 60000, "cacheScope": "public"}

# By method: the name of the result in the schemas, and a result with every
# optional member of the newest revision.
RESULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tools/list": ("ListToolsResult", {**CACHED, "tools": TOOLS, "nextCursor": "c"}),
    "tools/call": (
        "CallToolResult",
        {**COMPLETE, "content": BLOCKS, "structuredContent": [1, {"a": 2}], "isError": False},
    ),
    "prompts/list": (
        "ListPromptsResult",
        {
            **CACHED,
            "prompts": [
                {"name": "p", "arguments": [{"name": "x", "title": "X", "required": True}], **NAMED}
            ],
        },
    ),
    "prompts/get": (
        "GetPromptResult",
        {**COMPLETE, "messages": [{"role": "user", "content": block} for block in BLOCKS]},
    ),
    "resources/list": (
        "ListResourcesResult",
        {
            **CACHED,
            "resources": [{"uri": "file:///a", "name": "a", "size": 1, **NAMED, **BLOCK}],
        },
    ),
    "resources/templates/list": (
        "ListResourceTemplatesResult",
        {
            **CACHED,
            "resourceTemplates": [{"uriTemplate": "file:///{x}", "name": "a", **NAMED, **BLOCK}],
        },
    ),
    "resources/read": ("ReadResourceResult", {**CACHED, "contents": [PAGE, BLOB]}),
    "completion/complete": (
        "CompleteResult",
        {**COMPLETE, "completion": {"values": ["a"], "total": 1, "hasMore": False}},
    ),
    "sampling/createMessage": (
        "CreateMessageResult",
        {"role": "assistant", "model": "m", "stopReason": "endTurn", "content": AUDIO},
    ),
    "roots/list": ("ListRootsResult", {"roots": [{"uri": "file:///", "name": "r", "_meta": META}]}),
}
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "serverInfo": SERVER,
    "instructions": "Be kind",
    "capabilities": {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {},
        "logging": {},
        "completions": {},
        "experimental": {"x": {}},
        "tasks": {"list": {}, "requests": {"tools": {"call": {}}}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
CLIENT: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "clientInfo": SERVER,
    "capabilities": {
        "roots": {"listChanged": True},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "tasks": {"cancel": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    },
}
FORM = {
    "message": "Which?",
    "mode": "form",
    "requestedSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "default": "me"},
            "age": {"type": "integer", "minimum": 0, "default": 3},
            "sure": {"type": "boolean", "default": False},
            "plain": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "size": {
                "type": "string",
                "title": "Size",
                "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}],
                "default": "s",
            },
        },
        "required": ["name"],
    },
}
PICK = {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}
URL = {"message": "Sign in", "mode": "url", "url": "https://example.com", "elicitationId": "e1"}
ASK = {
    "messages": [
        {"role": "user", "content": TEXT, "_meta": META},
        {"role": "user", "content": AUDIO},
        {"role": "assistant", "content": [IMAGE]},
    ],
    "maxTokens": 10,
    "systemPrompt": "Be brief",
    "tools": [],
    "toolChoice": {"mode": "auto"},
    "task": {"ttl": 1},
}
TAG = {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}}

# By method: the name of the request in the schemas, params with every optional member,
# and the revisions that support these params.
PARAMS: dict[str, tuple[str, dict[str, Any], list[Revision]]] = {
    "initialize": ("InitializeRequest", CLIENT, list(HANDSHAKE)),
    "completion/complete": (
        "CompleteRequest",
        {
            "ref": {"type": "ref/prompt", "name": "p", "title": "P"},
            "argument": {"name": "x", "value": "y"},
            "context": {"arguments": {"z": "1"}},
        },
        list(Revision),
    ),
    "notifications/progress": (
        "ProgressNotification",
        {"progressToken": 1, "progress": 0.5, "total": 1, "message": "half", **TAG},
        list(Revision),
    ),
    "notifications/message": (
        "LoggingMessageNotification",
        {"level": "info", "data": {"x": 1}, **TAG},
        list(Revision),
    ),
    "sampling/createMessage": ("CreateMessageRequest", ASK, list(Revision)),
    "elicitation/create": ("ElicitRequest", FORM, [V2025_06_18, V2025_11_25, NEWEST]),
}


# The published schemas. A closed schema also rejects unknown members.


@cache
def validator(revision: Revision, name: str, *, closed: bool = False) -> jsonschema_rs.Validator:
    schema = json.loads((SCHEMAS / f"{revision}.json").read_text())
    place = "definitions" if "definitions" in schema else "$defs"
    definitions = schema[place]
    if closed:
        for definition in definitions.values():
            members = definition.get("properties", {})
            # Close the params of a message, but not the message itself.
            close(members.get("params", definition))
        # Output schemas are sent in every revision, as the official SDK does.
        definitions["Tool"]["properties"].setdefault("outputSchema", {})
    root = {"$schema": schema["$schema"], "$ref": f"#/{place}/{name}", place: definitions}
    return jsonschema_rs.validator_for(root, retriever=refuse)


def close(definition: dict[str, Any]) -> None:
    if definition.get("properties"):
        definition.setdefault("additionalProperties", False)


def refuse(uri: str) -> Any:
    raise AssertionError(f"a schema refers to {uri}")


def envelope(method: str, params: object) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return message if method.startswith("notifications/") else {**message, "id": 1}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def result_for(revision: Revision, method: str, value: object) -> Any:
    return json.loads(downgrade_result(method, encoded(value), revision))


def params_for(revision: Revision, method: str, value: object) -> Any:
    return json.loads(downgrade_params(method, encoded(value), revision))


ODD = b'{"n":1.0000000000000000000000001e400,"big":123456789012345678901234567890,"s":"\\u0041\\/"}'


def places(value: object) -> list[tuple[Any, Any]]:
    """Return the container and the key of every nested value."""
    pairs: list[tuple[Any, Any]] = []
    keyed = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in keyed:
        pairs.append((value, key))
        pairs += places(inner)
    return pairs


WHOLE = [value for _, value in RESULTS.values()] + [value for _, value, _ in PARAMS.values()]
NAMES = sorted({key for _, key in places([*WHOLE, INITIALIZE]) if isinstance(key, str)})
names = st.sampled_from(NAMES)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([*NAMES, "object", "text", "audio"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


@st.composite
def mutated(draw: st.DrawFn, good: dict[str, Any]) -> dict[str, Any]:
    """Generate an example value with some members replaced, removed or added."""
    value = copy.deepcopy(good)
    for _ in range(draw(st.integers(0, 4))):
        container, key = draw(st.sampled_from(places(value) or [(value, "_meta")]))
        change = draw(st.sampled_from(["replace", "remove", "add"]))
        if change == "remove" and key in (container if isinstance(container, dict) else range(99)):
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[draw(names)] = draw(values)
        else:
            container[key] = draw(values)
    return value
