"""The TypeScript SDK over HTTP: its client with our server, and our client with its server.

The TypeScript client runs the scripts of `test_typescript.py` over each of its transports; the
results must be the same.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.client import Question, accept, cancel, decline
from fairlead.errors import RequestTimeout
from fairlead.protocol.revisions import HANDSHAKE
from fairlead.protocol.types.content import TextContent
from tests.interop import test_typescript
from tests.interop.test_typescript import (
    ADA,
    MORE_OPTIONS,
    NOTE,
    OPTIONS,
    PAGE,
    PERSON,
    SCRIPTS,
    SPOKEN,
    VERSION,
    node_path,
    refusal,
    run_client,
    seen,
    test_a_cancellation_by_typescript_client_stops_the_tool,
    test_requests_unknown_to_a_revision_are_not_sent,
    test_typescript_client_answers_requests_from_fairlead,
    test_typescript_client_reads_lists_and_contents_from_fairlead,
    test_typescript_client_receives_changes_while_subscribed,
    test_typescript_client_receives_log_messages_at_the_requested_level,
    test_typescript_client_uses_a_fairlead_server,
    test_typescript_client_validates_structured_output_from_fairlead,
)
from tests.support.interop.http_servers import ERAS, our_network_client, started
from tests.support.interop.server_processes import PIXEL, SERVERS, Host, Stage, command

__all__ = [
    "node_path",
    "seen",
    "test_a_cancellation_by_typescript_client_stops_the_tool",
    "test_requests_unknown_to_a_revision_are_not_sent",
    "test_typescript_client_answers_requests_from_fairlead",
    "test_typescript_client_reads_lists_and_contents_from_fairlead",
    "test_typescript_client_receives_changes_while_subscribed",
    "test_typescript_client_receives_log_messages_at_the_requested_level",
    "test_typescript_client_uses_a_fairlead_server",
    "test_typescript_client_validates_structured_output_from_fairlead",
]

# used over HTTP+SSE
LEGACY = {"2024-11-05": OPTIONS["2024-11-05"], "2025-11-25": OPTIONS["2025-11-25"]}


# The TypeScript client with our server


def reports(script: str, program: str, options: dict[str, Any], node: str) -> dict[str, Any]:
    """Run a client script with our server, and return its reports by transport and options."""
    made = {("auto", name): one for name, one in options.items()}
    made |= {("sse", name): one for name, one in options.items()}
    made |= {("HTTP+SSE", name): one for name, one in LEGACY.items()}
    answers = ["auto" if way == "HTTP+SSE" else way for way, _ in made]
    with started(command("many_http", program, *answers)) as line:
        addresses = [
            address.replace("/mcp", "/sse") if way == "HTTP+SSE" else address
            for (way, _), address in zip(made, line.split(), strict=True)
        ]
        return run_client(script, made, node, *addresses)


@pytest.fixture(scope="module")
def all_basics(node_path: str) -> dict[str, Any]:
    options = {**OPTIONS, **MORE_OPTIONS}
    return reports("client", str(SERVERS / "ours.py"), options, node_path)


@pytest.fixture(scope="module")
def all_features(node_path: str) -> dict[str, Any]:
    return reports("features", str(SCRIPTS / "ours.py"), OPTIONS, node_path)


@pytest.fixture(scope="module", params=["auto", "sse"])
def basics(request: pytest.FixtureRequest, all_basics: dict[str, Any]) -> dict[str, Any]:
    """Return the client's reports about `servers/ours.py`, with JSON or with streams."""
    return {made: report for (way, made), report in all_basics.items() if way == request.param}


@pytest.fixture(scope="module", params=["auto", "sse"])
def features(request: pytest.FixtureRequest, all_features: dict[str, Any]) -> dict[str, Any]:
    """Return the client's reports about `typescript/ours.py`, with JSON or with streams."""
    return {made: report for (way, made), report in all_features.items() if way == request.param}


@pytest.mark.covers("DEC-16")
def test_typescript_client_receives_errors_from_fairlead(seen: dict[str, Any]) -> None:
    if seen["revision"].stateless:
        # The client reads the error body of a 400, but not that of a 404 for an unknown method.
        code, reply = seen["offers"]["noMethod"]
        assert (code, reply["status"]) == ("CLIENT_HTTP_NOT_IMPLEMENTED", 404)
        assert json.loads(reply["text"])["error"]["code"] == -32601
        seen = {**seen, "offers": {**seen["offers"], "noMethod": [-32601, None]}}
    test_typescript.test_typescript_client_receives_errors_from_fairlead(seen)


