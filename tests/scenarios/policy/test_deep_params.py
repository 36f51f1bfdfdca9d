"""Deeply nested params: requests that cannot be inspected are not forwarded."""

import asyncio
import json
from typing import Any

import pytest

from fairlead.interceptor import Interceptor
from fairlead.policy.actions import Allow
from fairlead.policy.rules import RuleSet
from tests.support.raw_relay import Client, Server, scene

LIMIT = 20.0
# The recursion limit is reached at a depth that depends on the callers, so many are tried.
DEPTHS = (0, 1, 400, *range(880, 1000))

GUARDS: dict[str, tuple[Interceptor, ...]] = {
    "allow": (Allow(deny=["x"]),),
    "a rule by name": (RuleSet.of_data({"rules": [{"when": {"tool": "x"}, "do": "block"}]}),),
    "a rule by params": (
        RuleSet.of_data(
            {"rules": [{"when": {"params": {"arguments.path": "/etc"}}, "do": "block"}]}
        ),
    ),
}


def deep(request_id: int, depth: int) -> str:
    nested = "[" * depth + "]" * depth
    arguments = f'{{"a":{nested},"path":"/etc"}}'
    params = f'{{"name":"x","arguments":{arguments},"_meta":{{"progressToken":"mine"}}}}'
    return f'{{"jsonrpc":"2.0","id":{request_id},"method":"tools/call","params":{params}}}'


async def answer_all(server: Server, calls: list[bytes]) -> None:
    while True:
        line = await server.inbox.get()
        if b'"tools/call"' in line:
            calls.append(line)
            number = line[line.index(b'"id":') + 5 : line.index(b',"method"')]
            server.send(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % number)


async def ask_all(client: Client) -> list[dict[str, Any]]:
    """Return the response to each request; an unreadable frame is answered without an id."""
    found = []
    for number, depth in enumerate(DEPTHS):
        client.send(deep(number, depth))
        found.append(await client.until(lambda one: "method" not in one))
        assert found[-1].get("id") in (number, None)
    return found


@pytest.mark.covers("GTW-06")
@pytest.mark.parametrize("guard", GUARDS)
async def test_deeply_nested_params_do_not_bypass_policies(guard: str) -> None:
    calls: list[bytes] = []
    async with asyncio.timeout(LIMIT), scene(interceptors=GUARDS[guard]) as place:
        client = await place.session()
        serving = asyncio.ensure_future(answer_all(await place.server(), calls))
        answers = await ask_all(client)
        serving.cancel()
    assert all("error" in one for one in answers)
    assert calls == []


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("interceptors", [(), (Allow(),)], ids=["bare", "guarded"])
async def test_progress_tokens_of_a_client_are_always_replaced(
    interceptors: tuple[Interceptor, ...],
) -> None:
    """Another client may use the same progress token at the server."""
    calls: list[bytes] = []
    async with asyncio.timeout(LIMIT), scene(interceptors=interceptors) as place:
        client = await place.session()
        serving = asyncio.ensure_future(answer_all(await place.server(), calls))
        await ask_all(client)
        serving.cancel()
    assert len(calls) > 3
    for line in calls:
        assert b'"mine"' not in line
    assert json.loads(calls[0])["params"]["_meta"]["progressToken"] == json.loads(calls[0])["id"]
