"""The TypeScript SDK over pipes: its client with our server, and our client with its server.

The packages are installed once into the virtual environment. Without node the tests are skipped,
except on a continuous integration machine, where they fail. A client script is one process that
runs many steps in every revision and prints its results; the tests check the parts.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import Question, accept, cancel, decline
from fairlead.errors import RequestTimeout
from fairlead.protocol.revisions import HANDSHAKE, NEWEST, NEWEST_HANDSHAKE, Revision
from fairlead.protocol.types.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from tests.support.interop.node_packages import packages
from tests.support.interop.server_processes import LIMIT, PIXEL, command

SCRIPTS = Path(__file__).parent / "typescript"
VERSION = "2.4.0"
PACKAGES = {f"@modelcontextprotocol/{name}": VERSION for name in ("server", "client")}

SPOKEN = {"auto": NEWEST, **{revision.value: revision for revision in HANDSHAKE}}
# Options with which the TypeScript client uses each revision
OPTIONS: dict[str, dict[str, Any]] = {
    "auto": {"versionNegotiation": {"mode": "auto"}},
    **{revision.value: {"supportedProtocolVersions": [revision.value]} for revision in HANDSHAKE},
}
MORE_OPTIONS: dict[str, dict[str, Any]] = {
    "pinned": {"versionNegotiation": {"mode": {"pin": NEWEST.value}}},
    "by default": {},
}
every_version = pytest.mark.parametrize("version", SPOKEN)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
}
ADA = {"name": "Ada", "age": 36}
PAGE = "https://example.com/login"
NOTE = "memo://notes/1"


@pytest.fixture(scope="session")
def node_path() -> str:
    """Return the path of the npm packages."""
    return str(packages("node-interop", PACKAGES))


# The TypeScript client with our server


@pytest.fixture(scope="module")
def basics(node_path: str) -> dict[str, dict[str, Any]]:
    """Return the client's reports about `servers/ours.py`, for each set of options."""
    return run_client("client", {**OPTIONS, **MORE_OPTIONS}, node_path, *command("ours"))


@pytest.mark.covers("DEC-04", "PRO-03", "PRO-21", "PRO-32")
@pytest.mark.parametrize(
    ("made", "revision"),
    [*SPOKEN.items(), ("pinned", NEWEST), ("by default", NEWEST_HANDSHAKE)],
)
def test_typescript_client_uses_a_fairlead_server(
    made: str, revision: Revision, basics: dict[str, dict[str, Any]]
) -> None:
    report = basics[made]

    assert {"echo", "add", "count_and_hold"} <= set(report["tools"])
    steps = [f"step {n}" if revision >= "2025-03-26" else None for n in (1, 2, 3)]
    assert {name: seen for name, seen in report.items() if name != "tools"} == {
        "version": revision,
        "server": {"name": "ours", "version": "1.2.3"},
        "instructions": "Say hello first.",
        "resources": ["memo://greeting", "memo://pixel"],
        "prompts": ["greet"],
        "echo": [False, "Grüße, 世界 🌍"],
        "add": [False, "42"],
        "count": [False, "counted to 3"],
        "progress": [[1, 3, steps[0]], [2, 3, steps[1]], [3, 3, steps[2]]],
        "fail": True,
        "wrong": True,
        "unknown": -32602,
        "pixel": PIXEL,
        "prompt": "Greet Ada, who is happy.",
        "waited": "REQUEST_TIMEOUT",
        "stopped": [False, "stopped"],
        "big": 1_000_000,
    }


@pytest.fixture(scope="module")
def features(node_path: str) -> dict[str, dict[str, Any]]:
    """Return the client's reports about `typescript/ours.py`, in each revision."""
    ours = [sys.executable, str(SCRIPTS / "ours.py")]
    return run_client("features", OPTIONS, node_path, *ours)