@pytest.mark.covers("SSE-03")
@pytest.mark.parametrize("made", LEGACY)
def test_typescript_client_uses_a_fairlead_server_over_http_sse(
    made: str, all_basics: dict[str, Any], all_features: dict[str, Any]
) -> None:
    test_typescript_client_uses_a_fairlead_server(
        made, SPOKEN[made], {made: all_basics["HTTP+SSE", made]}
    )
    report = {**all_features["HTTP+SSE", made], "revision": SPOKEN[made]}
    assert report["version"] == SPOKEN[made]
    test_typescript_client_reads_lists_and_contents_from_fairlead(report)
    test_typescript_client_validates_structured_output_from_fairlead(report)
    test_typescript_client_receives_errors_from_fairlead(report)
    test_typescript_client_answers_requests_from_fairlead(report)
    test_requests_unknown_to_a_revision_are_not_sent(report)
    test_typescript_client_receives_log_messages_at_the_requested_level(report)
    test_typescript_client_receives_changes_while_subscribed(report)
    test_a_cancellation_by_typescript_client_stops_the_tool(report)


# Our client with the TypeScript server

STAGES = [("events", revision) for revision in (HANDSHAKE[0], *ERAS)]
STAGES += [(way, era) for way in ("json", "stateless") for era in ERAS]


class Answers(Host):
    """A host that performs the action named in the message of an elicitation."""

    def callbacks(self) -> dict[str, Any]:
        async def on_elicit(question: Question) -> dict[str, Any]:
            self.asked.append(question)
            if question.message != "accept":
                return {"decline": decline, "cancel": cancel}[question.message]()
            return accept(ADA if question.mode == "form" else None)

        return {
            "on_elicit": on_elicit,
            "elicit_url": True,
            "on_sample": lambda params: "Not much.",
            "on_roots": lambda: ["file:///a", {"uri": "file:///b", "name": "b"}],
            "on_log": lambda *said: self.hear(said),
            "on_notification": lambda method, params: self.hear((method, params.get("uri"))),
        }


@pytest.fixture(scope="module")
def theirs(node_path: str) -> Iterator[str]:
    """Run the TypeScript server over every transport."""
    program = ["node", str(SCRIPTS / "server_http.cjs")]
    with started(program, {"NODE_PATH": node_path}) as url:
        yield url


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def visit(request: pytest.FixtureRequest, theirs: str) -> Iterator[Stage[MCPClient]]:
    """Connect our client to the TypeScript server, with a host that answers every request."""
    way, revision = request.param
    host = Answers()
    url = f"{theirs}/{way}"
    connecting = our_network_client(url, revision.value, limit=None, **host.callbacks())
    with Stage[MCPClient](revision, host).connected(connecting) as stage:
        stage.way = way
        yield stage


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-21")
async def test_fairlead_client_uses_the_typescript_server(visit: Stage[MCPClient]) -> None:
    client = visit.client
    names = [tool["name"] for tool in await client.list_tools()]

    assert client.protocol_version == visit.revision
    assert client.server["serverInfo"] == {"name": "typescript", "version": VERSION}
    assert client.instructions == "Say hello first."
    assert (await client.health_check())["ok"]
    assert names[:6] == ["echo", "add", "count", "fail", "wait", "was_stopped"]
    assert (await client.call("echo", {"text": "Grüße, 世界 🌍"})).text == "Grüße, 世界 🌍"
    assert (await client.call("add", {"a": 2, "b": 40})).text == "42"
    broken = await client.call("fail")
    assert (broken.is_error, broken.text) == (True, "it broke")
    assert "expected number" in (await client.call("add", {"a": "many"})).text
    assert await refusal(client.call("nothing")) == (-32602, None)
    nothing = {"uri": "memo://nothing"}
    assert await refusal(client.read("memo://nothing")) == (-32602, nothing)
    assert await refusal(client.prompt("nothing")) == (-32602, None)
    assert await refusal(client.request("no/such")) == (-32601, None)
    told = [f"{n} ü" * 100 for n in range(20)]
    said = await asyncio.gather(*(client.call("echo", {"text": text}) for text in told))
    assert [result.text for result in said] == told
    assert client.skipped == []


