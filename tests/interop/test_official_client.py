"""The client of the official Python SDK with our server, over pipes, in every revision."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from mcp import Client, ClientSession, MCPError, stdio_client
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
    listen,
)
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitationCapability,
    ElicitRequestParams,
    ElicitResult,
    EmptyResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotificationParams,
    PromptReference,
    ResourceTemplateReference,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    SetLevelRequest,
    SetLevelRequestParams,
    SubscribeRequest,
    SubscribeRequestParams,
    TextContent,
    ToolUseContent,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
    UrlElicitationCapability,
)

from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE, Revision
from tests.support.interop.server_processes import (
    FOLDER,
    LIMIT,
    PAGE,
    PIXEL,
    Host,
    Refused,
    Stage,
    official_session,
    parameters,
)

TOOLS = ["echo", "add", "count", "count_and_hold", "go_on"]
TOOLS += ["fail", "blocks", "big", "wait", "was_stopped"]

every_revision = pytest.mark.parametrize("revision", list(Revision))


Sampled = CreateMessageResult | CreateMessageResultWithTools | ErrorData


class Visitor:
    """The official client: a session, and a client that answers input requests if stateless."""

    def __init__(self, session: ClientSession, asker: ClientSession | Client) -> None:
        self.session = session
        self.read_resource = asker.read_resource
        self.get_prompt = asker.get_prompt
        self._call = asker.call_tool

    async def text_of(self, tool: str, **arguments: object) -> str:
        (text,) = texts(await self._call(tool, arguments))
        return text


@pytest.fixture(scope="module", params=list(Revision))
def visit(request: pytest.FixtureRequest) -> Iterator[Stage[Visitor]]:
    """Connect the official client to our server, with a host that answers every request."""
    host = Host()
    with Stage[Visitor](request.param, host).connected(visitor(request.param, host)) as stage:
        yield stage


@contextlib.asynccontextmanager
async def visitor(revision: Revision, host: Host) -> AsyncIterator[Visitor]:
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
    }
    if revision.stateless:
        pipes = stdio_client(parameters("ours_full"), errlog=sys.__stderr__)
        async with Client(pipes, read_timeout_seconds=LIMIT, **settings) as client:
            yield Visitor(client.session, client)
    else:
        async with official_session(revision, "ours_full", None, **settings) as session:
            yield Visitor(session, session)


@pytest.mark.covers("DEC-04", "PRO-02", "PRO-03", "PRO-20", "PRO-21")
@every_revision
async def test_the_official_client_receives_the_server_info_and_lists(revision: Revision) -> None:
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
async def test_the_official_client_uses_tools_resources_and_prompts(revision: Revision) -> None:
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
        assert prompt.description == "Greets a person."
        assert [m.content.text for m in prompt.messages] == ["Greet Ада, who is happy."]


@pytest.mark.covers("DEC-04")
@every_revision
async def test_content_types_unknown_to_a_revision_are_sent_as_text(revision: Revision) -> None:
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
async def test_the_official_client_receives_failures_as_error_results_or_error_responses(
    revision: Revision,
) -> None:
    async with official_session(revision) as session:
        broken = await session.call_tool("fail")
        wrong = await session.call_tool("add", {"a": "many"})

        assert (broken.is_error, wrong.is_error) == (True, True)
        assert json.loads(texts(broken)[0])["message"] == "RuntimeError: it broke"
        problems = json.loads(texts(wrong)[0])["field_errors"]
        assert [problem["field"] for problem in problems] == ["b", "a"]
        assert await refusal(session.call_tool("nothing")) == -32602
        assert await refusal(session.get_prompt("nothing")) == -32602
        assert await refusal(session.get_prompt("greet")) == -32602
        not_found = -32602 if revision == "2026-07-28" else -32002
        assert await refusal(session.read_resource("memo://nothing")) == not_found
        assert texts(await session.call_tool("echo", {"text": "still there"})) == ["still there"]


@every_revision
async def test_progress_and_log_messages_arrive_before_the_result(revision: Revision) -> None:
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
        # The client handles each notification in its own task,
        # so only notifications of one kind stay in order.
        assert [item for item in heard if item in progress] == progress
        assert [item for item in heard if item in logs] == logs
        assert len(heard) == 6


@every_revision
async def test_log_messages_that_a_client_has_not_requested_are_sent_only_in_sessions(
    revision: Revision,
) -> None:
    heard: list[str] = []

    async def on_log(message: LoggingMessageNotificationParams) -> None:
        heard.append(message.level)

    async with official_session(revision, logging_callback=on_log) as session:
        await session.call_tool("count", {"to": 3})
        await session.call_tool("echo", {"text": "last message"})

        # Stateless callers must request logs; in a session the server's default level applies.
        assert heard == ([] if revision == "2026-07-28" else ["warning"])


@pytest.mark.covers("PRO-32", "SRV-17")
@every_revision
async def test_a_cancellation_by_the_official_client_stops_the_handler(revision: Revision) -> None:
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
async def test_a_result_of_a_megabyte_and_fifty_concurrent_calls_are_delivered(
    revision: Revision,
) -> None:
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
async def test_the_official_client_negotiates_the_era(mode: str, revision: Revision) -> None:
    pipes = stdio_client(parameters("ours"), errlog=sys.__stderr__)
    async with asyncio.timeout(LIMIT), Client(pipes, mode=mode) as client:
        assert client.protocol_version == revision
        assert texts(await client.call_tool("add", {"a": 1, "b": 2})) == ["3"]
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS


@pytest.mark.covers("PRO-24")
async def test_the_official_client_answers_form_elicitations(visit: Stage[Visitor]) -> None:
    if not visit.revision.elicitation:
        assert "has no elicitation" in await visit.client.text_of("ask")
        return
    said = []
    for visit.host.action in ("accept", "decline", "cancel"):
        said.append(await visit.client.text_of("ask"))

    assert said == ["accept Ada 36", "decline", "cancel"]
    question = visit.host.asked[0]
    assert (question.mode, question.message) == ("form", "Please enter your name.")
    age: dict[str, Any] = {"type": "integer", "default": 30}
    mood: dict[str, Any] = {"type": "string", "enum": ["merry", "sad"], "default": "merry"}
    if not visit.revision.rich_elicitation:  # older revisions allow defaults only for booleans
        del age["default"], mood["default"]
    assert question.requested_schema == {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": age, "mood": mood},
        "required": ["name"],
    }


@pytest.mark.covers("PRO-24")
async def test_the_official_client_answers_url_elicitations(visit: Stage[Visitor]) -> None:
    if not visit.revision.rich_elicitation:
        assert "has no elicitation" in await visit.client.text_of("open_page")
        return
    said = []
    for visit.host.action in ("accept", "decline", "cancel"):
        said.append(await visit.client.text_of("open_page"))

    assert said == ["accept", "decline", "cancel"]
    question = visit.host.asked[0]
    assert (question.mode, question.message, question.url) == ("url", "Please sign in.", PAGE)
    assert bool(question.elicitation_id) == visit.revision.elicitation_ids


@pytest.mark.covers("PRO-24")
async def test_the_official_client_answers_sampling_and_roots_requests(
    visit: Stage[Visitor],
) -> None:
    assert await visit.client.text_of("think") == "four"
    assert await visit.client.text_of("look_around") == FOLDER
    (params,) = visit.host.asked
    assert (params.max_tokens, params.system_prompt) == (10, "Be brief.")
    assert [message.content.text for message in params.messages] == ["Add 2 and 2."]


@pytest.mark.covers("PRO-24")
async def test_sampling_requests_may_have_tools(visit: Stage[Visitor]) -> None:
    told = await visit.client.text_of("think_with_tools")
    if visit.revision.sampling_tools:
        (params,) = visit.host.asked
        assert ([tool.name for tool in params.tools], params.tool_choice.mode) == (
            ["add"],
            "required",
        )
        assert told == "add"
    else:
        assert "does not support tools in sampling" in told


async def test_sampling_requests_to_a_client_without_tool_support_have_no_tools() -> None:
    async def on_sample(_: object, params: CreateMessageRequestParams) -> ErrorData:
        return ErrorData(code=-1, message="never asked")

    connecting = official_session(NEWEST_HANDSHAKE, "ours_full", sampling_callback=on_sample)
    async with connecting as session:
        (text,) = texts(await session.call_tool("think_with_tools"))
        assert "capability 'sampling.tools'" in text


async def test_a_client_that_supports_only_url_elicitation_gets_no_forms() -> None:
    async def on_elicit(_: object, params: ElicitRequestParams) -> ErrorData:
        return ErrorData(code=-1, message="never asked")

    declared = ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability()))
    settings: dict[str, Any] = {"declared": declared, "elicitation_callback": on_elicit}
    async with official_session(NEWEST_HANDSHAKE, "ours_full", **settings) as session:
        (text,) = texts(await session.call_tool("ask"))
        assert "capability 'elicitation.form'" in text


@pytest.mark.covers("PRO-24")
async def test_all_server_requests_during_one_call_are_answered(visit: Stage[Visitor]) -> None:
    told = await visit.client.text_of("interview")
    if visit.revision.elicitation:
        assert told == f"accept Ada 36 | four | {FOLDER}"
    else:
        assert "has no elicitation" in told


@pytest.mark.covers("PRO-24")
async def test_resources_and_prompts_may_elicit_from_the_official_client(
    visit: Stage[Visitor],
) -> None:
    if not visit.revision.elicitation:
        assert await refusal(visit.client.get_prompt("dedicate")) < 0
        return
    diary = await visit.client.read_resource("memo://diary/monday")
    prompt = await visit.client.get_prompt("dedicate")

    assert diary.contents[0].text == "monday: accept Ada 36"
    assert prompt.messages[0].content.text == "Dedicate it: accept Ada 36"


async def test_many_concurrent_calls_may_sample_from_the_official_client(
    visit: Stage[Visitor],
) -> None:
    told = await asyncio.gather(*(visit.client.text_of("think") for _ in range(20)))
    assert told == ["four"] * 20


@pytest.mark.covers("PRO-32")
async def test_cancelling_a_call_cancels_its_pending_sampling_request(
    visit: Stage[Visitor],
) -> None:
    visit.host.action = "think"
    asking = asyncio.create_task(visit.client.text_of("think_patiently"))
    await visit.host.hears("asked")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await visit.host.hears("let go")
    assert await visit.client.text_of("was_stopped") == "stopped"


async def test_a_rejected_sampling_request_fails_the_call(visit: Stage[Visitor]) -> None:
    visit.host.action = "refuse"
    assert await refusal(visit.client.text_of("think")) == -1


@pytest.mark.parametrize("revision", [NEWEST_HANDSHAKE, NEWEST])
async def test_requests_without_a_declared_capability_are_not_sent(revision: Revision) -> None:
    async with official_session(revision, "ours_full") as session:
        for tool, capability in (
            ("ask", "elicitation"),
            ("open_page", "elicitation.url"),
            ("think", "sampling"),
            ("look_around", "roots"),
        ):
            if revision.stateless:
                with pytest.raises(MCPError, match=f"capability '{capability}") as caught:
                    await session.call_tool(tool)
                assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
            else:
                result = await session.call_tool(tool)
                assert result.is_error
                assert f"capability '{capability}" in texts(result)[0]


@pytest.mark.covers("PRO-35")
async def test_the_official_client_sets_the_log_level(visit: Stage[Visitor]) -> None:
    session, key = visit.client.session, "io.modelcontextprotocol/logLevel"
    if not visit.revision.stateless:
        level = SetLevelRequest(params=SetLevelRequestParams(level="debug"))
        await session.send_request(level, EmptyResult)
    await session.call_tool("count", {"to": 2}, meta={key: "debug"})
    await visit.host.hears(("debug", "step 1"), ("warning", "step 2"))

    visit.host.reset()
    if not visit.revision.stateless:
        level = SetLevelRequest(params=SetLevelRequestParams(level="warning"))
        await session.send_request(level, EmptyResult)
    await session.call_tool("count", {"to": 2}, meta={key: "warning"})
    await visit.host.hears(("warning", "step 2"))
    assert ("debug", "step 1") not in visit.host.heard


@pytest.mark.covers("PRO-35")
async def test_the_official_client_lists_and_reads_resource_templates(
    visit: Stage[Visitor],
) -> None:
    session = visit.client.session
    note, diary = (await session.list_resource_templates()).resource_templates
    assert (note.uri_template, note.name) == ("memo://notes/{number}", "note")
    assert diary.uri_template == "memo://diary/{day}"
    (contents,) = (await session.read_resource("memo://notes/7")).contents
    assert (contents.uri, contents.text) == ("memo://notes/7", "note 7")
    assert await refusal(session.read_resource("memo://notes/seven")) == -32602


@pytest.mark.covers("PRO-35")
async def test_the_official_client_receives_completions(visit: Stage[Visitor]) -> None:
    complete = visit.client.session.complete
    book = PromptReference(name="recommend")
    note = ResourceTemplateReference(uri="memo://notes/{number}")
    reader = await complete(book, {"name": "reader", "value": "A"})
    sad = await complete(book, {"name": "reader", "value": "A"}, {"mood": "sad"})
    mood = await complete(book, {"name": "mood", "value": "s"})
    number = await complete(note, {"name": "number", "value": "1"})

    assert reader.completion.values == ["Ada", "Alan"]
    assert sad.completion.values == ["Alas"]
    assert mood.completion.values == ["sad"]
    assert number.completion.values == ["1", "12"]
    unknown = complete(PromptReference(name="nothing"), {"name": "a", "value": ""})
    assert await refusal(unknown) == -32602


async def test_structured_content_matches_its_schema_for_the_official_client(
    visit: Stage[Visitor],
) -> None:
    session = visit.client.session
    (weigh,) = [tool for tool in (await session.list_tools()).tools if tool.name == "weigh"]
    weighed = await session.call_tool("weigh", {"grams": 2000})  # the client validates the result

    assert json.loads(texts(weighed)[0]) == {"grams": 2000, "heavy": True}
    assert weigh.output_schema is not None
    assert list(weigh.output_schema["properties"]) == ["grams", "heavy"]
    assert weighed.structured_content == {"grams": 2000, "heavy": True}
    numbers = await session.call_tool("many", {"to": 3})
    assert numbers.structured_content == {"result": [0, 1, 2]}


@pytest.mark.covers("PRO-23", "PRO-35")
async def test_the_official_client_receives_updates_of_subscribed_resources(
    visit: Stage[Visitor],
) -> None:
    client, session = visit.client, visit.client.session
    greeting, pixel = "memo://greeting", "memo://pixel"
    if visit.revision.stateless:
        async with listen(session, resource_subscriptions=[greeting]) as news:
            assert news.honored.resource_subscriptions == [greeting]
            await client.text_of("touch", uri=pixel)
            await client.text_of("touch", uri=greeting)
            assert await anext(news) == ResourceUpdated(uri=greeting)
        return
    for uri in (greeting, pixel):
        subscribe = SubscribeRequest(params=SubscribeRequestParams(uri=uri))
        await session.send_request(subscribe, EmptyResult)
    await client.text_of("touch", uri=greeting)
    await visit.host.hears(("notifications/resources/updated", greeting))

    visit.host.reset()
    unsubscribe = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=greeting))
    await session.send_request(unsubscribe, EmptyResult)
    await client.text_of("touch", uri=greeting)
    await client.text_of("touch", uri=pixel)
    await visit.host.hears(("notifications/resources/updated", pixel))
    assert ("notifications/resources/updated", greeting) not in visit.host.heard


@pytest.mark.covers("PRO-16", "PRO-23")
async def test_the_official_client_receives_list_changes(visit: Stage[Visitor]) -> None:
    client, session = visit.client, visit.client.session
    if visit.revision.stateless:
        every_list = dict.fromkeys(
            ("tools_list_changed", "prompts_list_changed", "resources_list_changed"), True
        )
        async with listen(session, **every_list) as news:
            await client.text_of("grow")
            heard = {type(await anext(news)) for _ in range(3)}
        assert heard == {ToolsListChanged, PromptsListChanged, ResourcesListChanged}
    else:
        await client.text_of("grow")
        kinds = ("tools", "prompts", "resources")
        await visit.host.hears(*((f"notifications/{kind}/list_changed", None) for kind in kinds))
    assert "grown" in [tool.name for tool in (await session.list_tools()).tools]
    assert await client.text_of("grown") == "grown"
    assert await client.text_of("shrink") == "shrunk"


def texts(result: CallToolResult) -> list[str]:
    return [block.text for block in result.content if block.type == "text"]


async def refusal(asked: object) -> int:
    """Return the code of the error response to a request."""
    with pytest.raises(MCPError) as caught:
        await asked  # type: ignore[misc]
    return caught.value.code
