"""Members of requests that policies read in another way than some servers are not forwarded."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.gateway import Gateway, View
from fairlead.policy.actions import Allow
from fairlead.policy.rules import RuleSet
from tests.support.gateway_servers import LIMIT, until
from tests.support.http_server import Session, Web, serving, stateless

# A server that reads member names as the JSON packages of Go and C# do: the last spelling counts.
FOLDING = """
import json, sys
OBJECT = {"type": "object"}
LISTS = {
    "tools/list": {"tools": [{"name": n, "inputSchema": OBJECT} for n in ("read", "erase")]},
    "prompts/list": {"prompts": [{"name": n} for n in ("read", "erase")]},
    "resources/list": {"resources": [{"uri": f"note://{n}", "name": n} for n in ("read", "erase")]},
    "resources/templates/list": {"resourceTemplates": []},
}
def folded(pairs):
    return {name.upper().casefold(): held for name, held in pairs}
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    asked = json.loads(line, object_pairs_hook=folded)
    method, params = asked["method"], asked.get("params", {})
    if "id" not in asked:
        continue
    if method == "initialize":
        able = {"tools": {}, "prompts": {}, "resources": {}, "completions": {}}
        result = {"protocolVersion": params["protocolversion"], "capabilities": able,
                  "serverInfo": {"name": "folding", "version": "1"}}
    elif method == "server/discover":
        say(id=asked["id"], error={"code": -32601, "message": "no"})
        continue
    elif method in LISTS:
        result = LISTS[method]
    else:
        used = json.dumps([params, method])
        result = {"content": [{"type": "text", "text": used}], "messages": [], "contents": [],
                  "completion": {"values": []}, "used": used}
    say(id=asked["id"], result=result)
"""

DENIED = ["erase", "note://erase"]
RULES = [
    {"when": {"target": DENIED}, "do": "block"},
    {"when": {"params": {"arguments.key": "erase"}}, "do": "block"},
]
POLICIES: dict[str, dict[str, Any]] = {
    "view": {"view": View(deny=tuple(DENIED))},
    "access": {"interceptors": [Allow(deny=DENIED)]},
    "rules": {"interceptors": [RuleSet.of_data({"rules": RULES})]},
}
ERASE = {"name": "erase", "arguments": {"key": "erase"}}
# Envelope and params of requests; `{}` is the prefix of merged names.
REQUESTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a name": ("tools/call", {"name": "{}read", "Name": "erase"}, {}),
    "another spelling": ("tools/call", {"name": "{}read", "nAME": "erase"}, {}),
    "arguments": ("tools/call", {"name": "{}read", "Arguments": {"key": "erase"}}, {}),
    "arguments with a long s": (
        "tools/call",
        {"name": "{}read", "argument\u017f": {"key": "erase"}},
        {},
    ),
    "a prompt": ("prompts/get", {"name": "{}read", "NAME": "erase"}, {}),
    "a resource": ("resources/read", {"uri": "note://read", "URI": "note://erase"}, {}),
    "a dotless i": ("resources/read", {"uri": "note://read", "ur\u0131": "note://erase"}, {}),
    "a reference": (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "{}read"},
            "Ref": {"type": "ref/prompt", "name": "erase"},
            "argument": {"name": "a", "value": ""},
        },
        {},
    ),
    "a name in a reference": (
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "{}read", "Name": "erase"},
            "argument": {"name": "a", "value": ""},
        },
        {},
    ),
    "params": ("tools/call", {"name": "{}read"}, {"Params": ERASE}),
    "a method": ("prompts/get", {"name": "{}read"}, {"METHOD": "tools/call", "PARAMS": ERASE}),
}


@contextlib.asynccontextmanager
async def gateway_with(policy: str) -> AsyncIterator[Web]:
    async with (
        asyncio.timeout(LIMIT),
        Gateway(**POLICIES[policy]) as gateway,
        serving(gateway) as web,  # type: ignore[arg-type]
    ):
        for one in gateway.interceptors:
            if isinstance(one, RuleSet):
                one.attach_to(gateway)
        await gateway.connect({"notes": {"command": sys.executable, "args": ["-c", FOLDING]}})
        await until(gateway.members["notes"].introduced.is_set)
        yield web


@pytest.mark.attack(
    "a second `Name`, `URI`, `Arguments` or `Params`, which servers in Go and C# read instead",
    "members that differ only in case from a member of the protocol are not forwarded",
    "the server receives the values that the policies have read",
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("era", ["stateless", "session"])
async def test_members_spelled_in_another_case_are_not_forwarded(policy: str, era: str) -> None:
    async with gateway_with(policy) as web:
        for endpoint, prefix in (("", "notes_"), ("/notes", "")):
            there = Web(web.url + endpoint, web.http)
            session = await there.initialize() if era == "session" else None
            for what, request in REQUESTS.items():
                used = await sent(there, session, prefix, *request)
                assert "erase" not in used, (endpoint, what, used)
            used = await sent(there, session, prefix, "tools/call", {"name": "{}read"}, {})
            assert json.loads(used)[0]["name"] == "read"


# JavaScript uses `["erase"]` as a property name like `"erase"`.
LISTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a name": ("tools/call", {"name": ["erase"]}),
    "a name beside a URI": ("tools/call", {"name": ["erase"], "uri": "x"}),
    "a prompt": ("prompts/get", {"name": ["erase"]}),
    "a URI": ("resources/read", {"uri": ["note://erase"]}),
    "a URI beside a name": ("resources/read", {"uri": ["note://erase"], "name": "x"}),
}


@pytest.mark.attack(
    "a list with one name or URI, which JavaScript uses like the text itself",
    "every deny applies to a name or URI that is not a string, and no allow does",
    "the request is denied",
)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("era", ["stateless", "session"])
async def test_requests_whose_name_is_not_a_string_are_not_forwarded(policy: str, era: str) -> None:
    async with gateway_with(policy) as web:
        for endpoint in ("", "/notes"):
            there = Web(web.url + endpoint, web.http)
            session = await there.initialize() if era == "session" else None
            for what, (method, params) in LISTS.items():
                # A verdict about the message without the list must not be reused.
                rest = {key: one for key, one in params.items() if isinstance(one, str)}
                await sent(there, session, "", method, rest, {})
                used = await sent(there, session, "", method, params, {})
                assert "erase" not in used, (endpoint, what, used)


async def sent(
    web: Web,
    session: Session | None,
    prefix: str,
    method: str,
    params: dict[str, Any],
    more: dict[str, Any],
) -> str:
    """Send a request and return what the server has read, or an empty string if it was refused."""
    named = json.loads(json.dumps(params).replace('"{}', f'"{prefix}'))
    if session is None:
        is_text = isinstance(named.get("name", ""), str) and isinstance(named.get("uri", ""), str)
        body, headers = stateless(method, named, {} if is_text else {"Mcp-Name": ""})
        answer = await web.post({**body, **more}, headers)
    else:
        body = {"jsonrpc": "2.0", "id": 5, "method": method, "params": named}
        answer = await session.post({**body, **more})
    return str(answer.json.get("result", {}).get("used", ""))
