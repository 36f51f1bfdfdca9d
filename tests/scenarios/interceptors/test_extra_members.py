"""Forwarding of unknown members in requests and responses."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

import aiohttp
import msgspec
import pytest

from fairlead.interceptor import Answer, Exchange, ExtraMembers, Interceptor, Proceed
from fairlead.policy.actions import Redact
from fairlead.policy.rules import RuleSet
from tests.support.raw_relay import ASKED, META, STATELESS, members, scene


class Quick:
    """An interceptor that is called without a task."""

    waits: ClassVar = False

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)


async def waiting(exchange: Exchange, proceed: Proceed) -> Answer:
    """Forward the exchange after a wait, which requires a task."""
    await asyncio.sleep(0)
    return await proceed(exchange)


WAYS: dict[str, tuple[Interceptor, ...]] = {"bare": (), "led": (Quick(),), "task": (waiting,)}


@pytest.mark.covers("GTW-04", "RPC-06")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@pytest.mark.parametrize("outcome", ["result", "error"])
async def test_unknown_members_of_a_response_are_forwarded(
    way: str, era: str, outcome: str
) -> None:
    async with scene(era, interceptors=WAYS[way]) as place:
        if era == "handshake":
            client = await place.session()
            ask: Callable[..., Any] = client.ask
        else:
            client = await place.client()
            ask = client.stateless
        first = ask("vendor/first")
        server = await place.server()
        server.reply(await server.method("vendor/first"), {})
        await client.answer_to(first)
        call = ask("vendor/ask", {"n": 1})
        request = await server.method("vendor/ask")
        said: dict[str, Any] = {"result": {"a": 1}, "error": {"code": -7, "message": "no"}}
        extra = b'"trace":{"id":12345678901234567890},"z":[1.50]'
        body = msgspec.json.encode(said[outcome])
        head = b'{"jsonrpc":"2.0","id":%d,"%b":' % (request["id"], outcome.encode())
        server.send(head + body + b"," + extra + b"}")
        line = await client.line()
        got = members(line)
        assert got["id"] == msgspec.json.encode(call)
        assert msgspec.json.decode(got[outcome])  # the content is checked in other tests
        assert got["trace"] == b'{"id":12345678901234567890}'
        assert got["z"] == b"[1.50]"
        again = ask("vendor/again")
        server.reply(await server.method("vendor/again"), {})
        assert "trace" not in members(await client.line())
        assert again != call


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("way", WAYS)
async def test_unknown_members_of_a_client_response_are_forwarded(way: str) -> None:
    async with scene(interceptors=WAYS[way]) as place:
        client = await place.session(ASKED)
        server = await place.server()
        await server.method("notifications/initialized")
        server.ask("roots/list", request_id=77)
        question = await client.method("roots/list")
        client.send({"id": question["id"], "result": {"roots": []}, "vendor": {"x": [1]}})
        answer = await server.until(lambda m: m.get("id") == 77 and "method" not in m)
        assert answer["vendor"] == {"x": [1]}


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("way", WAYS)
async def test_unknown_members_of_a_late_response_are_not_added_to_the_next_response(
    way: str,
) -> None:
    async with scene(interceptors=WAYS[way]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("vendor/ask", request_id="same")
        request = await server.method("vendor/ask")
        client.tell("notifications/cancelled", {"requestId": call})
        await server.method("notifications/cancelled")
        server.send({"id": request["id"], "result": {}, "late": True})
        client.ask("vendor/ask", request_id="same")
        server.reply(await server.method("vendor/ask"), {})
        assert "late" not in await client.answer_to("same")


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("way", WAYS)
async def test_unknown_members_of_a_response_are_forwarded_over_http(way: str) -> None:
    meta = {f"{META}protocolVersion": STATELESS, f"{META}clientCapabilities": {}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": STATELESS,
        "Mcp-Method": "vendor/ask",
    }
    async with scene("stateless", interceptors=WAYS[way]) as place, aiohttp.ClientSession() as http:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(place.relay.run_http(port=0, started=url.set_result))
        try:
            for n in range(3):
                body = {
                    "jsonrpc": "2.0",
                    "id": n,
                    "method": "vendor/ask",
                    "params": {"_meta": meta},
                }
                asking = asyncio.create_task(http.post(await url, json=body, headers=headers))
                if n == 0:
                    server = await place.server()
                request = await server.method("vendor/ask")
                server.send({"id": request["id"], "result": {"n": n}, "trace": n})
                async with await asking as answer:
                    said = await answer.json()
                assert (said["id"], said["result"]["n"], said["trace"]) == (n, n, n)
        finally:
            serving.cancel()
            await asyncio.wait((serving,))


# Unknown members are forwarded, but cannot bypass interceptors.


LIMIT = 10.0
SECRET = "sk-live-4f9a8b7c6d5e"
DEBUG = {"password": SECRET, "n": 1}


def _rules(**when: Any) -> Interceptor:
    return RuleSet.of_data({"rules": [{"when": when, "do": {"redact": {"to": "both"}}}]})


REDACTING: dict[str, tuple[Interceptor, bool]] = {
    "everything": (Redact(to="both"), True),
    "by a rule": (_rules(method="x/*"), True),
    "by a rule about params": (_rules(params={"a": 1}), True),
    "by a rule about others": (_rules(params={"a": 2}), False),
}


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("how", REDACTING)
@pytest.mark.parametrize("outcome", ['"result":{}', '"error":{"code":-32000,"message":"no"}'])
async def test_a_secret_in_an_unknown_member_is_redacted(how: str, outcome: str) -> None:
    interceptor, clean = REDACTING[how]
    async with asyncio.timeout(LIMIT), scene(interceptors=[interceptor]) as place:
        client = await place.session()
        server = await place.server()
        beside = json.dumps(DEBUG)
        client.send(
            f'{{"jsonrpc":"2.0","id":1,"method":"x/y","params":{{"a":1}},"debug":{beside}}}'
        )
        while b'"x/y"' not in (line := await server.line()):
            pass
        asked = json.loads(line)
        server.send(f'{{"jsonrpc":"2.0","id":{asked["id"]},{outcome},"debug":{beside}}}')
        answer = json.loads(await client.line())
        expected = {"password": "[REDACTED]", "n": 1} if clean else DEBUG
        assert asked["debug"] == expected
        assert answer["debug"] == expected
        assert answer["id"] == 1


async def test_unknown_members_are_dropped_if_an_interceptor_fails_on_them() -> None:
    class Fails(Redact):
        def extra_members(self, exchange: Exchange, members: ExtraMembers) -> ExtraMembers:
            raise ValueError("no")

    async with asyncio.timeout(LIMIT), scene(interceptors=[Fails()]) as place:
        client = await place.session()
        server = await place.server()
        call = client.ask("x/y", {"a": 1})
        while b'"x/y"' not in (line := await server.line()):
            pass
        number = json.loads(line)["id"]
        server.send(f'{{"jsonrpc":"2.0","id":{number},"result":{{"b":2}},"debug":{{"c":3}}}}')
        answer = await client.answer_to(call)
        assert answer["result"] == {"b": 2}
        assert "debug" not in answer
