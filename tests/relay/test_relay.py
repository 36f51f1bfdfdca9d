"""Without interceptors every value passes as the text it came as."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.gateway import RelaySettings
from fairlead.relay.bridge.parked_calls import ParkedCalls
from fairlead.relay.relay import Relay
from fairlead.server.features.subscription_quota import SubscriptionQuota
from fairlead.transport.memory import memory_pair
from tests.support.examples import examples
from tests.support.raw_relay import (
    HANDSHAKE,
    META,
    STATELESS,
    Client,
    Scene,
    Server,
    members,
    scene,
)

# Texts of JSON values, not values: what a decoder would change is what we look for.
NUMBERS = ["0", "-0", "1.0", "0.10", "1e400", "-1E+2", "1e-5", "9" * 40, "9007199254740993"]
PIECES = ["a", "é", "\\u00e9", "\\/", "\\ud83d\\ude00", "😀", "\\n", '\\"', "\\\\", " ", "\\u0000"]

strings = st.lists(st.sampled_from(PIECES), max_size=5).map(lambda parts: f'"{"".join(parts)}"')
scalars = st.one_of(st.sampled_from([*NUMBERS, "true", "false", "null"]), strings)
space = st.sampled_from(["", "", " ", "\t"])


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    entries = st.lists(st.tuples(strings, space, values), max_size=4, unique_by=lambda e: e[0])
    # A member that means something to the relay, or the same key spelled twice, is not in here.
    return entries.map(
        lambda all_of: "{" + ",".join(f'"x{i}":{s}{v}' for i, (_, s, v) in enumerate(all_of)) + "}"
    )


def arrays(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(values, max_size=4), space).map(
        lambda pair: "[" + f",{pair[1]}".join(pair[0]) + "]"
    )


values = st.recursive(scalars, lambda inner: objects(inner) | arrays(inner), max_leaves=12)
some_objects = objects(values)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(bounded())


async def exchange(
    client: Client, server: Server, params: str, answer: str, extra: str
) -> tuple[bytes, bytes]:
    """One request through the relay: what the server read, what the client got."""
    client.send(f'{{"jsonrpc":"2.0","id":"c","method":"vendor/any","params":{params}{extra}}}')
    asked = await server.line()
    ours = members(asked)["id"].decode()
    server.send(f'{{"jsonrpc":"2.0","id":{ours},{answer}}}')
    return asked, await client.line()


async def opened(place: Scene, era: str) -> tuple[Client, Server]:
    if era == "handshake":
        client = await place.session()
        server = await place.server()
        assert (await server.read())["method"] == "notifications/initialized"
        return client, server
    client = await place.client()
    await client.answer_to(client.stateless("server/discover"))
    server = await place.server()
    # The first discovery was the relay's own, the second one is the client's.
    assert [m["method"] for m in server.seen] == ["server/discover", "server/discover"]
    return client, server


def stamped(params: str, era: str) -> str:
    if era == "handshake":
        return params
    meta = (
        f'"_meta":{{"{META}protocolVersion":"{STATELESS}","{META}clientCapabilities":{{}},'
        f'"vendor/k":1e400}}'
    )
    return "{" + meta + ("," if params != "{}" else "") + params[1:]


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@settings(max_examples=examples(40))
@given(params=some_objects, result=some_objects, extra=st.booleans())
def test_params_and_results_pass_as_the_text_they_are(
    era: str, params: str, result: str, extra: bool
) -> None:
    async def work() -> None:
        async with scene(era) as place:
            client, server = await opened(place, era)
            more = ',"vendor":[1e400, 1.0]' if extra else ""
            asked, got = await exchange(
                client, server, stamped(params, era), f'"result":{result}', more
            )
            assert members(members(asked)["params"]) == members(stamped(params, era).encode())
            assert members(asked).get("vendor") == (b"[1e400, 1.0]" if extra else None)
            assert got == f'{{"jsonrpc":"2.0","id":"c","result":{result}}}'.encode()

    run(work)


@pytest.mark.covers("GTW-04")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
@settings(max_examples=examples(25))
@given(data=values, message=strings, code=st.sampled_from([-32000, 1, -32602, 7, -32099]))
def test_errors_keep_code_message_data_and_more(
    era: str, data: str, message: str, code: int
) -> None:
    error = f'{{"code":{code},"message":{message},"data":{data},"hint":1e400}}'

    async def work() -> None:
        async with scene(era) as place:
            client, server = await opened(place, era)
            _, got = await exchange(client, server, stamped("{}", era), f'"error":{error}', "")
            assert members(got)["error"] == error.encode()

    run(work)


@pytest.mark.covers("GTW-04")
@settings(max_examples=examples(25))
@given(params=some_objects, result=some_objects)
def test_what_servers_ask_and_tell_passes_as_it_is(params: str, result: str) -> None:
    async def work() -> None:
        async with scene() as place:
            client, server = await opened(place, "handshake")
            told = f'{{"jsonrpc":"2.0","method":"vendor/news","params":{params},"more":1e400}}'
            server.send(told)
            got = await client.line()
            assert members(got) == members(told.encode())
            server.send(f'{{"jsonrpc":"2.0","id":"s","method":"vendor/ask","params":{params}}}')
            asked = await client.line()
            assert members(members(asked)["params"]) == members(params.encode())
            client.send(told)
            assert members(await server.line()) == members(told.encode())
            ours = members(asked)["id"].decode()
            client.send(f'{{"jsonrpc":"2.0","id":{ours},"result":{result}}}')
            answered = await server.line()
            assert answered == f'{{"jsonrpc":"2.0","id":"s","result":{result}}}'.encode()

    run(work)


async def test_half_an_emoji_becomes_a_replacement_character() -> None:
    async with scene() as place:
        client, server = await opened(place, "handshake")
        params = '{"cut":"\\ud83d!","whole":"\\ud83d\\ude00"}'
        asked, _ = await exchange(client, server, params, '"result":{}', "")
        assert members(asked)["params"] == b'{"cut":"\\ufffd!","whole":"\\ud83d\\ude00"}'


@pytest.mark.covers("DEC-13")
async def test_depth_that_nobody_can_read_passes_or_is_refused_but_never_hangs() -> None:
    async with scene() as place:
        client, server = await opened(place, "handshake")
        deep = '{"x":' + "[" * 400 + "]" * 400 + "}"
        asked, got = await exchange(client, server, deep, f'"result":{deep}', "")
        assert members(asked)["params"] == deep.encode()
        assert members(got)["result"] == deep.encode()
        too_deep = "[" * 100_000 + "]" * 100_000
        client.send(f'{{"jsonrpc":"2.0","id":9,"method":"vendor/any","params":{{"x":{too_deep}}}}}')
        refused = await client.read()
        assert refused["error"]["code"] == -32700
        await client.sync()


# Clients that do not wait for the answer to their handshake.


@pytest.mark.covers("GTW-03")
async def test_what_is_asked_behind_initialize_waits_for_it_and_nothing_is_restored() -> None:
    """No list has changed meanwhile: the server was never away."""
    params = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {},
        "clientInfo": {"name": "eager", "version": "1"},
    }
    async with scene() as place:
        client = await place.client()
        client.ask("initialize", params, 1)
        client.ask("tools/call", {"name": "x"}, 2)
        client.ask("tools/call", {"name": "y"}, 3)
        server = await place.server()
        for _ in range(2):
            asked = await server.method("tools/call")
            server.reply(asked, {"was": asked["params"]["name"]})
        assert "result" in await client.answer_to(1)
        assert (await client.answer_to(2))["result"] == {"was": "x"}
        assert (await client.answer_to(3))["result"] == {"was": "y"}
        assert client.skipped == []
        assert len(place.servers) == 1


# Notifications that go the wrong way: a relay passes them on, a strict one does not.


VENDOR = "notifications/vendor"
UP, DOWN = "notifications/tools/list_changed", "notifications/roots/list_changed"


@pytest.mark.covers("PRO-17", "GTW-04")
@pytest.mark.parametrize("strict", [False, True], ids=["transparent", "strict"])
async def test_a_notification_against_the_table(strict: bool) -> None:
    async with scene(settings=RelaySettings(strict=strict)) as place:
        client = await place.session()
        server = await place.server()
        await server.method("notifications/initialized")
        client.tell(UP, {"n": 1})
        client.tell(VENDOR, {"n": 2})
        first = await server.until(lambda said: said["method"] in (UP, VENDOR))
        assert first["method"] == (VENDOR if strict else UP)
        server.tell(DOWN, {"n": 3})
        server.tell(VENDOR, {"n": 4})
        first = await client.until(lambda said: said.get("method") in (DOWN, VENDOR))
        assert first["method"] == (VENDOR if strict else DOWN)
        assert first["params"] == {"n": 4 if strict else 3}


class Parked(ParkedCalls):
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


async def test_calls_that_wait_elsewhere_are_not_ended_with_a_relay() -> None:
    usual = RelaySettings()
    theirs = Parked(usual)
    relay = Relay({"command": "true"}, settings=usual, parked=theirs)
    await relay.close()
    assert relay.parked is theirs
    assert not theirs.closed
    relay = Relay({"command": "true"}, settings=usual)
    relay.parked = ours = Parked(usual)
    async with relay.running():
        assert not ours.closed
    assert ours.closed


class Session:
    """A session, as far as it watches resources."""

    def __init__(self, link: Any = None) -> None:
        self.link = link
        self.uris = SubscriptionQuota().held("key")
        self.uris.add("a:1")
        self.uris.add("a:2")


class StatelessLink:
    """A connection to a stateless server, and the work that nobody waits for."""

    stateless = alive = True

    def __init__(self) -> None:
        self.uris: dict[str, set[object]] = {}
        self.name = "raw"
        self.agreement = None
        self.fronts: dict[object, None] = {}
        self.on_news: Any = None
        self.work: list[str] = []
        self.stopped: list[Any] = []
        self.changes = SimpleNamespace(stop=self.stopped.append)

    def background(self, work: Any) -> None:
        self.work.append(work.__qualname__)
        work.close()


async def test_what_a_client_may_not_hear_of_is_not_watched_any_more() -> None:
    relay = Relay({"command": "true"})
    lost: Any = Session()
    relay.unwatch(lost, lambda uri: uri == "a:1")
    assert set(lost.uris) == {"a:1"}
    link = StatelessLink()
    served: Any = Session(link)
    relay.unwatch(served, lambda uri: uri == "a:1")
    assert set(served.uris) == {"a:1"}
    assert link.work == ["HandshakeToStateless.follow"]
    link.alive = False  # type: ignore[misc]
    relay.unwatch(served, lambda uri: False)
    assert (set(served.uris), len(link.work)) == (set(), 1)
    await relay.upstream.close()


async def test_who_listens_to_changes_of_a_connection_is_hung_up_on() -> None:
    relay, link = Relay({"command": "true"}), StatelessLink()
    given: Any = link
    relay.upstream._links["stateless"] = [given]
    relay.hang_up("edge")
    relay.hang_up()
    assert link.stopped == ["edge", None]
    relay.upstream._links.clear()
    await relay.close()


async def test_a_client_is_served_until_its_channel_ends_or_it_is_cancelled() -> None:
    relay = Relay({"command": "true"})
    near, far = memory_pair()
    serving = asyncio.create_task(relay.serve(near))
    await asyncio.sleep(0)
    await far.close()
    async with asyncio.timeout(5):
        await serving
    assert relay._fronts == {}
    near, far = memory_pair()
    serving = asyncio.create_task(relay.serve(near))
    await asyncio.sleep(0)
    (front,) = relay._fronts.values()
    serving.cancel()
    await asyncio.wait([serving])
    assert not front.peer.connected
    assert relay._fronts == {}
    await far.close()
    await relay.close()
