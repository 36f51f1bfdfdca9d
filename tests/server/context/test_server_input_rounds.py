"""Tests of handlers that request input from the client, in both eras."""

import asyncio
import base64
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest

from fairlead import Context, MCPServer
from fairlead.errors import CannotAsk, RpcError
from fairlead.limits import STATE_BYTES
from fairlead.protocol.caller import ANONYMOUS
from fairlead.protocol.sealed_state import BadSeal, KeyRing
from fairlead.server.context.elicitation_forms import ElicitationForm
from fairlead.server.context.server_input_rounds import ServerInputRounds, canonical, digest
from fairlead.transport.memory import memory_pair
from tests.support.single_exchange import exchange

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


class Line:
    """Client side of a connection, controlled by a test."""

    def __init__(self, server: MCPServer) -> None:
        self.channel, right = memory_pair()
        self.peer = server.attach(right, ANONYMOUS)
        self.got: asyncio.Queue[Any] = asyncio.Queue()
        self.reading = asyncio.create_task(self.channel.run(self.got.put_nowait))
        self.ids = iter(range(1, 1000))

    def send(self, message: dict[str, Any]) -> None:
        self.channel.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def next(self) -> Any:
        async with asyncio.timeout(5):
            return await self.got.get()

    async def call(
        self, name: str, arguments: Any = None, *, capabilities: Any = ALL, **more: Any
    ) -> dict[str, Any]:
        """Send a stateless call and return its result, or its error as the member "error"."""
        meta = {VERSION: "2026-07-28", CAPABILITIES: capabilities}
        params = {"name": name, "arguments": arguments or {}, "_meta": meta, **more}
        self.send({"id": next(self.ids), "method": "tools/call", "params": params})
        answer = await self.next()
        if hasattr(answer, "result"):
            return json.loads(bytes(answer.result))  # type: ignore[no-any-return]
        return {"error": json.loads(bytes(answer.error))}


@contextlib.asynccontextmanager
async def line_to(server: MCPServer) -> AsyncIterator[Line]:
    line = Line(server)
    try:
        yield line
    finally:
        await line.peer.close()
        await line.channel.close()
        await line.reading


@dataclass
class Order:
    size: Literal["small", "large"]
    count: int = 1


def shop() -> tuple[MCPServer, list[str]]:
    server = MCPServer("shop")
    seen: list[str] = []

    @server.tool()
    async def order(what: str, ctx: Context) -> str:
        seen.append("start")
        charged = await ctx.step("charge", charge, what)
        answer = await ctx.elicit("Which one?", Order)
        if not answer.accepted:
            return f"{answer.action}, {charged}"
        sure = await ctx.elicit("Sure?", bool)
        return f"{answer.data} {sure.data} {charged}"

    def charge(what: str) -> str:
        seen.append("charged")
        return f"charged for {what}"

    @server.tool()
    async def together(ctx: Context) -> str:
        first, second = await asyncio.gather(
            ctx.elicit("a?", str, key="a"), ctx.elicit("b?", int, key="b")
        )
        return f"{first.data}{second.data}"

    @server.tool()
    async def careful(ctx: Context) -> str:
        try:
            await ctx.elicit("x?", str)
        except Exception:
            seen.append("swallowed")
        finally:
            seen.append("cleaned up")
        return "done"

    @server.tool()
    def blocking(ctx: Context) -> str:
        try:
            return str(ctx.wait(ctx.elicit("x?", str)).data)
        except Exception:
            return "swallowed"

    @server.tool()
    async def model(ctx: Context) -> str:
        said = await ctx.sample("hello", max_tokens=5)
        return str(said["content"]["text"]) + str(len(await ctx.roots()))

    return server, seen


