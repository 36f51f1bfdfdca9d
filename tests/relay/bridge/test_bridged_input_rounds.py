"""Questions of a stateless server to a client with a handshake: how often, and for how long."""

import contextlib
import json
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from fairlead.errors import RpcError
from fairlead.relay.bridge.bridged_input_rounds import BridgedInputRounds
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
    """Answers with one result so many times, and then with another."""

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
        link: Any = SimpleNamespace(goes_on=lambda call: contextlib.nullcontext())
        call: Any = SimpleNamespace()
        rounds = BridgedInputRounds(call, link)

        async def answered(questions: dict[str, Raw]) -> dict[str, Raw]:
            return dict.fromkeys(questions, Raw(b'{"action":"accept"}'))

        rounds._collect = answered  # type: ignore[method-assign]
        return await rounds.finish(self._first, self.again)


async def test_a_retry_that_the_server_asked_for_waits_up_to_two_seconds(
    virtual_time: VirtualTime,
) -> None:
    server = StatelessServer(virtual_time, LATER, 9)
    assert await server.finish() == DONE
    pauses = [later - earlier for earlier, later in pairwise(server.asked)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2])
    assert all(bytes(members["requestState"]) == b'"s"' for members in server.members)


async def test_a_server_that_only_wants_time_gets_ten_minutes(virtual_time: VirtualTime) -> None:
    server = StatelessServer(virtual_time, LATER, 10_000)
    begun = virtual_time.now
    with pytest.raises(RpcError, match="asks without end"):
        await server.finish()
    assert 600 < virtual_time.now - begun <= 602


@pytest.mark.parametrize(("questions", "finished"), [(20, True), (21, False)])
async def test_a_server_may_ask_twenty_times(
    virtual_time: VirtualTime, questions: int, finished: bool
) -> None:
    server = StatelessServer(virtual_time, QUESTION, questions)
    if finished:
        assert await server.finish() == DONE
    else:
        with pytest.raises(RpcError, match="asks without end"):
            await server.finish()
    assert len(server.members) == 20
    assert bytes(server.members[0]["inputResponses"]) == b'{"q":{"action":"accept"}}'


async def test_a_result_of_another_type_is_the_servers_mistake(virtual_time: VirtualTime) -> None:
    server = StatelessServer(virtual_time, LATER, 1, Raw(b'{"resultType":"poem"}'))
    with pytest.raises(RpcError, match="unknown type: poem"):
        await server.finish()
