"""Our client with published third-party servers.

The servers are installed once into the virtual environment: npm packages into one folder, and
Python packages into separate environments, because they need other releases of the official SDK.
"""

import asyncio
import base64
import contextlib
import gzip
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig, RpcError
from fairlead.client import Question, accept, cancel, decline
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.protocol.types.content import (
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from tests.support.interop.node_packages import CACHE, alone, packages, run

LIMIT = 20.0  # time limit in seconds for each server of a test

NODE = {
    "@modelcontextprotocol/server-everything": "2026.8.31",
    "@modelcontextprotocol/server-filesystem": "2026.8.31",
    "@modelcontextprotocol/server-memory": "2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking": "2026.8.31",
}
PYTHON = {"mcp-server-time": "2026.10.19", "mcp-server-git": "2026.10.19", "mcp": "2.3.0"}
OLD_PYTHON = {"mcp-server-sqlite": "2025.4.25", "mcp": "1.30.0"}  # does not start with a newer SDK

PIXELS = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="session")
def node_servers() -> Path:
    """Return the folder with the programs of the npm packages."""
    return packages("public-servers/node", NODE) / ".bin"


@pytest.fixture(scope="session")
def python_servers() -> Path:
    return environment("python", PYTHON)


@pytest.fixture(scope="session")
def old_python_servers() -> Path:
    return environment("old-python", OLD_PYTHON)


def environment(name: str, versions: dict[str, str]) -> Path:
    """Return the folder with the programs of a virtual environment with these packages."""
    home = CACHE / "public-servers" / name
    wanted = [f"{package}=={version}" for package, version in versions.items()]
    done = home / "installed.json"  # written last, to mark a complete installation
    with alone(f"public-servers/{name}"):
        if not done.exists() or json.loads(done.read_text()) != wanted:
            run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)], CACHE)
            pip = [sys.executable, "-m", "pip", "--python", str(home), "install"]
            # environments made by uv have no pip
            uv = ["uv", "pip", "install", "--python", str(home)]
            run([*(pip if find_spec("pip") else uv), *wanted], CACHE)
            done.write_text(json.dumps(wanted))
    return home / "bin"


@contextlib.asynccontextmanager
async def connected(*command: object, **settings: Any) -> AsyncIterator[MCPClient]:
    """Connect our client to a server, and check that its process ends.

    The long probe timeout makes the detected era independent of the load of the machine.
    """
    config = MCPClientConfig(timeout_seconds=LIMIT, probe_timeout=LIMIT)
    connecting = MCPClient.connect_stdio([str(word) for word in command], config, **settings)
    async with asyncio.timeout(LIMIT):
        async with connecting as client:
            pid = client.transport.peer.channel.context.process_id
            yield client
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)


# The reference server "everything"


@pytest.mark.covers("PRO-22")
async def test_the_everything_server_lists_its_items_and_returns_every_kind_of_content(
    node_servers: Path,
) -> None:
    async with connected(node_servers / "mcp-server-everything") as client:
        assert client.protocol_version == NEWEST_HANDSHAKE
        assert client.server["serverInfo"]["name"] == "mcp-servers/everything"
        assert (client.instructions or "").startswith("# Everything Server")
        tools = {tool.name: tool for tool in await client.tools()}
        assert tools["get-structured-content"].output_schema
        assert len(await client.resources()) == 7
        assert [template.uri_template for template in await client.templates()] == [
            "demo://resource/dynamic/text/{resourceId}",
            "demo://resource/dynamic/blob/{resourceId}",
        ]
        names = ["simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"]
        assert [prompt.name for prompt in await client.prompts()] == names
        # Tools that require client features are not listed for a client without them.
        assert not {"trigger-sampling-request", "trigger-elicitation-request"} & tools.keys()

        echo = await client.call("echo", {"message": "Grüße, 世界 🌍"})
        total = await client.call("get-sum", {"a": 2, "b": 40})
        weather = await client.call("get-structured-content", {"location": "Chicago"})
        image = (await client.call("get-tiny-image")).content[1]
        said, pixel = (
            await client.call(
                "get-annotated-message", {"messageType": "error", "includeImage": True}
            )
        ).content
        links = (await client.call("get-resource-links", {"count": 2})).content
        reference = (
            await client.call("get-resource-reference", {"resourceType": "Blob", "resourceId": 3})
        ).content[1]

        assert echo.text == "Echo: Grüße, 世界 🌍"
        assert total.text == "The sum of 2 and 40 is 42."
        assert weather.structured == {
            "temperature": 36,
            "conditions": "Light rain / drizzle",
            "humidity": 82,
        }
        assert isinstance(image, ImageContent)
        assert base64.b64decode(image.data).startswith(PIXELS)
        assert isinstance(said, TextContent)
        assert (said.annotations.priority, said.annotations.audience) == (1, ["user", "assistant"])
        assert isinstance(pixel, ImageContent)
        assert [type(block) for block in links] == [TextContent, ResourceLink, ResourceLink]
        assert isinstance(reference, EmbeddedResource)
        assert reference.resource.uri == "demo://resource/dynamic/blob/3"
        assert client.skipped == []


