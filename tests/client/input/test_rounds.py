"""Tests of requests for which a stateless server requires input."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import Question, decline
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.input.answers import InputCallbacks, accept
from fairlead.client.input.rounds import ClientInputRounds, is_input_required
from fairlead.errors import InputNotGiven, RemoteProtocolError, RequestTimeout
from tests.support.scripted_stdio_server import heard, program
from tests.support.virtual_time import VirtualTime


def raw(**members: Any) -> Raw:
    return Raw(json.dumps(members).encode())


def question(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    params = {"message": message, "requestedSchema": schema, "mode": "form"}
    return {"method": "elicitation/create", "params": params}


DONE = raw(resultType="complete", content=[])
LATER = raw(resultType="input_required", requestState="s1")


class Server:
    """A server that answers each request with the next result and keeps the params."""

    def __init__(self, *results: Raw) -> None:
        self.results = list(results)
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, params: dict[str, Any]) -> Raw:
        self.asked.append(params)
        return self.results.pop(0)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (b'{"resultType":"input_required"}', True),
        (b'{"resultType":"complete"}', False),
        (b"{}", False),
        (b"[]", False),
        (b'{"resultType":1}', False),
    ],
)
def test_only_an_input_required_result_starts_another_round(result: bytes, expected: bool) -> None:
    assert is_input_required(Raw(result)) is expected


async def test_input_responses_are_sent_with_the_original_params_and_state() -> None:
    seen: list[str] = []

    def on_elicit(asked: Any) -> Any:
        seen.append(asked.message)
        return accept({"name": asked.message})

    first = raw(
        resultType="input_required",
        inputRequests={"a": question("A"), "b": question("B")},
        requestState="s0",
    )
    server = Server(LATER, DONE)
    rounds = ClientInputRounds(InputCallbacks(on_elicit=on_elicit))
    assert await rounds.finish("tools/call", {"name": "t"}, first, server) == DONE
    assert sorted(seen) == ["A", "B"]
    given = {key.lower(): {"action": "accept", "content": {"name": key}} for key in ("A", "B")}
    assert server.asked == [
        {"name": "t", "inputResponses": given, "requestState": "s0"},
        {"name": "t", "requestState": "s1"},
    ]


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_server_may_request_input_up_to_the_limit_of_rounds(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("fairlead.client.input.rounds.FIRST_PAUSE", 0.0)
    rounds = ClientInputRounds(InputCallbacks(), limit=limit)
    server = Server(*[LATER] * (limit - 1), DONE)
    assert await rounds.finish("tools/call", {}, LATER, server) == DONE
    with pytest.raises(RemoteProtocolError, match=f"still requests input after {limit} rounds"):
        await rounds.finish("tools/call", {}, LATER, Server(*[LATER] * limit))


async def test_pauses_between_retries_double_up_to_the_maximum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.client.input.rounds.LONGEST_PAUSE", 0.2)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("fairlead.client.input.rounds.asyncio.sleep", sleep)
    await ClientInputRounds(InputCallbacks()).finish("m", {}, LATER, Server(*[LATER] * 4, DONE))
    assert pauses == [0.05, 0.1, 0.2, 0.2, 0.2]


async def test_the_error_for_an_input_request_without_a_callback_names_the_capability() -> None:
    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    server = Server(DONE)
    with pytest.raises(InputNotGiven, match="'elicitation'") as missing:
        await ClientInputRounds(InputCallbacks()).finish("tools/call", {}, first, server)
    assert (missing.value.method, missing.value.capability) == ("elicitation/create", "elicitation")
    assert server.asked == []


async def test_the_error_of_an_input_round_names_the_failing_callback() -> None:
    def on_elicit(asked: Any) -> Any:
        raise ValueError("no screen")

    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    with pytest.raises(InputNotGiven, match="elicitation/create was not answered: no screen"):
        await ClientInputRounds(InputCallbacks(on_elicit=on_elicit)).finish(
            "tools/call", {}, first, Server()
        )


async def test_a_failing_callback_cancels_the_other_callbacks_of_the_round() -> None:
    cancelled = asyncio.Event()

    async def on_elicit(asked: Any) -> Any:
        if asked.message == "fails":
            raise ValueError("no")
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    questions = {"a": question("waits"), "b": question("fails")}
    first = raw(resultType="input_required", inputRequests=questions)
    async with asyncio.timeout(5):
        with pytest.raises(InputNotGiven):
            await ClientInputRounds(InputCallbacks(on_elicit=on_elicit)).finish(
                "tools/call", {}, first, Server()
            )
    assert cancelled.is_set()


async def test_the_wait_for_user_input_has_its_own_time_limit() -> None:
    async def on_elicit(asked: Any) -> Any:
        await asyncio.Event().wait()

    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    rounds = ClientInputRounds(InputCallbacks(on_elicit=on_elicit), input_timeout=0.01)
    with pytest.raises(RequestTimeout, match="tools/call, waiting for input"):
        await rounds.finish("tools/call", {}, first, Server())


async def test_the_time_limit_of_a_call_excludes_the_wait_for_user_input() -> None:
    async def on_elicit(asked: Any) -> Any:
        await asyncio.sleep(0.03)
        return accept({})

    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    rounds = ClientInputRounds(InputCallbacks(on_elicit=on_elicit), max_total=0.02)
    assert await rounds.finish("tools/call", {}, first, Server(DONE)) == DONE
    with pytest.raises(RequestTimeout):  # the delay before a retry is longer than the time limit
        await rounds.finish("tools/call", {}, LATER, Server(DONE))
    unlimited = ClientInputRounds(InputCallbacks(), max_total=0)
    assert await unlimited.finish("tools/call", {}, LATER, Server(DONE)) == DONE


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (raw(resultType="input_required"), "neither inputRequests nor requestState"),
        (raw(resultType="input_required", inputRequests=[1]), "request for input is malformed"),
        (
            raw(resultType="input_required", inputRequests={"a": 1}),
            "input request of m is malformed",
        ),
    ],
)
async def test_a_malformed_request_for_input_is_an_error(first: Raw, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        await ClientInputRounds(InputCallbacks()).finish("m", {}, first, Server(DONE))


# Input rounds with a stateless server written without a library


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
async def test_input_requests_are_answered_and_the_request_is_sent_again(tmp_path: Path) -> None:
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
    # Results of input rounds are never cached, even with a time to live.
    assert len(heard(tmp_path, "resources/read")) == 4


@pytest.mark.covers("PRO-24")
async def test_a_result_with_only_a_state_is_retried_and_a_missing_state_is_not_sent(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    async with MCPClient.connect_stdio(command, **CALLBACKS) as client:
        assert (await client.call("busy")).text == "3"
        assert (await client.call("stateless")).text == "False"
    assert all("inputResponses" not in m["params"] for m in heard(tmp_path, "tools/call")[:4])


@pytest.mark.covers("PRO-24")
async def test_a_call_ends_if_requested_input_cannot_be_provided(tmp_path: Path) -> None:
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
        client.on_elicit = ask_user  # this client does not support URL elicitation
        with pytest.raises(InputNotGiven, match=r"elicitation\.url"):
            await client.call_tool("page")
        with pytest.raises(RemoteProtocolError, match="neither inputRequests nor requestState"):
            await client.call_tool("nothing")
    # No request was repeated; later requests declare the added callbacks.
    calls = heard(tmp_path, "tools/call")
    assert [m["params"]["name"] for m in calls] == ["ask", "ask", "model", "page", "nothing"]
    declared = calls[-1]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    assert declared == {"elicitation": {"form": {}}, "sampling": {}}


async def test_the_number_of_rounds_and_time_for_input_are_limited(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    config = MCPClientConfig(max_rounds=3, input_timeout=0.2)
    async with MCPClient.connect_stdio(command, config, on_elicit=lambda q: decline()) as client:
        with pytest.raises(RemoteProtocolError, match="still requests input after 3 rounds"):
            await client.call_tool("forever")
        assert len(heard(tmp_path, "tools/call")) == 4

        async def absent(question: Question) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        client.on_elicit = absent
        with pytest.raises(RequestTimeout, match="waiting for input"):
            await client.call_tool("forever")


@pytest.mark.covers("PRO-37")
async def test_user_input_may_take_longer_than_the_timeout_of_a_request(tmp_path: Path) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)

    async def slow(question: Question) -> dict[str, Any]:
        await asyncio.sleep(0.4)
        return accept({"name": "Ada"})

    async with MCPClient.connect_stdio(command, **{**CALLBACKS, "on_elicit": slow}) as client:
        assert "Ada" in (await client.call("ask", timeout=0.3)).text


async def test_cancelling_the_caller_cancels_the_callbacks(tmp_path: Path) -> None:
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


async def test_the_response_envelope_has_the_request_id_of_the_last_round(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, CURIOUS, stateless=True)
    async with MCPClient.connect_stdio(command, **CALLBACKS) as client:
        envelope = await client.call_tool("ask", errors="envelope")
    assert envelope["id"] == heard(tmp_path, "tools/call")[1]["id"]
    assert envelope["result"]["resultType"] == "complete"


async def test_a_requested_retry_waits_up_to_two_seconds(
    virtual_time: VirtualTime,
) -> None:
    times = [virtual_time.now]

    async def ask(params: dict[str, Any]) -> Raw:
        times.append(virtual_time.now)
        return LATER if len(times) < 10 else DONE

    await ClientInputRounds(InputCallbacks()).finish("tools/call", {}, LATER, ask)
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0])


async def test_by_default_a_server_may_request_input_twenty_times() -> None:
    question_of_server = raw(resultType="input_required", inputRequests={})
    server = Server(*[question_of_server] * 19, DONE)
    rounds = ClientInputRounds(InputCallbacks())
    assert await rounds.finish("tools/call", {}, question_of_server, server) == DONE
    endless = Server(*[question_of_server] * 30)
    with pytest.raises(RemoteProtocolError, match="still requests input after 20 rounds"):
        await rounds.finish("tools/call", {}, question_of_server, endless)
    assert len(endless.asked) == 20


@pytest.mark.parametrize(("seconds", "late"), [(599, False), (601, True)])
async def test_a_call_may_take_ten_minutes_in_addition_to_waits_for_input(
    virtual_time: VirtualTime, seconds: float, late: bool
) -> None:
    async def ask(params: dict[str, Any]) -> Raw:
        virtual_time.now += seconds
        return LATER if not seen else DONE

    seen: list[str] = []

    async def slow(params: dict[str, Any]) -> Raw:
        answer = await ask(params)
        seen.append("once")
        return answer

    finishing = ClientInputRounds(InputCallbacks()).finish("tools/call", {}, LATER, slow)
    if late:
        with pytest.raises(RequestTimeout, match="600000ms"):
            await finishing
    else:
        assert await finishing == DONE
