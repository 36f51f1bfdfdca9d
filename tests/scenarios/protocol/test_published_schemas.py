"""Every message we can build, held against the schemas that the protocol's project publishes."""

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from msgspec import Raw, Struct

from fairlead.protocol import methods
from fairlead.protocol.methods import METHODS, TASKS_EXTENSION, Method
from fairlead.protocol.revisions import Revision
from fairlead.protocol.types import (
    base,
    capabilities,
    completion,
    content,
    prompts,
    resources,
    roots,
    sampling,
    subscriptions,
    tasks,
    tools,
)
from fairlead.protocol.types import input_required as inputs
from fairlead.protocol.types.base import decode, encode
from fairlead.protocol.types.content import UnknownContent, decode_content
from tests.support.protocol_examples import (
    EXTENSION,
    Other,
    Shapes,
    embedded_in,
    extension,
    messages_of,
    others_of,
)

SCHEMAS = Path(__file__).parents[2] / "protocol" / "schemas"
STATELESS = Revision.V2026_07_28

RESULTS = {
    "completion/complete": "CompleteResult",
    "elicitation/create": "ElicitResult",
    "initialize": "InitializeResult",
    "logging/setLevel": "EmptyResult",
    "ping": "EmptyResult",
    "prompts/get": "GetPromptResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/unsubscribe": "EmptyResult",
    "roots/list": "ListRootsResult",
    "sampling/createMessage": "CreateMessageResult",
    "server/discover": "DiscoverResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/get": "GetTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/result": "GetTaskPayloadResult",
    "tasks/update": "UpdateTaskResult",
    "tools/call": "CallToolResult",
    "tools/list": "ListToolsResult",
}

# Definitions that are part of messages, and the structs we have for them.
PARTS: dict[str, type[Struct]] = {
    "Annotated": content.TextContent,
    "Annotations": base.Annotations,
    "AudioContent": content.AudioContent,
    "BlobResourceContents": content.ResourceContents,
    "CacheableResult": base.CacheableResult,
    "CallToolRequestParams": tools.CallToolParams,
    "ClientCapabilities": capabilities.ClientCapabilities,
    "EmbeddedResource": content.EmbeddedResource,
    "Icon": base.Icon,
    "Icons": tools.Tool,
    "ImageContent": content.ImageContent,
    "Implementation": base.Implementation,
    "InputRequiredResult": inputs.InputRequiredResult,
    "InputResponseRequestParams": tools.CallToolParams,
    "ModelHint": sampling.ModelHint,
    "ModelPreferences": sampling.ModelPreferences,
    "PaginatedRequestParams": base.PaginatedParams,
    "PaginatedResult": base.Page,
    "Prompt": prompts.Prompt,
    "PromptArgument": prompts.PromptArgument,
    "PromptMessage": prompts.PromptMessage,
    "PromptReference": completion.PromptReference,
    "RequestParams": base.RequestParams,
    "Resource": resources.Resource,
    "ResourceContents": content.ResourceContents,
    "ResourceLink": content.ResourceLink,
    "ResourceReference": completion.ResourceReference,
    "ResourceRequestParams": resources.SubscribeParams,
    "ResourceTemplate": resources.ResourceTemplate,
    "ResourceTemplateReference": completion.ResourceReference,
    "Result": base.EmptyResult,
    "Root": roots.Root,
    "SamplingMessage": sampling.SamplingMessage,
    "ServerCapabilities": capabilities.ServerCapabilities,
    "SubscriptionFilter": subscriptions.SubscriptionFilter,
    "TaskMetadata": base.TaskMetadata,
    "TaskSubscriptionAcknowledgedNotifications": subscriptions.SubscriptionFilter,
    "TaskSubscriptionNotifications": subscriptions.SubscriptionFilter,
    "TextContent": content.TextContent,
    "TextResourceContents": content.ResourceContents,
    "Tool": tools.Tool,
    "ToolAnnotations": tools.ToolAnnotations,
    "ToolChoice": sampling.ToolChoice,
    "ToolExecution": tools.ToolExecution,
    "ToolResultContent": content.ToolResultContent,
    "ToolUseContent": content.ToolUseContent,
}
CORE_TASK_PARTS: dict[str, type[Struct]] = {
    "CreateTaskResult": tasks.CreateCoreTaskResult,
    "Task": tasks.CoreTask,
    "TaskAugmentedRequestParams": tools.CallToolParams,
}
EXTENSION_PARTS: dict[str, type[Struct]] = {
    "CancelledTask": tasks.DetailedTask,
    "CompletedTask": tasks.DetailedTask,
    "CreateTaskResult": tasks.CreateTaskResult,
    "DetailedTask": tasks.DetailedTask,
    "FailedTask": tasks.DetailedTask,
    "InputRequiredTask": tasks.DetailedTask,
    "Task": tasks.Task,
    "TaskStatusNotificationParams": tasks.DetailedTask,
    "WorkingTask": tasks.DetailedTask,
}
DATA_OF_ERRORS = {
    "MissingRequiredClientCapabilityError",
    "URLElicitationRequiredError",
    "UnsupportedProtocolVersionError",
}

