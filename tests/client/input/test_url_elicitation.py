"""Tests of pages that the user must visit before a call (error -32042)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead import Context, MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.client import InputNotGiven, Question, UrlElicitationRequired, accept, cancel, decline
from fairlead.client.connection.era_cache import known_eras
from fairlead.client.input import url_elicitation as visiting
from fairlead.client.input.answers import InputCallbacks
from fairlead.errors import ChannelClosed
from tests.support.scripted_stdio_server import heard, program
from tests.support.virtual_time import VirtualTime

LATEST = MCPClientConfig(protocol_version="latest")

GUARDED = """
visited = set()
CAPABILITIES["prompts"] = {}

def need(request, *names):
    pages = [{"mode": "url", "elicitationId": name, "message": "Visit " + name,
              "url": "https://example.com/" + name} for name in names if name not in visited]
    send({"jsonrpc": "2.0", "id": request["id"], "error": {
        "code": -32042, "message": "Go there first", "data": {"elicitations": pages}}})
    return pages

for request in requests():
    params = request.get("params", {})
    name = params.get("name", params.get("uri"))
    if name == "visit":  # what the user's browser would do
        visited.update(params["arguments"]["pages"])
        answer(request, {"content": []})
        for page in params["arguments"]["pages"]:
            tell("notifications/elicitation/complete", {"elicitationId": page})
    elif name == "nonsense":
        send({"jsonrpc": "2.0", "id": request["id"], "error": {
            "code": -32042, "message": "Go", "data": {"elicitations": [5, {"url": 6}]}}})
    elif name == "two" and not {"a", "b"} <= visited:
        need(request, "a", "b")
    elif name == "steps" and "b" not in visited:
        need(request, "b" if "a" in visited else "a")
    elif "id" in request and name not in ("two", "steps") and "a" not in visited:
        need(request, "a")
    elif "id" in request:
        done = {"content": [], "contents": [], "messages": []}
        answer(request, done)
"""


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


class Person:
    """A user who agrees to open pages and reports visits with the client, if there is one."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.client: MCPClient | None = None

    async def __call__(self, question: Question) -> dict[str, Any]:
        self.asked.append(question)
        if self.client is not None:
            await visit(self.client, str(question.elicitation_id))
        return accept()


async def visit(client: MCPClient, *pages: str) -> None:
    await client.call_tool("visit", {"pages": list(pages)})


def attempts(folder: Path, name: str) -> int:
    return sum(m["params"].get("name") == name for m in heard(folder, "tools/call"))


async def test_the_user_is_asked_to_open_each_page_before_the_call_is_repeated(
    tmp_path: Path,
) -> None:
    person = Person()
    command = program(tmp_path, GUARDED, stateless=False)
    async with MCPClient.connect_stdio(
        command, LATEST, on_elicit=person, elicit_url=True
    ) as client:
        person.client = client
        assert await client.call_tool("two") == {"content": [], "contents": [], "messages": []}
    assert person.asked == [
        Question(
            message=f"Visit {page}",
            mode="url",
            url=f"https://example.com/{page}",
            elicitation_id=page,
        )
        for page in ("a", "b")
    ]
    first, second = (m for m in heard(tmp_path, "tools/call") if m["params"]["name"] == "two")
    assert first["id"] != second["id"]
    assert first["params"]["arguments"] == second["params"]["arguments"]


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
async def test_prompts_and_resources_may_also_require_the_user_to_open_a_page(
    tmp_path: Path, method: str
) -> None:
    person = Person()
    command = program(tmp_path, GUARDED, stateless=False)
    async with MCPClient.connect_stdio(
        command, LATEST, on_elicit=person, elicit_url=True
    ) as client:
        person.client = client
        if method == "prompts/get":
            assert (await client.prompt("p")).messages == []
        else:
            assert await client.read("memo://p") == []
    assert len(heard(tmp_path, method)) == 2
    assert len(person.asked) == 1


async def test_a_call_may_require_one_page_after_another(tmp_path: Path) -> None:
    person = Person()
    command = program(tmp_path, GUARDED, stateless=False)
    async with MCPClient.connect_stdio(
        command, LATEST, on_elicit=person, elicit_url=True
    ) as client:
        person.client = client
        await client.call_tool("steps")
        assert [question.elicitation_id for question in person.asked] == ["a", "b"]
        assert attempts(tmp_path, "steps") == 3