@pytest.fixture(params=SPOKEN)
def seen(request: pytest.FixtureRequest, features: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the client's report for one revision."""
    report = features[request.param]
    assert report["version"] == SPOKEN[request.param]
    return {**report, "revision": SPOKEN[request.param]}


@pytest.mark.covers("PRO-35")
def test_typescript_client_reads_lists_and_contents_from_fairlead(seen: dict[str, Any]) -> None:
    offers = seen["offers"]

    assert (offers["tools"], offers["page"]) == (11, 5)
    assert offers["templates"] == ["memo://notes/{number}"]
    assert offers["note"] == [{"uri": "memo://notes/2", "mimeType": "text/plain", "text": "bread"}]
    again = "read 1" if seen["revision"].stateless else "read 2"
    assert offers["kept"] == ["read 1", again]
    assert offers["numbers"] == ["1", "2"]
    assert offers["dishes"] == ["soup"]
    assert offers["drinks"] == ["water", "wine"]


def test_typescript_client_validates_structured_output_from_fairlead(seen: dict[str, Any]) -> None:
    assert seen["offers"]["outputSchema"] == {
        "title": "Weather",
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "number"}},
        "required": ["city", "degrees"],
    }
    assert seen["offers"]["weather"] == {"city": "Rome", "degrees": 21.5}


@pytest.mark.covers("DEC-16")
def test_typescript_client_receives_errors_from_fairlead(seen: dict[str, Any]) -> None:
    offers = seen["offers"]

    # The client converts error code -32002 of handshake revisions to -32602.
    assert offers["noResource"] == [-32602, {"uri": "memo://nothing"}]
    assert offers["noPrompt"][0] == offers["noTool"][0] == -32602
    assert offers["noArgument"] == [-32602, {"missing": ["drink"]}]
    assert offers["noMethod"][0] == -32601
    assert seen["alive"] == (True if seen["revision"].stateless else {})


@pytest.mark.covers("PRO-24")
def test_typescript_client_answers_requests_from_fairlead(seen: dict[str, Any]) -> None:
    revision, questions = seen["revision"], seen["questions"]
    form: dict[str, Any] = {"requestedSchema": {**PERSON, "required": ["name", "age"]}}
    if revision >= "2025-11-25":
        form["mode"] = "form"
    page = {"mode": "url", "url": PAGE}
    asked: dict[str, list[Any]] = {"forms": [], "pages": [], "model": []}
    for params in questions["asked"]:
        kind = "pages" if "url" in params else "forms" if "message" in params else "model"
        if kind == "pages":
            assert ("elicitationId" in params) is not revision.stateless
        asked[kind].append({k: v for k, v in params.items() if k != "elicitationId"})

    assert asked["model"] == [
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "What is up?"}}],
            "systemPrompt": "Be brief.",
            "maxTokens": 7,
        }
    ]
    assert questions["model"] == [False, "small: Not much."]
    assert questions["roots"] == [False, "file:///a, file:///b"]
    if revision >= "2025-06-18":
        actions = ("accept", "decline", "cancel")
        assert asked["forms"] == [{**form, "message": action} for action in actions]
        assert questions["form accept"] == [False, "accept: Person(name='Ada', age=36)"]
        assert questions["form decline"] == [False, "decline: None"]
        assert questions["form cancel"] == [False, "cancel: None"]
        assert questions["twice"] == [False, "Ada: Not much. in 2"]
        assert questions["letter"] == "Sincerely, Ada"
        assert questions["secret"] == "for Ada only"
    if revision >= "2025-11-25":
        assert asked["pages"] == [{**page, "message": action} for action in ("accept", "decline")]
        assert questions["page accept"] == [False, "accept"]
        assert questions["page decline"] == [False, "decline"]


def test_requests_unknown_to_a_revision_are_not_sent(seen: dict[str, Any]) -> None:
    revision, questions = seen["revision"], seen["questions"]
    missing = {
        "form accept": "2025-06-18",
        "form decline": "2025-06-18",
        "twice": "2025-06-18",
        "page accept": "2025-11-25",
        "page decline": "2025-11-25",
    }
    for question, since in missing.items():
        if revision < since:
            failed, why = questions[question]
            assert failed
            assert json.loads(why)["message"].startswith(f"MCP {revision} has no elicitation")
    if revision.stateless:
        assert seen["shy"] == [-32021, {"requiredCapabilities": {"elicitation": {}}}]
    else:
        failed, why = seen["shy"]
        assert failed
        assert "did not declare the capability 'elicitation'" in json.loads(why)["message"]


