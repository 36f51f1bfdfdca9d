"""Members beside params, results and errors are passed on, but no way around interceptors."""

import asyncio
import json
from typing import Any

import pytest
from rawends import scene

from fairlead.gateway.interceptors import Redact
from fairlead.gateway.rules import RuleSet
from fairlead.interceptor import Exchange, Interceptor, Members

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
async def test_a_secret_beside_params_or_an_outcome_is_taken_out(how: str, outcome: str) -> None:
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


async def test_who_fails_beside_an_answer_lets_nothing_of_that_through() -> None:
    class Fails(Redact):
        def members(self, exchange: Exchange, members: Members) -> Members:
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
