"""Results of `initialize` and `server/discover`, and merged instructions."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead.gateway import Gateway, View
from fairlead.gateway.catalog.views import ClientViews
from fairlead.gateway.handshake_results import HandshakeResults
from fairlead.limits import INSTRUCTIONS_TEXT, MERGED_INSTRUCTIONS_TEXT
from fairlead.protocol.revisions import Revision
from fairlead.server.results.result_envelope import ResultEnvelope
from tests.support.gateway_servers import (
    BOTH,
    LIMIT,
    joining,
    make,
    program,
    serving,
    until,
)
from tests.support.single_exchange import exchange


@pytest.mark.parametrize("version", BOTH)
async def test_a_client_gets_the_merged_instructions_of_all_servers(version: str) -> None:
    async with asyncio.timeout(LIMIT), serving(make("red")) as red, Gateway() as gateway:
        await gateway.connect({"red": {"url": red}, "blue": program("blue")})
        await until(lambda: gateway.is_ready)
        async with joining(gateway, version) as client:
            assert client.instructions == "blue: how to use blue\n\nred: how to use red"
    async with Gateway(instructions="mine") as gateway, joining(gateway, version) as client:
        assert client.instructions == "mine"


# Without servers


class Place:
    """Servers with instructions, and the results built from them."""

    def __init__(
        self, own: str | None = None, view: View | None = None, **texts: str | None
    ) -> None:
        self.texts = texts
        self.readied = 0
        self.began: list[Any] = []
        parts: Any = self
        info = {"name": "x", "version": "1"}
        self.results = HandshakeResults(
            *(info, own, ResultEnvelope(info)),
            registry=parts,
            lists=parts,
            views=ClientViews({}, view or View.everything()),
            changes=parts,
        )

    def within(self, view: View) -> list[Any]:
        """Return the members in a view. `a2` is a replica of `a`."""
        members: dict[str, Any] = {}
        for server, text in self.texts.items():
            name = server.partition("2")[0]
            member = members.setdefault(name, SimpleNamespace(name=name, upstreams=[]))
            member.upstreams.append(SimpleNamespace(instructions=text))
        return [member for name, member in members.items() if view.includes(name)]

    async def ready(self) -> None:
        self.readied += 1

    def introduced(self, asked: Any, capabilities: Any) -> None:
        self.began.append(capabilities)

    async def instructions(self, stateless: bool = True) -> str | None:
        asked = exchange("server/discover" if stateless else "initialize", {}, stateless=stateless)
        if stateless:
            answer = await self.results.discover(asked)
        else:
            answer = await self.results.initialize(asked, None)
        found: str | None = json.loads(bytes(answer or b"")).get("instructions")
        return found


CAPABLE = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


async def test_initialize_returns_the_capabilities_of_the_gateway() -> None:
    place = Place()
    client: Any = SimpleNamespace(introduction=None)
    said = {"protocolVersion": "2099-01-01", "clientInfo": {"name": "c"}}
    asked = exchange("initialize", said, stateless=False)
    answer = await place.results.initialize(asked, client)
    assert json.loads(bytes(answer or b"")) == {
        "protocolVersion": "2025-11-25",
        "capabilities": CAPABLE,
        "serverInfo": {"name": "x", "version": "1"},
    }
    # Servers receive the revision that the gateway has chosen.
    assert json.loads(bytes(client.introduction)) == {**said, "protocolVersion": "2025-11-25"}
    assert (place.began, place.readied) == ([CAPABLE], 1)
    client.introduction = None
    await place.results.initialize(exchange("initialize", stateless=False), client)
    assert client.introduction is None


async def test_discover_returns_all_supported_revisions() -> None:
    place = Place()
    answer = await place.results.discover(exchange("server/discover", {}))
    found = json.loads(bytes(answer or b""))
    assert found["supportedVersions"] == [revision.value for revision in reversed(Revision)]
    assert (found["capabilities"], found["resultType"]) == (CAPABLE, "complete")
    assert (place.began, place.readied) == ([], 0)


@pytest.mark.parametrize(
    ("own", "view", "texts", "shown"),
    [
        (None, None, {}, None),
        (None, None, {"b": "B", "a": "A"}, "a: A\n\nb: B"),
        (None, None, {"a": None, "b": ""}, None),
        (None, None, {"a": "A", "a2": "other"}, "a: A"),
        (None, None, {"a2": "other", "a": "A"}, "a: other"),
        (None, View(servers=("b",)), {"b": "B", "a": "A"}, "b: B"),
        ("mine", None, {"a": "A"}, "mine"),
        ("", None, {"a": "A"}, ""),
    ],
)
async def test_only_servers_in_the_view_contribute_to_the_instructions(
    own: str | None, view: View | None, texts: dict[str, str | None], shown: str | None
) -> None:
    place = Place(own, view, **texts)
    assert await place.instructions() == shown
    assert await place.instructions(stateless=False) == shown
    assert place.readied == (1 if own is None else 0)


async def test_instructions_over_the_length_limit_are_truncated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(INSTRUCTIONS_TEXT, "value", 4)
    hits = INSTRUCTIONS_TEXT.hits
    assert await Place(a="1234").instructions() == "a: 1234"
    assert INSTRUCTIONS_TEXT.hits == hits
    assert await Place(a="12345").instructions() == "a: 1234…"
    assert INSTRUCTIONS_TEXT.hits == hits + 1


@pytest.mark.parametrize(
    ("room", "shown", "hit"),
    [(6, "a: 12\n\nb: 34\n\nc: 56", 0), (5, "a: 12\n\nb: 34", 1), (1, None, 1)],
)
async def test_the_merged_instructions_are_limited_in_size(
    monkeypatch: pytest.MonkeyPatch, room: int, shown: str | None, hit: int
) -> None:
    monkeypatch.setattr(MERGED_INSTRUCTIONS_TEXT, "value", room)
    hits = MERGED_INSTRUCTIONS_TEXT.hits
    assert await Place(a="12", b="34", c="56").instructions() == shown
    assert MERGED_INSTRUCTIONS_TEXT.hits - hits == hit