@pytest.mark.covers("PRO-35")
def test_typescript_client_receives_log_messages_at_the_requested_level(
    seen: dict[str, Any],
) -> None:
    every = [[level, "chatter", {"said": level}] for level in ("debug", "info", "warning", "error")]

    assert seen["logs"]["debug"] == every
    assert seen["logs"]["warning"] == every[2:]
    unasked = [] if seen["revision"].stateless else ["info", "warning", "error"]
    assert seen["logs"]["unasked"] == unasked


@pytest.mark.covers("PRO-23", "PRO-35")
def test_typescript_client_receives_changes_while_subscribed(seen: dict[str, Any]) -> None:
    changes = seen["changes"]

    if seen["revision"].stateless:
        assert changes["honored"] == {"resourceSubscriptions": [NOTE]}
    assert changes["updated"] == [NOTE]
    assert changes["now"] == "cheese"
    lists = [f"{kind}/list_changed" for kind in ("prompts", "resources", "tools")]
    assert changes["grown"] == [NOTE, *lists]
    assert changes["tool"] == [False, "new"]
    assert changes["listed"] == [True, True, True]


@pytest.mark.covers("PRO-32")
def test_a_cancellation_by_typescript_client_stops_the_tool(seen: dict[str, Any]) -> None:
    assert seen["cancelled"] == ["given up", "stopped"]


# Our client with the TypeScript server


@pytest.mark.covers("DEC-04", "DEC-05", "PRO-21", "PRO-31")
@every_version
async def test_fairlead_client_uses_the_typescript_server(version: str, node_path: str) -> None:
    progress: list[object] = []
    async with its_server(version, node_path) as client:
        assert client.protocol_version == SPOKEN[version]
        assert client.server["serverInfo"] == {"name": "typescript", "version": VERSION}
        assert client.instructions == "Say hello first."
        assert (await client.health_check())["ok"]
        names = [tool["name"] for tool in await client.list_tools()]
        assert names[:6] == ["echo", "add", "count", "fail", "wait", "was_stopped"]
        assert (await client.call("echo", {"text": "Grüße, 世界 🌍"})).text == "Grüße, 世界 🌍"
        assert (await client.call("add", {"a": 2, "b": 40})).text == "42"
        counted = await client.call(
            "count", {"to": 3}, on_progress=lambda *step: progress.append(step)
        )
        assert counted.text == "counted to 3"
        assert progress == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
        broken = await client.call("fail")
        assert (broken.is_error, broken.text) == (True, "it broke")
        wrong = await client.call("add", {"a": "many"})
        assert wrong.is_error
        assert "expected number" in wrong.text
        assert await refusal(client.call("nothing")) == (-32602, None)
        nothing = {"uri": "memo://nothing"}
        assert await refusal(client.read("memo://nothing")) == (-32602, nothing)
        assert await refusal(client.prompt("nothing")) == (-32602, None)
        assert await refusal(client.prompt("order", {"dish": "soup"})) == (-32602, None)
        assert await refusal(client.request("no/such")) == (-32601, None)
        with pytest.raises(RequestTimeout):
            await client.call("wait", timeout=0.2)
        assert (await client.call("was_stopped")).text == "stopped"
        assert client.skipped == []


