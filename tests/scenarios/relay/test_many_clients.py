"""Many concurrent clients of both eras that call tools and cancel calls."""

import asyncio
import contextlib
import json
import random
from typing import Any

import pytest

from tests.support.raw_relay import ASKED, Client, Scene, Server, scene

FORM = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
KINDS = ["echo", "ask", "ask twice", "progress", "fail", "never"]


class Answering:
    """A handler for all relay connections that answers late and in any order."""

    def __init__(self, place: Scene, dice: random.Random) -> None:
        self.place, self.dice = place, dice
        self.tasks: set[asyncio.Task[None]] = set()
        self.asked = 0
        self.answers: dict[str, asyncio.Future[Any]] = {}
        self.start(self.accept())

    def start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def accept(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                self.start(self.read(await self.place.server()))

    async def read(self, server: Server) -> None:
        while line := await server.inbox.get():
            message = json.loads(line)
            if message.get("method") == "tools/call":
                self.start(self.call(server, message))
            elif "method" not in message:
                self.answers.pop(message["id"]).set_result(message)

    async def call(self, server: Server, request: dict[str, Any]) -> None:
        params = request["params"]
        kind, who = params["arguments"]["kind"], params["arguments"]["who"]
        for _ in range(self.dice.randrange(5)):
            await asyncio.sleep(0)
        if kind == "never":
            return
        if kind == "fail":
            server.refuse(request, 7, who)
            return
        if kind == "progress":
            token = params["_meta"]["progressToken"]
            for n in range(3):
                note = {"progressToken": token, "progress": n, "message": who}
                server.tell("notifications/progress", note)
        heard = []
        for _ in range({"ask": 1, "ask twice": 2}.get(kind, 0)):
            self.asked += 1
            question = f"s{self.asked}"
            waiting = self.answers[question] = asyncio.get_running_loop().create_future()
            server.ask("elicitation/create", FORM, question)
            answer = await waiting
            heard.append(answer.get("result", {}).get("content", {}).get("who"))
        server.reply(request, {"content": [], "who": who, "heard": heard})

    async def close(self) -> None:
        while self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.wait(self.tasks)


class Caller:
    """A client with several concurrent calls that checks every message."""

    def __init__(self, client: Client, name: str, dice: random.Random, stateless: bool) -> None:
        self.client, self.name, self.dice, self.stateless = client, name, dice, stateless
        self.open: dict[Any, str] = {}
        self.done = 0

    def params(self, kind: str) -> dict[str, Any]:
        return {"name": "x", "arguments": {"kind": kind, "who": self.name}}

    def send(self, kind: str, **more: Any) -> None:
        params = {**self.params(kind), **more}
        token = {"progressToken": f"{self.name}-{kind}"} if kind == "progress" else {}
        if self.stateless:
            request = self.client.stateless("tools/call", params, ASKED, **token)
        else:
            request = self.client.ask("tools/call", {**params, "_meta": token})
        self.open[request] = kind

    async def run(self, count: int) -> None:
        for _ in range(count):
            self.send(self.dice.choice(KINDS))
            if self.dice.random() < 0.3:
                await asyncio.sleep(0)
            if self.dice.random() < 0.2:
                self.cancel(self.dice.choice(list(self.open)))
        while self.open:
            if all(kind == "never" for kind in self.open.values()):
                for request in list(self.open):
                    self.cancel(request)
                break
            # Cancel calls that never end; other calls wait for them.
            for request in [r for r, kind in self.open.items() if kind == "never"]:
                self.cancel(request)
            self.heard(await self.client.read())

    def cancel(self, request: Any) -> None:
        self.open.pop(request)
        self.client.tell("notifications/cancelled", {"requestId": request})

    def heard(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "notifications/progress":
            assert message["params"]["message"] == self.name
            assert message["params"]["progressToken"] == f"{self.name}-progress"
        elif method == "elicitation/create":
            answer = {"action": "accept", "content": {"who": self.name}}
            self.client.reply(message, answer)
        elif method is None and message["id"] in self.open:
            self.answered(self.open.pop(message["id"]), message)
        else:
            # Either the response was sent before the cancellation arrived,
            # or a session got another connection and is notified of list changes.
            assert method in ("notifications/cancelled", None) or method.endswith("/list_changed")

    def answered(self, kind: str, message: dict[str, Any]) -> None:
        self.done += 1
        if kind == "fail":
            assert message["error"]["message"] == self.name
            return
        result = message["result"]
        if result.get("resultType") == "input_required":
            (key,) = result["inputRequests"]
            given = {key: {"action": "accept", "content": {"who": self.name}}}
            self.send(kind, requestState=result["requestState"], inputResponses=given)
            return
        assert result["who"] == self.name
        rounds = {"ask": 1, "ask twice": 2}.get(kind, 0)
        assert result["heard"] == [self.name] * rounds


@pytest.mark.covers("GTW-03", "GTW-05")
@pytest.mark.parametrize("seed", range(4))
async def test_every_concurrent_client_gets_each_of_its_responses_once(seed: int) -> None:
    dice = random.Random(seed)
    async with scene(turn_timeout=0, turn_wait=0.01, max_connections=9) as place:
        answering = Answering(place, dice)
        callers = []
        for n in range(6):
            stateless = n % 2 == 0
            client = await place.client() if stateless else await place.session(ASKED)
            callers.append(Caller(client, f"c{n}", dice, stateless))
        async with asyncio.timeout(30):
            await asyncio.gather(*(caller.run(15) for caller in callers))
            assert sum(caller.done for caller in callers) > 40
            # Wait until the connections have released all cancelled calls.
            pool = place.relay.pool
            while not all(
                connection.turns.free and not connection.calls for connection in pool.connections
            ):
                await asyncio.sleep(0.01)
        assert len(place.relay.parked) == 0
        assert len(place.servers) <= 9
        await answering.close()
