"""Two principals at a gateway: neither has access to data of the other, even with the same role.

They are two users, or one user with two OAuth clients or two roles.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.gateway.clients.test_role_access import HEADERS, META, Place, scene
from tests.support.gateway_servers import LIMIT, make, serving
from tests.support.http_server import next_event

ELICITATION = {"elicitation": {"form": {}}}
PATHS = pytest.mark.parametrize("path", ["/mcp", "/mcp/new", "/mcp/old"])
OTHERS = pytest.mark.parametrize(
    "other",
    # The last one is the same user and client with the role `operators`.
    [{"sub": "ben"}, {"client_id": "other"}, {"client_id": None}, {"groups": ["ops"]}],
    ids=str,
)


class User:
    """A user with a token for one endpoint."""

    def __init__(self, place: Place, path: str, **claims: Any) -> None:
        self.url = place.url + path
        self._web = place.web
        self._prefix = "new_" if path == "/mcp" else ""
        self._claims = {"sub": "ann", "scope": "mcp", **claims}
        self._place = place
        self.renew()

    def renew(self) -> None:
        """Use a new token of the same user and client from now on."""
        token = self._place.a.token(self.url, jti=secrets.token_hex(), **self._claims)
        self._token = {"Authorization": f"Bearer {token}"}

    def request(
        self, method: str, session: str | None = None, after: str | None = None, **options: Any
    ) -> Any:
        """Send a request; `after` is the id of the last received event."""
        headers = {"Accept": HEADERS["Accept"], **self._token}
        if session is not None:
            headers["Mcp-Session-Id"] = session
        if after is not None:
            headers["Last-Event-ID"] = after
        return self._web.request(method, self.url, headers=headers, **options)

    async def post(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Send a request of the handshake era; return its response and the session."""
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        async with self.request("POST", session, json=message) as reply:
            text = await reply.text()
            assert reply.status == 200, text
            lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
            return json.loads(lines[-1]), reply.headers.get("Mcp-Session-Id")

    async def open(self) -> str:
        """Open a session and return its id."""
        _, session = await self.post(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities=ELICITATION,
            clientInfo={"name": "c", "version": "1"},
        )
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with self.request("POST", session, json=note) as reply:
            assert reply.status == 202
        await self.post("logging/setLevel", session, level="debug")
        return str(session)

    async def call(self, tool: str, session: str, **arguments: Any) -> Any:
        name = self._prefix + tool
        return (await self.post("tools/call", session, name=name, arguments=arguments))[0]

    async def first_event(self, session: str, tool: str, **arguments: Any) -> str:
        """Call a tool, disconnect after the first event, and return the id of this event."""
        params = {"name": self._prefix + tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 8, "method": "tools/call", "params": params}
        async with self.request("POST", session, json=message) as reply:
            return (await next_event(reply))["id"]

    async def ask(self, **more: Any) -> Any:
        """Call the tool `ask` without a session."""
        name = self._prefix + "ask"
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": ELICITATION}
        params = {"name": name, "arguments": {}, "_meta": meta, **more}
        headers = {**HEADERS, **self._token, "Mcp-Method": "tools/call", "Mcp-Name": name}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with self._web.post(self.url, json=message, headers=headers) as reply:
            return await reply.json()


@contextlib.asynccontextmanager
async def two_users(
    folder: Path, path: str, **other: Any
) -> AsyncIterator[tuple[Place, User, User]]:
    """Run a gateway with one server in each era, and yield a principal of the role `staff` and
    another one.

    `other` are the claims in which the second one differs.
    """
    async with serving(make("red")) as url:
        servers = {"new": {"url": url}, "old": {"url": url, "era": "handshake"}}
        async with scene(folder, servers) as place:
            yield place, User(place, path), User(place, path, **(other or {"sub": "ben"}))


