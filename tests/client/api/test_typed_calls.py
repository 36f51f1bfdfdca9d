"""Tests of typed calls with valid and invalid results."""

from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, MCPServer, MCPToolError
from fairlead.client import Message, OutputMismatch, Prompted
from fairlead.client.api.tool_hints import ToolHints
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import RemoteProtocolError
from fairlead.protocol.types.base import CacheableResult
from fairlead.protocol.types.completion import Completion
from fairlead.protocol.types.content import ResourceContents, TextContent, UnknownContent
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


LATEST = MCPClientConfig(protocol_version="latest")


@pytest.mark.covers("CLT-05", "CLT-06", "CLT-07")
async def test_all_server_features_can_be_used_with_typed_calls() -> None:
    server = MCPServer("typed")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool()
    def fail() -> str:
        raise MCPToolError("never", code="NOT_FOUND")

    @server.resource("memo://a", name="a")
    def memo() -> str:
        return "text"

    @server.prompt()
    def greet(name: str) -> str:
        return f"Hello {name}"

    async with MCPClient.connect_inprocess(server) as client:
        assert [tool.name for tool in await client.tools()] == ["add", "fail"]
        assert [resource.uri for resource in await client.resources()] == ["memo://a"]
        assert await client.templates() == []
        assert [prompt.name for prompt in await client.prompts()] == ["greet"]
        called = await client.call("add", {"a": 1, "b": 2})
        assert (called.text, called.is_error, called.error) == ("3", False, None)
        failed = await client.call("fail")
        assert failed.is_error
        assert failed.error is not None
        assert failed.error.code == "NOT_FOUND"
        (contents,) = await client.read("memo://a")
        assert contents.text == "text"
        assert (await client.prompt("greet", {"name": "Ada"})).messages == [
            Message("user", TextContent(text="Hello Ada"))
        ]
        await client.request_typed("tools/list", None, CacheableResult)
        assert client.skipped == []


ODD = """
CAPABILITIES["completions"] = {}
for request in requests():
    method, params = request["method"], request.get("params", {})
    if method == "tools/list":
        cursor = int(params.get("cursor", 0))
        tools = [{"name": "t%d" % cursor, "inputSchema": {}, "title": None}, {"no": "name"}]
        answer(request, {"tools": tools, **({"nextCursor": str(cursor + 1)} if cursor < 2 else {})})
    elif method == "prompts/list":
        answer(request, {"prompts": "none"})
    elif method == "tools/call":
        answer(request, {"content": [{"type": "hologram", "x": 1}, *text("a"), *text("b")],
                         "structuredContent": {"y": 1}})
    elif method == "resources/read":
        answer(request, {"contents": [{"uri": "memo://a", "text": "t"}, {"text": 5}]})
    elif method == "prompts/get":
        answer(request, {"description": "d", "messages": [
            {"role": "user", "content": {"type": "hologram"}}, "nonsense"]})
    elif method == "completion/complete":
        answer(request, {"completion": {"values": [json.dumps(params["context"])]}})
    elif method == "resources/list":
        answer(request, [])
"""


@pytest.mark.covers("PRO-34", "PRO-35")
async def test_invalid_items_are_skipped_and_unknown_content_blocks_are_kept(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, ODD, stateless=False)
    async with MCPClient.connect_stdio(command, LATEST) as client:
        pages = [[tool.name for tool in page] async for page in client.tool_pages()]
        assert pages == [["t0"], ["t1"], ["t2"]]
        assert await client.prompts() == []
        called = await client.call("t")
        first = called.content[0]
        assert isinstance(first, UnknownContent)
        assert (first.type, first.sent_type) == ("unknown", "hologram")
        assert (called.text, called.structured) == ("a\nb", {"y": 1})
        assert await client.read("memo://a") == [ResourceContents(uri="memo://a", text="t")]
        prompted = await client.prompt("p")
        assert isinstance(prompted, Prompted)
        assert [type(message.content) for message in prompted.messages] == [UnknownContent]
        found = await client.complete("prompt", "p", "city", "Pa", filled={"country": "fr"})
        assert found == Completion(values=['{"arguments": {"country": "fr"}}'])
        await client.complete("resource", "memo://{x}", "x", filled={"a": "b"})
        assert len(client.skipped) == 6
        with pytest.raises(RemoteProtocolError, match="resources/list is malformed"):
            await client.request_typed("resources/list", None, CacheableResult)
    refs = [m["params"]["ref"] for m in heard(tmp_path, "completion/complete")]
    assert refs == [
        {"type": "ref/prompt", "name": "p"},
        {"type": "ref/resource", "uri": "memo://{x}"},
    ]