async def test_the_everything_server_has_resources_prompts_and_completions(
    node_servers: Path,
) -> None:
    async with connected(node_servers / "mcp-server-everything") as client:
        (page,) = await client.read("demo://resource/static/document/features.md")
        (text,) = await client.read("demo://resource/dynamic/text/7")
        (blob,) = await client.read("demo://resource/dynamic/blob/7")
        simple = await client.prompt("simple-prompt")
        weather = await client.prompt("args-prompt", {"city": "Rome", "state": "Lazio"})
        embedding = await client.prompt(
            "resource-prompt", {"resourceType": "Text", "resourceId": "2"}
        )
        departments = await client.complete("prompt", "completable-prompt", "department", "S")
        names = await client.complete(
            "prompt", "completable-prompt", "name", "", filled={"department": "Sales"}
        )
        template = "demo://resource/dynamic/text/{resourceId}"
        numbers = await client.complete("resource", template, "resourceId", "5")

        assert (page.mime_type, str(page.text).startswith("#")) == ("text/markdown", True)
        assert str(text.text).startswith("Resource 7: This is a plaintext resource")
        assert base64.b64decode(str(blob.blob)).startswith(b"Resource 7: This is a base64 blob")
        assert simple.messages[0].content == TextContent(
            text="This is a simple prompt without arguments."
        )
        assert weather.messages[0].content == TextContent(text="What's weather in Rome, Lazio?")
        assert isinstance(embedding.messages[1].content, EmbeddedResource)
        assert departments.values == ["Sales", "Support"]
        assert names.values == ["David", "Eve", "Frank"]
        assert numbers.values == ["5"]


async def test_the_everything_server_reports_errors(node_servers: Path) -> None:
    async with connected(node_servers / "mcp-server-everything") as client:
        wrong = await client.call("get-sum", {"a": "many", "b": 1})
        unknown = await client.call("nothing")

        assert wrong.is_error
        assert "expected number" in wrong.text
        assert unknown.is_error  # the SDK of this server answers with an error result
        assert "nothing" in unknown.text
        for asked in (
            client.read("demo://resource/dynamic/text/none"),
            client.read("demo://nothing"),
            client.prompt("args-prompt"),
            client.prompt("nothing"),
        ):
            with pytest.raises(RpcError):
                await asked
        with pytest.raises(RpcError) as caught:
            await client.request("no/such/method")
        assert caught.value.code == -32601
        assert (await client.health_check())["ok"]