@pytest.mark.covers("AUT-06")
@PATHS
@OTHERS
async def test_a_session_is_unknown_to_other_users(
    path: str, other: dict[str, Any], tmp_path: Path
) -> None:
    async with two_users(tmp_path, path, **other) as (place, ann, ben):
        session = await ann.open()
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        async with ann.request("GET", session) as stream:
            assert stream.status == 200
            for options in (
                {"method": "POST", "json": ping},
                {"method": "GET"},
                {"method": "GET", "after": "g_0"},
            ):
                async with ben.request(session=session, **options) as reply:
                    assert reply.status == 404
        async with ben.request("DELETE", session) as reply:
            assert reply.status == 404
        assert "result" in await ann.call("who", session)
        assert len(place.gateway.sessions()) == 1


@pytest.mark.covers("AUT-06")
@PATHS
@OTHERS
async def test_events_of_a_session_are_not_replayed_to_other_users(
    path: str, other: dict[str, Any], tmp_path: Path
) -> None:
    """The thief sends the id of an event with the session that it belongs to, and with its own."""
    async with two_users(tmp_path, path, **other) as (_, ann, ben):
        hers, his = await ann.open(), await ben.open()
        last = await ann.first_event(hers, "speak", text="of ann")
        for session, status in ((hers, 404), (his, 400)):
            async with ben.request("GET", session, last) as reply:
                assert reply.status == status
                assert "of ann" not in await reply.text()
        ann.renew()
        async with ann.request("GET", hers, last) as reply:
            assert "of ann" in await reply.text()


@pytest.mark.covers("AUT-06")
@PATHS
@OTHERS
async def test_the_request_state_of_a_call_is_refused_if_another_user_sends_it(
    path: str, other: dict[str, Any], tmp_path: Path
) -> None:
    """At `/mcp/old` the call is parked, because its server is of the handshake era."""
    async with two_users(tmp_path, path, **other) as (_, ann, ben):
        question = (await ann.ask())["result"]
        returned = answered(question, "Ann")
        stolen = await ben.ask(**returned)
        assert "Ann" not in json.dumps(stolen)
        assert "error" in stolen
        done = await ann.ask(**returned)
        assert done["result"]["content"][0]["text"].startswith("Ann to red")


@pytest.mark.covers("AUT-06")
@PATHS
async def test_the_request_state_of_a_call_is_accepted_with_a_renewed_token(
    path: str, tmp_path: Path
) -> None:
    """At `/mcp/old` the call is parked."""
    async with two_users(tmp_path, path) as (_, ann, _):
        question = (await ann.ask())["result"]
        ann.renew()
        done = await ann.ask(**answered(question, "Ann"))
        assert done["result"]["content"][0]["text"].startswith("Ann to red")


def answered(question: Any, name: str) -> dict[str, Any]:
    """Return the params with which a client repeats a call and answers its only question."""
    [key] = question["inputRequests"]
    responses = {key: {"action": "accept", "content": {"value": name}}}
    return {"requestState": question["requestState"], "inputResponses": responses}


@pytest.mark.covers("AUT-06")
@PATHS
@OTHERS
async def test_messages_of_a_call_do_not_reach_other_users(
    path: str, other: dict[str, Any], tmp_path: Path
) -> None:
    async with two_users(tmp_path, path, **other) as (_, ann, ben):
        hers, his = await ann.open(), await ben.open()
        for user, session in ((ann, hers), (ben, his)):
            await user.post("resources/subscribe", session, uri="shared://note")
        async with asyncio.timeout(LIMIT), ben.request("GET", his) as stream:
            for number in range(5):
                await ann.call("speak", hers, text=f"of ann {number}")
            # Both users may read the resource, so both are notified; nothing can follow later.
            await ann.call("touch", hers, uri="shared://note")
            heard = await until_updated(stream)
        assert "of ann" not in heard


async def until_updated(stream: aiohttp.ClientResponse) -> str:
    heard = ""
    while "notifications/resources/updated" not in heard:
        line = (await stream.content.readline()).decode()
        assert line, heard
        heard += line
    return heard
