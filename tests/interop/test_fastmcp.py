"""FastMCP over pipes: its client with our server, and our client with its server.

FastMCP supports every revision, because both of its ends build on the official SDK: its client
probes for the stateless era (`mode="auto"`) or opens with `initialize` (`mode="legacy"`), and its
server supports both.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import mcp_types
import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged, listen
from mcp.shared.exceptions import MCPDeprecationWarning

from fairlead import MCPClient
from fairlead.client import InputNotGiven
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from tests.support.interop import client_features as visits
from tests.support.interop.server_processes import (
    FOLDER,
    LIMIT,
    PAGE,
    PIXEL,
    Host,
    Stage,
    command,
    our_visit,
    shake_hands,
)

# Logging, roots and sampling are deprecated but still supported.
pytestmark = pytest.mark.filterwarnings(
    f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__name__}"
)


# FastMCP's client with our server


@pytest.fixture(scope="module", params=list(Revision))
def guest(request: pytest.FixtureRequest) -> Iterator[Stage[Client[Any]]]:
    """Connect FastMCP's client to our server, with a host that answers every request."""
    host = Host()
    with Stage[Client[Any]](request.param, host).connected(arriving(request.param, host)) as stage:
        yield stage


@contextlib.asynccontextmanager
async def arriving(revision: Revision, host: Host) -> AsyncIterator[Client[Any]]:
    async def on_elicit(message: str, _: object, params: Any, __: object) -> ElicitResult[Any]:
        host.asked.append(params)
        return ElicitResult(**await host.answer(params.mode))

    async def on_sample(messages: list[Any], params: Any, _: object) -> str:
        host.asked.append(params)
        await host.decide()  # raises an error if the host rejects the request
        return "four"

    async def on_log(message: Any) -> None:
        host.hear((message.level, message.logger, message.data))

    async def on_message(message: Any) -> None:
        host.hear((message.method, getattr(message.params, "uri", None)))

    program, *arguments = command("ours_full")
    client = Client(
        StdioTransport(program, arguments, keep_alive=False, log_file=sys.__stderr__),
        mode="auto" if revision.stateless else "legacy",
        # The client proposes only the newest revision of an era; older ones are proposed here.
        auto_initialize=revision.stateless or revision == NEWEST_HANDSHAKE,
        elicitation_handler=on_elicit,
        sampling_handler=on_sample,
        roots=lambda _: [host.folder],
        log_handler=on_log,
        message_handler=on_message,
        timeout=LIMIT,
    )
    async with client:
        if not client.auto_initialize:
            await shake_hands(client.session, revision)
        yield client


@pytest.mark.covers("DEC-04", "PRO-02", "PRO-20", "PRO-21")
async def test_fastmcp_client_receives_the_server_info_and_lists_from_fairlead(
    guest: Stage[Client[Any]],
) -> None:
    client = guest.client
    tools = {tool.name: tool for tool in await client.list_tools()}
    resources = await client.list_resources()
    templates = await client.list_resource_templates()
    prompts = await client.list_prompts()

    assert client.session.protocol_version == guest.revision
    assert client.session.server_info.name == "ours"
    assert client.session.instructions == "Say hello first."
    assert {"echo", "add", "ask", "weigh"} <= set(tools)
    assert tools["add"].input_schema["required"] == ["a", "b"]
    assert [resource.uri for resource in resources] == ["memo://greeting", "memo://pixel"]
    assert [template.name for template in templates] == ["note", "diary"]
    assert [prompt.name for prompt in prompts] == ["greet", "dedicate", "recommend"]


@pytest.mark.covers("DEC-04")
async def test_fastmcp_client_uses_tools_resources_and_prompts_of_fairlead(
    guest: Stage[Client[Any]],
) -> None:
    client = guest.client
    (greeting,) = await client.read_resource("memo://greeting")
    (pixel,) = await client.read_resource("memo://pixel")
    (note,) = await client.read_resource("memo://notes/7")
    prompt = await client.get_prompt("greet", {"name": "Ада"})

    assert (
        await text_of(client, "echo", text="Grüße, 世界 🌍\u2028\x00") == "Grüße, 世界 🌍\u2028\x00"
    )
    assert await text_of(client, "add", a=2, b=40) == "42"
    assert (greeting.text, pixel.blob, note.text) == ("Grüße, 世界 🌍", PIXEL, "note 7")
    assert [message.content.text for message in prompt.messages] == ["Greet Ада, who is happy."]


