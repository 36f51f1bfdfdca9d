"""Tests of the input callbacks of a client, with Fairlead and official SDK servers."""

import asyncio
import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import Question, accept, cancel, decline
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.input.answers import InputCallbacks
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


ASKING = """
waiting = {}
for message in requests():
    if "method" not in message:
        reply = message.get("result", message.get("error"))
        complete(waiting.pop(message["id"]), content=text(json.dumps(reply)))
    elif message["method"] == "tools/call":
        waiting[100 + message["id"]] = message
        send({"jsonrpc": "2.0", "id": 100 + message["id"], **message["params"]["arguments"]})
"""

FORM = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {}}}
PAGE = {
    "method": "elicitation/create",
    "params": {"message": "Go", "mode": "url", "url": "https://a.example/", "elicitationId": "e"},
}
MODEL = {"method": "sampling/createMessage", "params": {"maxTokens": 1, "messages": []}}
ROOTS = {"method": "roots/list"}


async def ask(client: MCPClient, question: dict[str, Any]) -> Any:
    return json.loads((await client.call("ask", question)).text)


@pytest.mark.covers("PRO-30", "CLT-09")
async def test_requests_from_a_handshake_server_are_answered_by_callbacks(tmp_path: Path) -> None:
    seen: list[Question] = []

    async def on_elicit(question: Question) -> dict[str, Any]:
        seen.append(question)
        return accept({"name": "Ada"}) if question.mode == "form" else accept()

    async with MCPClient.connect_stdio(
        program(tmp_path, ASKING, stateless=False),
        on_elicit=on_elicit,
        elicit_url=True,
        on_sample=lambda params: {"role": "assistant", "content": [], "model": "m"},
        on_roots=lambda: [tmp_path],
    ) as client:
        assert await ask(client, FORM) == {"action": "accept", "content": {"name": "Ada"}}
        assert await ask(client, PAGE) == {"action": "accept"}
        assert await ask(client, MODEL) == {"role": "assistant", "content": [], "model": "m"}
        uri = tmp_path.as_uri()
        assert await ask(client, ROOTS) == {"roots": [{"uri": uri, "name": tmp_path.name}]}
        client.on_elicit = lambda question: cancel()
        assert await ask(client, FORM) == {"action": "cancel"}
        await client.roots_changed()
        await client.ping()
    assert seen == [
        Question(message="Who?", schema={}),
        Question(message="Go", mode="url", url="https://a.example/", elicitation_id="e"),
    ]
    (initialize,) = heard(tmp_path, "initialize")
    assert initialize["params"]["capabilities"] == {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {"listChanged": True},
    }
    assert len(heard(tmp_path, "notifications/roots/list_changed")) == 1


@pytest.mark.covers("PRO-30")
async def test_a_request_without_a_callback_is_answered_with_an_error(tmp_path: Path) -> None:
    async with MCPClient.connect_stdio(program(tmp_path, ASKING, stateless=False)) as client:
        for question in (FORM, MODEL, ROOTS):
            assert (await ask(client, question))["code"] == -32601
        client.on_elicit = lambda question: decline()
        assert (await ask(client, PAGE))["code"] == -32602  # the client did not declare this mode
        client.on_sample = lambda params: "text"
        with_tools = {**MODEL, "params": {**MODEL["params"], "tools": []}}  # type: ignore[dict-item]
        assert (await ask(client, with_tools))["code"] == -32602
        client.on_elicit = lambda question: {"name": "Ada"}
        answer = await ask(client, FORM)
        assert "accept(content), decline() or cancel()" in answer["message"]
    assert heard(tmp_path, "initialize")[0]["params"]["capabilities"] == {}


@pytest.mark.covers("PRO-37")
async def test_a_call_waits_for_the_user_beyond_its_own_timeout(tmp_path: Path) -> None:
    async def slow(question: Question) -> dict[str, Any]:
        await asyncio.sleep(0.5)
        return decline()

    command = program(tmp_path, ASKING, stateless=False)
    config = MCPClientConfig(input_timeout=0.7)
    async with MCPClient.connect_stdio(command, config, on_elicit=slow) as client:
        result = await client.call("ask", FORM, timeout=0.3)
        assert "decline" in result.text

        async def absent(question: Question) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        client.on_elicit = absent
        answer = await ask(client, FORM)
        assert answer["message"] == "elicitation/create was not answered in time"


