"""The JSON Schema of our own file, for editors that complete and check."""

from typing import Any

__all__ = ["config_schema"]


def config_schema() -> dict[str, Any]:
    """What `mcp.json` may hold; published as `docs/mcp.schema.json`."""
    names = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Fairlead: configured MCP servers",
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            "mcpServers": {
                "type": "object",
                "description": "Servers by name.",
                "propertyNames": {"pattern": "^[A-Za-z0-9_.:-]{1,100}$"},
                "additionalProperties": {"$ref": "#/$defs/entry"},
            },
            "disabledServers": {**names, "description": "Names to hide, wherever they come from."},
            "enabledServers": {
                **names,
                "description": "Names to use although their entry says `enabled: false`.",
            },
        },
        "$defs": {
            "entry": {
                "oneOf": [{"$ref": "#/$defs/stdio"}, {"$ref": "#/$defs/remote"}],
            },
            "stdio": {
                "type": "object",
                "required": ["command"],
                "properties": {**_SHARED, **_STDIO},
                "not": {"required": ["url"]},
            },
            "remote": {
                "type": "object",
                "required": ["url"],
                "properties": {**_SHARED, **_REMOTE},
                "not": {"required": ["command"]},
            },
        },
    }


_TEXTS = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
_VALUES = (
    "`${VAR}` and `${VAR:-default}` are replaced; `!command` is what the command prints; "
    "the name of a variable is its value."
)

_SHARED: dict[str, Any] = {
    "enabled": {"type": "boolean", "default": True},
    "timeout": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "Milliseconds for one request.",
    },
    "requestIdFormat": {"enum": ["integer", "string"], "default": "integer"},
    "lazy": {
        "type": "boolean",
        "default": False,
        "description": "Connect when the first call comes.",
    },
    "auth": {
        "type": "object",
        "properties": {
            "type": {"enum": ["oauth", "apikey"]},
            "credentialId": {"type": "string"},
            "tokenUrl": {"type": "string"},
            "clientId": {"type": "string"},
            "clientSecret": {"type": "string"},
            "resource": {"type": "string"},
        },
    },
    "oauth": {"type": "object"},
}
_STDIO: dict[str, Any] = {
    "type": {"const": "stdio"},
    "command": {"type": "string", "minLength": 1},
    "args": {"type": "array", "items": {"type": ["string", "number", "boolean"]}},
    "env": {**_TEXTS, "description": _VALUES},
    "cwd": {"type": "string"},
    "inheritEnv": {
        "oneOf": [{"enum": ["all", "safe"]}, {"type": "array", "items": {"type": "string"}}],
        "default": "all",
        "description": "How much of the environment the process gets.",
    },
}
_REMOTE: dict[str, Any] = {
    "type": {"enum": ["http", "streamable-http", "streamableHttp", "sse", "ws", "websocket"]},
    "url": {"type": "string", "minLength": 1},
    "headers": {**_TEXTS, "description": _VALUES},
    "headersHelper": {
        "type": "string",
        "description": "A command that prints headers as a JSON object.",
    },
    "dialect": {
        "enum": ["jsonrpc", "toolcall"],
        "default": "jsonrpc",
        "description": "Of a WebSocket.",
    },
}