@pytest.mark.covers("DEC-16")
async def test_fastmcp_client_receives_errors_from_fairlead(guest: Stage[Client[Any]]) -> None:
    client = guest.client
    with pytest.raises(ToolError, match="RuntimeError: it broke"):
        await client.call_tool("fail")
    with pytest.raises(ToolError, match="field_errors"):
        await client.call_tool("add", {"a": "many"})
    assert await refusal(client.call_tool("nothing")) == -32602
    assert await refusal(client.get_prompt("nothing")) == -32602
    not_found = -32602 if guest.revision.stateless else -32002
    assert await refusal(client.read_resource("memo://nothing")) == not_found


async def test_fastmcp_client_receives_structured_content(guest: Stage[Client[Any]]) -> None:
    (weigh,) = [tool for tool in await guest.client.list_tools() if tool.name == "weigh"]
    weighed = await guest.client.call_tool("weigh", {"grams": 2000})

    assert json.loads(weighed.content[0].text) == {"grams": 2000, "heavy": True}
    assert (await guest.client.call_tool("many", {"to": 3})).data.result == [0, 1, 2]
    assert list(weigh.output_schema["properties"]) == ["grams", "heavy"]
    assert (weighed.data.grams, weighed.data.heavy) == (2000, True)


async def test_fastmcp_client_receives_progress_and_logs(guest: Stage[Client[Any]]) -> None:
    steps: list[object] = []

    async def on_progress(*step: object) -> None:
        steps.append(step)

    counting = guest.client.call_tool("count", {"to": 3}, progress_handler=on_progress)
    assert (await counting).content[0].text == "counted to 3"

    says = [f"step {n}" if guest.revision.progress_message else None for n in (1, 2, 3)]
    assert steps == [(1, 3, says[0]), (2, 3, says[1]), (3, 3, says[2])]
    await guest.host.hears(("warning", "count", "step 2"))
    # Stateless requests ask for all levels; in a session the server's default level applies.
    debugged = ("debug", "count", "step 1") in guest.host.heard
    assert debugged == guest.revision.stateless


@pytest.mark.covers("PRO-35")
async def test_fastmcp_client_sets_the_log_level(guest: Stage[Client[Any]]) -> None:
    if guest.revision.stateless:
        # FastMCP's client cannot set a log level in the stateless era.
        with pytest.raises(RuntimeError, match="not available"):
            await guest.client.set_logging_level("debug")
        return
    await guest.client.set_logging_level("debug")
    await text_of(guest.client, "count", to=2)
    await guest.host.hears(("debug", "count", "step 1"), ("warning", "count", "step 2"))
    await guest.client.set_logging_level("warning")
    guest.host.reset()
    await text_of(guest.client, "count", to=2)
    await guest.host.hears(("warning", "count", "step 2"))
    assert ("debug", "count", "step 1") not in guest.host.heard
    await guest.client.set_logging_level("info")


@pytest.mark.covers("PRO-32", "SRV-17")
async def test_a_cancellation_by_fastmcp_client_stops_the_handler(
    guest: Stage[Client[Any]],
) -> None:
    begun = asyncio.Event()

    async def on_progress(*_: object) -> None:
        begun.set()

    waiting = asyncio.create_task(guest.client.call_tool("wait", progress_handler=on_progress))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await text_of(guest.client, "was_stopped") == "stopped"

    with pytest.raises(MCPError, match=r"(?i)timed out"):
        await guest.client.call_tool("wait", timeout=0.2)
    assert await text_of(guest.client, "was_stopped") == "stopped"


