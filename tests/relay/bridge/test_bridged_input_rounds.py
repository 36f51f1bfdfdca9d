"""Input requests from a stateless server to a client of the handshake era."""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw, UnsetType, structs

from fairlead.config.upstream_settings import UpstreamSettings
from fairlead.errors import RequestTimeout, RpcError
from fairlead.interceptor import Answer, Exchange
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.relay.bridge.bridged_input_rounds import (
    BridgedInputRounds,
    kind_of,
    needed_capability,
)
from fairlead.wire import Notification, Request, to_json
from fairlead.wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND, MISSING_CAPABILITY
from tests.support.single_exchange import DOWN, exchange
from tests.support.virtual_time import VirtualTime

DONE = Raw(b'{"resultType":"complete"}')
LATER = Raw(b'{"resultType":"input_required","requestState":"s"}')
QUESTION = Raw(
    json.dumps(
        {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": "elicitation/create", "params": {"mode": "form"}}},
        }
    ).encode()
)


class StatelessServer:
    """Fake server that returns one result a given number of times, and then another."""

    def __init__(self, clock: VirtualTime, first: Raw, times: int, then: Raw = DONE) -> None:
        self.asked = [clock.now]
        self.members: list[Any] = []
        self._clock = clock
        self._first, self._times, self._then = first, times, then

    async def again(self, members: Any) -> Raw:
        self.asked.append(self._clock.now)
        self.members.append(members)
        return self._first if len(self.members) < self._times else self._then

    async def finish(self) -> Raw:
        connection: Any = SimpleNamespace(goes_on=lambda call: contextlib.nullcontext())
        call: Any = SimpleNamespace()
        rounds = BridgedInputRounds(call, connection)

        async def answered(questions: dict[str, Raw]) -> dict[str, Raw]:
            return dict.fromkeys(questions, Raw(b'{"action":"accept"}'))

        rounds._collect = answered  # type: ignore[method-assign]
        return await rounds.finish(self._first, self.again)


async def test_retries_without_input_wait_up_to_two_seconds(
    virtual_time: VirtualTime,
) -> None:
    server = StatelessServer(virtual_time, LATER, 9)
    assert await server.finish() == DONE
    pauses = [later - earlier for earlier, later in pairwise(server.asked)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2])
    assert all(bytes(members["requestState"]) == b'"s"' for members in server.members)


async def test_retries_without_input_end_after_ten_minutes(virtual_time: VirtualTime) -> None:
    server = StatelessServer(virtual_time, LATER, 10_000)
    begun = virtual_time.now
    with pytest.raises(RpcError, match="still requests input after 20 rounds or 600 s"):
        await server.finish()
    assert 600 < virtual_time.now - begun <= 602


@pytest.mark.parametrize(("questions", "finished"), [(20, True), (21, False)])
async def test_a_server_may_request_input_in_at_most_twenty_rounds(
    virtual_time: VirtualTime, questions: int, finished: bool
) -> None:
    server = StatelessServer(virtual_time, QUESTION, questions)
    if finished:
        assert await server.finish() == DONE
    else:
        with pytest.raises(RpcError, match="still requests input after 20 rounds or 600 s"):
            await server.finish()
    assert len(server.members) == 20
    assert bytes(server.members[0]["inputResponses"]) == b'{"q":{"action":"accept"}}'


async def test_a_result_of_an_unknown_type_is_reported_as_a_server_error(
    virtual_time: VirtualTime,
) -> None:
    server = StatelessServer(virtual_time, LATER, 1, Raw(b'{"resultType":"poem"}'))
    with pytest.raises(RpcError, match="Unknown resultType in the server.s result: .poem."):
        await server.finish()


async def test_an_input_request_resets_the_retry_delay(virtual_time: VirtualTime) -> None:
    server = StatelessServer(virtual_time, LATER, 2, QUESTION)
    answers = iter([LATER, QUESTION, LATER, DONE])

    async def again(members: Any) -> Raw:
        server.asked.append(virtual_time.now)
        return next(answers)

    server.again = again  # type: ignore[method-assign]
    assert await server.finish() == DONE
    pauses = [later - earlier for earlier, later in pairwise(server.asked)]
    assert pauses == pytest.approx([0.05, 0.1, 0, 0.05])