async def test_lists_without_a_capability_are_empty_and_not_requested(tmp_path: Path) -> None:
    command = program(tmp_path, "CAPABILITIES = {}\nfor _ in requests(): pass", stateless=False)
    async with MCPClient.connect_stdio(command, LATEST) as client:
        assert await client.tools() == []
        assert await client.resources() == []
        assert await client.templates() == []
        assert await client.prompts() == []
        assert (await client.complete("prompt", "p", "x")).values == []
        await client.ping()
    methods = [message["method"] for message in heard(tmp_path)]
    assert methods == ["initialize", "notifications/initialized", "ping"]


LYING = """
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
for request in requests():
    if request["method"] == "tools/list":
        remote = {"$ref": "https://example.com/schema.json"}
        local = {"$ref": "file:///etc/passwd"}
        answer(request, {"tools": [{"name": name, "inputSchema": {}, "outputSchema": schema}
            for name, schema in (("good", SCHEMA), ("bad", SCHEMA), ("none", SCHEMA),
                                 ("failed", SCHEMA), ("remote", remote), ("local", local))]})
    elif request["method"] == "tools/call":
        name = request["params"]["name"]
        if name == "changed":
            tell("notifications/tools/list_changed", {})
        value = {} if name in ("none", "failed") else {
            "structuredContent": {"n": "x" if name == "bad" else 1}}
        answer(request, {"content": [], "isError": name == "failed", **value})
"""


async def test_structured_content_is_checked_against_the_listed_schema(tmp_path: Path) -> None:
    command = program(tmp_path, LYING, stateless=False)
    async with MCPClient.connect_stdio(command, LATEST) as client:
        await client.call_tool("bad")  # the schema is not known yet
        for listing in (client.list_tools, client.tools):
            await listing()
            assert (await client.call("good")).structured == {"n": 1}
            with pytest.raises(
                OutputMismatch, match=r'"x" is not of type "integer" \(at /n\)'
            ) as e:
                await client.call("bad")
            assert e.value.result["structuredContent"] == {"n": "x"}
            with pytest.raises(OutputMismatch, match="no structuredContent"):
                await client.call("none")
            assert (await client.call("failed")).is_error
            for tool in ("remote", "local"):
                with pytest.raises(
                    OutputMismatch, match="the schema cannot be used: .* are not followed"
                ):
                    await client.call(tool)
        await client.call_tool("changed")
        await client.call("bad")  # the list and its schemas have expired
        await client.tools()
        client.config.validate_output = False
        assert (await client.call("bad")).structured == {"n": "x"}


def test_only_hints_with_the_value_true_make_a_tool_safe_to_repeat() -> None:
    known = ToolHints()
    known.learn(
        [
            {"name": "a", "annotations": {"readOnlyHint": True}},
            {"name": "b", "annotations": {"readOnlyHint": "yes"}},
            {"name": "c", "annotations": None, "outputSchema": "no"},
        ]
    )
    assert [known.harmless(name) for name in ("a", "b", "c", None)] == [True, False, False, False]
    assert known.schemas == {}
    known.forget()
    assert not known.harmless("a")


@pytest.mark.covers("CLT-07")
async def test_wrong_arguments_of_calls_are_rejected_before_a_request_is_sent() -> None:
    class AnyUrl:
        def __repr__(self) -> str:
            return "AnyUrl('memo://a')"

    wrong: Any = AnyUrl()
    async with MCPClient.connect_inprocess(MCPServer("s")) as client:
        for call, kind, reason in (
            (client.call_tool("add", wrong), TypeError, "arguments must be a dict, not AnyUrl"),
            (client.call_tool(wrong), TypeError, "name must be a string, not AnyUrl"),
            (client.call_tool("add", {}, wrong), TypeError, "timeout must be a number of seconds"),
            (client.call("add", wrong), TypeError, "arguments must be a dict, not AnyUrl"),
            (client.get_prompt(wrong), TypeError, "name must be a string, not AnyUrl"),
            (client.read_resource(wrong), TypeError, "uri must be a string, not AnyUrl"),
            (client.read(wrong), TypeError, "uri must be a string, not AnyUrl"),
            (client.subscribe(wrong), TypeError, "uri must be a string, not AnyUrl"),
            (client.set_log_level("loud"), ValueError, "unknown log level 'loud': expected one of"),
        ):
            with pytest.raises(kind, match=f"^{reason}"):
                await call