@pytest.mark.covers("PRO-24")
async def test_fastmcp_client_answers_form_elicitations(guest: Stage[Client[Any]]) -> None:
    if not guest.revision.elicitation:
        with pytest.raises(ToolError, match="has no elicitation"):
            await guest.client.call_tool("ask")
        return
    said = []
    for guest.host.action in ("accept", "decline", "cancel"):
        said.append(await text_of(guest.client, "ask"))

    assert said == ["accept Ada 36", "decline", "cancel"]
    question = guest.host.asked[0]
    assert (question.mode, question.message) == ("form", "Please enter your name.")
    assert list(question.requested_schema["properties"]) == ["name", "age", "mood"]


@pytest.mark.covers("PRO-24")
async def test_fastmcp_client_answers_url_elicitations(guest: Stage[Client[Any]]) -> None:
    if not guest.revision.rich_elicitation:
        with pytest.raises(ToolError, match="has no elicitation"):
            await guest.client.call_tool("open_page")
        return
    said = []
    for guest.host.action in ("accept", "decline", "cancel"):
        said.append(await text_of(guest.client, "open_page"))

    assert said == ["accept", "decline", "cancel"]
    question = guest.host.asked[0]
    assert (question.mode, question.message, question.url) == ("url", "Please sign in.", PAGE)


@pytest.mark.covers("PRO-24")
async def test_fastmcp_client_answers_sampling_and_roots_requests(
    guest: Stage[Client[Any]],
) -> None:
    assert await text_of(guest.client, "think") == "four"
    assert await text_of(guest.client, "look_around") == FOLDER
    (params,) = guest.host.asked
    assert (params.max_tokens, params.system_prompt) == (10, "Be brief.")
    if guest.revision.elicitation:
        told = await text_of(guest.client, "interview")
        assert told == f"accept Ada 36 | four | {FOLDER}"


@pytest.mark.covers("PRO-24")
async def test_resources_and_prompts_may_elicit_from_fastmcp_client(
    guest: Stage[Client[Any]],
) -> None:
    if not guest.revision.elicitation:
        assert await refusal(guest.client.get_prompt("dedicate")) < 0
        return
    (diary,) = await guest.client.read_resource("memo://diary/monday")
    prompt = await guest.client.get_prompt("dedicate")

    assert diary.text == "monday: accept Ada 36"
    assert prompt.messages[0].content.text == "Dedicate it: accept Ada 36"


async def test_many_concurrent_calls_may_sample_from_fastmcp_client(
    guest: Stage[Client[Any]],
) -> None:
    told = await asyncio.gather(*(text_of(guest.client, "think") for _ in range(20)))
    assert told == ["four"] * 20


@pytest.mark.covers("PRO-32")
async def test_cancelling_a_call_cancels_its_pending_sampling_request(
    guest: Stage[Client[Any]],
) -> None:
    guest.host.action = "think"
    asking = asyncio.create_task(guest.client.call_tool("think_patiently"))
    await guest.host.hears("asked")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await guest.host.hears("let go")
    assert await text_of(guest.client, "was_stopped") == "stopped"


async def test_a_rejected_sampling_request_fails_the_call(guest: Stage[Client[Any]]) -> None:
    guest.host.action = "refuse"
    assert await refusal(guest.client.call_tool("think")) == -32603


async def test_fairlead_server_receives_changed_roots_from_fastmcp_client(
    guest: Stage[Client[Any]],
) -> None:
    guest.host.folder = "file:///elsewhere"
    if not guest.revision.stateless:  # in the stateless era, servers request the roots each time
        await guest.client.send_roots_list_changed()
    assert await text_of(guest.client, "look_around") == "file:///elsewhere"


@pytest.mark.covers("PRO-35")
async def test_fastmcp_client_receives_completions(guest: Stage[Client[Any]]) -> None:
    complete = guest.client.complete
    book = mcp_types.PromptReference(name="recommend")
    note = mcp_types.ResourceTemplateReference(uri="memo://notes/{number}")
    reader = await complete(book, {"name": "reader", "value": "A"})
    sad = await complete(book, {"name": "reader", "value": "A"}, {"mood": "sad"})
    number = await complete(note, {"name": "number", "value": "1"})

    assert (reader.values, number.values) == (["Ada", "Alan"], ["1", "12"])
    assert sad.values == ["Alas"]


