"""Tests of `fairlead intercept` with messages held by a rule."""

import asyncio
import json
from collections.abc import Callable

import pytest

from fairlead import MCPClientError
from tests.support.cli_user import Person, person
from tests.support.running_gateway import connected, running

__all__ = ["person"]

RULES = """\
[[rules]]
name = "ask-first"
when = { tool = "*add" }
do = { pause = { limit = 20, reason = "review required" } }
"""


@pytest.mark.covers("GTW-08")
def test_held_messages_can_be_listed_changed_and_blocked_with_commands(
    person: Person,
) -> None:
    (person.folder / "rules.toml").write_text(RULES)
    file = person.folder / "gateway.json"
    settings = {"rules": "rules.toml", "admin_token": "open-sesame"}
    file.write_text(json.dumps({"servers": {"notes": person.server()}, **settings}))

    async def scene(url: str) -> None:
        base = url.removesuffix("/mcp")

        async def intercept(*args: str) -> str:
            done = await asyncio.to_thread(
                person.runs,
                *("intercept", *args, "--url", base),
                env={"FAIRLEAD_ADMIN_TOKEN": "open-sesame"},
            )
            assert done.code == 0, done.err
            return done.out

        async def held() -> str:
            """Wait for a held message and return its id."""
            while not (found := json.loads(await intercept("list", "--json"))):
                pass
            assert found[0]["reason"] == "review required"
            return str(found[0]["id"])

        async with connected(url) as client:
            call = asyncio.create_task(client.call("notes_add", {"a": 1, "b": 2}))
            params = {"name": "notes_add", "arguments": {"a": 20, "b": 30}}
            await intercept("change", await held(), "--params", json.dumps(params))
            assert (await call).text == "50"
            call = asyncio.create_task(client.call("notes_add", {"a": 1, "b": 2}))
            await intercept("block", await held(), "--reason", "not on a Friday")
            with pytest.raises(MCPClientError, match="not on a Friday"):
                await call
            call = asyncio.create_task(
                client.call("notes_add", {"a": 1, "b": 2, "c": "x" * 70_000})
            )
            number = await held()
            assert "bytes, too large to show)" in await intercept("list")
            await intercept("block", number)
            with pytest.raises(MCPClientError, match="refused by the operator"):
                await call
            assert (await client.call("notes_variable", {"name": "X"})).text == "not set"

    with running(person, "gateway", str(file), "--port", "0") as it:
        asyncio.run(scene(it.url))
        assert it.ends() == 0


@pytest.mark.covers("GTW-08")
def test_a_stopping_gateway_blocks_held_messages(person: Person) -> None:
    (person.folder / "rules.toml").write_text(RULES)
    file = person.folder / "gateway.json"
    settings = {"rules": "rules.toml", "admin_token": "open-sesame"}
    file.write_text(json.dumps({"servers": {"notes": person.server()}, **settings}))
    token = {"FAIRLEAD_ADMIN_TOKEN": "open-sesame"}

    async def scene(url: str, end: Callable[[], int]) -> None:
        async with connected(url) as client:
            call = asyncio.create_task(client.call("notes_add", {"a": 1, "b": 2}))
            held = ("intercept", "list", "--json", "--url", url.removesuffix("/mcp"))
            while not json.loads((await asyncio.to_thread(person.runs, *held, env=token)).out):
                pass
            ended = asyncio.create_task(asyncio.to_thread(end))
            with pytest.raises(MCPClientError, match="the gateway is closing"):
                await call
            assert await ended == 0

    with running(person, "gateway", str(file), "--port", "0") as it:
        asyncio.run(scene(it.url, it.ends))