async def test_the_call_is_repeated_when_the_server_announces_that_the_page_was_visited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visiting, "FIRST_PAUSE", 60.0)  # only the announcement can end the wait
    person, refused = Person(), asyncio.Event()
    command = program(tmp_path, GUARDED, stateless=False)

    async with MCPClient.connect_stdio(
        command, LATEST, on_elicit=person, elicit_url=True
    ) as client:
        ids: list[Any] = []

        def sent(request_id: Any) -> None:
            ids.append(request_id)
            if len(ids) == 2:
                refused.set()

        call = asyncio.ensure_future(client.call_tool("t", on_sent=sent))
        async with asyncio.timeout(5):
            await refused.wait()
            await client.ping()  # wait until the second refusal has arrived
            await visit(client, "other", "a")
            await call
    assert len(person.asked) == 1  # asked once although the server named the page twice
    assert len(ids) == 3


async def test_a_call_is_repeated_until_it_succeeds_if_no_completion_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visiting, "FIRST_PAUSE", 0.01)
    source = GUARDED.replace("tell(", "(lambda *_: None)(")
    person, sent = Person(), asyncio.Semaphore(0)
    command = program(tmp_path, source, stateless=False)
    async with MCPClient.connect_stdio(
        command, LATEST, on_elicit=person, elicit_url=True
    ) as client:
        call = asyncio.ensure_future(client.call_tool("t", on_sent=lambda _: sent.release()))
        async with asyncio.timeout(5):
            for _ in range(4):
                await sent.acquire()
            await visit(client, "a")
            await call
    assert len(person.asked) == 1


@pytest.mark.covers("ARC-12")
async def test_the_error_of_a_client_without_url_elicitation_lists_the_required_pages(
    tmp_path: Path,
) -> None:
    command = program(tmp_path, GUARDED, stateless=False)
    async with MCPClient.connect_stdio(command, LATEST, on_elicit=lambda q: accept()) as client:
        with pytest.raises(UrlElicitationRequired) as caught:
            await client.call_tool("two")
        error = caught.value
        assert [page["url"] for page in error.pages] == [
            "https://example.com/a",
            "https://example.com/b",
        ]
        assert isinstance(error, RpcError)
        assert isinstance(error, InputNotGiven)
        assert (error.code, error.capability) == (-32042, "elicitation.url")
        assert str(error) == (
            "MCP error -32042: Go there first (visit https://example.com/a, "
            "https://example.com/b): this client does not open pages"
        )
        with pytest.raises(UrlElicitationRequired, match="Go there first"):
            await client.request("resources/read", {"uri": "memo://x"})
        with pytest.raises(UrlElicitationRequired) as caught:
            await client.call_tool("nonsense")
        assert caught.value.pages == []
        envelope = await client.call_tool("t", errors="envelope")
        assert envelope["error"]["code"] == -32042
        assert len(envelope["error"]["data"]["elicitations"]) == 1
    assert attempts(tmp_path, "two") == 1


async def test_the_call_fails_if_the_user_does_not_open_the_page(tmp_path: Path) -> None:
    command = program(tmp_path, GUARDED, stateless=False)

    def break_down(question: Question) -> dict[str, Any]:
        raise ZeroDivisionError("no browser")

    async with MCPClient.connect_stdio(
        command, LATEST, on_elicit=lambda question: decline(), elicit_url=True
    ) as client:
        with pytest.raises(UrlElicitationRequired, match="the user chose decline"):
            await client.call_tool("two")
        client.on_elicit = lambda question: cancel()
        with pytest.raises(UrlElicitationRequired, match="the user chose cancel"):
            await client.call_tool("two")
        client.on_elicit = break_down
        with pytest.raises(UrlElicitationRequired, match="no browser") as caught:
            await client.call_tool("two")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        client.on_elicit = lambda question: "yes"  # type: ignore[assignment, return-value]
        with pytest.raises(UrlElicitationRequired, match=r"return accept\(content\)"):
            await client.call_tool("two")
        client.on_elicit = lambda question: accept()
        with pytest.raises(UrlElicitationRequired):
            await client.call_tool("two", rounds=False)
    assert attempts(tmp_path, "two") == 5