@pytest.mark.covers("PRO-24")
async def test_a_step_runs_once_in_a_call_with_two_input_rounds() -> None:
    server, seen = shop()
    async with line_to(server) as line:
        first = await line.call("order", {"what": "tea"})
        assert first["resultType"] == "input_required"
        ((key, question),) = first["inputRequests"].items()
        assert question == {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Which one?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {
                        "size": {"type": "string", "enum": ["large", "small"]},
                        "count": {"type": "integer", "default": 1},
                    },
                    "required": ["size"],
                },
            },
        }
        answer = {key: {"action": "accept", "content": {"size": "large", "count": "2"}}}
        second = await line.call(
            "order",
            {"what": "tea"},
            inputResponses=answer,
            requestState=first["requestState"],
        )
        assert second["resultType"] == "input_required"
        assert second["requestState"] != first["requestState"]
        ((key, _),) = second["inputRequests"].items()
        third = await line.call(
            "order",
            {"what": "tea"},
            inputResponses={key: {"action": "accept", "content": {"value": True}}},
            requestState=second["requestState"],
        )
        assert third["resultType"] == "complete"
        text = third["content"][0]["text"]
        assert text == "Order(size='large', count=2) True charged for tea"
    assert seen == ["start", "charged", "start", "start"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_declined_or_cancelled_elicitation_is_returned_to_the_handler(action: str) -> None:
    server, _ = shop()
    async with line_to(server) as line:
        first = await line.call("order", {"what": "tea"})
        last = await line.call(
            "order",
            {"what": "tea"},
            inputResponses={"q0": {"action": action}},
            requestState=first["requestState"],
        )
        assert last["content"][0]["text"] == f"{action}, charged for tea"


async def test_concurrent_input_requests_are_sent_in_one_round() -> None:
    server, _ = shop()
    async with line_to(server) as line:
        first = await line.call("together")
        assert set(first["inputRequests"]) == {"a", "b"}
        # The client answers one of two requests: only the other request is sent again.
        second = await line.call(
            "together",
            inputResponses={"a": {"action": "accept", "content": {"value": "x"}}, "zz": {}},
            requestState=first["requestState"],
        )
        assert set(second["inputRequests"]) == {"b"}
        third = await line.call(
            "together",
            inputResponses={"b": {"action": "accept", "content": {"value": 7}}},
            requestState=second["requestState"],
        )
        assert third["content"][0]["text"] == "x7"


async def test_the_response_to_an_input_request_with_a_key_may_be_sent_in_advance() -> None:
    server, _ = shop()
    async with line_to(server) as line:
        given = {"a": {"action": "accept", "content": {"value": "x"}}, "zz": {}}
        first = await line.call("together", inputResponses=given)
        assert set(first["inputRequests"]) == {"b"}
        second = await line.call(
            "together",
            inputResponses={"b": {"action": "accept", "content": {"value": 7}}},
            requestState=first["requestState"],
        )
        assert second["content"][0]["text"] == "x7"
        wrong = await line.call("together", inputResponses={"a": 5, "b": 5})
        assert wrong["error"]["code"] == -32602


async def test_the_response_to_an_input_request_without_a_key_cannot_be_sent_in_advance() -> None:
    server, _ = shop()
    async with line_to(server) as line:
        given = {"q0": {"action": "accept", "content": {"value": "x"}}}
        assert set((await line.call("careful", inputResponses=given))["inputRequests"]) == {"q0"}


async def test_a_handler_can_clean_up_but_not_suppress_the_end_of_a_round() -> None:
    server, seen = shop()
    async with line_to(server) as line:
        assert (await line.call("careful"))["resultType"] == "input_required"
        assert seen == ["cleaned up"]
        blocked = await line.call("blocking")
        assert blocked["resultType"] == "input_required"
        done = await line.call(
            "blocking",
            inputResponses={"q0": {"action": "accept", "content": {"value": "yes"}}},
            requestState=blocked["requestState"],
        )
        assert done["content"][0]["text"] == "yes"


async def test_a_handler_can_request_sampling_and_roots_in_input_rounds() -> None:
    server, _ = shop()
    async with line_to(server) as line:
        first = await line.call("model")
        ((key, question),) = first["inputRequests"].items()
        assert question["method"] == "sampling/createMessage"
        assert question["params"]["maxTokens"] == 5
        said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
        second = await line.call(
            "model", inputResponses={key: said}, requestState=first["requestState"]
        )
        ((key, question),) = second["inputRequests"].items()
        assert question["method"] == "roots/list"
        roots = {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}
        last = await line.call(
            "model", inputResponses={key: roots}, requestState=second["requestState"]
        )
        assert last["content"][0]["text"] == "hi2"


async def test_modified_request_states_and_states_of_other_calls_are_rejected() -> None:
    server, seen = shop()
    async with line_to(server) as line:
        first = await line.call("order", {"what": "tea"})
        state = first["requestState"]
        answers = {"q0": {"action": "accept", "content": {"size": "large"}}}

        async def refused(arguments: Any, state: Any) -> str:
            answer = await line.call("order", arguments, inputResponses=answers, requestState=state)
            assert answer["error"]["code"] == -32602
            return str(answer["error"]["message"])

        tampered = state[:-3] + ("AAA" if not state.endswith("AAA") else "BBB")
        assert "the state was modified" in await refused({"what": "tea"}, tampered)
        assert "not created by this server" in await refused({"what": "tea"}, "v1.other.xxxx")
        assert "not created by this server" in await refused({"what": "tea"}, "nonsense")
        assert "belongs to another request" in await refused({"what": "gold"}, state)
        other, _ = shop()
        async with line_to(other) as elsewhere:
            foreign = (await elsewhere.call("order", {"what": "tea"}))["requestState"]
        assert "the state was modified" in await refused({"what": "tea"}, foreign)
        # The same arguments in another JSON notation belong to the same request.
        same = await line.call("order", {"what": "tea"}, inputResponses=answers, requestState=state)
        assert same["resultType"] == "input_required"
    assert seen.count("charged") == 1


async def test_input_responses_that_do_not_match_the_form_are_rejected() -> None:
    server, _ = shop()
    async with line_to(server) as line:
        first = await line.call("order", {"what": "tea"})
        for content in ({"size": "huge"}, {"size": 1}, {}, {"size": "small", "count": "many"}):
            answer = await line.call(
                "order",
                {"what": "tea"},
                inputResponses={"q0": {"action": "accept", "content": content}},
                requestState=first["requestState"],
            )
            assert answer["error"]["code"] == -32602
            assert "does not match the requested schema" in answer["error"]["message"]


async def test_the_error_names_the_missing_capability_of_a_stateless_client() -> None:
    server, _ = shop()

    @server.tool()
    async def degrade(ctx: Context) -> str:
        try:
            await ctx.elicit("x?", str)
        except CannotAsk as exc:
            return f"without {exc.capability}"
        return ""

    async with line_to(server) as line:
        refused = await line.call("order", {"what": "tea"}, capabilities={"roots": {}})
        assert refused["error"]["code"] == -32021
        assert refused["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}
        result = await line.call("degrade", capabilities={})
        assert result["content"][0]["text"] == "without elicitation"


async def open_session(line: Line, capabilities: Any, version: str = "2025-11-25") -> None:
    hello = {
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"},
    }
    line.send({"id": 0, "method": "initialize", "params": hello})
    await line.next()
    line.send({"method": "notifications/initialized"})


@pytest.mark.covers("PRO-24", "SRV-28")
async def test_a_handler_with_input_rounds_sends_server_requests_in_the_handshake_era() -> None:
    server, seen = shop()
    async with line_to(server) as line:
        await open_session(line, ALL)
        line.send(
            {
                "id": 1,
                "method": "tools/call",
                "params": {"name": "order", "arguments": {"what": "tea"}},
            }
        )
        asked = await line.next()
        assert asked.method == "elicitation/create"
        line.send({"id": asked.id, "result": {"action": "accept", "content": {"size": "small"}}})
        again = await line.next()
        line.send({"id": again.id, "result": {"action": "accept", "content": {"value": False}}})
        result = json.loads(bytes((await line.next()).result))
        text = result["content"][0]["text"]
        assert text == "Order(size='small', count=1) False charged for tea"
    assert seen == ["start", "charged"]  # the step ran only once


async def test_a_capability_that_the_session_did_not_declare_causes_an_error_result() -> None:
    server, _ = shop()
    async with line_to(server) as line:
        await open_session(line, {})
        line.send({"id": 1, "method": "tools/call", "params": {"name": "together"}})
        result = json.loads(bytes((await line.next()).result))
        error = json.loads(result["content"][0]["text"])
        assert (result["isError"], error["code"]) == (True, "DEPENDENCY_MISSING")
        assert "did not declare the capability 'elicitation'" in error["message"]


@pytest.mark.covers("PRO-37")
async def test_the_timeout_of_a_call_is_paused_during_elicitation() -> None:
    server = MCPServer("s", default_tool_timeout=0.15)

    @server.tool()
    async def think(ctx: Context) -> str:
        await ctx.elicit("x?", str)
        await asyncio.sleep(0.05)
        await ctx.elicit("y?", str)
        return "in time"

    @server.tool()
    async def dawdle(ctx: Context) -> str:
        await ctx.elicit("x?", str)
        await asyncio.sleep(600)
        return ""

    async with line_to(server) as line:
        await open_session(line, ALL)
        for number, name in ((1, "think"), (2, "dawdle")):
            line.send({"id": number, "method": "tools/call", "params": {"name": name}})
            for _ in range(2 if name == "think" else 1):
                asked = await line.next()
                pondering = asyncio.get_running_loop().create_future()
                asyncio.get_running_loop().call_later(0.25, pondering.set_result, None)
                await pondering
                line.send(
                    {"id": asked.id, "result": {"action": "accept", "content": {"value": "z"}}}
                )
            text = json.loads(bytes((await line.next()).result))["content"][0]["text"]
            assert text == "in time" if name == "think" else "timed out after 0.15s" in text


def test_sealing_keys_can_be_rotated_and_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    before = KeyRing({"old": old})
    after = KeyRing({"new": new, "old": old})
    token = before.seal(b"hello", ttl=60)
    assert after.open(token) == b"hello"
    assert after.seal(b"x", ttl=60).startswith("v1.new.")
    with pytest.raises(BadSeal, match="its key was removed"):
        KeyRing({"new": new}).open(token)
    with pytest.raises(BadSeal, match="has expired"):
        before.open(before.seal(b"x", ttl=-1))
    text = f"a:{base64.b64encode(old).decode()}, b:{base64.b64encode(new).decode()}"
    monkeypatch.setenv("FAIRLEAD_STATE_KEYS", text)
    one, two = KeyRing.from_environment(), KeyRing.from_environment()
    assert two.open(one.seal(b"shared", ttl=5)) == b"shared"
    for wrong in ("a", "a:", "a:short", ":" + base64.b64encode(old).decode()):
        monkeypatch.setenv("FAIRLEAD_STATE_KEYS", wrong)
        with pytest.raises(ValueError):
            KeyRing.from_environment()


def test_values_that_are_equal_in_json_have_the_same_digest() -> None:
    assert canonical({"b": 1.0, "a": [True, None]}) == b'{"a":[true,null],"b":1}'
    assert digest({"a": 1, "b": 2.5}) == digest({"b": 2.5, "a": 1.0})
    assert digest({"a": 1}) != digest({"a": True})
    assert digest("1") != digest(1)


def test_nested_form_fields_are_rejected_and_lists_of_choices_are_accepted() -> None:
    class Nested(msgspec.Struct):
        inner: Order

    with pytest.raises(TypeError, match="invalid form field 'inner'"):
        ElicitationForm(Nested)
    with pytest.raises(TypeError, match="'value'"):
        ElicitationForm(dict[str, int])

    class Settings(msgspec.Struct):
        name: str
        tags: list[Literal["a", "b"]] = []
        ratio: float | None = None

    schema = ElicitationForm(Settings).schema
    assert schema["properties"]["tags"]["items"]["type"] == "string"
    assert schema["properties"]["ratio"]["type"] == "number"
    assert schema["required"] == ["name"]


async def test_input_requests_without_keys_are_identified_by_position() -> None:
    server = MCPServer("s")

    @server.tool()
    async def three(ctx: Context) -> str:
        found = await asyncio.gather(*(ctx.elicit(f"{n}?", str) for n in range(3)))
        return " ".join(str(one.data) for one in found)

    async with line_to(server) as line:
        first = await line.call("three")
        asked = {key: one["params"]["message"] for key, one in first["inputRequests"].items()}
        assert asked == {"q0": "0?", "q1": "1?", "q2": "2?"}
        answers = {key: {"action": "accept", "content": {"value": key}} for key in asked}
        last = await line.call("three", inputResponses=answers, requestState=first["requestState"])
        assert last["content"][0]["text"] == "q0 q1 q2"


@pytest.mark.parametrize("given", [{"inputResponses": 5}, {"requestState": 5}])
async def test_malformed_input_responses_are_rejected(given: dict[str, Any]) -> None:
    server, _ = shop()
    async with line_to(server) as line:
        refused = await line.call("order", {"what": "tea"}, **given)
        assert refused["error"]["code"] == -32602
        assert refused["error"]["message"].startswith("Invalid input responses: ")


async def test_an_input_response_to_a_request_that_has_changed_is_ignored() -> None:
    server, words = MCPServer("s"), ["one?", "two?"]

    @server.tool()
    async def change(ctx: Context) -> str:
        return str((await ctx.elicit(words[0], str, key="a")).data)

    async with line_to(server) as line:
        first = await line.call("change")
        words.pop(0)
        given = {"a": {"action": "accept", "content": {"value": "x"}}}
        again = await line.call("change", inputResponses=given, requestState=first["requestState"])
        assert again["inputRequests"]["a"]["params"]["message"] == "two?"
        done = await line.call("change", inputResponses=given, requestState=again["requestState"])
        assert done["content"][0]["text"] == "x"


def rounds_of(params: Any = None, **options: Any) -> ServerInputRounds:
    return ServerInputRounds(exchange(params=params), KeyRing(), 60, **options)


async def test_the_end_of_a_round_does_not_cancel_a_finished_task() -> None:
    async def nothing() -> None: ...

    task = asyncio.create_task(nothing())
    await task
    rounds = rounds_of(task=task)
    asking = asyncio.create_task(rounds.ask("roots/list", {}, None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (rounds.ended, task.cancelling()) == (False, 0)
    asking.cancel()
    await asyncio.wait((asking,))


async def test_a_round_ends_after_all_concurrent_requests_are_recorded() -> None:
    rounds = rounds_of()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.gather(*(rounds.ask("roots/list", {"n": n}, None) for n in range(2)))
    task = asyncio.current_task()
    assert task is not None
    assert (rounds.ended, task.uncancel()) == (True, 0)
    result = json.loads(rounds.result({"_meta": {"a": 1}}))
    assert result.pop("requestState").startswith("v1.p.")
    assert result == {
        "resultType": "input_required",
        "inputRequests": {
            "q0": {"method": "roots/list", "params": {"n": 0}},
            "q1": {"method": "roots/list", "params": {"n": 1}},
        },
        "_meta": {"a": 1},
    }


async def test_the_size_of_a_request_state_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = rounds_of({"name": "t", "arguments": {}})
    rounds.steps["a"] = msgspec.Raw(b'"x"')
    size = len(json.loads(rounds.result({}))["requestState"])
    monkeypatch.setattr("fairlead.server.context.server_input_rounds.MAX_STATE", size)
    rounds.result({})
    monkeypatch.setattr("fairlead.server.context.server_input_rounds.MAX_STATE", size - 1)
    hits = STATE_BYTES.hits
    with pytest.raises(RpcError) as refused:
        rounds.result({})
    assert refused.value.code == -32602
    assert refused.value.message == (
        f"The state of this call takes {size} bytes; the limit is {size - 1}"
    )
    assert STATE_BYTES.hits == hits + 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, b"2"),
        (-2.0, b"-2"),
        (2.5, b"2.5"),
        (float(2**53 - 1), b"9007199254740991"),
        (float(2**53), b"9007199254740992.0"),
        (float(-(2**53)), b"-9007199254740992.0"),
        ((1.0, [2.0]), b"[1,[2]]"),
        ({"b": {"d": 1.0, "c": "1.0"}, "a": None}, b'{"a":null,"b":{"c":"1.0","d":1}}'),
    ],
    ids=["whole", "negative", "half", "safe", "large", "small", "lists", "objects"],
)
def test_equal_numbers_have_the_same_canonical_json(value: Any, text: bytes) -> None:
    assert canonical(value) == text
    assert digest(value) == digest(msgspec.json.decode(text))
    assert len(digest(value)) == 32
