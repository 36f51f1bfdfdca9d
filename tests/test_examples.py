"""Tests that run the examples as real servers with a real client."""

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient, MCPClientConfig
from fairlead.errors import HttpError

EXAMPLES = Path(__file__).parent.parent / "examples"


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), *arguments]


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_the_files_example_gives_access_to_one_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with MCPClient.connect_stdio(command("files.py", str(tmp_path))) as client:
        await client.call_tool("write_file", {"path": "sub/b.txt", "content": "two too"})
        assert text_of(await client.call_tool("list_files")) == '["a.txt","sub/b.txt"]'
        assert text_of(await client.call_tool("read_file", {"path": "a.txt"})) == "one\ntwo\n"
        found = text_of(await client.call_tool("search", {"text": "TWO"}))
        assert found == '["a.txt:2: two","sub/b.txt:1: two too"]'
        outside = client.tool_error(await client.call_tool("read_file", {"path": "../x"}))
        assert outside is not None
        assert outside.code == "ACCESS_DENIED"


async def test_the_sqlite_example_answers_queries_and_rejects_changes(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE ship (name TEXT, masts INTEGER)")
        db.execute("INSERT INTO ship VALUES ('Thea', 3)")
    db.close()
    async with MCPClient.connect_stdio(command("sqlite_server.py", str(file))) as client:
        schema = (await client.read_resource("schema://tables"))["contents"][0]["text"]
        assert "CREATE TABLE ship" in schema
        rows = text_of(await client.call_tool("query", {"sql": "SELECT * FROM ship"}))
        assert rows == '[{"name":"Thea","masts":3}]'
        wrong = client.tool_error(await client.call_tool("query", {"sql": "DROP TABLE ship"}))
        assert wrong is not None
        assert "readonly" in wrong.message


async def test_the_http_api_example_returns_json_or_the_http_status() -> None:
    import asyncio

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status = b"200 OK" if b"/ok?q=1" in head else b"404 Not Found"
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 8\r\n\r\n" % status + b'{"a": 1}')
        await writer.drain()
        writer.close()

    web = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = web.sockets[0].getsockname()[1]
    env = {"API_URL": f"http://127.0.0.1:{port}"}
    async with web, MCPClient.connect_stdio(command("http_api.py"), env=env) as client:
        good = await client.call_tool("get", {"path": "/ok", "query": {"q": "1"}})
        assert text_of(good) == '{"a":1}'
        bad = client.tool_error(await client.call_tool("get", {"path": "/no"}))
        assert bad is not None
        assert "404 Not Found" in bad.message


async def test_the_long_job_example_reports_progress() -> None:
    seen: list[float] = []
    async with MCPClient.connect_stdio(command("long_job.py")) as client:
        result = await client.call_tool(
            "count_words",
            {"text": "a b c", "pause": 0},
            on_progress=lambda done, total, message: seen.append(done),
        )
        assert text_of(result) == "3 words"
    assert seen == [1, 2, 3]


async def test_the_http_server_example_requires_a_token() -> None:
    import asyncio

    env = {**os.environ, "NOTES_TOKEN": "open-sesame"}
    process = await asyncio.create_subprocess_exec(
        *command("http_server.py", "0"), stderr=asyncio.subprocess.PIPE, env=env
    )
    try:
        assert process.stderr is not None
        said = (await process.stderr.readline()).decode()
        url = next(word for word in said.split() if word.startswith("http://"))
        with pytest.raises(HttpError) as refused:
            await MCPClient.connect_http(url)
        assert refused.value.status == 401
        headers = {"Authorization": "Bearer open-sesame"}
        async with MCPClient.connect_http(url, headers=headers) as client:
            assert text_of(await client.call_tool("note", {"text": "hello"})) == "1"
            read = await client.read_resource("notes://all")
            assert read["contents"][0]["text"] == "hello"
    finally:
        process.terminate()
        assert await process.wait() == 0


@pytest.mark.covers("AUT-06")
async def test_protected_server_example_accepts_users_of_its_issuer() -> None:
    """Uses a real authorization server, our server and our client, in both eras, with a step-up."""
    import asyncio

    from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
    from tests.support.oidc_provider import running_provider

    async with asyncio.timeout(100), running_provider() as provider:
        env = {**os.environ, "ISSUER": provider.issuer}
        process = await asyncio.create_subprocess_exec(
            *command("protected_server.py", "0"), stderr=asyncio.subprocess.PIPE, env=env
        )
        try:
            assert process.stderr is not None
            said = (await process.stderr.readline()).decode()
            url = next(word for word in said.split() if word.startswith("http://"))
            for user, version in (("alice", "auto"), ("bob", "2025-11-25")):
                authorizer = OAuthAuthorizer(url, authorize=provider.user(user))
                config = MCPClientConfig(protocol_version=version)
                http: Any = {"authorizer": authorizer}
                async with MCPClient.connect_http(url, config, http=http) as client:
                    who = text_of(await client.call_tool("whoami"))
                    assert who == f"{user} of {provider.issuer}"
                    assert text_of(await client.call_tool("note", {"text": "hello"})) == "1"
            assert len(provider.visits) == 4, "one login and one step-up for each user"
        finally:
            process.terminate()
            assert await process.wait() == 0
