"""What a relay changes between a client and a server of one era, and who watches what."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw, UnsetType, structs

from fairlead.errors import RpcError
from fairlead.protocol.caller import SUBSCRIPTION_KEY
from fairlead.protocol.conversation.conversation import Agreement
from fairlead.protocol.revisions import NEWEST_HANDSHAKE, Revision
from fairlead.relay import same_era
from fairlead.relay.relay_settings import RelaySettings
from fairlead.relay.relayed_call import RelayedCall
from fairlead.relay.same_era import SameEraForwarder, stop_watching
from fairlead.relay.turn_lock import Turns
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.wire.error_codes import INTERNAL_ERROR
from tests.support.single_exchange import exchange
from tests.support.virtual_time import VirtualTime


@pytest.mark.parametrize(
    ("params", "count"),
    [
        ({"notifications": {"resourceSubscriptions": ["a", "b", "a"]}}, 2),
        ({"notifications": {}}, 0),
        ({}, 0),
        (None, 0),
        ({"notifications": {"resourceSubscriptions": 5}}, 0),  # for the server to refuse
    ],
)
def test_the_resources_of_a_subscription_are_counted(params: Any, count: int) -> None:
    assert same_era._uri_count(exchange("subscriptions/listen", params)) == count


def test_a_server_is_shown_with_the_revisions_that_we_speak() -> None:
    shown = json.loads(bytes(same_era._with_our_versions(Raw(b'{"a":1,"supportedVersions":[]}'))))
    ours = [revision.value for revision in reversed(Revision)]
    assert shown == {"a": 1, "supportedVersions": ours}
    assert bytes(same_era._with_our_versions(Raw(b"[1]"))) == b"[1]"


@pytest.mark.parametrize(
    ("result", "tagged"),
    [
        ({"a": 1}, {"a": 1, "_meta": {SUBSCRIPTION_KEY: 1}}),
        (
            {"_meta": {"x": 1, SUBSCRIPTION_KEY: 9}},
            {"_meta": {"x": 1, SUBSCRIPTION_KEY: 1}},
        ),
        ([1], [1]),
        ({"_meta": 5}, {"_meta": 5}),
    ],
)
def test_the_last_result_of_a_subscription_has_the_id_of_the_client(
    result: Any, tagged: Any
) -> None:
    asked = exchange("subscriptions/listen", {})
    assert json.loads(bytes(same_era._tagged(Raw(json.dumps(result).encode()), asked))) == tagged


class Watcher:
    """A session, as far as it watches resources."""

    def __init__(self, quota: SubscriptionQuota, *uris: str) -> None:
        self.uris = quota.held("key")
        for uri in uris:
            self.uris.add(uri)


class Watched:
    def __init__(self, **uris: set[object]) -> None:
        self.uris = uris


def test_who_stops_watching_leaves_it_to_others() -> None:
    quota = SubscriptionQuota()
    one, other = Watcher(quota, "a", "b"), Watcher(quota, "a")
    link: Any = Watched(a={one, other}, b={one})
    front: Any = one
    assert stop_watching(None, front, link) is False
    assert quota.uris.total == 3
    assert stop_watching("a", front, link) is True
    assert link.uris == {"a": {other}, "b": {one}}
    assert stop_watching("b", front, link) is False
    assert (link.uris, set(one.uris), quota.uris.total) == ({"a": {other}}, set(), 1)
    assert stop_watching("c", front, link) is False
    last: Any = other
    assert stop_watching("a", last, link) is False
    assert (link.uris, quota.uris.total) == ({}, 0)


# Forwarding, without connections


class OneLink:
    """A connection to a server that answers at once; it keeps what it was sent."""

    def __init__(self, revision: Revision = NEWEST_HANDSHAKE, **about: Any) -> None:
        self.name = "raw"
        self.introduction = Raw(b'{"protocolVersion":"server\'s","capabilities":{}}')
        self.agreement = Agreement(revision=revision, capabilities=b"{}")
        self.fronts: list[Any] = []
        self.uris: dict[str, set[Any]] = {}
        self.borrowed = about.get("borrowed", False)
        self.correlates_calls = about.get("correlates", False)
        self.turns = Turns()
        self.given_headers: list[tuple[Any, Any]] = []
        self.carries_headers = about.get("carries_headers", True)
        self.peer = SimpleNamespace(channel=self)
        self.sent: list[tuple[Any, float]] = []
        self.turned: list[bool] = []
        self.result: Raw | BaseException = Raw(b'{"a":1}')
        self.goes_on: asyncio.Event | None = None
        self.over = 0

    def add_headers(self, sent: Any, headers: Any) -> None:
        self.given_headers.append((sent, headers))

    async def pass_on(
        self,
        call: RelayedCall,
        passing: Any,
        *,
        timeout: float,
        on_sent: Any = None,
        turn: Any = None,
    ) -> Raw:
        params = passing.fill(9)
        plain = None if isinstance(params, UnsetType) else json.loads(bytes(params))
        self.sent.append((plain, timeout))
        self.turned.append(turn is not None)
        if on_sent is not None:
            on_sent(9)
        if self.goes_on is not None:
            try:
                await self.goes_on.wait()
            finally:
                await asyncio.sleep(0)  # the server is told
                self.over += 1
        if turn is not None:
            turn.release()
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class OneFront:
    """A session with a level and resources that it watches."""

    def __init__(self, link: OneLink, quota: SubscriptionQuota, level: str | None = None) -> None:
        self.level = level
        self.uris = quota.held("key")
        self.asked = 0
        self.outbox = None
        self.revisions: list[Revision] = []
        conversation = SimpleNamespace(set_revision=self.revisions.append)
        self.peer = SimpleNamespace(conversation=conversation)
        link.fronts.append(self)


def forwarder(**settings: Any) -> SameEraForwarder:
    return SameEraForwarder(RelaySettings(**settings), SubscriptionQuota())


def front_of(link: OneLink, level: str | None = None) -> Any:
    return OneFront(link, SubscriptionQuota(), level)


async def in_session(
    link: OneLink, front: Any, method: str, params: Any = None, **about: Any
) -> bytes:
    there: Any = link
    asked = exchange(method, params, stateless=False, **about)
    answer = await forwarder().forward_in_session(asked, front, there)
    return bytes(answer or b"")


@pytest.mark.parametrize(
    ("asked", "theirs", "version", "set_to"),
    [
        (Revision.V2025_06_18, Revision.V2025_03_26, "server's", [Revision.V2025_03_26]),
        (Revision.V2025_06_18, Revision.V2025_06_18, "server's", []),
        (Revision.V2025_06_18, Revision.V2025_11_25, "2025-06-18", []),
    ],
    ids=["older", "same", "newer"],
)
def test_an_introduction_has_the_older_of_two_revisions(
    asked: Revision, theirs: Revision, version: str, set_to: list[Revision]
) -> None:
    link: Any = OneLink(theirs)
    front = front_of(link)
    request = exchange("initialize", {}, stateless=False)
    request.caller = structs.replace(request.caller, revision=asked)
    result = forwarder().initialized(request, front, link)
    assert json.loads(bytes(result or b""))["protocolVersion"] == version
    assert (result is link.introduction) is (version == "server's")
    assert front.revisions == set_to


@pytest.mark.parametrize(
    ("level", "others", "sent"),
    [
        ("error", [], "error"),
        ("error", [None], "error"),
        ("error", ["info"], "info"),
        ("info", ["error"], "info"),
        ("error", ["info", "debug", None], "debug"),
        ("loud", ["info"], "loud"),
    ],
)
async def test_the_server_logs_what_any_session_wants(
    level: str, others: list[str | None], sent: str
) -> None:
    link = OneLink()
    front = front_of(link, "alert")
    for other in others:
        front_of(link, other)
    assert await in_session(link, front, "logging/setLevel", {"level": level}) == b'{"a":1}'
    assert link.sent == [({"level": sent}, 3600.0)]
    assert front.level == ("alert" if level == "loud" else level)


@pytest.mark.parametrize("params", [None, {}, {"level": 7}])
async def test_a_level_that_is_missing_is_for_the_server_to_refuse(params: Any) -> None:
    link = OneLink()
    front = front_of(link, "alert")
    await in_session(link, front, "logging/setLevel", params)
    assert (link.sent, front.level) == ([(params, 3600.0)], "alert")


async def test_wishes_of_a_request_that_stands_alone_are_not_kept() -> None:
    link = OneLink()
    for method, params in (
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "a:1"}),
        ("resources/unsubscribe", {"uri": "a:1"}),
    ):
        assert await in_session(link, None, method, params) == b'{"a":1}'
        link.result = RpcError(-5, "no")
        with pytest.raises(RpcError, match="no"):
            await in_session(link, None, method, params)
        link.result = Raw(b'{"a":1}')
    assert link.uris == {}


async def test_a_level_is_the_earlier_one_again_if_the_server_refuses() -> None:
    link = OneLink()
    link.result = RpcError(-5, "no")
    front = front_of(link, "alert")
    with pytest.raises(RpcError, match="no"):
        await in_session(link, front, "logging/setLevel", {"level": "info"})
    assert front.level == "alert"


async def test_resources_are_watched_from_the_request_on() -> None:
    link = OneLink()
    one, other = front_of(link), front_of(link)
    for front in (one, other):
        await in_session(link, front, "resources/subscribe", {"uri": "a:1"})
    assert link.uris == {"a:1": {one, other}}
    link.result = RpcError(-5, "no")
    for uri in ("a:1", "b:1"):  # what it watches already stays
        with pytest.raises(RpcError, match="no"):
            await in_session(link, one, "resources/subscribe", {"uri": uri})
    assert (link.uris, set(one.uris)) == ({"a:1": {one, other}}, {"a:1"})
    link.result, before = Raw(b'{"a":1}'), len(link.sent)
    assert await in_session(link, one, "resources/unsubscribe", {"uri": "a:1"}) == b"{}"
    assert (len(link.sent), link.uris, set(one.uris)) == (before, {"a:1": {other}}, set())
    assert await in_session(link, other, "resources/unsubscribe", {"uri": "a:1"}) == b'{"a":1}'
    assert (len(link.sent), link.uris) == (before + 1, {})
    # Without a URI the server refuses it.
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert await in_session(link, one, method, {}) == b'{"a":1}'
    assert link.uris == {}


@pytest.mark.parametrize(
    ("borrowed", "watched", "sent"),
    [(True, False, 0), (True, True, 1), (False, False, 1), (False, True, 1)],
)
async def test_a_subscription_of_the_gateway_itself_is_not_ended_by_a_client(
    borrowed: bool, watched: bool, sent: int
) -> None:
    link = OneLink(borrowed=borrowed)
    front = front_of(link)
    if watched:
        await in_session(link, front, "resources/subscribe", {"uri": "a:1"})
        link.sent.clear()
    await in_session(link, front, "resources/unsubscribe", {"uri": "a:1"})
    assert len(link.sent) == sent


@pytest.mark.parametrize(
    ("method", "capabilities", "correlates", "session", "turn"),
    [
        ("tools/call", b'{"roots":{}}', False, True, True),
        ("tools/call", b'{"roots":{}}', True, True, False),
        ("tools/call", b'{"roots":{}}', False, False, False),
        ("tools/call", b"{}", False, True, False),
        ("tools/list", b'{"roots":{}}', False, True, False),
    ],
)
async def test_calls_during_which_a_client_may_be_asked_take_turns(
    method: str, capabilities: bytes, correlates: bool, session: bool, turn: bool
) -> None:
    link = OneLink(correlates=correlates)
    front = front_of(link) if session else None
    await in_session(link, front, method, {"name": "x"}, capabilities=capabilities)
    assert link.turned == [turn]
    assert link.turns.free


async def test_a_client_that_is_being_asked_need_not_wait(virtual_time: VirtualTime) -> None:
    link: Any = OneLink()
    one, other = front_of(link), front_of(link)
    relay, begun = forwarder(turn_timeout=5.0), virtual_time.now
    call = exchange("tools/call", {"name": "x"}, stateless=False, capabilities=b'{"roots":{}}')
    held = link.turns.try_take(one)
    waiting = asyncio.create_task(relay.forward_in_session(call, other, link))
    await asyncio.sleep(0)
    one.asked = 1
    assert await relay.forward_in_session(call, one, link) == Raw(b'{"a":1}')
    one.asked = 0
    with pytest.raises(RpcError, match="raw is busy: other clients use it") as refused:
        await relay.forward_in_session(call, one, link)
    assert refused.value.code == INTERNAL_ERROR
    assert virtual_time.now - begun == pytest.approx(5.0)
    with pytest.raises(RpcError, match="raw is busy"):
        await waiting
    assert len(link.sent) == 1
    assert held is not None
    held.release()


@pytest.mark.parametrize(
    ("revision", "same"),
    [
        (Revision.V2025_03_26, True),
        (Revision.V2025_06_18, True),
        (Revision.V2025_11_25, False),
    ],
)
async def test_a_result_is_put_into_the_words_of_an_older_client(
    revision: Revision, same: bool
) -> None:
    link: Any = OneLink(revision)
    link.result = Raw(b'{"tools":[{"name":"x","icons":[],"inputSchema":{}}]}')
    request = exchange("tools/list", {}, stateless=False)
    request.caller = structs.replace(request.caller, revision=Revision.V2025_06_18)
    result = await forwarder().forward_in_session(request, None, link)
    assert (result is link.result) is same
    assert (b"icons" in bytes(result or b"")) is same


# The stateless era


HEADERS = {"mcp-param-a": "1", "mcp-param-b": "2", "accept": "x"}


@pytest.mark.parametrize(
    ("method", "headers", "carries", "given"),
    [
        ("tools/call", HEADERS, True, [(9, {"mcp-param-a": "1", "mcp-param-b": "2"})]),
        ("tools/call", {"accept": "x"}, True, []),
        ("tools/call", None, True, []),
        ("tools/call", HEADERS, False, []),
        ("tools/list", HEADERS, True, []),
    ],
)
async def test_arguments_in_headers_are_passed_on_in_headers(
    method: str, headers: dict[str, str] | None, carries: bool, given: list[Any]
) -> None:
    link: Any = OneLink(carries_headers=carries)
    request = exchange(method, {"name": "x"})
    request.transport = structs.replace(request.transport, headers=headers)
    assert await forwarder(call_timeout=7.0).forward_stateless(request, None, link) is link.result
    assert (link.given_headers, link.sent) == (given, [({"name": "x"}, 7.0)])


async def test_a_server_is_discovered_with_the_revisions_of_the_relay() -> None:
    link: Any = OneLink()
    result = await forwarder(call_timeout=7.0).forward_stateless(
        exchange("server/discover", {}), None, link
    )
    assert b'"supportedVersions"' in bytes(result or b"")
    assert link.sent == [({}, 7.0)]


async def test_streams_last_until_they_are_ended() -> None:
    link: Any = OneLink()
    link.goes_on = asyncio.Event()
    quota = SubscriptionQuota()
    relay = SameEraForwarder(RelaySettings(), quota)
    params = {"notifications": {"resourceSubscriptions": ["a:1", "a:2"]}}
    asked = [exchange("subscriptions/listen", params) for _ in range(3)]
    streams = [asyncio.create_task(relay.forward_stateless(one, None, link)) for one in asked]
    for _ in range(3):
        await asyncio.sleep(0)
    assert link.sent == [(params, 0)] * 3
    assert quota.uris.total == 6
    relay.hang_up(asked[1].edge)
    ended = json.loads(bytes(await streams[1] or b""))
    assert ended == {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: 1}}
    assert [one.done() for one in streams] == [False, True, False]
    assert quota.uris.total == 4
    link.result = Raw(b'{"b":2}')
    link.goes_on.set()
    assert json.loads(bytes(await streams[0] or b""))["b"] == 2
    link.goes_on.clear()
    await streams[2]
    last = asyncio.create_task(relay.forward_stateless(asked[0], None, link))
    for _ in range(3):
        await asyncio.sleep(0)
    relay.hang_up()
    assert json.loads(bytes(await last or b""))["resultType"] == "complete"
    assert quota.uris.total == 0


async def test_a_client_that_does_not_listen_any_longer_ends_its_stream() -> None:
    link: Any = OneLink()
    link.goes_on = asyncio.Event()
    relay = forwarder()
    stream = asyncio.create_task(
        relay.forward_stateless(exchange("subscriptions/listen", {}), None, link)
    )
    for _ in range(3):
        await asyncio.sleep(0)
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert link.over == 1
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    link.result = RpcError(-5, "no")
    link.goes_on.set()
    with pytest.raises(RpcError, match="no"):
        await relay.forward_stateless(exchange("subscriptions/listen", {}), None, link)