# Definitions without a struct of their own: envelopes, plain values, unions, `_meta`, form schemas.
NO_STRUCT = {
    *("BaseMetadata", "Cursor", "EmptyResult", "Error", "HeaderMismatchError", "InternalError"),
    *("InvalidParamsError", "InvalidRequestError", "MethodNotFoundError", "ParseError"),
    *("JSONArray", "JSONObject", "JSONValue", "LoggingLevel", "ProgressToken", "RequestId"),
    *("ResultType", "Role", "TaskStatus", "TasksExtensionCapability", "RelatedTaskMetadata"),
    *("Notification", "NotificationParams", "Request", "PaginatedRequest"),
    *("ClientNotification", "ClientRequest", "ClientResult"),
    *("ServerNotification", "ServerRequest", "ServerResult"),
    *("ContentBlock", "SamplingMessageContentBlock", "ElicitRequestParams"),
    *("InputRequest", "InputRequests", "InputResponse", "InputResponses"),
    *("MetaObject", "NotificationMetaObject", "RequestMetaObject", "ResultMetaObject"),
    "SubscriptionsListenResultMetaObject",
    *("BooleanSchema", "EnumSchema", "LegacyTitledEnumSchema", "MultiSelectEnumSchema"),
    *("NumberSchema", "PrimitiveSchemaDefinition", "SingleSelectEnumSchema", "StringSchema"),
    *("TitledMultiSelectEnumSchema", "TitledSingleSelectEnumSchema"),
    *("UntitledMultiSelectEnumSchema", "UntitledSingleSelectEnumSchema"),
}


# Schemas, read and closed.


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
    """The members an object may have by any branch of its schema."""
    node = resolve(schema, node)
    found = dict(node.get("properties", {}))
    for keyword in ("allOf", "anyOf", "oneOf"):
        for branch in node.get(keyword, []):
            for name, value in properties(schema, branch).items():
                found[name] = {**found.get(name, {}), **value}
    return found


def methods_in(schema: str, union: str) -> Iterable[str]:
    """The methods of a union of messages; a union of one is not written as one."""
    node = definitions(schema).get(union)
    if node is None:
        return []
    return [properties(schema, branch)["method"]["const"] for branch in node.get("anyOf", [node])]


