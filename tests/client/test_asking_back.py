"""A stateless server asks back inside its results: rounds, against a program written by hand."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from handmade import heard, program

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import InputNotGiven, Question, accept, decline
from fairlead.client.eras import known_eras
from fairlead.errors import RemoteProtocolError, RequestTimeout

STATE = 'opaque "ünïcode" \\ \u2028 state'

CURIOUS = (
    f"STATE = {STATE!r}"
    + """
FORM = {"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": {
    "type": "object", "properties": {"name": {"type": "string"}}}}}
PAGE = {"method": "elicitation/create", "params": {"mode": "url", "message": "Log in",
                                                  "url": "https://example.com/login"}}
MODEL = {"method": "sampling/createMessage", "params": {"maxTokens": 5, "messages": []}}
ROOTS = {"method": "roots/list"}

def ask(request, state=STATE, **questions):
    result = {"resultType": "input_required"}
    if questions:
        result["inputRequests"] = questions
    if state is not None:
        result["requestState"] = state
    answer(request, result)

tries = 0
for request in requests():
    params = request.get("params", {})
    answers = params.get("inputResponses")
    name = params.get("name", params.get("uri"))
    if request["method"] == "notifications/cancelled":
        continue
    if name == "forever":
        ask(request, who=FORM)
    elif name == "busy":
        tries += 1
        if tries < 4:
            ask(request, state=str(tries))
        else:
            complete(request, content=text(params["requestState"]))
    elif name == "nothing":
        answer(request, {"resultType": "input_required"})
    elif name == "stateless":
        if answers is None:
            ask(request, state=None, who=FORM)
        else:
            complete(request, content=text(str("requestState" in params)))
    elif name == "page":
        ask(request, page=PAGE)
    elif name == "model":
        ask(request, model=MODEL)
    elif answers is None:
        ask(request, who=FORM, model=MODEL, roots=ROOTS)
    else:
        body = json.dumps(answers, sort_keys=True)
        if request["method"] == "tools/call":
            complete(request, content=text(body))
        elif request["method"] == "prompts/get":
            complete(request, messages=[{"role": "user", "content": text(body)[0]}])
        else:
            complete(request, contents=[{"uri": name, "text": body}], ttlMs=60000,
                     cacheScope="public")
"""
)


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


def ask_user(question: Question) -> dict[str, Any]:
    assert question.message == "Who?"
    return accept({"name": "Ada"})


CALLBACKS: dict[str, Any] = {
    "on_elicit": ask_user,
    "on_sample": lambda params: "hm",
    "on_roots": lambda: ["file:///a", {"uri": "file:///b", "name": "b"}],
}


@pytest.mark.covers("PRO-24", "CLT-09")
async def test_questions_are_answered_and_the_request_is_sent_again(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    async with MCPClient.connect_stdio(command, **CALLBACKS) as client:
        result = await client.call_tool("ask", {"x": 1})
        await client.get_prompt("ask")
        await client.read_resource("memo://ask")
        await client.read_resource("memo://ask")
    first, second = heard(tmp_path, "tools/call")
    assert second["id"] != first["id"]
    again = second["params"]
    assert again.pop("requestState") == STATE
    assert again.pop("inputResponses") == {
        "who": {"action": "accept", "content": {"name": "Ada"}},
        "model": {
            "role": "assistant",
            "content": {"type": "text", "text": "hm"},
            "model": "unknown",
            "stopReason": "endTurn",
        },
        "roots": {"roots": [{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]},
    }
    for request in (first, second):
        meta = request["params"].pop("_meta")
        assert meta["io.modelcontextprotocol/clientCapabilities"] == {
            "elicitation": {"form": {}},
            "sampling": {},
            "roots": {"listChanged": True},
        }
    assert again == first["params"] == {"name": "ask", "arguments": {"x": 1}}
    assert "Ada" in result["content"][0]["text"]
    assert len(heard(tmp_path, "prompts/get")) == 2
    # The result of a round is never kept, whatever it says about itself.
    assert len(heard(tmp_path, "resources/read")) == 4


@pytest.mark.covers("PRO-24")
async def test_state_alone_means_try_again_and_no_state_is_none(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    async with MCPClient.connect_stdio(command, **CALLBACKS) as client:
        assert (await client.call("busy")).text == "3"
        assert (await client.call("stateless")).text == "False"
    assert all("inputResponses" not in m["params"] for m in heard(tmp_path, "tools/call")[:4])


@pytest.mark.covers("PRO-24")
async def test_a_question_that_cannot_be_answered_ends_it(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    async with MCPClient.connect_stdio(command) as client:
        with pytest.raises(InputNotGiven, match="does not offer the capability 'elicitation'"):
            await client.call_tool("ask")
        result = await client.call_tool("ask", rounds=False)
        assert result["resultType"] == "input_required"
        assert result["requestState"] == STATE

        def refuse(params: dict[str, Any]) -> str:
            raise RpcError(-1, "User rejected sampling")

        client.on_sample = refuse
        with pytest.raises(InputNotGiven, match="User rejected sampling") as caught:
            await client.call_tool("model")
        assert caught.value.method == "sampling/createMessage"
        client.on_elicit = ask_user  # knows no pages
        with pytest.raises(InputNotGiven, match=r"elicitation\.url"):
            await client.call_tool("page")
        with pytest.raises(RemoteProtocolError, match="neither inputRequests nor requestState"):
            await client.call_tool("nothing")
    # None of them was sent a second time; later requests declare what was added.
    calls = heard(tmp_path, "tools/call")
    assert [m["params"]["name"] for m in calls] == ["ask", "ask", "model", "page", "nothing"]
    declared = calls[-1]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert declared == {"elicitation": {"form": {}}, "sampling": {}}


async def test_rounds_and_waiting_have_an_end(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    config = MCPClientConfig(max_rounds=3, input_timeout=0.2)
    async with MCPClient.connect_stdio(command, config, on_elicit=lambda q: decline()) as client:
        with pytest.raises(RemoteProtocolError, match="still asks back after 3 rounds"):
            await client.call_tool("forever")
        assert len(heard(tmp_path, "tools/call")) == 4

        async def absent(question: Question) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        client.on_elicit = absent
        with pytest.raises(RequestTimeout, match="waiting for input"):
            await client.call_tool("forever")


@pytest.mark.covers("PRO-37")
async def test_a_person_may_take_longer_than_the_request_may(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)

    async def slow(question: Question) -> dict[str, Any]:
        await asyncio.sleep(0.4)
        return accept({"name": "Ada"})

    async with MCPClient.connect_stdio(command, **{**CALLBACKS, "on_elicit": slow}) as client:
        assert "Ada" in (await client.call("ask", timeout=0.3)).text


async def test_cancelling_the_caller_cancels_the_questions(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def absent(question: Question) -> dict[str, Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    async with MCPClient.connect_stdio(command, on_elicit=absent) as client:
        call = asyncio.ensure_future(client.call_tool("forever"))
        await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert stopped.is_set()
    assert len(heard(tmp_path, "tools/call")) == 1


async def test_an_envelope_carries_the_id_of_the_last_round(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    async with MCPClient.connect_stdio(command, **CALLBACKS) as client:
        envelope = await client.call_tool("ask", errors="envelope")
    assert envelope["id"] == heard(tmp_path, "tools/call")[1]["id"]
    assert envelope["result"]["resultType"] == "complete"