@pytest.mark.covers("PRO-16", "PRO-23", "PRO-35")
async def test_fastmcp_client_receives_change_notifications(guest: Stage[Client[Any]]) -> None:
    client, uri = guest.client, "memo://greeting"
    if guest.revision.stateless:
        # Only the session of the client has a method for subscriptions.
        wanted = listen(client.session, tools_list_changed=True, resource_subscriptions=[uri])
        async with wanted as news:
            await text_of(client, "touch", uri=uri)
            assert await anext(news) == ResourceUpdated(uri=uri)
            await text_of(client, "grow")
            assert await anext(news) == ToolsListChanged()
    else:
        await client.session.subscribe_resource(uri)
        await text_of(client, "touch", uri=uri)
        await text_of(client, "grow")
        await guest.host.hears(("notifications/resources/updated", uri), *visits.LISTS)
        await client.session.unsubscribe_resource(uri)
    assert await text_of(client, "grown") == "grown"
    assert await text_of(client, "shrink") == "shrunk"


# Our client with FastMCP's server


@pytest.fixture(scope="module", params=list(Revision))
def visit(request: pytest.FixtureRequest) -> Iterator[Stage[MCPClient]]:
    """Connect our client to FastMCP's server, with a host that answers every request."""
    with our_visit("fastmcp_full", request.param) as stage:
        yield stage


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-02", "PRO-20", "PRO-21", "CLT-03")
async def test_fairlead_client_receives_server_info_and_lists_from_fastmcp(
    visit: Stage[MCPClient],
) -> None:
    client = visit.client
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    resources = await client.list_resources()
    prompts = await client.list_prompts()

    assert client.protocol_version == visit.revision
    assert client.server["serverInfo"] == {"name": "fastmcp", "version": "1.2.3"}
    assert client.instructions == "Say hello first."
    assert (await client.health_check())["ok"]
    assert {"echo", "add", "ask", "weigh"} <= set(tools)
    assert tools["add"]["inputSchema"]["required"] == ["a", "b"]
    assert [resource["uri"] for resource in resources] == ["memo://greeting", "memo://pixel"]
    assert [prompt["name"] for prompt in prompts] == ["dedicate", "greet", "recommend"]
    assert client.skipped == []


async def test_fairlead_client_uses_tools_resources_and_prompts_of_fastmcp(
    visit: Stage[MCPClient],
) -> None:
    client = visit.client
    said = await visits.text_of(client, "echo", text="Grüße, 世界 🌍\u2028\x00")
    (greeting,) = await client.read("memo://greeting")
    (pixel,) = await client.read("memo://pixel")
    prompt = await client.get_prompt("greet", {"name": "Ада"})

    assert said == "Grüße, 世界 🌍\u2028\x00"
    assert await visits.text_of(client, "add", a=2, b=40) == "42"
    assert (greeting.text, pixel.blob) == ("Grüße, 世界 🌍", PIXEL)
    assert [message["content"]["text"] for message in prompt["messages"]] == [
        "Greet Ада, who is happy."
    ]


async def test_fairlead_client_receives_errors_from_fastmcp(visit: Stage[MCPClient]) -> None:
    client = visit.client
    broken = await client.call("fail")
    wrong = await client.call("add", {"a": "many"})
    # FastMCP answers a call of an unknown tool with an error result.
    unknown = await client.call("nothing")
    missing = await visits.refusal(client.read("memo://nothing"))

    assert broken.is_error is wrong.is_error is unknown.is_error is True
    assert "it broke" in broken.text
    assert unknown.text == "Unknown tool: 'nothing'"
    assert (missing.code, missing.data) == (-32602, {"uri": "memo://nothing"})
    assert (await visits.refusal(client.get_prompt("nothing"))).code == -32602
    assert (await visits.refusal(client.request("no/such/method"))).code == -32601


async def test_structured_content_of_fastmcp_matches_its_schema(visit: Stage[MCPClient]) -> None:
    await visits.get_structured_content(visit)