def definitions_by_method(schema: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, node in definitions(schema).items():
        if name in NO_STRUCT:
            continue  # a union of messages has many methods
        method = properties(schema, node).get("method", {}).get("const")
        if method is not None and name.endswith(("Request", "Notification")):
            found[method] = name
    return found


def parts_of(schema: str) -> dict[str, type[Struct]]:
    if schema == EXTENSION:
        return PARTS | EXTENSION_PARTS
    return PARTS | CORE_TASK_PARTS if schema == "2025-11-25" else PARTS


def check(schema: str, definition: str, value: Any, *, closed: bool = True) -> None:
    """Valid by the schema as published, and (when closed) with no member that it does not name."""
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
    """The schema with every object closed that lists its members and is not declared open."""
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
            member["properties"].setdefault("_meta", {})  # all params may have it, listed or not
    if members is not None and "method" in members:
        members.setdefault("jsonrpc", {})  # older schemas leave the envelope out
        members.setdefault("id", {})


# The table and the schemas name the same methods.


@pytest.mark.covers("PRO-16")
@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize("side", ["client", "server"])
def test_the_table_has_exactly_the_notifications_of_the_schema(
    revision: Revision, side: methods.Side
) -> None:
    published = set(methods_in(str(revision), f"{side.title()}Notification"))
    ours = [row for row in methods.notifications(revision, side) if row.extension is None]
    assert {row.name for row in ours} == published


@pytest.mark.parametrize("revision", Revision)
@pytest.mark.parametrize("side", ["client", "server"])
def test_the_table_has_exactly_the_requests_of_the_schema(
    revision: Revision, side: methods.Side
) -> None:
    published = set(methods_in(str(revision), f"{side.title()}Request"))
    ours = [row for row in methods.requests(revision, side) if row.extension is None]
    assert {row.name for row in ours} == published


def test_the_table_has_exactly_the_methods_of_the_tasks_extension() -> None:
    published = {
        method
        for name, definition in definitions(EXTENSION).items()
        if name.endswith(("TaskRequest", "TaskStatusNotification"))
        for method in [properties(EXTENSION, definition)["method"]["const"]]
    }
    ours = {row.name for row in METHODS if row.extension == TASKS_EXTENSION}
    assert ours == published


def test_the_table_embeds_exactly_the_input_requests_of_the_schema() -> None:
    published = set(methods_in(str(STATELESS), "InputRequest"))
    ours = {row.name for row in METHODS if methods.embedded(row.name, STATELESS)}
    assert ours == published


@pytest.mark.parametrize("revision", Revision)
def test_there_are_examples_for_every_method(revision: Revision) -> None:
    rows = [row for row in METHODS if row.within(revision) and row.extension is None]
    examples = messages_of(revision)
    assert examples.keys() == {row.name for row in rows}
    for row in rows:
        assert_complete(row, examples[row.name])


def test_there_are_examples_for_every_method_of_the_extension_and_every_embedded_one() -> None:
    rows = [row for row in METHODS if row.extension is not None]
    assert extension().keys() == {row.name for row in rows}
    for row in rows:
        assert_complete(row, extension()[row.name])
    questions = {row.name: row for row in METHODS if methods.embedded(row.name, STATELESS)}
    assert embedded_in(STATELESS).keys() == questions.keys()
    for name, row in questions.items():
        assert_complete(row, embedded_in(STATELESS)[name])


# What we build is valid.


def example_messages() -> Iterator[Any]:
    """(schema, definition, message) for all examples of all revisions."""
    for revision in Revision:
        yield from messages_for(str(revision), revision, messages_of(revision))
    yield from messages_for(EXTENSION, STATELESS, extension())


def messages_for(schema: str, revision: Revision, examples: dict[str, Shapes]) -> Iterator[Any]:
    names = definitions_by_method(schema)
    for method, shapes in examples.items():
        is_request = bool(shapes.results)
        for number, params in enumerate(shapes.params):
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
            if is_request:
                message["id"] = number or "first"
            yield case(schema, names[method], message, f"{method}-{number}")
        for number, result in enumerate(shapes.results):
            yield case(schema, RESULTS[method], result, f"{method}-result-{number}")


def case(schema: str, definition: str, value: Any, label: str) -> Any:
    return pytest.param(schema, definition, value, id=f"{schema}-{label}")


@pytest.mark.parametrize(("schema", "definition", "message"), [*example_messages()])
def test_every_message_is_valid(schema: str, definition: str, message: Any) -> None:
    check(schema, definition, message)


@pytest.mark.parametrize("revision", Revision)
def test_every_result_makes_a_valid_response(revision: Revision) -> None:
    known = definitions(str(revision))
    envelope = "JSONRPCResultResponse" if "JSONRPCResultResponse" in known else "JSONRPCResponse"
    for method, shapes in messages_of(revision).items():
        for result in shapes.results:
            message = {"jsonrpc": "2.0", "id": 1, "result": result}
            check(str(revision), envelope, message, closed=False)
            if f"{RESULTS[method]}Response" in known:
                check(str(revision), f"{RESULTS[method]}Response", message)


@pytest.mark.parametrize("schema", [str(STATELESS), EXTENSION])
def test_every_embedded_question_and_answer_is_valid(schema: str) -> None:
    for method, shapes in embedded_in(STATELESS).items():
        for params in shapes.params:
            question = inputs.InputRequest(method=method, params=encode(params))
            check(schema, "InputRequest", question)
            check(schema, "InputRequests", {"q": question})
            check(schema, definitions_by_method(schema)[method], question)
        for answer in shapes.results:
            check(schema, RESULTS[method], answer)
            check(schema, "InputResponses", {"q": answer})


def other_examples() -> Iterator[Any]:
    for revision in Revision:
        for number, other in enumerate(others_of(revision)):
            yield pytest.param(str(revision), other, id=f"{revision}-{other.definition}-{number}")
    full = tasks.CreateTaskResult(
        task_id="t1",
        status="working",
        created_at="2026-07-28T10:30:00Z",
        last_updated_at="2026-07-28T10:30:00Z",
        ttl_ms=0,
        poll_interval_ms=10,
        status_message="started",
        meta=Raw(b"{}"),
    )
    least = tasks.CreateTaskResult(
        task_id="t1", status="completed", created_at="", last_updated_at="", ttl_ms=None
    )
    listen = subscriptions.SubscriptionFilter(task_ids=["t1"])
    yield pytest.param(EXTENSION, Other("CreateTaskResult", least), id="ext-create-least")
    yield pytest.param(EXTENSION, Other("CreateTaskResult", full), id="ext-create-full")
    yield pytest.param(EXTENSION, Other("TaskSubscriptionNotifications", listen), id="ext-listen")


@pytest.mark.parametrize(("schema", "other"), [*other_examples()])
def test_everything_else_is_valid(schema: str, other: Other) -> None:
    check(schema, other.definition, other.value)


def test_the_examples_would_fail_if_they_had_a_member_too_many() -> None:
    tool = messages_of(Revision.V2025_11_25)["tools/list"].results[-1]
    check("2025-11-25", "ListToolsResult", tool)
    with pytest.raises(jsonschema_rs.ValidationError):
        check("2025-06-18", "ListToolsResult", tool)  # icons and execution came later


def test_the_validator_fetches_nothing() -> None:
    with pytest.raises(ValueError, match="not allowed"):
        jsonschema_rs.validator_for({"$ref": "https://example.com/x.json"}, retriever=refuse)


# What we build is what we read.


def every_struct() -> Iterator[Struct]:
    collections = [messages_of(revision) for revision in Revision]
    collections += [embedded_in(STATELESS), extension()]
    for examples in collections:
        for shapes in examples.values():
            for value in [*shapes.params, *shapes.results]:
                if isinstance(value, Struct):
                    yield value
    for revision in Revision:
        for other in others_of(revision):
            if isinstance(other.value, Struct):
                yield other.value


def test_every_example_survives_the_wire() -> None:
    for value in every_struct():
        assert decode(encode(value), type(value)) == value


def test_every_example_is_read_by_the_types_of_the_table() -> None:
    for revision in Revision:
        examples = messages_of(revision)
        if revision.stateless:
            examples |= extension()
        for name, shapes in examples.items():
            row = methods.find(name, revision)
            assert row is not None
            for params in shapes.params:
                assert decode(encode(params), row.params_type) == params
            for result in shapes.results:
                assert row.result_type is not None
                assert decode(encode(result), row.result_type) == result


def test_every_block_of_the_examples_is_known() -> None:
    for revision in Revision:
        result = messages_of(revision)["tools/call"].results[-1]
        assert isinstance(result, tools.CallToolResult)
        for raw in result.content:
            block = decode_content(raw)
            assert not isinstance(block, UnknownContent)
            assert encode(block) == raw


# The structs have every member that a schema names.


@pytest.mark.parametrize("schema", [*map(str, Revision), EXTENSION])
def test_every_definition_has_a_struct_or_needs_none(schema: str) -> None:
    accounted = (
        NO_STRUCT
        | DATA_OF_ERRORS
        | set(parts_of(schema))
        | set(definitions_by_method(schema).values())
        | {name for name in RESULTS.values() if name in definitions(schema)}
    )
    left = {
        name
        for name in definitions(schema)
        if not name.startswith("JSONRPC")
        and not name.endswith("Response")
        and name.removesuffix("Params") not in accounted  # CallToolRequestParams: with its request
        and name not in ("ElicitRequestFormParams", "ElicitRequestURLParams")
    }
    assert left - accounted == set()


@pytest.mark.parametrize("schema", [*map(str, Revision), EXTENSION])
def test_no_published_member_is_unknown_to_the_structs(schema: str) -> None:
    for name, type_ in parts_of(schema).items():
        if name in definitions(schema):
            assert_covers(type_, schema, definitions(schema)[name], name)
    revision = STATELESS if schema == EXTENSION else Revision(schema)
    for method, name in definitions_by_method(schema).items():
        row = methods.find(method, revision) or methods.embedded(method, revision)
        assert row is not None
        request = properties(schema, definitions(schema)[name])
        assert_covers(row.params_type, schema, request.get("params", {}), name)
        result = definitions(schema).get(RESULTS.get(method, ""))
        if result is not None and row.result_type is not None and row.result_type is not Raw:
            assert_covers(row.result_type, schema, result, RESULTS[method])


def test_no_struct_has_a_member_that_no_revision_knows() -> None:
    published: dict[type[Struct], set[str]] = {}
    for schema in [*map(str, Revision), EXTENSION]:
        for name, type_ in parts_of(schema).items():
            if name in definitions(schema):
                members = properties(schema, definitions(schema)[name])
                published.setdefault(type_, set()).update(members)
    for named_by_a_base_only in (tools.CallToolParams, base.Page):
        published.pop(
            named_by_a_base_only
        )  # in full they are in the examples, held to closed objects
    for type_, known in published.items():
        assert member_names(type_) <= known | {"_meta"}, type_


# Assertions.


def assert_complete(row: Method, shapes: Shapes) -> None:
    assert len(shapes.params) >= 2, row.name
    assert len(shapes.results) >= (2 if row.kind == "request" else 0), row.name
    assert bool(shapes.results) == (row.kind == "request"), row.name


def member_names(type_: type[Struct]) -> set[str]:
    names = {field.encode_name for field in msgspec.structs.fields(type_)}
    tag = type_.__struct_config__.tag_field
    return names if tag is None else names | {tag}


def assert_covers(type_: type[Struct], schema: str, node: dict[str, Any], name: str) -> None:
    missing = properties(schema, node).keys() - member_names(type_)
    assert missing == set(), f"{type_.__name__} for {name} of {schema}"
