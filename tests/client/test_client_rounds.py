"""Requests that a stateless server answers with questions."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from fairlead.client.answers import Answers, accept
from fairlead.client.rounds import Rounds, asks_back
from fairlead.errors import InputNotGiven, RemoteProtocolError, RequestTimeout


def raw(**members: Any) -> Raw:
    return Raw(json.dumps(members).encode())


def question(message: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    params = {"message": message, "requestedSchema": schema, "mode": "form"}
    return {"method": "elicitation/create", "params": params}


DONE = raw(resultType="complete", content=[])
LATER = raw(resultType="input_required", requestState="s1")


class Server:
    """Answer each request with the next result and keep the params."""

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
def test_only_a_request_for_input_asks_back(result: bytes, expected: bool) -> None:
    assert asks_back(Raw(result)) is expected


async def test_answers_and_state_are_sent_with_the_original_params() -> None:
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
    rounds = Rounds(Answers(on_elicit=on_elicit))
    assert await rounds.finish("tools/call", {"name": "t"}, first, server) == DONE
    assert sorted(seen) == ["A", "B"]
    given = {key.lower(): {"action": "accept", "content": {"name": key}} for key in ("A", "B")}
    assert server.asked == [
        {"name": "t", "inputResponses": given, "requestState": "s0"},
        {"name": "t", "requestState": "s1"},
    ]


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_server_may_ask_back_as_often_as_the_limit(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("fairlead.client.rounds.FIRST_PAUSE", 0.0)
    rounds = Rounds(Answers(), limit=limit)
    server = Server(*[LATER] * (limit - 1), DONE)
    assert await rounds.finish("tools/call", {}, LATER, server) == DONE
    with pytest.raises(RemoteProtocolError, match=f"still asks back after {limit} rounds"):
        await rounds.finish("tools/call", {}, LATER, Server(*[LATER] * limit))


async def test_pauses_between_retries_double_up_to_the_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlead.client.rounds.LONGEST_PAUSE", 0.2)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("fairlead.client.rounds.asyncio.sleep", sleep)
    await Rounds(Answers()).finish("m", {}, LATER, Server(*[LATER] * 4, DONE))
    assert pauses == [0.05, 0.1, 0.2, 0.2, 0.2]


async def test_a_question_without_a_callback_names_the_missing_capability() -> None:
    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    server = Server(DONE)
    with pytest.raises(InputNotGiven, match="'elicitation'") as missing:
        await Rounds(Answers()).finish("tools/call", {}, first, server)
    assert (missing.value.method, missing.value.capability) == ("elicitation/create", "elicitation")
    assert server.asked == []


async def test_a_callback_that_fails_is_named_as_the_reason() -> None:
    def on_elicit(asked: Any) -> Any:
        raise ValueError("no screen")

    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    with pytest.raises(InputNotGiven, match="elicitation/create was not answered: no screen"):
        await Rounds(Answers(on_elicit=on_elicit)).finish("tools/call", {}, first, Server())


async def test_one_failing_answer_cancels_the_others() -> None:
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
            await Rounds(Answers(on_elicit=on_elicit)).finish("tools/call", {}, first, Server())
    assert cancelled.is_set()


async def test_waiting_for_input_has_its_own_limit() -> None:
    async def on_elicit(asked: Any) -> Any:
        await asyncio.Event().wait()

    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    rounds = Rounds(Answers(on_elicit=on_elicit), input_timeout=0.01)
    with pytest.raises(RequestTimeout, match="tools/call, waiting for input"):
        await rounds.finish("tools/call", {}, first, Server())


async def test_the_limit_for_everything_else_does_not_count_the_wait_for_input() -> None:
    async def on_elicit(asked: Any) -> Any:
        await asyncio.sleep(0.03)
        return accept({})

    first = raw(resultType="input_required", inputRequests={"a": question("A")})
    rounds = Rounds(Answers(on_elicit=on_elicit), max_total=0.02)
    assert await rounds.finish("tools/call", {}, first, Server(DONE)) == DONE
    with pytest.raises(RequestTimeout):  # the pause before a retry is longer than that
        await rounds.finish("tools/call", {}, LATER, Server(DONE))
    unlimited = Rounds(Answers(), max_total=0)
    assert await unlimited.finish("tools/call", {}, LATER, Server(DONE)) == DONE


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (raw(resultType="input_required"), "neither inputRequests nor requestState"),
        (raw(resultType="input_required", inputRequests=[1]), "request for input is malformed"),
        (raw(resultType="input_required", inputRequests={"a": 1}), "question of m is malformed"),
    ],
)
async def test_a_malformed_request_for_input_is_an_error(first: Raw, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        await Rounds(Answers()).finish("m", {}, first, Server(DONE))