async def test_the_everything_server_sends_elicitation_sampling_and_roots_requests(
    node_servers: Path,
) -> None:
    questions: list[Question] = []
    answers = iter(
        [accept({"name": "Ada", "integer": 7}), decline(), cancel(), accept(), decline()]
    )
    samples: list[dict[str, Any]] = []
    folders = ["file:///home/ada"]

    async def on_elicit(question: Question) -> dict[str, Any]:
        questions.append(question)
        return next(answers, decline())

    def on_sample(params: dict[str, Any]) -> str:
        samples.append(params)
        return "Not much."

    logged: asyncio.Queue[str] = asyncio.Queue()
    async with connected(
        node_servers / "mcp-server-everything",
        on_elicit=on_elicit,
        elicit_url=True,
        on_sample=on_sample,
        on_roots=lambda: folders,
        on_log=lambda level, data, logger: logged.put_nowait(str(data)),
    ) as client:
        form = "trigger-elicitation-request"
        given = await client.call(form)
        declined = await client.call(form)
        cancelled = await client.call(form)
        assert "User provided the requested information" in given.text
        assert "- Name: Ada" in given.text
        assert "User declined" in declined.text
        assert "User cancelled" in cancelled.text
        schema = questions[0].schema or {}
        assert {"email", "birthdate", "titledMultipleSelectEnum"} <= schema["properties"].keys()

        page = {"url": "https://example.com/login", "elicitationId": "e-1"}
        opened = await client.call("trigger-url-elicitation", page)
        refused = await client.call("trigger-url-elicitation", page)
        assert "User completed the URL elicitation flow" in opened.text
        assert "User declined to open the URL" in refused.text
        asked = questions[3]
        assert (asked.mode, asked.url, asked.elicitation_id) == ("url", page["url"], "e-1")
        with pytest.raises(RpcError) as caught:
            await client.call("trigger-url-elicitation", {**page, "errorPath": True})
        assert caught.value.code == -32042
        assert caught.value.data["elicitations"][0]["mode"] == "url"

        sampled = await client.call("trigger-sampling-request", {"prompt": "What is up?"})
        assert "Not much." in sampled.text
        assert samples[0]["systemPrompt"] == "You are a helpful test server."

        assert "URI: file:///home/ada" in (await client.call("get-roots-list")).text
        folders.append("file:///home/grace")
        await client.roots_changed()
        while await logged.get() != "Roots updated: 2 root(s) received from client":
            pass
        assert "URI: file:///home/grace" in (await client.call("get-roots-list")).text


async def test_the_everything_server_sends_progress_logs_and_changes(node_servers: Path) -> None:
    progress: list[object] = []
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

    async def hears(method: str) -> dict[str, Any]:
        while (heard := await told.get())[0] != f"notifications/{method}":
            pass
        return dict(heard[1])

    async with connected(
        node_servers / "mcp-server-everything",
        on_notification=lambda method, params: told.put_nowait((method, params)),
    ) as client:
        done = await client.call(
            "trigger-long-running-operation",
            {"duration": 0.03, "steps": 3},
            on_progress=lambda *step: progress.append(step),
        )
        assert done.text.startswith("Long running operation completed.")
        assert progress == [(1, 3, None), (2, 3, None), (3, 3, None)]

        uri = "demo://resource/dynamic/text/1"
        await client.set_log_level("debug")
        await client.subscribe(uri)
        assert uri in (await hears("message"))["data"]
        await client.call("toggle-subscriber-updates")
        assert (await hears("resources/updated"))["uri"] == uri
        await client.call("toggle-subscriber-updates")
        await client.unsubscribe(uri)
        assert "Unsubscribe" in (await hears("message"))["data"]
        await client.call("toggle-simulated-logging")
        assert "message" in (await hears("message"))["data"]
        await client.call("toggle-simulated-logging")

        # Messages below the log level are not sent.
        await client.set_log_level("emergency")
        await client.subscribe(uri)
        await client.unsubscribe(uri)
        given = {"name": "note.gz", "data": "data:text/plain,hello"}
        (link,) = (await client.call("gzip-file-as-resource", given)).content
        assert isinstance(link, ResourceLink)
        assert await told.get() == ("notifications/resources/list_changed", {})
        assert link.uri in [resource.uri for resource in await client.resources()]
        (packed,) = await client.read(link.uri)
        assert gzip.decompress(base64.b64decode(str(packed.blob))) == b"hello"


async def test_a_call_to_the_everything_server_can_be_cancelled(node_servers: Path) -> None:
    begun = asyncio.Event()
    async with connected(node_servers / "mcp-server-everything") as client:
        # The tool ignores the cancellation and the end of stdin,
        # so the process must be terminated.
        waiting = asyncio.create_task(
            client.call(
                "trigger-long-running-operation",
                {"duration": 60, "steps": 6000},
                on_progress=lambda *_: begun.set(),
            )
        )
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await client.call("echo", {"message": "still there"})).text == "Echo: still there"


# Other servers


