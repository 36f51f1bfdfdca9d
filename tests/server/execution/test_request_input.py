"""Tests of prompts and resources that request input from the client."""

import asyncio
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.errors import CannotAsk
from fairlead.server.execution.request_input import missing_capability
from tests.support.raw_server_client import META, wire_to

ASKS = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
PROMPT = ("prompts/get", {"name": "greet"})
RESOURCE = ("resources/read", {"uri": "r://greeting"})


@pytest.mark.parametrize(
    ("capability", "required"),
    [
        ("sampling", {"sampling": {}}),
        ("elicitation.form", {"elicitation": {"form": {}}}),
        ("a.b.c", {"a": {"b": {"c": {}}}}),
    ],
)
def test_the_error_for_a_missing_capability_contains_the_required_capabilities(
    capability: str, required: Any
) -> None:
    error = missing_capability(CannotAsk("no", capability=capability))
    assert (error.code, error.message) == (-32021, "no")
    assert error.data == {"requiredCapabilities": required}


def server_that_asks(begun: asyncio.Event | None = None, *, stubborn: bool = False) -> MCPServer:
    server = MCPServer("s")

    async def question(ctx: Context) -> str:
        if begun is not None:
            begun.set()
            await asyncio.Event().wait()
        try:
            answer = await ctx.elicit("Who?", str)
        except asyncio.CancelledError:
            if not stubborn:
                raise
            return "caught the cancellation"
        return f"hello {answer.data}"

    server.prompt("greet")(question)
    server.resource("r://greeting")(question)
    return server


def text_of(result: dict[str, Any]) -> str:
    if "messages" in result:
        return str(result["messages"][0]["content"]["text"])
    return str(result["contents"][0]["text"])


@pytest.mark.parametrize(("method", "params"), [PROMPT, RESOURCE], ids=["prompt", "resource"])
@pytest.mark.parametrize("stubborn", [False, True], ids=["usual", "stubborn"])
async def test_a_stateless_caller_retries_with_the_requested_input(
    method: str, params: dict[str, Any], stubborn: bool
) -> None:
    async with wire_to(server_that_asks(stubborn=stubborn)) as wire:
        asked = {**params, "_meta": META | ASKS}
        first = (await wire.ask(method, asked))["result"]
        assert first["resultType"] == "input_required"
        assert first["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "s"
        (key,) = first["inputRequests"]
        given = {key: {"action": "accept", "content": {"value": "Ada"}}}
        again = {**asked, "inputResponses": given, "requestState": first["requestState"]}
        assert text_of((await wire.ask(method, again, id=2))["result"]) == "hello Ada"


@pytest.mark.parametrize(("method", "params"), [PROMPT, RESOURCE], ids=["prompt", "resource"])
async def test_a_request_without_the_required_capability_is_rejected(
    method: str, params: dict[str, Any]
) -> None:
    async with wire_to(server_that_asks()) as wire:
        stateless = (await wire.ask(method, {**params, "_meta": META}))["error"]
        assert stateless["code"] == -32021
        assert stateless["data"] == {"requiredCapabilities": {"elicitation": {}}}
        await wire.greet()
        session = (await wire.ask(method, params))["error"]
        assert session["code"] == -32600
        assert "did not declare the capability 'elicitation'" in session["message"]


@pytest.mark.parametrize(("method", "params"), [PROMPT, RESOURCE], ids=["prompt", "resource"])
async def test_a_cancelled_request_does_not_request_input(
    method: str, params: dict[str, Any]
) -> None:
    begun = asyncio.Event()
    async with wire_to(server_that_asks(begun)) as wire:
        wire.send(method, {**params, "_meta": META | ASKS}, id=1)
        async with asyncio.timeout(5):
            await begun.wait()
        wire.send("notifications/cancelled", {"requestId": 1})
        await wire.ask(
            "tools/list", {"_meta": META}, id=2
        )  # This response is the next message, so the cancelled request was not answered.
