"""Output schemas and structured content must equal those that the official SDK produces."""

import warnings
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
import pytest
from mcp.server.mcpserver.utilities.func_metadata import func_metadata

from fairlead import MCPServer
from tests.support.interop import annotation_classes, annotation_models
from tests.support.interop.class_annotations import ROWS as CLASS_ROWS
from tests.support.interop.json_schemas import without_titles
from tests.support.interop.other_annotations import ROWS as OTHER_ROWS

Outcome = tuple[Any, Any, bool]
ROWS = [*CLASS_ROWS, *OTHER_ROWS]
NAMES = vars(annotation_models) | vars(annotation_classes)


def tool_of(annotation: Any, value: Any) -> Callable[[], Any]:
    """Return a function with this return annotation; its module defines the test classes."""
    names = {**NAMES, "value": value}
    exec("def tool(): return value", names)
    tool: Callable[[], Any] = names["tool"]
    tool.__annotations__["return"] = annotation
    tool.__module__ = annotation_classes.__name__
    return tool


def official(tool: Callable[[], Any]) -> Outcome:
    """Return the schema, the structured content and the error flag of the official SDK."""
    metadata = func_metadata(tool)
    schema = without_titles(metadata.output_schema)
    try:
        result = metadata.convert_result(copy(tool()))
        structured = result.model_dump(mode="json", by_alias=True)["structuredContent"]
    except ValueError:
        return schema, None, True
    return schema, structured, False


async def ours(tool: Callable[[], Any]) -> Outcome:
    """Return the schema, the structured content and the error flag of Fairlead."""
    server = MCPServer("ours")
    server.tool("tool")(tool)
    (definition,) = await request(server, "tools/list", {}, "tools")
    result = await request(server, "tools/call", {"name": "tool", "arguments": {}})
    schema = without_titles(definition.get("outputSchema"))
    return schema, result.get("structuredContent"), result.get("isError", False)


async def request(server: MCPServer, method: str, params: Any, member: str | None = None) -> Any:
    answer = await server.handle_request(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    )
    assert answer is not None
    # Encoded again, because the answer may contain values that are encoded already.
    result = msgspec.json.decode(msgspec.json.encode(answer["result"]))
    return result[member] if member else result


@pytest.mark.covers("SRV-02", "SRV-29")
async def test_schemas_and_results_equal_those_of_the_official_sdk_for_many_annotations() -> None:
    differences = {}
    for annotation, value in ROWS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pydantic warns about some annotations
            tool = tool_of(annotation, value)
            found, expected = await ours(tool), official(tool)
        if found != expected:
            differences[f"{annotation} {value}"] = (found, expected)
    assert differences == {}
    assert len(ROWS) > 400


def test_the_table_contains_rows_with_schemas_without_schemas_and_with_errors() -> None:
    """The comparison would be weak if most rows had no schema."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [official(tool_of(*row)) for row in ROWS]
    assert sum(schema is not None for schema, _, _ in outcomes) > 350
    assert sum(schema is None for schema, _, _ in outcomes) > 10
    assert sum(failed for _, _, failed in outcomes) > 10