async def test_the_filesystem_server_writes_and_reads_files(
    node_servers: Path, tmp_path: Path
) -> None:
    async with connected(node_servers / "mcp-server-filesystem", tmp_path) as client:
        assert {"read_text_file", "write_file"} <= {tool.name for tool in await client.tools()}
        assert await client.resources() == await client.templates() == await client.prompts() == []

        note = tmp_path / "note.txt"
        await client.call("write_file", {"path": str(note), "content": "grüße\nwelt\n"})
        assert note.read_text() == "grüße\nwelt\n"
        edits = [{"oldText": "welt", "newText": "世界"}]
        await client.call("edit_file", {"path": str(note), "edits": edits})
        read = await client.call("read_text_file", {"path": str(note)})
        assert read.text == "grüße\n世界\n"
        assert read.structured == {"content": "grüße\n世界\n"}
        (tmp_path / "pixel.png").write_bytes(PIXELS)
        media = await client.call("read_media_file", {"path": str(tmp_path / "pixel.png")})
        assert media.content == [
            ImageContent(data=base64.b64encode(PIXELS).decode(), mime_type="image/png")
        ]
        listed = await client.call("list_directory", {"path": str(tmp_path)})
        assert listed.text.splitlines() == ["[FILE] note.txt", "[FILE] pixel.png"]

        outside = await client.call("read_text_file", {"path": "/etc/passwd"})
        assert outside.is_error
        assert "Access denied" in outside.text


