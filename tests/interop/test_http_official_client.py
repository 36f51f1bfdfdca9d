"""The client of the official Python SDK with our server, over HTTP, in every revision.

The tests of `test_official_client.py` are repeated over Streamable HTTP, with JSON and with
streams, and over HTTP+SSE.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mcp import Client, ClientSession, MCPError
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
    ToolUseContent,
)

from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision
from tests.interop.test_official_client import (
    TOOLS,
    Sampled,
    Visitor,
    refusal,
    test_a_rejected_sampling_request_fails_the_call,
    test_all_server_requests_during_one_call_are_answered,
    test_cancelling_a_call_cancels_its_pending_sampling_request,
    test_many_concurrent_calls_may_sample_from_the_official_client,
    test_resources_and_prompts_may_elicit_from_the_official_client,
    test_sampling_requests_may_have_tools,
    test_structured_content_matches_its_schema_for_the_official_client,
    test_the_official_client_answers_form_elicitations,
    test_the_official_client_answers_sampling_and_roots_requests,
    test_the_official_client_answers_url_elicitations,
    test_the_official_client_lists_and_reads_resource_templates,
    test_the_official_client_receives_completions,
    test_the_official_client_receives_list_changes,
    test_the_official_client_receives_updates_of_subscribed_resources,
    texts,
)
from tests.support.interop.http_servers import OURS, our_addresses
from tests.support.interop.server_processes import LIMIT, PIXEL, Host, Refused, Stage, shake_hands

__all__ = [
    "test_a_rejected_sampling_request_fails_the_call",
    "test_all_server_requests_during_one_call_are_answered",
    "test_cancelling_a_call_cancels_its_pending_sampling_request",
    "test_many_concurrent_calls_may_sample_from_the_official_client",
    "test_resources_and_prompts_may_elicit_from_the_official_client",
    "test_sampling_requests_may_have_tools",
    "test_structured_content_matches_its_schema_for_the_official_client",
    "test_the_official_client_answers_form_elicitations",
    "test_the_official_client_answers_sampling_and_roots_requests",
    "test_the_official_client_answers_url_elicitations",
    "test_the_official_client_lists_and_reads_resource_templates",
    "test_the_official_client_receives_completions",
    "test_the_official_client_receives_list_changes",
    "test_the_official_client_receives_updates_of_subscribed_resources",
]

# Combinations that cover every revision at least once
STAGES = OURS + [("auto", revision) for revision in HANDSHAKE[:-1]]


@pytest.fixture(scope="module")
def ours() -> Iterator[dict[str, str]]:
    """Run our server with all features and yield its URLs by kind of connection."""
    with our_addresses() as addresses:
        yield addresses


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def visit(request: pytest.FixtureRequest, ours: dict[str, str]) -> Iterator[Stage[Visitor]]:
    """Connect the official client to our server, with a host that answers every request."""
    way, revision = request.param
    host = Host()
    connecting = visitor(ours[way], revision, host)
    with Stage[Visitor](revision, host).connected(connecting) as stage:
        stage.way = way
        yield stage


@contextlib.asynccontextmanager
async def visitor(url: str, revision: Revision, host: Host) -> AsyncIterator[Visitor]:
    async def on_elicit(_: object, params: ElicitRequestParams) -> ElicitResult:
        host.asked.append(params)
        return ElicitResult(**await host.answer(params.mode))

    async def on_sample(_: object, params: CreateMessageRequestParams) -> Sampled:
        host.asked.append(params)
        try:
            await host.decide()
        except Refused as refused:
            return ErrorData(code=-1, message=str(refused))
        model = {"role": "assistant", "model": "a model"}
        if params.tools:
            use = ToolUseContent(id="1", name=params.tools[0].name, input={"a": 2, "b": 2})
            return CreateMessageResultWithTools(content=[use], stop_reason="toolUse", **model)
        return CreateMessageResult(content=TextContent(text="four"), **model)

    async def on_roots(_: object) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=host.folder)])

    async def on_message(message: Any) -> None:
        host.hear((message.method, getattr(message.params, "uri", None)))

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        host.hear((message.level, message.data))

    settings: dict[str, Any] = {
        "logging_callback": on_log,
        "elicitation_callback": on_elicit,
        "sampling_callback": on_sample,
        "sampling_capabilities": SamplingCapability(tools=SamplingToolsCapability()),
        "list_roots_callback": on_roots,
        "message_handler": on_message,
        "read_timeout_seconds": LIMIT,
    }
    if revision.stateless:
        async with Client(url, **settings) as client:
            yield Visitor(client.session, client)
    else:
        async with opened(url, revision, **settings) as session:
            yield Visitor(session, session)


@contextlib.asynccontextmanager
async def opened(
    url: str, revision: Revision, http: Any = None, **settings: Any
) -> AsyncIterator[ClientSession]:
    """Open a session of the handshake era with exactly that revision."""
    streamable = not url.endswith("/sse")
    connecting = streamable_http_client(url, http_client=http) if streamable else sse_client(url)
    async with connecting as (read, write), ClientSession(read, write, **settings) as session:
        await shake_hands(session, revision)
        yield session


@pytest.mark.covers("DEC-04", "PRO-02", "PRO-20", "PRO-21")
async def test_the_official_client_receives_the_server_info_and_lists(
    visit: Stage[Visitor],
) -> None:
    session = visit.client.session
    tools = (await session.list_tools()).tools
    resources = (await session.list_resources()).resources
    prompts = (await session.list_prompts()).prompts

    assert session.protocol_version == visit.revision
    assert session.server_info is not None
    assert (session.server_info.name, session.server_info.version) == ("ours", "1.2.3")
    assert session.instructions == "Say hello first."
    assert [tool.name for tool in tools][: len(TOOLS)] == TOOLS
    assert tools[1].input_schema["required"] == ["a", "b"]
    assert [resource.uri for resource in resources] == ["memo://greeting", "memo://pixel"]
    assert [prompt.name for prompt in prompts] == ["greet", "dedicate", "recommend"]


@pytest.mark.covers("DEC-04", "DEC-16")
async def test_the_official_client_uses_tools_resources_and_prompts(visit: Stage[Visitor]) -> None:
    session = visit.client.session
    greeting = await session.read_resource("memo://greeting")
    pixel = await session.read_resource("memo://pixel")
    prompt = await session.get_prompt("greet", {"name": "Ада"})
    broken = await session.call_tool("fail")
    wrong = await session.call_tool("add", {"a": "many"})

    said = "Grüße, 世界 🌍\u2028\x00"
    assert await visit.client.text_of("echo", text=said) == said
    assert await visit.client.text_of("add", a=2, b=40) == "42"
    assert [content.text for content in greeting.contents] == ["Grüße, 世界 🌍"]
    assert [(c.mime_type, c.blob) for c in pixel.contents] == [("image/png", PIXEL)]
    assert [m.content.text for m in prompt.messages] == ["Greet Ада, who is happy."]
    assert json.loads(texts(broken)[0])["message"] == "RuntimeError: it broke"
    problems = json.loads(texts(wrong)[0])["field_errors"]
    assert [problem["field"] for problem in problems] == ["b", "a"]
    assert await refusal(session.call_tool("nothing")) == -32602
    assert await refusal(session.get_prompt("greet")) == -32602
    not_found = -32602 if visit.revision.stateless else -32002
    assert await refusal(session.read_resource("memo://nothing")) == not_found


async def test_the_official_client_receives_progress_before_the_result(
    visit: Stage[Visitor],
) -> None:
    heard: list[object] = []

    async def on_progress(*step: object) -> None:
        heard.append(step)

    session = visit.client.session
    result = await session.call_tool("count", {"to": 3}, progress_callback=on_progress)

    assert texts(result) == ["counted to 3"]
    steps = [f"step {n}" if visit.revision.progress_message else None for n in (1, 2, 3)]
    assert heard == [(1, 3, steps[0]), (2, 3, steps[1]), (3, 3, steps[2])]


@pytest.mark.covers("PRO-32", "SRV-17")
async def test_a_cancellation_by_the_official_client_stops_the_handler(
    visit: Stage[Visitor],
) -> None:
    session = visit.client.session
    begun = asyncio.Event()

    async def on_progress(*_: object) -> None:
        begun.set()

    waiting = asyncio.create_task(session.call_tool("wait", progress_callback=on_progress))
    await begun.wait()
    assert await visit.client.text_of("echo", text="not held up") == "not held up"
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await visit.client.text_of("was_stopped") == "stopped"

    with pytest.raises(MCPError, match=r"(?i)timed out"):
        await session.call_tool("wait", read_timeout_seconds=0.2)
    assert await visit.client.text_of("was_stopped") == "stopped"


@pytest.mark.covers("SRV-17")
async def test_a_result_of_a_megabyte_and_twenty_concurrent_calls_are_delivered(
    visit: Stage[Visitor],
) -> None:
    big = await visit.client.text_of("big", size=1_000_000)
    told = [f"{n} ü" * 100 for n in range(20)]
    answers = await asyncio.gather(*(visit.client.text_of("echo", text=text) for text in told))

    assert big == "x" * 1_000_000
    assert answers == told


@pytest.mark.covers("DEC-04", "PRO-21")
@pytest.mark.parametrize(
    ("mode", "revision"),
    [("auto", NEWEST), ("legacy", NEWEST_HANDSHAKE), ("2026-07-28", NEWEST)],
)
async def test_the_official_client_negotiates_the_era(
    mode: str, revision: Revision, ours: dict[str, str]
) -> None:
    async with asyncio.timeout(LIMIT), Client(ours["auto"], mode=mode) as client:
        assert client.protocol_version == revision
        assert texts(await client.call_tool("add", {"a": 1, "b": 2})) == ["3"]


@pytest.mark.covers("SSE-10")
@pytest.mark.parametrize("way", ["auto", "events"])
async def test_a_call_is_resumed_after_its_connection_was_closed(
    way: str, ours: dict[str, str]
) -> None:
    heard: list[object] = []
    resumed: list[str] = []

    async def on_request(request: Any) -> None:
        if "last-event-id" in request.headers:
            resumed.append(request.method)

    http = create_mcp_http_client()
    http.event_hooks = {"request": [on_request]}
    async with asyncio.timeout(LIMIT), http, opened(ours[way], NEWEST_HANDSHAKE, http) as session:

        async def on_progress(*step: object) -> None:
            heard.append(step)
            # By now, the server has closed the connection that carried this notification.
            if len(heard) == 1:
                await session.call_tool("go_on")

        result = await session.call_tool("hang_up", progress_callback=on_progress)

    assert texts(result) == ["still here"]
    assert heard == [(1, 3, "before"), (2, 3, "meanwhile"), (3, 3, "after")]
    assert resumed == ["GET"]