@pytest.mark.covers("PRO-35")
async def test_fairlead_client_reads_lists_and_contents_from_the_typescript_server(
    visit: Stage[MCPClient],
) -> None:
    client = visit.client
    await client.tools()  # list the tools, so that the structured output is validated
    weather = await client.call("weather", {"city": "Rome"})
    (pixel,) = await client.read("memo://pixel")
    (note,) = await client.read("memo://notes/2")
    order = await client.prompt("order", {"dish": "soup", "drink": "wine"})
    template = "memo://notes/{number}"
    numbers = await client.complete("resource", template, "number", "1")
    drinks = await client.complete("prompt", "order", "drink", filled={"dish": "soup"})

    assert weather.structured == {"city": "Rome", "degrees": 21.5}
    assert [found.uri_template for found in await client.templates()] == [template]
    assert (pixel.blob, pixel.mime_type, note.text) == (PIXEL, "image/png", "bread")
    assert order.messages[0].content == TextContent(text="Bring me soup and wine.")
    assert (numbers.values, drinks.values) == (["1"], ["water", "wine"])


async def test_fairlead_client_receives_progress_and_requested_log_messages(
    visit: Stage[MCPClient],
) -> None:
    client, host, steps = visit.client, visit.host, []
    # Without a session, the server does not store the level and sends all messages.
    await client.set_log_level("warning")
    await client.call("count", {"to": 2}, on_progress=lambda *step: steps.append(step))
    await client.call("chatter")

    logs = [what[0] for what in host.heard if what[-1] == "chatter"]
    if visit.way == "json":  # JSON responses cannot carry notifications
        assert (steps, logs) == ([], [])
    else:
        assert steps == [(1, 2, "step 1"), (2, 2, "step 2")]
        forgetful = visit.way == "stateless" and not visit.revision.stateless
        assert logs[-2:] == ["warning", "error"]
        assert len(logs) == (4 if forgetful else 2)


@pytest.mark.covers("PRO-31")
async def test_a_timeout_in_fairlead_client_stops_the_typescript_handler(
    visit: Stage[MCPClient],
) -> None:
    with pytest.raises(RequestTimeout):
        await visit.client.call("wait", timeout=0.2)
    assert (await visit.client.call("was_stopped")).text == "stopped"


@pytest.mark.covers("PRO-24")
async def test_fairlead_client_answers_requests_from_the_typescript_server(
    visit: Stage[MCPClient],
) -> None:
    client = visit.client
    # Without event streams, a handshake server cannot send requests.
    if visit.way != "events" and not visit.revision.stateless:
        asking = client.call("ask_form", {"message": "accept"}, timeout=0.5)
        if visit.way == "json":  # the server waits for a response until the timeout
            with pytest.raises(RequestTimeout):
                await asking
        else:
            assert (await asking).is_error
        assert visit.host.asked == []
        return

    async def answered(tool: str, **arguments: str) -> Any:
        return json.loads((await client.call(tool, arguments)).text)

    assert await answered("ask_form", message="accept") == {"action": "accept", "content": ADA}
    assert await answered("ask_form", message="decline") == {"action": "decline"}
    assert await answered("ask_page", message="accept") == {"action": "accept"}
    said = await answered("ask_model")
    assert said["content"] == {"type": "text", "text": "Not much."}
    roots = [{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]
    assert await answered("ask_roots") == {"roots": roots}
    assert await answered("ask_twice") == ["Not much.", 2, "Ada"]
    letter = await client.prompt("letter")
    assert letter.messages[0].content == TextContent(text="Sincerely, Ada")
    form, _, page, *_ = visit.host.asked
    assert (form.mode, form.schema) == ("form", {**PERSON, "required": ["name"]})
    assert (page.mode, page.url) == ("url", PAGE)


@pytest.mark.covers("PRO-16", "PRO-23")
async def test_fairlead_client_receives_change_notifications_from_the_typescript_server(
    visit: Stage[MCPClient],
) -> None:
    client, host = visit.client, visit.host
    if visit.way == "stateless" and not visit.revision.stateless:
        return  # stateless servers do not store subscriptions
    await client.subscribe(NOTE)
    await client.listen("tools", "prompts", "resources")
    if visit.revision.stateless:
        await client.call("touch", {"uri": NOTE})
        await client.call("swell")
    else:
        await client.call("write", {"number": 1, "text": "cheese"})
        await client.call("grow")
    lists = [(f"notifications/{kind}/list_changed", None) for kind in ("tools", "prompts")]
    await host.hears(("notifications/resources/updated", NOTE), *lists)
    await client.listen()
    await client.unsubscribe(NOTE)
