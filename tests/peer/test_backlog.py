"""Tests of the queue for requests of the peer."""

import asyncio
from typing import Any

from msgspec import Raw

from fairlead.errors import ChannelClosed
from fairlead.interceptor import Exchange
from fairlead.limits import IN_FLIGHT, QUEUED_REQUEST_BYTES, QUEUED_REQUESTS
from fairlead.peer.backlog import MAX_QUEUED, MAX_QUEUED_BYTES, Backlog
from fairlead.peer.connection_state import ConnectionState
from fairlead.peer.inbound_in_flight import InFlight
from fairlead.protocol.caller import Caller, ParamsHead
from fairlead.protocol.conversation.conversation import Conversation, ConversationRole
from fairlead.protocol.envelope import Direction
from fairlead.protocol.identity.principal import ANONYMOUS
from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.transport.memory import memory_pair
from fairlead.wire import Failure, Request, RequestId
from fairlead.wire.messages import size_of
from tests.peer.test_peer import Frames

CALLER = Caller(NEWEST_HANDSHAKE, False, ANONYMOUS)


class Waiting:
    """The backlog of a connection that handles one request at a time."""

    def __init__(self) -> None:
        self.client, self.channel = memory_pair()
        conversation = Conversation(
            ConversationRole.SERVER, assume=NEWEST_HANDSHAKE, principal=ANONYMOUS
        )
        self.work = InFlight(1)
        self.line = ConnectionState(self.channel, conversation, self.work)
        self.begun: list[RequestId] = []
        self.backlog = Backlog(self.line, lambda exchange, request_id: self._begin(request_id))

    def _begin(self, request_id: RequestId) -> None:
        self.begun.append(request_id)

    def put(self, number: int, params: bytes = b"{}") -> Request:
        request = Request(number, "x", Raw(params))
        self.line.conversation.receive_request(request)
        edge: Any = None
        way = Direction.CLIENT_TO_SERVER
        exchange = Exchange(request, CALLER, ParamsHead(), way, self.channel.context, edge)
        self.backlog.put(exchange)
        return request


async def test_requests_start_in_order_when_the_limit_allows_it() -> None:
    one = Waiting()
    hits = IN_FLIGHT.hits
    for number in range(4):
        one.put(number)
    assert IN_FLIGHT.hits == hits + 4
    one.backlog.drop(1)
    one.backlog.drop(9)
    one.backlog.next()
    one.backlog.next()
    assert one.begun == [0, 2]
    one.work.running[2] = asyncio.ensure_future(asyncio.sleep(0))
    one.backlog.next()
    assert one.begun == [0, 2]
    await one.work.running.pop(2)
    one.backlog.next()
    one.backlog.next()
    assert one.begun == [0, 2, 3]


async def test_no_queued_request_starts_after_the_end_of_the_connection() -> None:
    one = Waiting()
    one.put(1)
    one.line.finish(ChannelClosed())
    one.backlog.next()
    assert one.begun == []


async def test_requests_beyond_the_queue_limit_are_refused() -> None:
    one = Waiting()
    hits = QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits
    for number in range(MAX_QUEUED):
        one.put(number)
    assert one.line.conversation.unanswered_count == MAX_QUEUED
    assert QUEUED_REQUESTS.hits == hits[0]
    one.put(MAX_QUEUED)
    assert one.line.conversation.unanswered_count == MAX_QUEUED
    assert (QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits) == (hits[0] + 1, hits[1])
    frames = Frames(one.client)
    refused = await frames.next()
    assert isinstance(refused, Failure)
    assert (refused.id, refused.code) == (MAX_QUEUED, -32603)
    assert refused.message == "Too many requests: 1 are in progress. Try again later"
    await one.channel.close()
    await one.client.close()
    await frames.task


async def test_requests_beyond_the_byte_limit_are_refused() -> None:
    one = Waiting()
    hits = QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits
    small = size_of(Request(0, "x", Raw(b"{}")))
    first = one.put(0, b'"%b"' % (b"x" * (MAX_QUEUED_BYTES - small - 100)))
    rest = MAX_QUEUED_BYTES - size_of(first)
    empty = size_of(Request(1, "x", Raw(b'""')))
    one.put(1, b'"%b"' % (b"x" * (rest - empty + 1)))
    assert (QUEUED_REQUESTS.hits, QUEUED_REQUEST_BYTES.hits) == (hits[0], hits[1] + 1)
    one.put(2, b'"%b"' % (b"x" * (rest - empty)))
    assert QUEUED_REQUEST_BYTES.hits == hits[1] + 1
    assert [exchange.request_id for exchange in one.backlog.items] == [0, 2]