@pytest.mark.covers("PRO-35")
@every_version
async def test_fairlead_client_reads_lists_and_contents_from_the_typescript_server(
    version: str, node_path: str
) -> None:
    async with its_server(version, node_path) as client:
        blocks = (await client.call("blocks")).content
        await client.tools()  # The client validates structured output only for listed tools.
        weather = await client.call("weather", {"city": "Rome"})
        (pixel,) = await client.read("memo://pixel")
        kept = [await client.read("memo://kept") for _ in range(2)]
        (note,) = await client.read("memo://notes/2")
        order = await client.prompt("order", {"dish": "soup", "drink": "wine"})
        template = "memo://notes/{number}"
        numbers = await client.complete("resource", template, "number", "1")
        dishes = await client.complete("prompt", "order", "dish", "sa")
        drinks = await client.complete("prompt", "order", "drink", filled={"dish": "soup"})

        kinds = [TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource]
        assert [type(block) for block in blocks] == kinds
        assert weather.structured == {"city": "Rome", "degrees": 21.5}
        uris = ["memo://pixel", "memo://kept"]
        assert [resource.uri for resource in await client.resources()] == uris
        assert [found.uri_template for found in await client.templates()] == [template]
        assert [prompt.name for prompt in await client.prompts()] == ["letter", "order"]
        assert (pixel.blob, pixel.mime_type) == (PIXEL, "image/png")
        again = "read 1" if SPOKEN[version].stateless else "read 2"
        assert [contents.text for (contents,) in kept] == ["read 1", again]
        assert note.text == "bread"
        assert order.messages[0].content == TextContent(text="Bring me soup and wine.")
        assert (numbers.values, dishes.values) == (["1"], ["salad"])
        assert drinks.values == ["water", "wine"]


@pytest.mark.covers("PRO-24")
@every_version
async def test_fairlead_client_answers_requests_from_the_typescript_server(
    version: str, node_path: str
) -> None:
    questions: list[Question] = []
    samples: list[dict[str, Any]] = []

    async def on_elicit(question: Question) -> dict[str, Any]:
        questions.append(question)
        if question.message != "accept":
            return {"decline": decline, "cancel": cancel}[question.message]()
        return accept(ADA if question.mode == "form" else None)

    def on_sample(params: dict[str, Any]) -> str:
        samples.append(params)
        return "Not much."

    async with its_server(
        version,
        node_path,
        on_elicit=on_elicit,
        elicit_url=True,
        on_sample=on_sample,
        on_roots=lambda: ["file:///a", {"uri": "file:///b", "name": "b"}],
    ) as client:

        async def answered(tool: str, **arguments: str) -> Any:
            return json.loads((await client.call(tool, arguments)).text)

        accepted = {"action": "accept", "content": ADA}
        assert await answered("ask_form", message="accept") == accepted
        assert await answered("ask_form", message="decline") == {"action": "decline"}
        assert await answered("ask_form", message="cancel") == {"action": "cancel"}
        assert await answered("ask_page", message="accept") == {"action": "accept"}
        assert await answered("ask_page", message="decline") == {"action": "decline"}
        said = await answered("ask_model")
        assert said["content"] == {"type": "text", "text": "Not much."}
        roots = [{"uri": "file:///a"}, {"uri": "file:///b", "name": "b"}]
        assert await answered("ask_roots") == {"roots": roots}
        assert await answered("ask_twice") == ["Not much.", 2, "Ada"]
        letter = await client.prompt("letter")
        assert letter.messages[0].content == TextContent(text="Sincerely, Ada")

        await client.roots_changed()
        await client.ping()

    form, page = questions[0], questions[3]
    assert (form.mode, form.schema) == ("form", {**PERSON, "required": ["name"]})
    assert (page.mode, page.url) == ("url", PAGE)
    assert (page.elicitation_id is None) is SPOKEN[version].stateless
    assert samples[0]["maxTokens"] == 7


@pytest.mark.parametrize("version", ["auto", NEWEST_HANDSHAKE.value])
async def test_requests_without_a_declared_capability_are_rejected(
    version: str, node_path: str
) -> None:
    async with its_server(version, node_path) as client:
        if version == "auto":
            # The server checks the declared capabilities before it sends a request.
            required = {"requiredCapabilities": {"elicitation": {"form": {}}}}
            assert await refusal(client.call("ask_form", {"message": "accept"})) == (
                -32021,
                required,
            )
        else:
            refused = await client.call("ask_form", {"message": "accept"})
            assert refused.is_error
            assert "did not declare the required capability" in refused.text


