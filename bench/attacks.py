"""Requests with which a client with a valid token could harm other clients.

Each is at most 64 KB. `bench.attacker` sends them, one kind after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["BODIES", "MAX_BODY", "call", "stateless"]

MAX_BODY = 64_000
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "attacker", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Body = tuple[bytes, Mapping[str, str]]  # with headers that go with it


def stateless(method: str, **params: Any) -> Body:
    """Return a request of the stateless era."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    name = params.get("uri") if "resources/" in method else params.get("name")
    if isinstance(name, str) and len(name) < 2000 and name.isascii() and name.isprintable():
        headers["mcp-name"] = name
    return _body(message), headers


def call(tool: str, **arguments: Any) -> Body:
    """Return a call of a tool without a session, in the handshake era."""
    params = {"name": tool, "arguments": arguments}
    return _body({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}), {}


def _body(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def _ask(method: str, **params: Any) -> Body:
    return _body({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), {}


def _batch(message: Callable[[int], Any], count: int) -> Body:
    whole = b"[" + b",".join(_body(message(n)) for n in range(count)) + b"]"
    return whole, {"mcp-protocol-version": "2025-03-26"}


def _request(n: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": n, "method": method, "params": params}


def _deep(depth: int) -> bytes:
    opening = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"attacked_order",'
    return opening + b'"arguments":{"items":' + b"[" * depth + b"]" * depth + b"}}}"


BODIES: Mapping[str, Body] = {
    "unknown arguments": call("attacked_order", items=[], **{f"x{n}": 1 for n in range(6000)}),
    "wrong types": call("attacked_order", items=[{f"k{n}": "x"} for n in range(3000)]),
    "deep nesting": (_deep(900), {}),
    "deeper nesting": (_deep(30_000), {}),
    "long tool name": call("x" * 60_000),
    "long method": _ask("x" * 60_000),
    "long resource": _ask("resources/read", uri="attacked:///files/" + "a/" * 25_000 + "?a=1&b=2"),
    "ambiguous template": _ask("resources/read", uri="attacked:///" + "1-" * 20_000 + ".a"),
    "template, short": stateless("resources/read", uri="attacked:///files/" + "a?b&c=" * 30),
    "escapes in a resource": _ask("resources/read", uri="attacked:///" + "%252e%252e/" * 5000),
    "growing letters": _ask("resources/read", uri="attacked:///" + "\ufdfa" * 15_000),
    "growing letters in a name": call("\ufdfa" * 15_000),
    "combining letters": call("a" + "\u0300\u0316" * 14_000),
    "completion": _ask(
        "completion/complete",
        ref={"type": "ref/prompt", "name": "attacked_greet"},
        argument={"name": "name", "value": "x" * 60_000},
    ),
    "completion of a template": _ask(
        "completion/complete",
        ref={"type": "ref/resource", "uri": "attacked:///files/{+path}{?a,b}{&c}" + "{x}" * 9000},
        argument={"name": "path", "value": "x"},
    ),
    "bad cursor": _ask("tools/list", cursor="x" * 60_000),
    "batch of pings": _batch(lambda n: _request(n, "ping"), 1000),
    "batch of lists": _batch(lambda n: _request(n, "tools/list"), 600),
    "batch of calls": _batch(lambda n: _request(n, "tools/call", name="no", arguments={}), 600),
    "batch of notifications": _batch(
        lambda n: {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {"progressToken": n, "progress": 1},
        },
        500,
    ),
    "batch of nonsense": (b"[" + b"1," * 31_000 + b"1]", {}),
    "not JSON": (b"[" * 60_000, {}),
    "not UTF-8": (b'"' + b"\xff" * 60_000 + b'"', {}),
    "repeated keys": (b"{" + b'"jsonrpc":"2.0",' * 3900 + b'"id":1,"method":"ping"}', {}),
    "repeated params": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"instant_echo",'
        b'"arguments":{' + b'"text":"a",' * 5000 + b'"text":"b"}}}',
        {},
    ),
    "slow pattern": call("instant_echo", text="a" * 60_000 + "!"),
    "like secrets": call("instant_echo", text="eyJhbGciOi." * 5000),
    "like keys": call("instant_echo", text="sk-ghp_AKIAxoxb-pwd=" * 3000),
    "like PEM": call("instant_echo", text="-----BEGIN PRIVATE KEY" * 2700),
    "like base64": call("instant_echo", text="QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 1700),
    "set level": _ask("logging/setLevel", level="x" * 60_000),
    "subscribe": _ask("resources/subscribe", uri="attacked:///files/" + "a" * 60_000),
    "listen": stateless(
        "subscriptions/listen",
        notifications={
            "resourceSubscriptions": [f"attacked:///files/{n}" for n in range(2000)],
        },
    ),
    "large number": (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"instant_echo",'
        b'"arguments":{"text":' + b"9" * 60_000 + b"}}}",
        {},
    ),
}
_LARGE = {name: len(body) for name, (body, _) in BODIES.items() if len(body) > MAX_BODY}
assert not _LARGE, _LARGE
