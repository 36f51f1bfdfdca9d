"""Our client with a server of the official Python SDK, over pipes, in both eras."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import MCPClient, RpcError
from fairlead.client import InputNotGiven
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision
from tests.support.interop import client_features as visits
from tests.support.interop.server_processes import FOLDER, PIXEL, Stage, our_client, our_visit

TOOLS = ["echo", "add", "count", "fail", "blocks", "big", "wait", "was_stopped"]

SPOKEN = {"auto": NEWEST, **{revision.value: revision for revision in HANDSHAKE}}


@pytest.fixture(scope="module", params=list(Revision))
def visit(request: pytest.FixtureRequest) -> Iterator[Stage[MCPClient]]:
    """Connect our client to the official server with all features."""
    with our_visit("official_full", request.param) as stage:
        yield stage


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-02", "PRO-20", "PRO-21", "CLT-03")
@pytest.mark.parametrize(
    ("version", "spoken"),
    [*SPOKEN.items(), ("2026-07-28", NEWEST), ("latest", NEWEST_HANDSHAKE)],
)
async def test_fairlead_client_receives_server_info_and_lists_from_the_official_server(
    version: str, spoken: Revision
) -> None:
    async with our_client("official", version) as client:
        tools = await client.list_tools()
        resources = await client.list_resources()
        (prompt,) = await client.list_prompts()

        assert client.protocol_version == spoken
        assert client.server["serverInfo"] == {"name": "official", "version": "1.2.3"}
        assert client.instructions == "Say hello first."
        assert (await client.health_check())["ok"]
        assert [tool["name"] for tool in tools] == TOOLS
        assert tools[1]["description"] == "Add two numbers."
        assert tools[1]["inputSchema"]["required"] == ["a", "b"]
        assert [(r["uri"], r["mimeType"]) for r in resources] == [
            ("memo://greeting", "text/plain"),
            ("memo://pixel", "image/png"),
        ]
        assert await client.list_resource_templates() == []
        assert [argument["name"] for argument in prompt["arguments"]] == ["name", "mood"]
        assert client.skipped == []


async def test_calls_to_the_official_server_end_in_results_or_errors(
    visit: Stage[MCPClient],
) -> None:
    client = visit.client
    said = await client.call_tool("echo", {"text": "Grüße, 世界 🌍\u2028\x00"})
    added = await client.call_tool("add", {"a": 2, "b": 40})
    blocks = await client.call_tool("blocks")
    greeting = await client.read_resource("memo://greeting")
    pixel = await client.read_resource("memo://pixel")
    prompt = await client.get_prompt("greet", {"name": "Ада"})

    assert texts(said) == ["Grüße, 世界 🌍\u2028\x00"]
    assert texts(added) == ["42"]
    kinds = [block["type"] for block in blocks["content"]]
    assert kinds == ["text", "image", "audio", "resource_link", "resource"]
    assert blocks["content"][1]["data"] == PIXEL
    assert [content["text"] for content in greeting["contents"]] == ["Grüße, 世界 🌍"]
    assert [content["blob"] for content in pixel["contents"]] == [PIXEL]
    assert prompt["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "Greet Ада, who is happy."}}
    ]

    broken = await client.call_tool("fail")
    wrong = await client.call_tool("add", {"a": "many"})
    unknown = await client.call_tool("nothing")  # the official SDK answers with an error result

    assert broken["isError"] is wrong["isError"] is unknown["isError"] is True
    assert texts(unknown) == ["Unknown tool: nothing"]
    with pytest.raises(RpcError) as caught:
        await client.read_resource("memo://nothing")
    assert (caught.value.code, caught.value.data) == (-32602, {"uri": "memo://nothing"})
    with pytest.raises(RpcError):
        await client.get_prompt("nothing")
    with pytest.raises(RpcError) as caught:
        await client.request("no/such/method")
    assert caught.value.code == -32601
    assert texts(await client.call_tool("echo", {"text": "still there"})) == ["still there"]


@pytest.mark.covers("PRO-33")
async def test_progress_and_log_messages_from_the_official_server_arrive_in_order(
    visit: Stage[MCPClient],
) -> None:
    client = visit.client
    await client.set_log_level("debug")
    result = await client.call_tool(
        "count", {"to": 3}, on_progress=lambda *step: visit.host.hear(step)
    )

    assert texts(result) == ["counted to 3"]
    # The official SDK sends the message of a progress notification in every revision.
    assert [what for what in visit.host.heard if len(what) == 3] == [
        (1, 3, "step 1"),
        ("debug", "count", "step 1"),
        (2, 3, "step 2"),
        ("warning", "count", "step 2"),
        (3, 3, "step 3"),
        ("debug", "count", "step 3"),
    ]

    big = await client.call_tool("big", {"size": 1_000_000})
    answers = await asyncio.gather(
        *(client.call_tool("echo", {"text": f"{n} ü" * 100}) for n in range(50))
    )
    assert texts(big) == ["x" * 1_000_000]
    assert [texts(answer) for answer in answers] == [[f"{n} ü" * 100] for n in range(50)]


@pytest.mark.covers("PRO-31")
async def test_a_cancellation_stops_the_handler_of_the_official_server(
    visit: Stage[MCPClient],
) -> None:
    await visits.give_up(visit)


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fairlead_client_answers_form_elicitations_from_the_official_server(
    visit: Stage[MCPClient],
) -> None:
    # The server also sends elicitations in revisions without them.
    await visits.fill_in_forms(visit)


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fairlead_client_answers_url_elicitations_from_the_official_server(
    visit: Stage[MCPClient],
) -> None:
    await visits.open_pages(visit)
    if not visit.revision.stateless:  # only the handshake era has this notification
        assert ("notifications/elicitation/complete", None) in visit.host.heard


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_fairlead_client_answers_sampling_and_roots_requests_from_the_official_server(
    visit: Stage[MCPClient],
) -> None:
    await visits.lend_model_and_folders(visit)


@pytest.mark.covers("PRO-24")
async def test_sampling_requests_from_the_official_server_may_contain_tools(
    visit: Stage[MCPClient],
) -> None:
    assert await visits.text_of(visit.client, "think_with_tools") == "add"
    (params,) = visit.host.asked
    assert [tool["name"] for tool in params["tools"]] == ["add"]
    assert params["toolChoice"] == {"mode": "required"}


@pytest.mark.covers("PRO-24")
async def test_all_requests_from_the_official_server_during_one_call_are_answered(
    visit: Stage[MCPClient],
) -> None:
    told = await visits.text_of(visit.client, "interview")
    assert told == f"accept Ada 36 | four | {FOLDER}"


@pytest.mark.covers("PRO-24")
async def test_resources_and_prompts_of_the_official_server_may_elicit(
    visit: Stage[MCPClient],
) -> None:
    await visits.answer_while_reading(visit)


async def test_many_concurrent_calls_of_the_official_server_may_elicit(
    visit: Stage[MCPClient],
) -> None:
    await visits.answer_many_at_once(visit)


@pytest.mark.covers("PRO-31")
async def test_cancelling_a_call_cancels_its_pending_elicitation(visit: Stage[MCPClient]) -> None:
    await visits.give_up_while_asked(visit)


async def test_a_rejected_elicitation_fails_the_call(visit: Stage[MCPClient]) -> None:
    visit.host.action = "refuse"
    if visit.revision.stateless:
        with pytest.raises(InputNotGiven, match="not now"):
            await visit.client.call("ask")
    else:  # the server returns the client's error to its caller
        refused = await visits.refusal(visit.client.call("ask"))
        assert (refused.code, refused.message) == (-1, "not now")


@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
async def test_a_server_request_without_a_declared_capability_fails_the_call(
    revision: Revision,
) -> None:
    async with our_client("official_full", revision.value) as client:
        for tool, capability in (
            ("ask", "elicitation"),
            ("think", "sampling"),
            ("look_around", "roots"),
        ):
            with pytest.raises((RpcError, InputNotGiven), match=capability):
                await client.call(tool)


async def test_the_official_server_receives_changed_roots(visit: Stage[MCPClient]) -> None:
    await visits.move_elsewhere(visit)


async def test_the_official_server_can_ping_fairlead_client(visit: Stage[MCPClient]) -> None:
    if visit.revision.stateless:  # stateless servers cannot send requests
        refused = await visits.refusal(visit.client.call("ping_back"))
        assert "no back-channel" in refused.message
    else:
        assert await visits.text_of(visit.client, "ping_back") == "pong"


@pytest.mark.covers("PRO-35", "CLT-07")
async def test_resource_templates_of_the_official_server_are_listed_and_read(
    visit: Stage[MCPClient],
) -> None:
    await visits.read_templates(visit)


@pytest.mark.covers("PRO-35", "CLT-07")
async def test_fairlead_client_receives_completions_from_the_official_server(
    visit: Stage[MCPClient],
) -> None:
    await visits.complete_arguments(visit)


async def test_structured_content_of_the_official_server_matches_its_schema(
    visit: Stage[MCPClient],
) -> None:
    await visits.get_structured_content(visit)


@pytest.mark.covers("PRO-23", "PRO-35", "CLT-07")
async def test_fairlead_client_receives_updates_of_subscribed_resources(
    visit: Stage[MCPClient],
) -> None:
    await visits.hear_of_updates(visit)


@pytest.mark.covers("PRO-16", "PRO-23")
async def test_fairlead_client_receives_list_changes_from_the_official_server(
    visit: Stage[MCPClient],
) -> None:
    await visits.hear_of_lists(visit)


def texts(result: dict[str, Any]) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]
