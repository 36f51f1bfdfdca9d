"""The method table and the structs, compared with the published protocol schemas."""

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest
from msgspec import Raw, Struct

from fairlead.protocol.methods import METHODS, TASKS_EXTENSION, MessageKind, Side
from fairlead.protocol.revisions import Revision
from fairlead.protocol.types import (
    base,
    completion,
    content,
    prompts,
    resources,
    subscriptions,
    tools,
)
from fairlead.protocol.types import input_required as inputs
from fairlead.protocol.types.base import decode, encode
from fairlead.protocol.types.content import ContentBlock, decode_content

SCHEMAS = Path(__file__).parents[2] / "protocol" / "schemas"
STATELESS = Revision.V2026_07_28
EXTENSION = "ext-tasks-draft"
BLOCKS = get_args(ContentBlock)

# Schema definitions within messages, and the structs for them.
PARTS: dict[str, type[Struct]] = {
    "Annotated": content.TextContent,
    "Annotations": base.Annotations,
    "AudioContent": content.AudioContent,
    "BlobResourceContents": content.ResourceContents,
    "CacheableResult": base.CacheableResult,
    "CallToolResult": tools.CallToolResult,
    "CompleteResult": completion.CompleteResult,
    "EmbeddedResource": content.EmbeddedResource,
    "Icon": base.Icon,
    "Icons": tools.Tool,
    "ImageContent": content.ImageContent,
    "InputRequiredResult": inputs.InputRequiredResult,
    "Prompt": prompts.Prompt,
    "PromptArgument": prompts.PromptArgument,
    "PromptReference": completion.PromptReference,
    "Resource": resources.Resource,
    "ResourceContents": content.ResourceContents,
    "ResourceLink": content.ResourceLink,
    "ResourceReference": completion.ResourceReference,
    "ResourceTemplate": resources.ResourceTemplate,
    "ResourceTemplateReference": completion.ResourceReference,
    "SubscriptionFilter": subscriptions.SubscriptionFilter,
    "TaskSubscriptionAcknowledgedNotifications": subscriptions.SubscriptionFilter,
    "TaskSubscriptionNotifications": subscriptions.SubscriptionFilter,
    "TextContent": content.TextContent,
    "TextResourceContents": content.ResourceContents,
    "Tool": tools.Tool,
    "ToolAnnotations": tools.ToolAnnotations,
    "ToolExecution": tools.ToolExecution,
    "ToolResultContent": content.ToolResultContent,
    "ToolUseContent": content.ToolUseContent,
}


# Schemas, as published and closed