async def test_calls_that_require_the_same_page_ask_the_user_once(tmp_path: Path) -> None:
    command = program(tmp_path, GUARDED, stateless=False)
    asked: list[Question] = []

    async with MCPClient.connect_stdio(command, LATEST, elicit_url=True) as client:

        async def on_elicit(question: Question) -> dict[str, Any]:
            asked.append(question)
            await client.ping()  # by now all calls have been refused
            await visit(client, "a")
            return accept()

        client.on_elicit = on_elicit
        await asyncio.gather(*(client.call_tool("t") for _ in range(5)))
    assert len(asked) == 1
    assert attempts(tmp_path, "t") == 10


async def test_the_time_for_visiting_a_page_is_limited(tmp_path: Path) -> None:
    command = program(tmp_path, GUARDED, stateless=False)
    config = MCPClientConfig(protocol_version="latest", input_timeout=0.2)

    async def absent(question: Question) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async with MCPClient.connect_stdio(
        command, config, on_elicit=absent, elicit_url=True
    ) as client:
        with pytest.raises(UrlElicitationRequired, match=r"not done within 0\.2 seconds"):
            await client.call_tool("t")
        client.on_elicit = lambda question: accept()  # the user never visits the page
        with pytest.raises(UrlElicitationRequired, match=r"not done within 0\.2 seconds"):
            await client.call_tool("t")


async def test_closing_a_client_ends_a_call_that_waits_for_a_page_visit(tmp_path: Path) -> None:
    command = program(tmp_path, GUARDED, stateless=False)
    asked, stopped = asyncio.Event(), asyncio.Event()

    async def absent(question: Question) -> dict[str, Any]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    client = await MCPClient.connect_stdio(command, LATEST, on_elicit=absent, elicit_url=True)
    call = asyncio.ensure_future(client.call_tool("t"))
    async with asyncio.timeout(5):
        await asked.wait()
        await client.close()
        with pytest.raises(ChannelClosed, match="the client is closed"):
            await call
    assert stopped.is_set()


async def test_a_fairlead_server_requires_page_visits_in_both_eras() -> None:
    server = MCPServer("pages")
    visited: list[str] = []

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Request a visit during the call."""
        return await ctx.elicit_url("Log in", "https://example.com/in")

    @server.tool()
    def refuse() -> str:
        """Refuse the call until the page was visited."""
        if not visited:
            page = {
                "mode": "url",
                "message": "Log in",
                "url": "https://example.com/before",
                "elicitationId": "e1",
            }
            raise RpcError(-32042, "Log in first", {"elicitations": [page]})
        return "welcome"

    def on_elicit(question: Question) -> dict[str, Any]:
        visited.append(str(question.url))
        return accept()

    for version in ("latest", "auto"):
        visited.clear()
        config = MCPClientConfig(protocol_version=version)
        async with MCPClient.connect_inprocess(
            server, config, on_elicit=on_elicit, elicit_url=True
        ) as client:
            assert (await client.call("ask")).text == "accept"
            assert visited == ["https://example.com/in"]
            if version == "latest":  # a stateless server puts the request into its result instead
                visited.clear()
                assert (await client.call("refuse")).text == "welcome"
                assert visited == ["https://example.com/before"]


def wants(*pages: str) -> UrlElicitationRequired:
    """Return an error that lists pages."""
    named = [
        {"url": f"https://example.com/{page}", "elicitationId": page, "message": "Visit it"}
        for page in pages
    ]
    return UrlElicitationRequired(RpcError(-32042, "Go there first", {"elicitations": named}))


async def visits(question: Question) -> Any:
    return accept()


async def test_a_call_that_is_still_refused_is_repeated_with_delays_of_up_to_ten_seconds(
    virtual_time: VirtualTime,
) -> None:
    times: list[float] = []
    begun = virtual_time.now

    async def ask() -> Any:
        times.append(virtual_time.now - begun)
        raise wants("a")

    elicitations = visiting.UrlElicitations(InputCallbacks(visits, elicit_url=True))
    with pytest.raises(UrlElicitationRequired, match="not done within 600 seconds"):
        await elicitations.finish(wants("a"), ask)
    assert times[:9] == pytest.approx([0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5, 45.5])
    assert virtual_time.now - begun == pytest.approx(600)
    assert elicitations._waiting == []


async def test_a_request_may_require_new_pages_twenty_times() -> None:
    asked: list[int] = []

    async def ask() -> Any:
        asked.append(len(asked))
        raise wants(f"page {len(asked)}")

    elicitations = visiting.UrlElicitations(InputCallbacks(visits, elicit_url=True))
    with pytest.raises(UrlElicitationRequired, match="page 20"):
        await elicitations.finish(wants("page 0"), ask)
    assert len(asked) == 20