@pytest.mark.covers("PRO-23", "PRO-35")
@every_version
async def test_fairlead_client_receives_requested_log_messages_and_changes(
    version: str, node_path: str
) -> None:
    logged: list[object] = []
    told: asyncio.Queue[str] = asyncio.Queue()

    def on_notification(method: str, params: dict[str, Any]) -> None:
        if method.endswith(("updated", "list_changed")):
            told.put_nowait(params.get("uri", method.removeprefix("notifications/")))

    async with its_server(
        version,
        node_path,
        on_log=lambda *said: logged.append(said),
        on_notification=on_notification,
    ) as client:
        levels = ("debug", "info", "warning", "error")
        every = [(level, {"said": level}, "chatter") for level in levels]
        await client.call("chatter")
        # A client with `on_log` requests messages from level info.
        assert logged == every[1:]
        for level, expected in (("debug", every), ("warning", every[2:])):
            logged.clear()
            await client.set_log_level(level)
            await client.call("chatter")
            assert logged == expected

        assert [note.text for note in await client.read(NOTE)] == ["milk"]
        await client.subscribe(NOTE)
        await client.call("write", {"number": 1, "text": "cheese"})
        assert await told.get() == NOTE
        assert [note.text for note in await client.read(NOTE)] == ["cheese"]
        await client.unsubscribe(NOTE)
        await client.listen("tools", "prompts", "resources")
        await client.call("write", {"number": 1, "text": "unsubscribed"})
        await client.call("grow")
        assert {await told.get(), await told.get(), await told.get()} == {
            f"{kind}/list_changed" for kind in ("tools", "prompts", "resources")
        }
        assert "grown" in [tool.name for tool in await client.tools()]
        assert "memo://grown" in [resource.uri for resource in await client.resources()]
        assert (await client.call("grown")).text == "new"
        assert told.empty()


async def test_client_and_typescript_server_agree_on_the_era_after_a_probe_timeout(
    node_path: str,
) -> None:
    # The probe timeout is so short that the client sends `server/discover` and `initialize`.
    # The server answers both, and uses the handshake era after `initialize`.
    async with its_server(
        "auto", node_path, probe_timeout=0.001, on_elicit=lambda question: accept(ADA)
    ) as client:
        asked = await client.call("ask_form", {"message": "accept"}, timeout=2, retry=False)
        assert json.loads(asked.text) == {"action": "accept", "content": ADA}


def run_client(
    script: str, options: dict[str, dict[str, Any]], node_path: str, *server: str
) -> dict[str, dict[str, Any]]:
    """Run a client script with a server, and return its reports by the name of the options."""
    done = subprocess.run(
        ["node", str(SCRIPTS / f"{script}.cjs"), json.dumps(list(options.values())), *server],
        env={**os.environ, "NODE_PATH": node_path},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(options, json.loads(done.stdout), strict=True))


@contextlib.asynccontextmanager
async def its_server(
    version: str, node_path: str, probe_timeout: float = LIMIT, **callbacks: Any
) -> AsyncIterator[MCPClient]:
    """Connect our client to `typescript/server.cjs`, and check that its process ends.

    The long probe timeout makes the detected era independent of the load of the machine.
    """
    connecting = MCPClient.connect_stdio(
        ["node", str(SCRIPTS / "server.cjs")],
        MCPClientConfig(
            protocol_version=version, timeout_seconds=LIMIT, probe_timeout=probe_timeout
        ),
        env={"NODE_PATH": node_path},
        **callbacks,
    )
    async with asyncio.timeout(LIMIT):
        async with connecting as client:
            pid = client.transport.peer.channel.context.process_id
            yield client
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)


async def refusal(asked: Any) -> tuple[int, Any]:
    """Return code and data of the error response to a request."""
    with pytest.raises(RpcError) as caught:
        await asked
    return caught.value.code, caught.value.data
