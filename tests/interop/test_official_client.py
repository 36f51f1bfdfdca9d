"""The client of the official Python SDK against our server, on real pipes, in every revision."""

import asyncio
import json
import sys

import pytest
from mcp import Client, MCPError, stdio_client
from mcp_types import (
    CallToolResult,
    EmptyResult,
    LoggingMessageNotificationParams,
    SetLevelRequest,
    SetLevelRequestParams,
)
from processes import LIMIT, PIXEL, official_session, parameters

from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision

TOOLS = ["echo", "add", "count", "count_and_hold", "go_on"]
TOOLS += ["fail", "blocks", "big", "wait", "was_stopped"]

every_revision = pytest.mark.parametrize("revision", list(Revision))


@pytest.mark.covers("DEC-04", "PRO-02", "PRO-03", "PRO-20", "PRO-21")
@every_revision
async def test_it_learns_who_we_are_and_what_we_offer(revision: Revision) -> None:
    async with official_session(revision) as session:
        tools = (await session.list_tools()).tools
        resources = (await session.list_resources()).resources
        prompts = (await session.list_prompts()).prompts
        templates = (await session.list_resource_templates()).resource_templates

        assert session.server_info is not None
        assert (session.server_info.name, session.server_info.version) == ("ours", "1.2.3")
        assert session.instructions == "Say hello first."
        assert [tool.name for tool in tools] == TOOLS
        assert tools[1].description == "Add two numbers."
        assert tools[1].input_schema["required"] == ["a", "b"]
        assert [(r.uri, r.mime_type) for r in resources] == [
            ("memo://greeting", "text/plain"),
            ("memo://pixel", "image/png"),
        ]
        assert templates == []
        (greet,) = prompts
        assert [(a.name, a.required) for a in greet.arguments or []] == [
            ("name", True),
            ("mood", False),
        ]


@pytest.mark.covers("DEC-04")
@every_revision
async def test_it_calls_reads_and_gets(revision: Revision) -> None:
    async with official_session(revision) as session:
        said = await session.call_tool("echo", {"text": "Grüße, 世界 🌍\u2028\x00"})
        added = await session.call_tool("add", {"a": 2, "b": 40})
        greeting = await session.read_resource("memo://greeting")
        pixel = await session.read_resource("memo://pixel")
        prompt = await session.get_prompt("greet", {"name": "Ада"})

        assert texts(said) == ["Grüße, 世界 🌍\u2028\x00"]
        assert texts(added) == ["42"]
        assert not said.is_error
        assert [content.text for content in greeting.contents] == ["Grüße, 世界 🌍"]
        assert [(c.mime_type, c.blob) for c in pixel.contents] == [("image/png", PIXEL)]
        assert prompt.description == "Greets somebody."
        assert [m.content.text for m in prompt.messages] == ["Greet Ада, who is happy."]


@pytest.mark.covers("DEC-04")
@every_revision
async def test_blocks_it_does_not_know_reach_it_as_text(revision: Revision) -> None:
    async with official_session(revision) as session:
        result = await session.call_tool("blocks")

        audio = "audio" if revision >= "2025-03-26" else "text"
        link = "resource_link" if revision >= "2025-06-18" else "text"
        kinds = [block.type for block in result.content]
        assert kinds == ["text", "image", audio, link, "resource"]
        assert result.content[0].text == "grüße"
        assert (result.content[1].data, result.content[1].mime_type) == (PIXEL, "image/png")
        assert result.content[4].resource.text == "embedded"


@pytest.mark.covers("DEC-16")
@every_revision
async def test_what_goes_wrong_is_a_result_or_an_error(revision: Revision) -> None:
    async with official_session(revision) as session:
        broken = await session.call_tool("fail")
        wrong = await session.call_tool("add", {"a": "many"})

        assert (broken.is_error, wrong.is_error) == (True, True)
        assert json.loads(texts(broken)[0])["message"] == "RuntimeError: it broke"
        problems = json.loads(texts(wrong)[0])["field_errors"]
        assert [problem["field"] for problem in problems] == ["arguments", "a"]
        assert await refusal(session.call_tool("nothing")) == -32602
        assert await refusal(session.get_prompt("nothing")) == -32602
        assert await refusal(session.get_prompt("greet")) == -32602
        not_found = -32602 if revision == "2026-07-28" else -32002
        assert await refusal(session.read_resource("memo://nothing")) == not_found
        assert texts(await session.call_tool("echo", {"text": "still there"})) == ["still there"]


