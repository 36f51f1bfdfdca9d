"""Errors for unknown names at a gateway: the closest visible name, and where names are listed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, RpcError
from fairlead.gateway import Gateway, View
from fairlead.gateway.operations.observability import Observability
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.recording.journal import Journal
from tests.support.gateway_servers import LIMIT, joining, make, names, serving, until
from tests.support.observed_servers import ServerLog

Asking = Callable[[MCPClient], Awaitable[Any]]

TOOLS, PROMPTS = "tools/list returns the available tools", "prompts/list returns the available pr"
RESOURCES = "resources/list or resources/templates/list returns the available resources"


def call(tool: str) -> Asking:
    return lambda client: client.call_tool(tool, {})


def prompt(name: str) -> Asking:
    return lambda client: client.get_prompt(name, {"city": "x"})


async def message(asking: Asking, *, endpoint: str = "", **options: Any) -> str:
    """Return the error that a gateway with one server, `red`, returns for a request."""
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway(**options) as gateway:
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        at: Any = gateway.endpoints[endpoint] if endpoint else gateway
        async with joining(at) as client:
            with pytest.raises(RpcError) as caught:
                await asking(client)
    return caught.value.message


@pytest.mark.covers("CON-07")
@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (call("red_secrets"), f"Unknown tool: red_secrets; did you mean 'red_secret'? {TOOLS}"),
        (call("who"), f"Unknown tool: who; did you mean 'red_who'? {TOOLS}"),
        (call("red_whistle"), f"Unknown tool: red_whistle; {TOOLS}"),
        (call("rd_secret"), f"Unknown tool: rd_secret; did you mean 'red_secret'? {TOOLS}"),
        (call("unheard-of"), f"Unknown tool: unheard-of; {TOOLS}"),
        (prompt("hello"), f"Unknown prompt: hello; did you mean 'red_hello'? {PROMPTS}"),
        (
            lambda client: client.read_resource("red://fixd"),
            f"Resource not found: red://fixd; did you mean 'red://fixed'? {RESOURCES}",
        ),
        (
            lambda client: client.complete("prompt", "red_helo", "city", ""),
            f"Unknown prompt: red_helo; did you mean 'red_hello'? {PROMPTS}",
        ),
        (
            lambda client: client.complete("resource", "red://items/{key}", "key", ""),
            "Unknown resource template: red://items/{key}; did you mean 'red://item/{key}'? "
            "resources/templates/list returns the available resource templates",
        ),
    ],
)
async def test_the_error_for_an_unknown_name_has_the_closest_name_and_the_list_method(
    asking: Asking, expected: str
) -> None:
    assert (await message(asking)).startswith(expected)


@pytest.mark.parametrize("view", [View(deny=("*secret",)), View(hide=("*secret",))])
@pytest.mark.parametrize(("endpoint", "name"), [("", "red_secrets"), ("red", "secrets")])
async def test_names_that_a_view_does_not_list_are_not_suggested(
    view: View, endpoint: str, name: str
) -> None:
    assert (
        await message(call(name), endpoint=endpoint, view=view) == f"Unknown tool: {name}; {TOOLS}"
    )


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        (call("whom"), f"Unknown tool: whom; did you mean 'who'? {TOOLS}"),
        (prompt("helo"), f"Unknown prompt: helo; did you mean 'hello'? {PROMPTS}"),
        (
            lambda client: client.read_resource("red://fixd"),
            f"Resource not found: red://fixd; did you mean 'red://fixed'? {RESOURCES}",
        ),
        (
            lambda client: client.complete("prompt", "helo", "city", ""),
            f"Unknown prompt: helo; did you mean 'hello'? {PROMPTS}",
        ),
    ],
)
async def test_names_at_the_endpoint_of_one_server_are_suggested_from_the_view(
    asking: Asking, expected: str
) -> None:
    view = View(deny=("*secret", "red://fixd"))
    assert (await message(asking, endpoint="red", view=view)).startswith(expected)


async def test_a_gateway_with_tool_search_names_the_search_tool() -> None:
    expected = "Unknown tool: red_secrets; did you mean 'red_secret'? search_tools returns the av"
    assert (await message(call("red_secrets"), search=True)).startswith(expected)


async def test_only_interceptors_that_may_hide_names_suppress_suggestions() -> None:
    async def pass_on(exchange: Exchange, proceed: Proceed) -> Answer:
        return await proceed(exchange)

    text = await message(call("red_secrets"), interceptors=[pass_on])
    assert text == f"Unknown tool: red_secrets; {TOOLS}"
    observing = Observability(journal=Journal())
    text = await message(call("red_secrets"), observing=observing)
    assert text == f"Unknown tool: red_secrets; did you mean 'red_secret'? {TOOLS}"


async def test_a_tool_that_only_other_clients_see_is_not_suggested(tmp_path: Path) -> None:
    entry = ServerLog(tmp_path).entry("notes", tools=["go"], varying={"elicitation": "more"})
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"notes": entry})
        await until(lambda: gateway.is_ready)
        async with (
            joining(gateway) as plain,
            joining(gateway, on_elicit=lambda question: {"action": "decline"}) as eliciting,
        ):
            while "notes_more" not in await names(eliciting):
                await asyncio.sleep(0.01)
            with pytest.raises(RpcError, match="did you mean 'notes_more'"):
                await eliciting.call("notes_mor")
            with pytest.raises(RpcError, match=r"Unknown tool: notes_mor; tools/list"):
                await plain.call("notes_mor")
