"""Tests of the OpenAPI document of a server's tools."""

from typing import Any

import pytest

from fairlead import MCPServerConfig
from fairlead.server.http_app.openapi import describe_api


def api_of(*tools: dict[str, Any], root: str = "", **config: Any) -> dict[str, Any]:
    given = [{"inputSchema": {"type": "object"}, **tool} for tool in tools]
    return describe_api(MCPServerConfig(name="n", version="1", **config), given, root)


@pytest.mark.parametrize(
    ("config", "info"),
    [
        ({}, {"title": "n", "version": "1"}),
        ({"title": "T"}, {"title": "T", "version": "1"}),
        ({"instructions": "I"}, {"title": "n", "version": "1", "description": "I"}),
    ],
    ids=["name", "title", "instructions"],
)
def test_the_openapi_document_has_the_name_of_its_server(config: Any, info: Any) -> None:
    api = api_of(**config)
    assert (api["openapi"], api["info"], api["paths"]) == ("3.1.0", info, {})
    assert "servers" not in api
    assert api_of(root="/api")["servers"] == [{"url": "/api"}]
    error = api["components"]["schemas"]["Error"]["properties"]["error"]
    assert error["required"] == ["code", "message"]
    assert api["components"]["schemas"]["Result"]["required"] == ["content"]


@pytest.mark.parametrize(
    ("tool", "summary", "description"),
    [
        ({}, "t", None),
        ({"title": "T", "annotations": {"title": "A"}}, "T", None),
        ({"annotations": {"title": "A"}, "description": "D"}, "A", "D"),
        ({"annotations": None}, "t", None),
        ({"annotations": {}}, "t", None),
    ],
    ids=["name", "title", "annotated", "null", "empty"],
)
def test_an_operation_has_the_title_and_description_of_its_tool(
    tool: Any, summary: str, description: str | None
) -> None:
    operation = api_of({"name": "t", **tool})["paths"]["/tools/t/call"]["post"]
    assert (operation["summary"], operation.get("description")) == (summary, description)


@pytest.mark.parametrize(
    ("schema", "required"),
    [({}, False), ({"required": []}, False), ({"required": ["a"]}, True)],
    ids=["none", "empty", "some"],
)
def test_the_body_of_an_operation_is_required_if_an_argument_is_required(
    schema: Any, required: bool
) -> None:
    operation = api_of({"name": "t", "inputSchema": schema})["paths"]["/tools/t/call"]["post"]
    assert operation["requestBody"] == {
        "required": required,
        "content": {"application/json": {"schema": schema}},
    }


def test_operation_ids_are_unique_and_valid_names() -> None:
    names = ("a.b", "a-b", "a_b", "a/b", "c")
    paths = api_of(*({"name": name} for name in names))["paths"]
    assert {path: one["post"]["operationId"] for path, one in paths.items()} == {
        "/tools/a.b/call": "a_b",
        "/tools/a-b/call": "a_b_2",
        "/tools/a_b/call": "a_b_3",
        "/tools/a%2Fb/call": "a_b_4",
        "/tools/c/call": "c",
    }


def test_the_response_of_an_operation_has_the_output_schema_of_its_tool() -> None:
    output = {"type": "object", "title": "Out"}
    paths = api_of({"name": "a"}, {"name": "b", "outputSchema": output})["paths"]
    plain, structured = (
        path["post"]["responses"]["200"]["content"]["application/json"]["schema"]
        for path in paths.values()
    )
    assert plain == {"$ref": "#/components/schemas/Result"}
    assert structured["required"] == ["content", "structuredContent"]
    assert structured["properties"]["structuredContent"] == output
    failure = paths["/tools/a/call"]["post"]["responses"]["default"]
    assert failure["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/Error"
    }
