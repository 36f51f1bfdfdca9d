"""The TypeScript SDK over HTTP: its client against our server, our client against its.

Its client goes through the scripts of `test_typescript.py`, in each way in which it can reach us;
what it saw has to be the same.
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
    test_its_client_answers_our_questions,
    test_its_client_finds_our_structured_output_fitting,
    test_its_client_gives_up_and_our_tool_stops,
    test_its_client_hears_our_logs_from_the_level_it_wants,
    test_its_client_is_not_asked_what_its_revision_does_not_have,
    test_its_client_is_told_of_our_changes_while_it_wants,
    test_its_client_reads_what_we_offer,
    test_its_client_uses_our_server,
)
from tests.support.interop.http_servers import ERAS, our_network_client, started
from tests.support.interop.server_processes import PIXEL, SERVERS, Host, Stage, command

__all__ = [
    "node_path",
    "seen",
    "test_its_client_answers_our_questions",
    "test_its_client_finds_our_structured_output_fitting",
    "test_its_client_gives_up_and_our_tool_stops",
    "test_its_client_hears_our_logs_from_the_level_it_wants",
    "test_its_client_is_not_asked_what_its_revision_does_not_have",
    "test_its_client_is_told_of_our_changes_while_it_wants",
    "test_its_client_reads_what_we_offer",
    "test_its_client_uses_our_server",
]

LEGACY = {"2024-11-05": OPTIONS["2024-11-05"], "2025-11-25": OPTIONS["2025-11-25"]}  # over HTTP+SSE


# Its client, our server


def reports(script: str, program: str, options: dict[str, Any], node: str) -> dict[str, Any]:
    """What a script of its client saw of a program of ours, by the way and by its options."""
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
    """What its client saw of `servers/ours.py`, however that answers."""
    return {made: report for (way, made), report in all_basics.items() if way == request.param}


@pytest.fixture(scope="module", params=["auto", "sse"])
def features(request: pytest.FixtureRequest, all_features: dict[str, Any]) -> dict[str, Any]:
    """What its client saw of `typescript/ours.py`, however that answers."""
    return {made: report for (way, made), report in all_features.items() if way == request.param}


@pytest.mark.covers("DEC-16")
def test_its_client_understands_our_refusals(seen: dict[str, Any]) -> None:
    if seen["revision"].stateless:
        # It looks for an error in the body of a 400, and not in that of the 404 for a method.
        code, reply = seen["offers"]["noMethod"]
        assert (code, reply["status"]) == ("CLIENT_HTTP_NOT_IMPLEMENTED", 404)
        assert json.loads(reply["text"])["error"]["code"] == -32601
        seen = {**seen, "offers": {**seen["offers"], "noMethod": [-32601, None]}}
    test_typescript.test_its_client_understands_our_refusals(seen)


@pytest.mark.covers("SSE-03")
@pytest.mark.parametrize("made", LEGACY)
def test_its_client_uses_our_server_over_http_and_sse(
    made: str, all_basics: dict[str, Any], all_features: dict[str, Any]
) -> None:
    test_its_client_uses_our_server(made, SPOKEN[made], {made: all_basics["HTTP+SSE", made]})
    report = {**all_features["HTTP+SSE", made], "revision": SPOKEN[made]}
    assert report["version"] == SPOKEN[made]
    test_its_client_reads_what_we_offer(report)
    test_its_client_finds_our_structured_output_fitting(report)
    test_its_client_understands_our_refusals(report)
    test_its_client_answers_our_questions(report)
    test_its_client_is_not_asked_what_its_revision_does_not_have(report)
    test_its_client_hears_our_logs_from_the_level_it_wants(report)
    test_its_client_is_told_of_our_changes_while_it_wants(report)
    test_its_client_gives_up_and_our_tool_stops(report)


# Our client, its server

STAGES = [("events", revision) for revision in (HANDSHAKE[0], *ERAS)]
STAGES += [(way, era) for way in ("json", "stateless") for era in ERAS]


class Answers(Host):
    """A host that does what the message of a question says."""

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
    """Its server, served in every way."""
    program = ["node", str(SCRIPTS / "server_http.cjs")]
    with started(program, {"NODE_PATH": node_path}) as url:
        yield url


@pytest.fixture(scope="module", params=STAGES, ids="-".join)
def visit(request: pytest.FixtureRequest, theirs: str) -> Iterator[Stage[MCPClient]]:
    """Our client at its server, with a host that answers everything."""
    way, revision = request.param
    host = Answers()
    url = f"{theirs}/{way}"
    connecting = our_network_client(url, revision.value, limit=None, **host.callbacks())
    with Stage[MCPClient](revision, host).connected(connecting) as stage:
        stage.way = way
        yield stage


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-21")
async def test_our_client_uses_its_server(visit: Stage[MCPClient]) -> None:
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
async def test_our_client_reads_what_its_server_offers(visit: Stage[MCPClient]) -> None:
    client = visit.client
    await client.tools()  # so that the output is checked
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


async def test_our_client_hears_its_progress_and_the_logs_it_wants(
    visit: Stage[MCPClient],
) -> None:
    client, host, steps = visit.client, visit.host, []
    # Where it keeps no session it forgets the level, and then it tells everything.
    await client.set_log_level("warning")
    await client.call("count", {"to": 2}, on_progress=lambda *step: steps.append(step))
    await client.call("chatter")

    logs = [what[0] for what in host.heard if what[-1] == "chatter"]
    if visit.way == "json":  # which has no room for them
        assert (steps, logs) == ([], [])
    else:
        assert steps == [(1, 2, "step 1"), (2, 2, "step 2")]
        forgetful = visit.way == "stateless" and not visit.revision.stateless
        assert logs[-2:] == ["warning", "error"]
        assert len(logs) == (4 if forgetful else 2)


@pytest.mark.covers("PRO-31")
async def test_when_our_client_gives_up_its_handler_stops(visit: Stage[MCPClient]) -> None:
    with pytest.raises(RequestTimeout):
        await visit.client.call("wait", timeout=0.2)
    assert (await visit.client.call("was_stopped")).text == "stopped"


@pytest.mark.covers("PRO-24")
async def test_our_client_answers_the_questions_of_its_server(visit: Stage[MCPClient]) -> None:
    client = visit.client
    if visit.way != "events" and not visit.revision.stateless:  # It has nowhere to put a question.
        asking = client.call("ask_form", {"message": "accept"}, timeout=0.5)
        if visit.way == "json":  # and waits for an answer all the same
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
async def test_our_client_is_told_of_changes(visit: Stage[MCPClient]) -> None:
    client, host = visit.client, visit.host
    if visit.way == "stateless" and not visit.revision.stateless:
        return  # where nobody would remember
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
