"""Every peer sees only the shapes its revision knows, and everything else exactly as it came."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from fairlead.protocol.downgrade import (
    CACHEABLE,
    DowngradeError,
    downgrade_capabilities,
    downgrade_params,
    downgrade_result,
    upgrade_result,
)
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, Revision

SCHEMAS = Path(__file__).parent / "schemas"

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

# One full-featured result of the newest revision for each method: name in the schemas, value.
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

# The same for params: name of the request in the schemas, value, revisions that can be told it.
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


# The published schemas, as they are and closed: a closed one refuses members it does not name.


@cache
def validator(revision: Revision, name: str, *, closed: bool = False) -> jsonschema_rs.Validator:
    schema = json.loads((SCHEMAS / f"{revision}.json").read_text())
    place = "definitions" if "definitions" in schema else "$defs"
    definitions = schema[place]
    if closed:
        for definition in definitions.values():
            members = definition.get("properties", {})
            close(members.get("params", definition))  # not the envelope
    root = {"$schema": schema["$schema"], "$ref": f"#/{place}/{name}", place: definitions}
    return jsonschema_rs.validator_for(root, retriever=refuse)


def close(definition: dict[str, Any]) -> None:
    if definition.get("properties"):
        definition.setdefault("additionalProperties", False)


def refuse(uri: str) -> Any:
    raise AssertionError(f"a schema that reads {uri}")


def envelope(method: str, params: object) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return message if method.startswith("notifications/") else {**message, "id": 1}


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def result_for(revision: Revision, method: str, value: object) -> Any:
    return json.loads(downgrade_result(method, encoded(value), revision))


def params_for(revision: Revision, method: str, value: object) -> Any:
    return json.loads(downgrade_params(method, encoded(value), revision))


@pytest.mark.parametrize("method", RESULTS)
def test_the_examples_are_results_of_the_newest_revision(method: str) -> None:
    name, value = RESULTS[method]
    validator(NEWEST, name).validate(value)


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("revision", HANDSHAKE)
@pytest.mark.parametrize("method", [*RESULTS, "initialize"])
def test_a_result_fits_the_revision_of_the_peer(
    method: str, revision: Revision, closed: bool
) -> None:
    name, value = RESULTS.get(method, ("InitializeResult", INITIALIZE))
    validator(revision, name, closed=closed).validate(result_for(revision, method, value))


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize(
    ("method", "revision"), [(method, r) for method in PARAMS for r in PARAMS[method][2]]
)
def test_params_fit_the_revision_of_the_peer(method: str, revision: Revision, closed: bool) -> None:
    name, value, _ = PARAMS[method]
    params = params_for(revision, method, value)
    if revision.stateless:  # a request to a stateless server; the caller adds who it is
        params["_meta"] = {
            "io.modelcontextprotocol/protocolVersion": revision,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        closed = False
    validator(revision, name, closed=closed).validate(envelope(method, params))


# Nothing to do, nothing done.


@pytest.mark.parametrize(
    "method", ["tools/call", "prompts/list", "prompts/get", "resources/read", "completion/complete"]
)
@pytest.mark.parametrize("kind", [Raw, bytes])
def test_nobody_looks_where_there_is_nothing_to_do(method: str, kind: type[Raw]) -> None:
    unreadable = kind(b"not even JSON")
    assert downgrade_result(method, unreadable, NEWEST) is unreadable


@pytest.mark.parametrize("method", ["notifications/progress", "resources/read", "roots/list"])
def test_nobody_looks_at_params_either(method: str) -> None:
    unreadable = Raw(b"not even JSON")
    assert downgrade_params(method, unreadable, NEWEST) is unreadable


@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize("value", [b"", b"[]", b"7", b"{", b'{"\xff":1}', b"[" * 100_000])
def test_what_is_no_object_is_left_alone(value: bytes, revision: Revision) -> None:
    for method in [*RESULTS, "initialize", "x/y"]:
        assert downgrade_result(method, value, revision) is value
    for method in [*PARAMS, "x/y"]:
        assert downgrade_params(method, value, revision) is value
    assert downgrade_capabilities(value, revision) is value
    assert upgrade_result("tools/list", value) is value


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_a_result_without_news_is_returned_itself(revision: Revision) -> None:
    result = Raw(b'{ "content": [ {"type": "text", "text": "\\u0041"} ], "isError": false }')
    assert downgrade_result("tools/call", result, revision) is result


def test_what_came_as_raw_goes_as_raw_and_bytes_as_bytes() -> None:
    value = b'{"resultType":"complete"}'
    assert downgrade_result("x", value, V2025_11_25) == b"{}"
    assert downgrade_result("x", Raw(value), V2025_11_25) == Raw(b"{}")
    assert isinstance(downgrade_result("x", Raw(value), V2025_11_25), Raw)


# Everything else exactly as it came.

ODD = b'{"n":1.0000000000000000000000001e400,"big":123456789012345678901234567890,"s":"\\u0041\\/"}'


@pytest.mark.covers("RPC-06")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_fields_nobody_has_heard_of_keep_their_text(revision: Revision) -> None:
    tool = b'{"name":"t","inputSchema":%s,"x-odd":%s,"execution":{},"icons":[]}' % (ODD, ODD)
    result = b'{"resultType":"complete","tools":[%s],"_meta":{"a":%s},"odd":%s}' % (tool, ODD, ODD)
    assert downgrade_result("tools/list", result, revision).count(ODD) == 4


@pytest.mark.covers("RPC-06")
@pytest.mark.parametrize("revision", HANDSHAKE)
def test_blocks_keep_their_text(revision: Revision) -> None:
    blocks = b'[{"type":"new"},{"type":"text","text":"\\u0041","odd":%s,"annotations":%s}]' % (
        ODD,
        ODD,
    )
    result = downgrade_result("tools/call", b'{"content":%s,"odd":%s}' % (blocks, ODD), revision)
    assert result.count(ODD) == 3
    assert b'"text":"\\u0041"' in result


def places(value: object) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a value."""
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
    """A full-featured value with a few members replaced, removed or added."""
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