@pytest.mark.covers("PRO-33", "PRO-35", "CLT-07")
async def test_fairlead_client_receives_progress_and_requested_log_messages(
    visit: Stage[MCPClient],
) -> None:
    client, host, steps = visit.client, visit.host, []
    await client.set_log_level("debug")
    await client.call("count", {"to": 2}, on_progress=lambda *step: steps.append(step))
    logs = [what for what in host.heard if what[0] in ("debug", "warning")]

    # FastMCP sends progress messages in every revision
    assert steps == [(1, 2, "step 1"), (2, 2, "step 2")]
    assert [(level, logger, data["msg"]) for level, logger, data in logs] == [
        ("debug", "count", "step 1"),
        ("warning", "count", "step 2"),
    ]

    host.reset()
    await client.set_log_level("warning")
    await client.call("count", {"to": 2})
    assert [what[0] for what in host.heard if what[0] in ("debug", "warning")] == ["warning"]


@pytest.mark.covers("PRO-31")
async def test_a_cancellation_by_fairlead_client_stops_the_handler(visit: Stage[MCPClient]) -> None:
    await visits.give_up(visit)


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fairlead_client_answers_form_elicitations_from_fastmcp(
    visit: Stage[MCPClient],
) -> None:
    await visits.fill_in_forms(visit)  # FastMCP also sends elicitations in revisions without them


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fairlead_client_answers_url_elicitations_from_fastmcp(
    visit: Stage[MCPClient],
) -> None:
    await visits.open_pages(visit)


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fairlead_client_answers_sampling_and_roots_requests_from_fastmcp(
    visit: Stage[MCPClient],
) -> None:
    await visits.lend_model_and_folders(visit)


@pytest.mark.covers("PRO-24")
async def test_resources_and_prompts_of_fastmcp_may_elicit(visit: Stage[MCPClient]) -> None:
    await visits.answer_while_reading(visit)


async def test_many_concurrent_calls_of_fastmcp_tools_may_elicit(visit: Stage[MCPClient]) -> None:
    await visits.answer_many_at_once(visit)


@pytest.mark.covers("PRO-31")
async def test_cancelling_a_call_cancels_its_pending_elicitation(visit: Stage[MCPClient]) -> None:
    await visits.give_up_while_asked(visit)


async def test_a_rejected_elicitation_fails_the_call(visit: Stage[MCPClient]) -> None:
    visit.host.action = "refuse"
    if visit.revision.stateless:
        with pytest.raises(InputNotGiven, match="not now"):
            await visit.client.call("ask")
    else:
        refused = await visit.client.call("ask")
        assert (refused.is_error, refused.text) == (True, "Error calling tool 'ask': not now")


async def test_fastmcp_server_receives_changed_roots(visit: Stage[MCPClient]) -> None:
    await visits.move_elsewhere(visit)


async def test_fastmcp_server_can_ping_fairlead_client(visit: Stage[MCPClient]) -> None:
    pinged = await visit.client.call("ping_back")
    if visit.revision.stateless:  # stateless servers cannot send requests
        assert "no back-channel" in pinged.text
    else:
        assert pinged.text == "pong"


@pytest.mark.covers("PRO-35", "CLT-07")
async def test_templates_of_fastmcp_are_listed_and_read(visit: Stage[MCPClient]) -> None:
    await visits.read_templates(visit)


@pytest.mark.covers("PRO-35", "CLT-07")
async def test_fairlead_client_receives_completions_from_fastmcp(visit: Stage[MCPClient]) -> None:
    await visits.complete_arguments(visit)


@pytest.mark.covers("PRO-16")
async def test_fairlead_client_receives_list_changes_from_fastmcp(visit: Stage[MCPClient]) -> None:
    # FastMCP does not support `subscriptions/listen` and sends these notifications in the call.
    await visits.text_of(visit.client, "grow")
    await visit.host.hears(*visits.LISTS)


async def test_fastmcp_server_rejects_subscriptions(visit: Stage[MCPClient]) -> None:
    refused = await visits.refusal(visit.client.subscribe("memo://greeting"))
    assert refused.code == -32601


async def text_of(client: Client[Any], tool: str, **arguments: object) -> str:
    text: str = (await client.call_tool(tool, arguments)).content[0].text
    return text


async def refusal(asked: Any) -> int:
    """Return the code of the error response to a request."""
    with pytest.raises(MCPError) as caught:
        await asked
    code: int = caught.value.code
    return code
