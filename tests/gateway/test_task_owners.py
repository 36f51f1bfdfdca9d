"""Tasks of a server behind a gateway: each belongs to the user who created it."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.gateway.task_owners import TaskOwners
from fairlead.interceptor import Exchange
from fairlead.limits import OWNED_TASKS
from fairlead.wire import to_json
from tests.gateway.clients.test_role_access import scene
from tests.support.http_server import Answer, Web, next_message, stateless
from tests.support.scripted_http_server import Call, RawServer, raw_server, stateless_server
from tests.support.single_exchange import exchange

EXTENSION = "io.modelcontextprotocol/tasks"
CAPABLE = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}}}


async def task_server(call: Call) -> None:
    """Answer each call with a new task, and requests about any task from any client."""
    params = call.message.get("params", {})
    match call.rpc:
        case "tools/list":
            tools = [{"name": "work", "inputSchema": {"type": "object"}}]
            await call.result(
                {"resultType": "complete", "tools": tools, "ttlMs": 0, "cacheScope": "private"}
            )
        case "tools/call":
            task = params["arguments"]["task"]
            await call.result({"resultType": "task", "taskId": task, "status": "working"})
        case "subscriptions/listen":
            await call.begin_events()
            tag = {"io.modelcontextprotocol/subscriptionId": call.message["id"]}
            granted = {"notifications": params["notifications"], "_meta": tag}
            note = {"method": "notifications/subscriptions/acknowledged", "params": granted}
            await call.event({"jsonrpc": "2.0", **note})
            await call.gone()
        case method if method.startswith("tasks/"):
            await call.result({"resultType": "complete", "taskId": params["taskId"]})
        case _:
            await call.answer(404)


class User:
    """A user of the endpoint `/mcp/red`."""

    def __init__(self, place: Any, name: str) -> None:
        self._place, self._name = place, name
        self.web = Web(f"{place.url}/mcp/red", place.web)

    @property
    def headers(self) -> dict[str, str]:
        token = self._place.b.token(self.web.url, sub=self._name)  # a new token for each request
        return {"Authorization": f"Bearer {token}"}

    async def ask(self, method: str, **params: Any) -> Answer:
        named = params.get("taskId")
        headers = {**self.headers, **({"Mcp-Name": named} if named else {})}
        return await self.web.stateless(method, params, headers, **CAPABLE)


@contextlib.asynccontextmanager
async def two_users(folder: Path) -> AsyncIterator[tuple[User, User, RawServer]]:
    async with raw_server(stateless_server(task_server)) as server:
        async with scene(folder, {"red": {"url": server.url}}) as place:
            yield User(place, "ann"), User(place, "ben"), server


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_a_task_is_unknown_to_other_users(method: str, tmp_path: Path) -> None:
    async with two_users(tmp_path) as (ann, ben, server):
        await ann.ask("tools/call", name="work", arguments={"task": "of-ann"})
        refused = await ben.ask(method, taskId="of-ann")
        assert (refused.error, refused.json["error"]["message"]) == (
            -32602,
            "Task not found: of-ann",
        )
        assert server.of(method) == []
        assert (await ann.ask(method, taskId="of-ann")).result["taskId"] == "of-ann"
        # A server that uses the id a second time does not make the task accessible to the second
        # user.
        await ben.ask("tools/call", name="work", arguments={"task": "of-ann"})
        assert (await ben.ask(method, taskId="of-ann")).error == -32602


async def test_a_client_cannot_listen_for_the_tasks_of_other_users(tmp_path: Path) -> None:
    async with two_users(tmp_path) as (ann, ben, _):
        for user, task in ((ann, "of-ann"), (ben, "of-ben")):
            await user.ask("tools/call", name="work", arguments={"task": task})
        wanted = {"notifications": {"taskIds": ["of-ann", "of-ben"], "toolsListChanged": True}}
        body, headers = stateless("subscriptions/listen", wanted, ben.headers, **CAPABLE)
        headers["Accept"] = "application/json, text/event-stream"
        async with ben.web.http.post(ben.web.url, json=body, headers=headers) as stream:
            granted = (await next_message(stream))["params"]["notifications"]
        assert granted == {"taskIds": ["of-ben"], "toolsListChanged": True}


def of(principal: Any, method: str, **params: Any) -> Exchange:
    return exchange(method, params, principal=principal, stateless=False)


async def test_a_list_contains_the_tasks_of_its_client_only() -> None:
    """In the handshake era, the result of a call has its task in the member `task`."""
    owners, page = TaskOwners(), [{"taskId": name, "status": "working"} for name in "abc"]

    async def forward(request: Exchange) -> bytes:
        if request.method == "tools/call":
            name = "a" if request.caller.principal == "ann" else "b"
            return to_json({"task": {"taskId": name, "status": "working"}})
        return to_json({"tasks": page, "nextCursor": "x"})

    for name in ("ann", "ben"):
        await owners.answer(of(name, "tools/call", name="work"), forward)
    listed = await owners.answer(of("ann", "tasks/list"), forward)
    assert bytes(listed or b"") == to_json({"tasks": page[:1], "nextCursor": "x"})


async def test_a_limited_number_of_tasks_is_remembered() -> None:
    owners = TaskOwners()

    async def forward(request: Exchange) -> bytes:
        return to_json({"task": {"taskId": request.head.name}})

    for number in range(OWNED_TASKS.value + 1):
        await owners.answer(of("ann", "tools/call", name=f"t{number}"), forward)
    assert len(owners._owners) == OWNED_TASKS.value
    assert "t0" not in owners._owners