results = st.sampled_from([(m, v) for m, (_, v) in RESULTS.items()] + [("initialize", INITIALIZE)])
params = st.sampled_from([(m, v) for m, (_, v, _) in PARAMS.items()])


@given(
    results.flatmap(lambda r: st.tuples(st.just(r[0]), mutated(r[1]))), st.sampled_from(Revision)
)
def test_downgrading_a_result_twice_is_downgrading_once(
    case: tuple[str, Any], revision: Revision
) -> None:
    method, value = case
    try:
        once = downgrade_result(method, encoded(value), revision)
    except DowngradeError:
        return
    assert downgrade_result(method, once, revision) is once


@given(params.flatmap(lambda r: st.tuples(st.just(r[0]), mutated(r[1]))), st.sampled_from(Revision))
def test_downgrading_params_twice_is_downgrading_once(
    case: tuple[str, Any], revision: Revision
) -> None:
    method, value = case
    try:
        once = downgrade_params(method, encoded(value), revision)
    except DowngradeError:
        return
    assert downgrade_params(method, once, revision) is once


# Tools and their output.


def test_each_revision_gets_the_fields_of_a_tool_it_has() -> None:
    tool = {**TOOLS[0], "execution": {"taskSupport": "optional"}}

    def fields(revision: Revision) -> set[str]:
        return set(result_for(revision, "tools/list", {"tools": [tool]})["tools"][0])

    first = {"name", "description", "inputSchema"}
    assert fields(V2024_11_05) == first
    assert fields(V2025_03_26) == first | {"annotations"}
    third = first | {"annotations", "title", "outputSchema", "_meta"}
    assert fields(V2025_06_18) == third
    assert fields(V2025_11_25) == third | {"icons", "execution"}
    assert fields(NEWEST) == third | {"icons"}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_true_and_false_schemas_are_written_out(revision: Revision) -> None:
    tool = result_for(revision, "tools/list", {"tools": TOOLS})["tools"][0]
    assert tool["inputSchema"]["properties"] == {
        "place": {"$ref": "#/$defs/Place"},
        "rest": {},
        "none": {"not": {}},
    }
    assert tool["inputSchema"]["$defs"] == {"Place": {"type": "string"}}


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_only_objects_are_structured_before_the_stateless_revisions(revision: Revision) -> None:
    tools = result_for(revision, "tools/list", {"tools": TOOLS})["tools"]
    assert "outputSchema" not in tools[1]
    result = {"content": [{"type": "text", "text": "1"}], "structuredContent": 1}
    assert result_for(revision, "tools/call", result) == {"content": result["content"]}
    kept = result_for(revision, "tools/call", {"content": [], "structuredContent": {"a": 1}})
    assert ("structuredContent" in kept) == revision.structured_output


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"null", "null"), (b'["\\u00e9",1.50]', '["\\u00e9",1.50]'), (b'"\xff"', '"�"')],
)
def test_a_structured_value_that_goes_leaves_its_text(value: bytes, text: str) -> None:
    result = downgrade_result("tools/call", b'{"structuredContent":%s}' % value, V2025_11_25)
    assert json.loads(result) == {"content": [{"type": "text", "text": text}]}