@cache
def document(schema: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((SCHEMAS / f"{schema}.json").read_text("utf-8"))
    return loaded


def definitions(schema: str) -> dict[str, Any]:
    whole = document(schema)
    found: dict[str, Any] = whole.get("$defs") or whole["definitions"]
    return found


def resolve(schema: str, node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node:
        node = definitions(schema)[node["$ref"].rpartition("/")[2]]
    return node


def properties(schema: str, node: dict[str, Any]) -> dict[str, Any]:
    """Return the members that any branch of an object's schema defines."""
    node = resolve(schema, node)
    found = dict(node.get("properties", {}))
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in node.get(keyword, []):
            for name, value in properties(schema, branch).items():
                found[name] = {**found.get(name, {}), **value}
    return found


def methods_in(schema: str, union: str) -> Iterable[str]:
    """Return the methods of a union of messages. A union with one member has no `anyOf`."""
    node = definitions(schema).get(union)
    if node is None:
        return []
    return [properties(schema, branch)["method"]["const"] for branch in node.get("anyOf", [node])]


def check(schema: str, definition: str, value: Any, *, closed: bool = True) -> None:
    """Check that a value matches the schema and, if it is closed, has no unknown members."""
    instance = json.loads(msgspec.json.encode(value))
    validator(schema, definition, False).validate(instance)
    if closed:
        validator(schema, definition, True).validate(instance)


def refuse(uri: str) -> Any:
    raise ValueError(f"fetching {uri} is not allowed")


@cache
def validator(schema: str, definition: str, closed: bool) -> Any:
    whole = close_document(schema) if closed else document(schema)
    keyword = "$defs" if "$defs" in whole else "definitions"
    root = {
        "$schema": whole["$schema"],
        keyword: whole[keyword],
        "$ref": f"#/{keyword}/{definition}",
    }
    return jsonschema_rs.validator_for(root, retriever=refuse, validate_formats=True)


@cache
def close_document(schema: str) -> dict[str, Any]:
    """Return the schema with additional members forbidden in objects that list their members."""
    whole = deepcopy(document(schema))
    found = whole.get("$defs") or whole["definitions"]
    extended = {ref for node in found.values() for ref in references_of_all_of(node)}
    for name, node in found.items():
        close(node, left_open=name in extended)
    return whole


def references_of_all_of(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for branch in node.get("allOf", []):
            if "$ref" in branch:
                yield branch["$ref"].rpartition("/")[2]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from references_of_all_of(child)


def close(node: Any, *, left_open: bool = False) -> None:
    if not isinstance(node, dict):
        return
    members = node.get("properties")
    if "allOf" in node and not left_open:
        node["unevaluatedProperties"] = False
    elif members is not None and not left_open:
        node.setdefault("additionalProperties", False)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in node.get(keyword, []):
            close(branch, left_open=left_open or keyword == "allOf" or "allOf" in node)
    for keyword in ("items", "additionalProperties"):
        close(node.get(keyword))
    for name, member in (members or {}).items():
        close(member)
        if name == "params" and "properties" in member:
            member["properties"].setdefault("_meta", {})  # every kind of params may have `_meta`
    if members is not None and "method" in members:
        members.setdefault("jsonrpc", {})  # older schemas omit the envelope
        members.setdefault("id", {})


# Methods in the table and in the schemas


def core_rows(kind: MessageKind, revision: Revision, side: Side) -> set[str]:
    rows = [row for row in METHODS if row.kind == kind and row.within(revision)]
    return {row.name for row in rows if row.sent_by(side) and row.extension is None}


@pytest.mark.covers("PRO-16")
@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize("side", ["client", "server"])
def test_the_method_table_has_exactly_the_notifications_of_the_schema(
    revision: Revision, side: Side
) -> None:
    published = set(methods_in(str(revision), f"{side.title()}Notification"))
    assert core_rows("notification", revision, side) == published


@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize("side", ["client", "server"])
def test_the_method_table_has_exactly_the_requests_of_the_schema(
    revision: Revision, side: Side
) -> None:
    published = set(methods_in(str(revision), f"{side.title()}Request"))
    assert core_rows("request", revision, side) == published


def test_the_method_table_has_exactly_the_methods_of_the_tasks_extension() -> None:
    published = {
        method
        for name, definition in definitions(EXTENSION).items()
        if name.endswith(("TaskRequest", "TaskStatusNotification"))
        for method in [properties(EXTENSION, definition)["method"]["const"]]
    }
    ours = {row.name for row in METHODS if row.extension == TASKS_EXTENSION}
    assert ours == published


def test_the_method_table_embeds_exactly_the_input_requests_of_the_schema() -> None:
    published = set(methods_in(str(STATELESS), "InputRequest"))
    ours = {row.name for row in METHODS if row.embedded_since is STATELESS}
    assert ours == published


# Validity of encoded values

ICON = base.Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["any"])
NOTES = base.Annotations(audience=["user"], priority=0.5, last_modified="2026-07-28T10:30:00Z")
OBJECT = Raw(b'{"type":"object"}')
META = Raw(b"{}")
NAMED: dict[str, Any] = {"name": "n", "title": "N", "description": "d", "icons": [ICON]}
EXAMPLES: list[tuple[str, Struct]] = [
    ("Tool", tools.Tool(name="t", input_schema=OBJECT)),
    (
        "Tool",
        tools.Tool(
            **NAMED,
            input_schema=OBJECT,
            output_schema=OBJECT,
            annotations=tools.ToolAnnotations(title="T", read_only_hint=True),
            meta=META,
        ),
    ),
    ("Prompt", prompts.Prompt(name="p")),
    (
        "Prompt",
        prompts.Prompt(
            **NAMED,
            arguments=[prompts.PromptArgument(name="a", description="d", required=True)],
            meta=META,
        ),
    ),
    ("Resource", resources.Resource(uri="memo://a", name="a")),
    (
        "Resource",
        resources.Resource(
            **NAMED, uri="memo://a", mime_type="text/plain", size=1, annotations=NOTES, meta=META
        ),
    ),
    (
        "ResourceTemplate",
        resources.ResourceTemplate(
            **NAMED, uri_template="memo://{a}", mime_type="a/b", annotations=NOTES, meta=META
        ),
    ),
    ("TextContent", content.TextContent(text="a", annotations=NOTES, meta=META)),
    ("ImageContent", content.ImageContent(data="YQ==", mime_type="image/png")),
    ("AudioContent", content.AudioContent(data="YQ==", mime_type="audio/wav")),
    ("ResourceLink", content.ResourceLink(**NAMED, uri="memo://a", size=1)),
    (
        "EmbeddedResource",
        content.EmbeddedResource(resource=content.ResourceContents(uri="memo://a", text="t")),
    ),
    ("ToolUseContent", content.ToolUseContent(id="1", name="t", input=Raw(b"{}"))),
    ("ToolResultContent", content.ToolResultContent(tool_use_id="1", content=[], is_error=True)),
    (
        "CallToolResult",
        tools.CallToolResult(
            content=[encode(content.TextContent(text="a"))],
            structured_content=Raw(b"1"),
            is_error=False,
            result_type="complete",
        ),
    ),
    (
        "CompleteResult",
        completion.CompleteResult(
            completion=completion.Completion(values=["a"], total=1, has_more=False),
            result_type="complete",
        ),
    ),
    ("InputRequest", inputs.InputRequest(method="roots/list")),
    ("InputRequiredResult", inputs.InputRequiredResult(request_state="s")),
    (
        "SubscriptionFilter",
        subscriptions.SubscriptionFilter(
            tools_list_changed=True, resource_subscriptions=["memo://a"]
        ),
    ),
]


@pytest.mark.parametrize(("definition", "value"), EXAMPLES)
def test_published_examples_are_valid_and_survive_encoding_and_decoding(
    definition: str, value: Struct
) -> None:
    check(str(STATELESS), definition, value)
    assert decode(encode(value), type(value)) == value


@pytest.mark.parametrize("value", [v for _, v in EXAMPLES if isinstance(v, BLOCKS)])
def test_every_content_block_in_the_published_examples_is_decoded(value: Struct) -> None:
    assert decode_content(encode(value)) == value


def test_closed_published_schemas_reject_unknown_members() -> None:
    tool = EXAMPLES[1][1]
    check("2025-11-25", "Tool", tool)
    with pytest.raises(jsonschema_rs.ValidationError):
        check("2025-06-18", "Tool", tool)  # this revision has no icons


def test_the_validator_does_not_fetch_references() -> None:
    with pytest.raises(ValueError, match="not allowed"):
        jsonschema_rs.validator_for({"$ref": "https://example.com/x.json"}, retriever=refuse)


# Members of structs and schemas


@pytest.mark.parametrize("schema", [*map(str, Revision), EXTENSION])
def test_the_structs_have_every_member_of_the_published_schemas(schema: str) -> None:
    for name, type_ in PARTS.items():
        if name in definitions(schema):
            assert_covers(type_, schema, definitions(schema)[name], name)


def test_every_struct_member_is_defined_by_some_revision() -> None:
    published: dict[type[Struct], set[str]] = {}
    for schema in [*map(str, Revision), EXTENSION]:
        for name, type_ in PARTS.items():
            if name in definitions(schema):
                members = properties(schema, definitions(schema)[name])
                published.setdefault(type_, set()).update(members)
    for type_, known in published.items():
        assert member_names(type_) <= known | {"_meta"}, type_


# Assertions


def member_names(type_: type[Struct]) -> set[str]:
    names = {field.encode_name for field in msgspec.structs.fields(type_)}
    tag = type_.__struct_config__.tag_field
    return names if tag is None else names | {tag}


def assert_covers(type_: type[Struct], schema: str, node: dict[str, Any], name: str) -> None:
    missing = properties(schema, node).keys() - member_names(type_)
    assert missing == set(), f"{type_.__name__} for {name} of {schema}"