async def test_the_filesystem_server_uses_the_roots_of_fairlead_client(
    node_servers: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    folders = [first]
    updated: asyncio.Queue[str] = asyncio.Queue()

    def on_stderr(line: str) -> None:
        if "Updated allowed directories" in line:
            updated.put_nowait(line)

    async with connected(
        node_servers / "mcp-server-filesystem", on_roots=lambda: folders, on_stderr=on_stderr
    ) as client:
        await updated.get()
        assert str(first) in (await client.call("list_allowed_directories")).text
        folders[:] = [second]
        await client.roots_changed()
        await updated.get()
        written = {"path": str(second / "note.txt"), "content": "here"}
        assert not (await client.call("write_file", written)).is_error
        assert (second / "note.txt").read_text() == "here"
        written["path"] = str(first / "note.txt")
        assert (await client.call("write_file", written)).is_error


async def test_the_memory_server_stores_entities_and_notifies_of_changes(
    node_servers: Path, tmp_path: Path
) -> None:
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
    graph = "memory://knowledge-graph"
    ada = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    engine = {"name": "Engine", "entityType": "machine", "observations": []}
    async with connected(
        node_servers / "mcp-server-memory",
        env=memory,
        on_notification=lambda method, params: told.put_nowait((method, params)),
    ) as client:
        assert len(await client.tools()) == 9
        assert [resource.uri for resource in await client.resources()] == [graph]
        assert await client.templates() == await client.prompts() == []
        await client.subscribe(graph)
        created = await client.call("create_entities", {"entities": [ada, engine]})
        assert created.structured == {"entities": [ada, engine]}
        assert await told.get() == ("notifications/resources/updated", {"uri": graph})
        relation = {"from": "Ada", "to": "Engine", "relationType": "programs"}
        await client.call("create_relations", {"relations": [relation]})
        found = await client.call("search_nodes", {"query": "engines"})
        assert [entity["name"] for entity in found.structured["entities"]] == ["Ada"]

        nobody = [{"entityName": "Nobody", "contents": ["x"]}]
        failed = await client.call("add_observations", {"observations": nobody})
        assert failed.is_error
        assert "Nobody" in failed.text
        assert (await client.call("create_entities", {"entities": "many"})).is_error

    async with connected(node_servers / "mcp-server-memory", env=memory) as client:
        (kept,) = await client.read(graph)
        assert [entity["name"] for entity in json.loads(str(kept.text))["entities"]] == [
            "Ada",
            "Engine",
        ]


async def test_the_sequential_thinking_server_counts_thoughts(node_servers: Path) -> None:
    async with connected(node_servers / "mcp-server-sequential-thinking") as client:
        assert [tool.name for tool in await client.tools()] == ["sequentialthinking"]
        assert await client.resources() == await client.templates() == await client.prompts() == []
        for number in (1, 2):
            thought = await client.call(
                "sequentialthinking",
                {
                    "thought": "Hm.",
                    "thoughtNumber": number,
                    "totalThoughts": 2,
                    "nextThoughtNeeded": number < 2,
                },
            )
            assert thought.structured["thoughtHistoryLength"] == number
        assert (await client.call("sequentialthinking", {"thought": "Hm."})).is_error


@pytest.mark.covers("PRO-21")
async def test_the_time_server_converts_times(python_servers: Path) -> None:
    async with connected(python_servers / "mcp-server-time") as client:
        assert client.protocol_version == NEWEST
        assert [tool.name for tool in await client.tools()] == ["get_current_time", "convert_time"]
        assert await client.resources() == await client.templates() == await client.prompts() == []
        asked = {"source_timezone": "Asia/Tokyo", "time": "09:30", "target_timezone": "Etc/UTC"}
        converted = await client.call("convert_time", asked)
        assert converted.structured["target"]["datetime"].endswith("T00:30:00+00:00")
        assert converted.structured["time_difference"] == "-9.0h"
        assert not (await client.call("get_current_time", {"timezone": "Etc/UTC"})).is_error
        nowhere = await client.call("get_current_time", {"timezone": "Middle/Earth"})
        assert nowhere.is_error
        assert "Middle/Earth" in nowhere.text


async def test_the_git_server_commits_files_to_a_repository(
    python_servers: Path, tmp_path: Path
) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet", "--initial-branch=main")
    git("config", "user.name", "Ada")
    git("config", "user.email", "ada@example.com")
    (tmp_path / "note.txt").write_text("grüße\n")
    async with connected(python_servers / "mcp-server-git", "--repository", tmp_path) as client:
        assert client.protocol_version == NEWEST
        assert {"git_status", "git_commit"} <= {tool.name for tool in await client.tools()}
        assert await client.resources() == await client.templates() == await client.prompts() == []

        async def ask(tool: str, **given: object) -> str:
            called = await client.call(tool, {"repo_path": str(tmp_path), **given})
            assert not called.is_error, called.text
            return called.text

        assert "note.txt" in await ask("git_status")
        await ask("git_add", files=["note.txt"])
        assert "+grüße" in await ask("git_diff_staged")
        await ask("git_commit", message="say hello")
        assert "say hello" in await ask("git_log", max_count=1)
        assert git("log", "--format=%s") == "say hello\n"
        elsewhere = await client.call("git_status", {"repo_path": "/"})
        assert elsewhere.is_error


async def test_the_sqlite_server_stores_a_table_and_a_memo(
    old_python_servers: Path, tmp_path: Path
) -> None:
    told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    async with connected(
        old_python_servers / "mcp-server-sqlite",
        "--db-path",
        tmp_path / "notes.db",
        on_notification=lambda method, params: told.put_nowait((method, params)),
    ) as client:
        assert client.protocol_version == NEWEST_HANDSHAKE
        assert len(await client.tools()) == 6
        # The server refuses `resources/templates/list`,
        # which servers with resources should support.
        assert [resource.uri for resource in await client.resources()] == ["memo://insights"]
        assert [prompt.name for prompt in await client.prompts()] == ["mcp-demo"]
        demo = await client.prompt("mcp-demo", {"topic": "lighthouses"})
        assert "lighthouses" in str(demo.messages[0].content)

        await client.call("create_table", {"query": "CREATE TABLE notes (text TEXT)"})
        await client.call("write_query", {"query": "INSERT INTO notes VALUES ('grüße')"})
        rows = await client.call("read_query", {"query": "SELECT text FROM notes"})
        assert rows.text == "[{'text': 'grüße'}]"
        await client.call("append_insight", {"insight": "It works."})
        assert await told.get() == ("notifications/resources/updated", {"uri": "memo://insights"})
        (memo,) = await client.read("memo://insights")
        assert "It works." in str(memo.text)

        broken = await client.call("read_query", {"query": "SELECT text FROM nowhere"})
        # this server does not mark its errors with `isError`
        assert broken.text == "Database error: no such table: nowhere"
        assert (await client.call("read_query", {})).is_error
        with pytest.raises(RpcError):
            await client.prompt("mcp-demo")