def test_a_note_about_another_block_is_not_the_text_of_a_structured_value() -> None:
    result = result_for(
        V2024_11_05, "tools/call", {"content": [AUDIO], "structuredContent": {"a": 1}}
    )
    assert [block["text"] for block in result["content"]] == [
        "[audio/wav content left out: MCP 2024-11-05 has no blocks of type 'audio']",
        '{"a": 1}',
    ]


# Blocks.


def blocks_for(revision: Revision, *blocks: object) -> Any:
    return result_for(revision, "tools/call", {"content": blocks})["content"]


def test_a_link_becomes_a_text_with_its_address() -> None:
    kept = {"audience": ["user"], "priority": 0.5}
    text = {"type": "text", "text": "A title: file:///a", "annotations": kept}
    for revision in (V2024_11_05, V2025_03_26):
        assert blocks_for(revision, LINK) == [text]
    assert blocks_for(V2024_11_05, {"type": "resource_link", "uri": "x:y"})[0]["text"] == "x:y"


def test_a_block_nobody_knows_stays_in_the_newest_revision_only() -> None:
    block = {"type": "video", "mimeType": "video/mp4", "data": "AAAA"}
    assert blocks_for(NEWEST, block) == [block]
    for revision in HANDSHAKE:
        note = f"[video/mp4 content left out: MCP {revision} has no blocks of type 'video']"
        assert blocks_for(revision, block) == [{"type": "text", "text": note}]


def test_a_block_without_a_type_is_nothing_anybody_knows() -> None:
    note = "[some content left out: MCP 2025-11-25 has no blocks without a type]"
    assert blocks_for(V2025_11_25, {"type": 3}) == [{"type": "text", "text": note}]


def test_what_is_no_block_at_all_is_not_ours_to_mend() -> None:
    assert result_for(V2024_11_05, "tools/call", {"content": 3}) == {"content": 3}
    assert blocks_for(V2024_11_05, 3, None, "text") == [3, None, "text"]


# The envelope of stateless results.


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_only_a_complete_result_can_be_told(revision: Revision) -> None:
    assert result_for(revision, "x/y", {"resultType": "complete", "a": 1}) == {"a": 1}
    for kind in ("input_required", "task", 3):
        with pytest.raises(DowngradeError, match="only complete results"):
            result_for(revision, "tools/call", {"resultType": kind})


@pytest.mark.parametrize("revision", HANDSHAKE)
def test_stateless_keys_leave_and_others_stay(revision: Revision) -> None:
    meta = {"io.modelcontextprotocol/serverInfo": SERVER, "traceparent": "00-1-2-01"}
    assert result_for(revision, "x/y", {"_meta": meta}) == {"_meta": {"traceparent": "00-1-2-01"}}
    assert params_for(revision, "notifications/tools/list_changed", TAG) == {}
    assert params_for(revision, "x/y", {"_meta": {}}) == {"_meta": {}}


