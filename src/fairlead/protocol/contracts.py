"""Schemas of a tool call: the form of its request, response and error on every transport.

The three schemas are published for use with any JSON Schema library. The validators of this module
use the same schemas and describe problems in sentences.
"""

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

__all__ = [
    "TOOL_ERROR_SCHEMA",
    "TOOL_REQUEST_SCHEMA",
    "TOOL_RESPONSE_SCHEMA",
    "Checked",
    "FailureKind",
    "make_tool_error",
    "validate_tool_error",
    "validate_tool_request",
    "validate_tool_response",
]

FailureKind: TypeAlias = Literal["http", "timeout", "closed", "parse"]
"""Reason for a missing response: an HTTP status, a timeout, a closed connection, invalid JSON."""

_Schema: TypeAlias = dict[str, Any]

_VERSION: Final[_Schema] = {"type": "string", "const": "2.0"}
_ID: Final[_Schema] = {
    "type": ["string", "integer"],
    "minLength": 1,
    "$comment": "An id must have no fraction, although JSON Schema accepts 1.0 as an integer.",
}


def _envelope(name: str, title: str, **members: _Schema | bool) -> _Schema:
    """Return the schema of a JSON-RPC message with an id.

    A member whose schema is False must be absent.
    """
    present = [member for member, schema in members.items() if schema is not False]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fairlead:contract:{name}",
        "title": title,
        "type": "object",
        "required": ["jsonrpc", "id", *present],
        "properties": {"jsonrpc": _VERSION, "id": _ID, **members},
    }


TOOL_REQUEST_SCHEMA: Final[_Schema] = _envelope(
    "tool-request",
    "A request to call a tool",
    method={"type": "string", "const": "tools/call"},
    params={
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "arguments": {"type": "object"},
            "_meta": {"type": "object"},
        },
    },
)

TOOL_RESPONSE_SCHEMA: Final[_Schema] = _envelope(
    "tool-response",
    "The response of a tool",
    result={
        "type": "object",
        "required": ["content"],
        "properties": {
            "content": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["type"],
                    "properties": {"type": {"type": "string", "minLength": 1}},
                },
            },
            "isError": {"type": "boolean"},
            "structuredContent": True,
            "_meta": {"type": "object"},
        },
    },
    error=False,
)

TOOL_ERROR_SCHEMA: Final[_Schema] = _envelope(
    "tool-error",
    "The error of a failed call",
    error={
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": {"type": "integer"},
            "message": {"type": "string", "minLength": 1},
            "data": True,
        },
    },
    result=False,
)


class Checked(Struct, frozen=True):
    """Result of a validation. Problems contain the paths of invalid values, never the values."""

    payload: Any
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def validate_tool_request(payload: object) -> Checked:
    """Check that a payload is a JSON-RPC request to call a tool."""
    return _checked(TOOL_REQUEST_SCHEMA, payload)


def validate_tool_response(payload: object) -> Checked:
    """Check that a payload is the response to a tool call, successful or failed (`isError`)."""
    return _checked(TOOL_RESPONSE_SCHEMA, payload)


def validate_tool_error(payload: object) -> Checked:
    """Check that a payload is a JSON-RPC error response with an id."""
    return _checked(TOOL_ERROR_SCHEMA, payload)


def make_tool_error(
    id: int | str,
    code: int,
    message: str,
    data: Any = None,
    *,
    kind: FailureKind | None = None,
) -> dict[str, Any]:
    """Build an error response for a failure for which the peer sent no JSON-RPC error.

    The code is the HTTP status, 408 for a timeout, 499 for a closed connection or -32700 for a
    response that is not JSON; `kind` is derived from the code unless given. `data.synthetic` is
    true, to distinguish the error from an error sent by the peer. If `data` is an object, its
    members are added to the error's data; any other value is stored as `data.data`.

    Only the first line of the message is kept, because further lines are usually stack traces or a
    process's stderr. An empty message is replaced by a sentence about the kind of failure.
    """
    kind = kind or _KIND_OF_CODE.get(code, "http")
    facts = data if isinstance(data, dict) else {} if data is None else {"data": data}
    lines = message.strip().splitlines()
    return {
        "jsonrpc": "2.0",
        "id": id,
        "error": {
            "code": code,
            "message": lines[0].rstrip() if lines else _SENTENCES[kind].format(code=code),
            "data": {**facts, "synthetic": True, "kind": kind},
        },
    }


_KIND_OF_CODE: Final[dict[int, FailureKind]] = {408: "timeout", 499: "closed", -32700: "parse"}

_SENTENCES: Final[dict[FailureKind, str]] = {
    "http": "The server responded with HTTP status {code} and no JSON-RPC error; see its log",
    "timeout": "The server did not respond in time; retry, or increase the timeout of the call",
    "closed": "The connection closed before the response; reconnect and repeat the call",
    "parse": "The response is not JSON; check that the address belongs to an MCP server",
}

_WORDS: Final = {
    "string": "a string",
    "integer": "an integer",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
}


def _checked(schema: _Schema, payload: object) -> Checked:
    return Checked(payload, tuple(_problems(schema, payload, "")))


def _problems(schema: _Schema | bool, value: object, path: str) -> list[str]:
    """Return the problems found in a value.

    Only the keywords used by the schemas above are supported.
    """
    if isinstance(schema, bool):
        return [] if schema else [f"{path} must not be present"]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if _type(value) not in types:
        words = " or ".join(_WORDS[name] for name in types)
        return [f"{path or 'the payload'} must be {words}"]
    if "const" in schema and value != schema["const"]:
        return [f'{path} must be "{schema["const"]}"']
    if isinstance(value, dict):
        return _member_problems(schema, value, path)
    if isinstance(value, list):
        return _item_problems(schema, value, path)
    if value == "" and "minLength" in schema:
        return [f"{path} must not be empty"]
    return []


def _member_problems(schema: _Schema, members: dict[str, object], path: str) -> list[str]:
    prefix = f"{path}." if path else ""
    found = [f"{prefix}{n} is required" for n in schema.get("required", ()) if n not in members]
    for name, inner in schema.get("properties", {}).items():
        if name in members:
            found += _problems(inner, members[name], f"{prefix}{name}")
    return found


def _item_problems(schema: _Schema, items: list[object], path: str) -> list[str]:
    if not items and "minItems" in schema:
        return [f"{path} must not be empty"]
    found: list[str] = []
    for index, item in enumerate(items):
        found += _problems(schema["items"], item, f"{path}[{index}]")
    return found


def _type(value: object) -> str | None:
    """Return the JSON type of a value."""
    # Python's `bool` is an `int`, but a JSON boolean is not an integer.
    if isinstance(value, bool):
        return "boolean"
    return next((name for kind, name in _JSON_TYPES.items() if isinstance(value, kind)), None)


_JSON_TYPES: Final = {dict: "object", list: "array", str: "string", int: "integer"}
