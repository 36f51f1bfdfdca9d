"""OpenAPI 3.1 document of a server's tools: one operation per tool."""

import re
from typing import Any
from urllib.parse import quote

from ..server_config import MCPServerConfig

__all__ = ["describe_api"]

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_]")


def describe_api(
    config: MCPServerConfig, tools: list[dict[str, Any]], root: str = ""
) -> dict[str, Any]:
    """Return the document for tools as listed by `tools/list`."""
    seen: dict[str, int] = {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": config.title or config.name,
            "version": config.version,
            **({"description": config.instructions} if config.instructions else {}),
        },
        **({"servers": [{"url": root}]} if root else {}),
        "paths": {
            f"/tools/{quote(tool['name'], safe='')}/call": {"post": _operation(tool, seen)}
            for tool in tools
        },
        "components": {"schemas": _SCHEMAS},
    }


def _operation(tool: dict[str, Any], seen: dict[str, int]) -> dict[str, Any]:
    name, schema = tool["name"], tool["inputSchema"]
    title = tool.get("title") or (tool.get("annotations") or {}).get("title")
    description = tool.get("description")
    return {
        "operationId": _operation_id(name, seen),
        "summary": title or name,
        **({"description": description} if description else {}),
        "requestBody": {
            "required": bool(schema.get("required")),
            "content": {"application/json": {"schema": schema}},
        },
        "responses": {
            "200": {
                "description": "The result of the tool",
                "content": {"application/json": {"schema": _result(tool.get("outputSchema"))}},
            },
            "default": {
                "description": "The error of the tool or of the request",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }


def _operation_id(name: str, seen: dict[str, int]) -> str:
    """Return a unique id that is a valid name in generated code."""
    plain = _NOT_IN_AN_ID.sub("_", name)
    seen[plain] = count = seen.get(plain, 0) + 1
    return plain if count == 1 else f"{plain}_{count}"


def _result(output: dict[str, Any] | None) -> dict[str, Any]:
    if output is None:
        return {"$ref": "#/components/schemas/Result"}
    return {
        "type": "object",
        "required": ["content", "structuredContent"],
        "properties": {"content": _CONTENT, "structuredContent": output},
    }


_CONTENT = {
    "type": "array",
    "description": "Content blocks, as in the Model Context Protocol",
    "items": {
        "type": "object",
        "required": ["type"],
        "properties": {"type": {"type": "string"}, "text": {"type": "string"}},
    },
}
_SCHEMAS = {
    "Result": {
        "type": "object",
        "required": ["content"],
        "properties": {"content": _CONTENT, "structuredContent": {}},
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": ["string", "integer"]},
                    "message": {"type": "string"},
                    "field_errors": {"type": "array", "items": {"type": "object"}},
                    "correlation_id": {"type": "string"},
                    "suggestion": {"type": "string"},
                },
            }
        },
    },
}