# Requests to the client


URL = {"mode": "url", "message": "go", "url": "https://x.example/"}
FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
SAMPLE: dict[str, Any] = {"messages": [], "maxTokens": 1}
ACCEPT = {"action": "accept"}
ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}


def wanted(state: Any = None, **questions: Any) -> Raw:
    asked = {"resultType": "input_required", "inputRequests": questions}
    return Raw(to_json(asked if state is None else {**asked, "requestState": state}))


def elicit(params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": params}


class HandshakeClient:
    """Client with a pending call that records and answers input requests."""

    def __init__(
        self, *answers: Any, declared: Any = ALL, revision: Revision = NEWEST_HANDSHAKE
    ) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.ids: list[Any] = []
        self.told: list[tuple[str, Any]] = []
        self.open: list[Any] = []
        self._answers = list(answers)
        self.exchange = exchange(stateless=False, capabilities=to_json(declared))
        self.exchange.caller = structs.replace(self.exchange.caller, revision=revision)
        self.exchange.edge = self  # type: ignore[assignment]
        self.sent_as, self.peer, self.passage = 7, object(), self

    async def request_caller(
        self, inside: Exchange, method: str, params: Raw, *, timeout: float | None = None
    ) -> Answer:
        assert (inside, timeout) == (self.exchange, 7.0)
        self.asked.append((method, json.loads(bytes(params))))
        answer = self._answers.pop(0)
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        return None if answer is None else to_json(answer)

    # Methods of the connection to the server

    def settings(self) -> UpstreamSettings:
        return UpstreamSettings(input_timeout=7.0)

    @contextlib.contextmanager
    def goes_on(self, call: Any) -> Iterator[None]:
        self.open.append(call)
        yield None
        self.open.remove(call)

    async def asked_inside(self, call: Any, request: Request, ask: Any) -> Answer:
        assert self.open == [call]
        self.ids.append(request.id)
        params = request.params
        plain = None if isinstance(params, UnsetType) else json.loads(bytes(params))
        answer: Answer = await ask(exchange(request.method, plain, way=DOWN))
        return answer

    def tell(self, note: Notification) -> None:
        raise NotImplementedError

    def put(self, note: Notification, peer: object, tell: Any, sent_as: Any) -> None:
        assert (self.open, peer, tell, sent_as) == ([self], self.peer, self.tell, 7)
        assert isinstance(note.params, Raw)
        self.told.append((note.method, json.loads(bytes(note.params))))

    async def passed(self) -> None:
        self.told.append(("passed", None))

    async def finish(self, *results: Raw) -> list[Any]:
        """Pass the results to the bridge and return the members added to each repeated request."""
        given = []
        left = [*results[1:], DONE]

        async def again(members: Any) -> Raw:
            given.append({name: json.loads(bytes(value)) for name, value in members.items()})
            return left.pop(0)

        here: Any = self
        assert await BridgedInputRounds(here, here).finish(results[0], again) == DONE
        return given


@pytest.mark.parametrize(
    ("question", "answer", "shown"),
    [
        (elicit(FORM), {"action": "accept", "content": {"a": 1}}, FORM),
        (elicit({"message": "?", "requestedSchema": {}}), {"action": "decline"}, None),
        ({"method": "sampling/createMessage", "params": SAMPLE}, {"role": "assistant"}, SAMPLE),
        ({"method": "roots/list"}, {"roots": []}, {}),
        ({"method": "roots/list", "params": {}}, {"roots": [1]}, {}),
    ],
    ids=["form", "form without mode", "sampling", "roots without params", "roots"],
)
async def test_an_input_request_is_sent_to_the_client_and_its_response_to_the_server(
    question: Any, answer: Any, shown: Any
) -> None:
    client = HandshakeClient(answer)
    given = await client.finish(wanted("s", k=question))
    assert given == [{"inputResponses": {"k": answer}, "requestState": "s"}]
    [(method, params)] = client.asked
    assert method == question["method"]
    assert shown in (None, params)
    assert client.ids == ["7/k"]
    assert client.told == []


async def test_a_request_state_is_returned_only_if_the_server_sent_a_state() -> None:
    assert await HandshakeClient(ACCEPT).finish(wanted(k=elicit(FORM))) == [
        {"inputResponses": {"k": ACCEPT}}
    ]


async def test_a_missing_input_response_is_sent_as_an_empty_object() -> None:
    client = HandshakeClient(None)
    assert await client.finish(wanted(k=elicit(FORM))) == [{"inputResponses": {"k": {}}}]


@pytest.mark.parametrize(
    ("question", "declared", "missing"),
    [
        (elicit(FORM), {}, "elicitation.form"),
        (elicit(FORM), {"elicitation": {"url": {}}}, "elicitation.form"),
        (elicit(URL), {"elicitation": {}}, "elicitation.url"),
        (elicit(URL), {"elicitation": {"form": {}}}, "elicitation.url"),
        ({"method": "sampling/createMessage"}, {"roots": {}}, "sampling"),
        ({"method": "roots/list"}, {"sampling": {}}, "roots"),
        ({"method": "vendor"}, ALL, "vendor"),
        ({"method": 7}, ALL, ""),
        (7, ALL, ""),
    ],
)
async def test_an_input_request_needs_a_declared_capability(
    question: Any, declared: Any, missing: str
) -> None:
    client = HandshakeClient(declared=declared)
    with pytest.raises(RpcError) as caught:
        await client.finish(wanted(k=question))
    method = question["method"] if isinstance(question, dict) else ""
    method = method if isinstance(method, str) else ""
    name, _, rest = missing.partition(".")
    assert (caught.value.code, caught.value.message, caught.value.data) == (
        MISSING_CAPABILITY,
        f"tools/call requires a response to {method}, but the client did not declare the "
        f"capability {missing!r}",
        {"source": "proxy", "requiredCapabilities": {name: {rest: {}} if rest else {}}},
    )
    assert client.asked == []


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
async def test_a_call_fails_if_the_client_rejects_sampling_or_roots(method: str) -> None:
    client = HandshakeClient(RpcError(-1, "User rejected"))
    with pytest.raises(RpcError, match="User rejected"):
        await client.finish(wanted(k={"method": method, "params": SAMPLE}))


async def test_a_rejected_elicitation_is_answered_with_cancel() -> None:
    client = HandshakeClient(RpcError(-1, "no window"))
    given = await client.finish(wanted(k=elicit(FORM)))
    assert given == [{"inputResponses": {"k": {"action": "cancel"}}}]


async def test_an_input_request_without_a_response_fails_the_call_with_the_reason() -> None:
    client = HandshakeClient(RequestTimeout(3.0, "roots/list"))
    with pytest.raises(RpcError, match="roots/list was not answered: the client ") as caught:
        await client.finish(wanted(k={"method": "roots/list"}))
    assert caught.value.code == INTERNAL_ERROR


async def test_rejecting_an_input_request_cancels_the_other_input_requests() -> None:
    never = asyncio.Event()
    client = HandshakeClient(never, RpcError(-1, "no"))
    roots = {"method": "roots/list"}
    with pytest.raises(RpcError, match="no"):
        await client.finish(wanted(a=roots, b=roots))
    assert len(client.asked) == 2
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_an_input_request_that_the_client_revision_does_not_support_is_refused() -> None:
    several = {"type": "object", "properties": {"x": {"type": "array", "items": {}}}}
    client = HandshakeClient(declared={"elicitation": {}}, revision=Revision.V2025_06_18)
    with pytest.raises(RpcError, match="cannot be sent to this client: ") as caught:
        await client.finish(wanted(k=elicit({"message": "?", "requestedSchema": several})))
    assert caught.value.code == METHOD_NOT_FOUND
    assert client.asked == []


# URL elicitations


async def test_a_call_is_repeated_after_a_page_visit_without_requesting_the_visit_again(
    virtual_time: VirtualTime,
) -> None:
    client, begun = HandshakeClient(ACCEPT, {"roots": []}), virtual_time.now
    page, roots = elicit(URL), {"method": "roots/list"}
    given = await client.finish(wanted(k=page), wanted(k=page), wanted(k=page, r=roots))
    assert given == [
        {"inputResponses": {"k": ACCEPT}},
        {"inputResponses": {"k": ACCEPT}},
        {"inputResponses": {"k": ACCEPT, "r": {"roots": []}}},
    ]
    assert [method for method, _ in client.asked] == ["elicitation/create", "roots/list"]
    # Retries are delayed only if the result has no new input requests.
    assert virtual_time.now - begun == pytest.approx(0.05)
    visit = client.asked[0][1]["elicitationId"]
    assert re.fullmatch("[0-9a-f]{32}", visit)
    assert client.asked[0][1] == {**URL, "elicitationId": visit}
    assert client.told == [
        ("notifications/elicitation/complete", {"elicitationId": visit}),
        ("passed", None),
    ]


async def test_a_page_that_the_user_declined_is_requested_again(virtual_time: VirtualTime) -> None:
    begun = virtual_time.now
    client = HandshakeClient({"action": "decline"}, ACCEPT, ACCEPT)
    other = {**URL, "url": "https://y.example/"}
    await client.finish(wanted(k=elicit(URL)), wanted(k=elicit(URL)), wanted(k=elicit(other)))
    assert [params["url"] for _, params in client.asked] == [URL["url"], URL["url"], other["url"]]
    ids = [params["elicitationId"] for _, params in client.asked]
    assert len(set(ids)) == 3
    assert [params["elicitationId"] for _, params in client.told[:-1]] == ids
    assert virtual_time.now == begun


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (b'{"resultType":"input_required","inputRequests":7}', "request for input is malformed: "),
        (b'{"resultType":"input_required","inputRequests":[]}', "request for input is malformed: "),
    ],
)
async def test_a_malformed_input_request_is_reported_as_a_server_error(
    result: bytes, words: str
) -> None:
    with pytest.raises(RpcError, match=words) as caught:
        await HandshakeClient().finish(Raw(result))
    assert (caught.value.code, caught.value.data) == (INTERNAL_ERROR, {"source": "proxy"})


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (b"{}", "complete"),
        (b"7", "complete"),
        (b'{"resultType":"complete"}', "complete"),
        (b'{"resultType":"input_required"}', "input_required"),
        (b'{"resultType":"task"}', "task"),
        (b'{"resultType":7}', "malformed"),
        (b'["resultType"]', "malformed"),
        (b'{"content":"\\"resultType\\""}', "complete"),
        (b'{"a":"resultType"', "complete"),
        (b'{"a":"resultType","b":' + b"[" * 3000 + b"]" * 3000 + b"}", "complete"),
    ],
    ids=["empty", "number", "complete", "input", "task", "7", "list", "inside", "cut", "deep"],
)
def test_the_kind_of_a_result_is_determined_by_its_result_type(result: bytes, kind: str) -> None:
    assert kind_of(Raw(result)) == kind


@pytest.mark.parametrize(
    ("method", "mode", "capability"),
    [
        ("elicitation/create", "url", "elicitation.url"),
        ("elicitation/create", "form", "elicitation.form"),
        ("elicitation/create", None, "elicitation.form"),
        ("sampling/createMessage", "url", "sampling"),
        ("roots/list", None, "roots"),
        ("tools/list", None, None),
    ],
)
def test_the_capability_required_for_an_input_request_depends_on_method_and_mode(
    method: str, mode: str | None, capability: str | None
) -> None:
    assert needed_capability(method, mode) == capability