def test_the_time_to_live_of_something_else_is_not_a_cache_field() -> None:
    task = {"taskId": "1", "ttlMs": 5}
    assert result_for(V2025_11_25, "tasks/get", task) == task


# Capabilities.


def capabilities_for(revision: Revision, value: object) -> Any:
    return json.loads(downgrade_capabilities(encoded(value), revision))


def test_capabilities_of_a_client() -> None:
    ours = CLIENT["capabilities"]
    old = {"roots": {"listChanged": True}, "sampling": {}}
    assert capabilities_for(V2024_11_05, ours) == old
    assert capabilities_for(V2025_06_18, ours) == {**old, "elicitation": {}}
    assert capabilities_for(V2025_11_25, ours) == {
        k: v for k, v in ours.items() if k != "extensions"
    }
    assert capabilities_for(NEWEST, ours) == {
        "roots": {},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }


def test_elicitation_by_url_only_does_not_become_a_promise_of_forms() -> None:
    assert capabilities_for(V2025_06_18, {"elicitation": {"url": {}}}) == {}
    assert capabilities_for(V2025_06_18, {"elicitation": {}}) == {"elicitation": {}}


def test_extensions_pass_where_they_can_work() -> None:
    apps: Any = {
        "extensions": {"io.modelcontextprotocol/ui": {}, "io.modelcontextprotocol/tasks": {}}
    }
    ui: Any = {"extensions": {"io.modelcontextprotocol/ui": {}}}
    got = [capabilities_for(revision, apps) for revision in Revision]
    assert got == [{}, {}, ui, ui, apps]


# What servers ask of clients.


def test_a_form_for_the_first_revision_that_had_forms() -> None:
    assert params_for(V2025_06_18, "elicitation/create", FORM) == {
        "message": "Which?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1},
                "age": {"type": "integer", "minimum": 0},
                "sure": {"type": "boolean", "default": False},
                "plain": {"type": "string", "enum": ["a", "b"]},
                "size": {
                    "type": "string",
                    "title": "Size",
                    "enum": ["s", "l"],
                    "enumNames": ["Small", "Large"],
                },
            },
            "required": ["name"],
        },
    }
    assert params_for(V2025_11_25, "elicitation/create", FORM) == FORM


def test_choices_that_are_none_stay_as_they_are() -> None:
    def asked(question: object) -> Any:
        form = {"message": "?", "requestedSchema": {"properties": {"q": question}}}
        return params_for(V2025_06_18, "elicitation/create", form)["requestedSchema"]["properties"][
            "q"
        ]

    assert asked({"oneOf": [{"const": "a"}]}) == {"enum": ["a"], "enumNames": ["a"]}
    others: list[Any] = [{"oneOf": [{"type": "string"}]}, {"oneOf": []}, {"oneOf": 1}, 7]
    for question in others:
        assert asked(question) == question


@pytest.mark.parametrize(
    ("revision", "question", "reason"),
    [
        (V2024_11_05, FORM, "has no elicitation"),
        (V2025_03_26, URL, "has no elicitation"),
        (V2025_06_18, URL, "in mode 'url'"),
        (V2025_11_25, {**FORM, "mode": "voice"}, "in mode 'voice'"),
        (V2025_11_25, {**URL, "mode": 3}, "in mode None"),
        (V2025_11_25, {"message": "m", "mode": "url", "url": "u:v"}, "without an elicitationId"),
        (V2025_06_18, {"requestedSchema": {"properties": {"a": PICK}}}, "several choices"),
    ],
)
def test_a_question_that_cannot_be_asked(revision: Revision, question: object, reason: str) -> None:
    with pytest.raises(DowngradeError, match=reason):
        params_for(revision, "elicitation/create", question)


def test_a_url_has_an_id_in_one_revision_only() -> None:
    assert params_for(V2025_11_25, "elicitation/create", URL) == URL
    assert params_for(NEWEST, "elicitation/create", {**URL, "task": {}}) == {
        "message": "Sign in",
        "mode": "url",
        "url": "https://example.com",
    }


USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}
ANSWER = {"type": "tool_result", "toolUseId": "1", "content": [LINK], "structuredContent": [1]}


@pytest.mark.parametrize("revision", BEFORE_2025_11_25)
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tools": TOOLS}, "no tools in sampling"),
        ({"tools": 7}, "no tools in sampling"),
        ({"messages": [{"role": "user", "content": USE}]}, "no use of tools"),
        ({"messages": [{"role": "user", "content": [ANSWER]}]}, "no use of tools"),
        ({"messages": [{"role": "user", "content": [TEXT, TEXT]}]}, "one block of content"),
        ({"messages": [{"role": "user", "content": []}]}, "one block of content"),
    ],
)
def test_sampling_that_cannot_be_asked(
    revision: Revision, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DowngradeError, match=reason):
        params_for(revision, "sampling/createMessage", {**ASK, **change})


def test_the_answer_of_a_sampled_tool_is_an_answer_of_a_tool() -> None:
    tools = [{**TOOLS[1], "execution": {}}]
    asked = {**ASK, "messages": [{"role": "user", "content": [ANSWER]}], "tools": tools}
    older = params_for(V2025_11_25, "sampling/createMessage", asked)
    answer = older["messages"][0]["content"][0]
    assert answer["content"] == [LINK, {"type": "text", "text": "[1]"}]
    assert "structuredContent" not in answer
    assert older["tools"] == [{"name": "list", "inputSchema": {"type": "object"}, "execution": {}}]
    newest = params_for(NEWEST, "sampling/createMessage", asked)
    assert newest["messages"] == asked["messages"]
    assert newest["tools"] == [TOOLS[1]]


def test_a_sampled_message_of_several_blocks_has_no_older_form() -> None:
    several = {"role": "assistant", "model": "m", "content": [TEXT, TEXT]}
    assert result_for(V2025_11_25, "sampling/createMessage", several) == several
    with pytest.raises(DowngradeError, match="one block of content"):
        result_for(V2025_06_18, "sampling/createMessage", several)


def test_a_task_is_asked_for_in_one_revision_only() -> None:
    call = {"name": "t", "task": {"ttl": 1}}
    for revision in Revision:
        assert ("task" in params_for(revision, "tools/call", call)) == revision.core_tasks


# The other way round.


def upgraded(method: str, value: object) -> Any:
    return json.loads(upgrade_result(method, encoded(value), server_info=encoded(SERVER)))


@pytest.mark.parametrize("method", RESULTS)
def test_an_old_result_becomes_one_of_the_newest_revision(method: str) -> None:
    name, value = RESULTS[method]
    old = result_for(V2025_11_25, method, value)
    validator(NEWEST, name).validate(upgraded(method, old))


def test_what_a_stateless_caller_expects_is_added() -> None:
    meta = {"io.modelcontextprotocol/serverInfo": SERVER}
    assert upgraded("tools/call", {"content": []}) == {
        "content": [],
        "resultType": "complete",
        "_meta": meta,
    }
    for method in CACHEABLE:
        assert upgraded(method, {"_meta": {"a": 1}}) == {
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"a": 1, **meta},
        }


def test_what_is_there_is_left_alone() -> None:
    whole = Raw(encoded({**CACHED, "tools": []}))
    assert upgrade_result("tools/list", whole, server_info=encoded({"name": "other"})) is whole
    assert upgrade_result("x/y", whole, server_info=None) is whole
    assert upgraded("resources/read", {"resultType": "input_required", "_meta": 7}) == {
        "resultType": "input_required",
        "_meta": 7,
    }


@pytest.mark.covers("RPC-06")
def test_an_upgrade_keeps_every_text() -> None:
    result = upgrade_result("tools/list", b'{"tools":%s,"_meta":%s}' % (ODD, ODD), server_info=ODD)
    assert result.count(ODD[1:-1]) == 3
