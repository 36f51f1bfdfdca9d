"""Tests of rules for messages with duplicate names and undecodable values."""

import json
from typing import Any

import pytest

from fairlead.policy.actions import SchemaCheck
from fairlead.policy.rules import RuleSet
from tests.support.raw_relay import Client, Scene, Server, scene

PATHS = RuleSet.of_data(
    {"rules": [{"when": {"params": {"arguments.path": {"like": "../*"}}}, "do": "block"}]}
)
ANSWERS = RuleSet.of_data({"rules": [{"when": {"result": {"mood": "bad"}}, "do": "block"}]})
NAMES = RuleSet.of_data({"rules": [{"when": {"tool": "other"}, "do": "block"}]})


async def opened(place: Scene) -> tuple[Client, Server]:
    client = await place.session()
    server = await place.server()
    await server.method("notifications/initialized")
    return client, server


def call(client: Client, params: str) -> int:
    client.send(f'{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}')
    return 7


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path":"ok","path":"../etc"}',
        '{"path":"../etc","path":"ok"}',
        r'{"p\u0061th":"../etc","path":"ok"}',
        r'{"path":"../etc","path":"ok","\u003a":":"}',
        '{"path":"ok","deep":[{"path":1,"path":2}]}',
        '{"path":"../etc","n":1e999}',
    ],
)
async def test_a_message_with_ambiguous_params_is_rejected_if_a_rule_reads_them(
    arguments: str,
) -> None:
    async with scene(interceptors=[PATHS]) as place:
        client, server = await opened(place)
        refused = call(client, f'{{"name":"x","arguments":{arguments}}}')
        assert (await client.answer_to(refused))["error"]["data"]["source"] == "proxy"
        assert not any(m.get("method") == "tools/call" for m in server.seen)


@pytest.mark.parametrize(
    ("params", "passes"),
    [
        ('{"name":"x","arguments":{"path":"../etc"},"arguments":{"path":"ok"}}', True),
        ('{"name":"x","arguments":{"path":"ok"},"arguments":{"path":"../etc"}}', False),
    ],
)
async def test_the_server_receives_only_the_duplicate_param_that_was_checked(
    params: str, passes: bool
) -> None:
    async with scene(interceptors=[PATHS]) as place:
        client, server = await opened(place)
        asked = call(client, params)
        if passes:
            line = b""
            while b"tools/call" not in line:
                line = await server.line()
            assert b"../etc" not in line
            server.reply(json.loads(line), {"content": []})
        assert ("result" in await client.answer_to(asked)) is passes


async def test_ambiguous_params_are_forwarded_if_no_rule_reads_them() -> None:
    arguments = b'{"path":"ok","path":"../etc", "n":1e999}'
    async with scene(interceptors=[NAMES]) as place:
        client, server = await opened(place)
        call(client, f'{{"name":"x","arguments":{arguments.decode()}}}')
        line = b""
        while b"tools/call" not in line:
            line = await server.line()
        assert arguments in line


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ('{"mood":"bad","mood":"good","n":1.50}', b'{"mood":"good","n":1.50}'),
        ('{"mood":"good","mood":"bad"}', None),
        ('{"mood":"good","deep":{"a":1,"a":2}}', None),
        ('{"mood":"good","n":1.50}', b'{"mood":"good","n":1.50}'),
    ],
)
async def test_the_client_receives_only_the_duplicate_member_that_was_checked(
    result: str, told: bytes | None
) -> None:
    async with scene(interceptors=[ANSWERS]) as place:
        client, server = await opened(place)
        asked = client.ask("tools/call", {"name": "x"})
        request: Any = await server.method("tools/call")
        server.send(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{result}}}')
        line = await client.line()
        assert json.loads(line)["id"] == asked
        assert (told is not None and b'"result":' + told in line) or (told is None)
        assert ("error" in json.loads(line)) is (told is None)


async def test_duplicate_argument_names_are_refused_by_the_schema_check() -> None:
    async with scene(interceptors=[SchemaCheck()]) as place:
        client, server = await opened(place)
        listed = client.ask("tools/list")
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        tools = [{"name": "x", "inputSchema": schema}]
        server.reply(await server.method("tools/list"), {"tools": tools})
        await client.answer_to(listed)
        refused = call(client, '{"name":"x","arguments":{"n":"no","n":1}}')
        assert "Duplicate member name" in (await client.answer_to(refused))["error"]["message"]
        asked = client.ask("tools/call", {"name": "x", "arguments": {"n": 1}})
        server.reply(await server.method("tools/call"), {"content": []})
        assert "result" in await client.answer_to(asked)