OFFICIAL = """
from typing import Annotated
from pydantic import BaseModel
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve

server = MCPServer("curious", log_level="CRITICAL")

class Who(BaseModel):
    name: str

@server.tool()
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Who)
    return f"{answer.action} {answer.data.name if answer.action == 'accept' else ''}"

def who(ctx: Context) -> Elicit[Who]:
    return Elicit("Who are you?", Who)

@server.tool()
async def welcome(user: Annotated[Who, Resolve(who)]) -> str:
    return f"Welcome, {user.name}"

server.run()
"""


@pytest.mark.covers("PRO-24", "PRO-30")
async def test_a_server_of_the_official_sdk_can_request_input_in_both_eras(tmp_path: Path) -> None:
    file = tmp_path / "official.py"
    file.write_text(textwrap.dedent(OFFICIAL))
    command = [sys.executable, str(file)]
    asked: list[Question] = []

    def on_elicit(question: Question) -> dict[str, Any]:
        asked.append(question)
        return accept({"name": "Ada"})

    handshake = MCPClientConfig(protocol_version="latest")
    async with MCPClient.connect_stdio(command, handshake, on_elicit=on_elicit) as client:
        assert client.protocol_version == "2025-11-25"
        assert (await client.call("greet")).text == "accept Ada"
        assert (await client.call("welcome")).text == "Welcome, Ada"
    async with MCPClient.connect_stdio(command, on_elicit=on_elicit) as client:
        assert client.protocol_version == "2026-07-28"
        assert (await client.call("welcome")).text == "Welcome, Ada"
    assert len(asked) == 3
    assert {question.message for question in asked} == {"Who are you?"}
    assert asked[0].schema is not None
    assert asked[0].schema["required"] == ["name"]


async def test_malformed_and_unsupported_requests_for_input_are_refused() -> None:
    answers = InputCallbacks(on_elicit=lambda question: decline())
    with pytest.raises(RpcError, match="Invalid elicitation request"):
        await answers.answer("elicitation/create", {"message": 5})
    with pytest.raises(RpcError, match="not found"):
        await answers.answer("tools/list", {})
    assert answers.missing("elicitation/create") is None
    assert answers.missing("roots/list") == "roots"
    answers = InputCallbacks(on_sample=lambda params: 5)  # type: ignore[arg-type, return-value]
    with pytest.raises(RpcError, match="a string or a CreateMessageResult"):
        await answers.answer("sampling/createMessage", {})


def test_default_answers_to_a_form_are_read_from_its_schema() -> None:
    fields = {
        "name": {"type": "string", "default": "Ada"},
        "happy": {"type": "boolean", "default": False},
        "age": {"type": "integer"},
        "odd": True,
    }
    question = Question(message="Who?", schema={"type": "object", "properties": fields})
    assert question.defaults == {"name": "Ada", "happy": False}
    assert Question(message="Go", mode="url", url="https://a.example/").defaults == {}
    assert Question(message="Who?", schema={"properties": []}).defaults == {}


@pytest.mark.parametrize(
    ("mode", "said", "given"),
    [
        ("form", accept({"a": 1}), {"action": "accept", "content": {"a": 1}}),
        ("form", accept(), {"action": "accept", "content": {}}),
        ("url", accept(), {"action": "accept"}),
        ("form", decline(), {"action": "decline"}),
        ("form", {**decline(), "content": {"a": 1}}, {"action": "decline"}),
        ("form", cancel(), {"action": "cancel"}),
    ],
)
async def test_only_an_accepted_elicitation_has_content(
    mode: str, said: Any, given: dict[str, Any]
) -> None:
    answers = InputCallbacks(on_elicit=lambda question: said, elicit_url=True)
    params = {"message": "Who?", "mode": mode, "url": "https://a.example/"}
    assert await answers.answer("elicitation/create", params) == given