@every_revision
async def test_progress_and_logs_come_before_the_result(revision: Revision) -> None:
    heard: list[object] = []

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        heard.append((message.level, message.logger, message.data))

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    settings = {"logging_callback": on_log, "log_level": "debug"}
    async with official_session(revision, **settings) as session:
        if not revision.stateless:
            level = SetLevelRequest(params=SetLevelRequestParams(level="debug"))
            await session.send_request(level, EmptyResult)
        result = await session.call_tool("count", {"to": 3}, progress_callback=on_progress)

        assert texts(result) == ["counted to 3"]
        steps = [f"step {n}" if revision >= "2025-03-26" else None for n in (1, 2, 3)]
        progress = [(1, 3, steps[0]), (2, 3, steps[1]), (3, 3, steps[2])]
        levels = [(1, "debug"), (2, "warning"), (3, "debug")]
        logs = [(level, "count", f"step {n}") for n, level in levels]
        # It hands each notification to a task of its own, so only the kinds keep their order.
        assert [item for item in heard if item in progress] == progress
        assert [item for item in heard if item in logs] == logs
        assert len(heard) == 6


@every_revision
async def test_unwanted_logs_are_not_sent(revision: Revision) -> None:
    heard: list[str] = []

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        heard.append(message.level)

    async with official_session(revision, logging_callback=on_log) as session:
        await session.call_tool("count", {"to": 3})
        await session.call_tool("echo", {"text": "so that everything before it has arrived"})

        # Stateless callers have to ask for them; with a handshake our own threshold counts.
        assert heard == ([] if revision == "2026-07-28" else ["warning"])


@pytest.mark.covers("PRO-32", "SRV-17")
@every_revision
async def test_giving_up_stops_our_handler(revision: Revision) -> None:
    async with official_session(revision) as session:
        begun = asyncio.Event()

        async def on_progress(*_: object) -> None:
            begun.set()

        waiting = asyncio.create_task(session.call_tool("wait", progress_callback=on_progress))
        await begun.wait()
        meanwhile = await session.call_tool("echo", {"text": "not held up"})
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert texts(meanwhile) == ["not held up"]
        assert texts(await session.call_tool("was_stopped")) == ["stopped"]

        with pytest.raises(MCPError, match=r"(?i)timed out"):
            await session.call_tool("wait", read_timeout_seconds=0.2)
        assert texts(await session.call_tool("was_stopped")) == ["stopped"]


@pytest.mark.covers("SRV-17")
@every_revision
async def test_a_megabyte_and_fifty_calls_at_once(revision: Revision) -> None:
    async with official_session(revision) as session:
        big = await session.call_tool("big", {"size": 1_000_000})
        answers = await asyncio.gather(
            *(session.call_tool("echo", {"text": f"{n} ü" * 100}) for n in range(50))
        )

        assert texts(big) == ["x" * 1_000_000]
        assert [texts(answer) for answer in answers] == [[f"{n} ü" * 100] for n in range(50)]


@pytest.mark.covers("DEC-04", "PRO-21")
@pytest.mark.parametrize(
    ("mode", "revision"),
    [("auto", NEWEST), ("legacy", NEWEST_HANDSHAKE), ("2026-07-28", NEWEST)],
)
async def test_its_own_choice_of_era_works(mode: str, revision: Revision) -> None:
    pipes = stdio_client(parameters("ours"), errlog=sys.__stderr__)
    async with asyncio.timeout(LIMIT), Client(pipes, mode=mode) as client:
        assert client.protocol_version == revision
        assert texts(await client.call_tool("add", {"a": 1, "b": 2})) == ["3"]
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


async def refusal(asked: object) -> int:
    """The code of the error that a request is answered with."""
    with pytest.raises(MCPError) as caught:
        await asked  # type: ignore[misc]
    return caught.value.code