@pytest.mark.parametrize(
    ("said", "code", "why"),
    [
        (None, -32603, "on_elicit must return accept(content), decline() or cancel()"),
        (
            {"action": "maybe"},
            -32603,
            "on_elicit must return accept(content), decline() or cancel()",
        ),
        (accept(5), -32603, "on_elicit must pass accept() a dict with a value for each field"),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_return_value_of_a_callback_is_an_internal_error(
    said: Any, code: int, why: str
) -> None:
    answers = InputCallbacks(on_elicit=lambda question: said)
    with pytest.raises(RpcError) as refused:
        await answers.answer("elicitation/create", {"message": "Who?"})
    assert (refused.value.code, refused.value.message) == (code, why)


@pytest.mark.parametrize(
    ("settings", "method", "params", "why"),
    [
        (
            {},
            "elicitation/create",
            {"message": "Go", "mode": "url"},
            "This client does not open pages (elicitation.url)",
        ),
        (
            {},
            "sampling/createMessage",
            {"tools": []},
            "not support tools in sampling (sampling.tools)",
        ),
        (
            {},
            "sampling/createMessage",
            {"toolChoice": {}},
            "not support tools in sampling (sampling.tools)",
        ),
        ({"elicit_url": True}, "elicitation/create", {"message": "Go", "mode": "url"}, None),
        ({"sample_tools": True}, "sampling/createMessage", {"tools": []}, None),
        ({}, "sampling/createMessage", {}, None),
    ],
)
async def test_input_requests_for_undeclared_features_are_refused(
    settings: dict[str, bool], method: str, params: dict[str, Any], why: str | None
) -> None:
    answers = InputCallbacks(
        on_elicit=lambda question: decline(), on_sample=lambda params: "said", **settings
    )
    if why is None:
        assert await answers.answer(method, params)
        return
    with pytest.raises(RpcError) as refused:
        await answers.answer(method, params)
    assert refused.value.code == -32602
    assert refused.value.message.endswith(why)


async def test_text_returned_by_the_sampling_callback_becomes_a_message() -> None:
    assert await InputCallbacks(on_sample=lambda params: "hi").answer(
        "sampling/createMessage", {}
    ) == {
        "role": "assistant",
        "content": {"type": "text", "text": "hi"},
        "model": "unknown",
        "stopReason": "endTurn",
    }


@pytest.mark.parametrize(
    ("given", "roots"),
    [
        ([], []),
        (["/a/b"], [{"uri": "file:///a/b", "name": "b"}]),
        ([Path("/a")], [{"uri": "file:///a", "name": "a"}]),
        (["/"], [{"uri": "file:///", "name": "/"}]),
        (["https://x/y"], [{"uri": "https://x/y"}]),
        ([{"uri": "file:///a", "name": "n"}], [{"uri": "file:///a", "name": "n"}]),
    ],
)
async def test_paths_returned_by_the_roots_callback_become_file_uris(
    given: list[Any], roots: list[dict[str, str]]
) -> None:
    answers = InputCallbacks(on_roots=lambda: given)
    assert await answers.answer("roots/list", {}) == {"roots": roots}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("/a", "on_roots must return a list of paths, URIs or roots"),
        (5, "on_roots must return a list of paths, URIs or roots"),
        ({"uri": "x"}, "on_roots must return a list of paths, URIs or roots"),
        ([5], "on_roots returned 5, expected a path, URI or root"),
    ],
)
async def test_invalid_roots_returned_by_a_callback_are_refused(given: Any, why: str) -> None:
    with pytest.raises(RpcError) as refused:
        await InputCallbacks(on_roots=lambda: given).answer("roots/list", {})
    assert (refused.value.code, refused.value.message) == (-32603, why)


@pytest.mark.parametrize(
    ("settings", "declared"),
    [
        ({}, {"elicitation": {"form": {}}, "sampling": {}, "roots": {"listChanged": True}}),
        (
            {"elicit_url": True, "sample_tools": True},
            {
                "elicitation": {"form": {}, "url": {}},
                "sampling": {"tools": {}},
                "roots": {"listChanged": True},
            },
        ),
    ],
)
def test_the_client_declares_the_capabilities_of_its_callbacks(
    settings: dict[str, bool], declared: dict[str, Any]
) -> None:
    answers = InputCallbacks(
        on_elicit=lambda question: decline(),
        on_sample=lambda params: "",
        on_roots=list,
        **settings,
    )
    assert answers.capabilities == declared
    assert InputCallbacks(**settings).capabilities == {}
    for method in ("elicitation/create", "sampling/createMessage", "roots/list"):
        assert answers.missing(method) is None
    assert answers.missing("x") == "x"
