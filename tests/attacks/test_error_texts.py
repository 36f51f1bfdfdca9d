"""Error messages for clients contain a server's name and a reason; only its owner sees details."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import websockets

from fairlead import MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.errors import (
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    NoAnswer,
    RemoteProtocolError,
    RequestTimeout,
    RetriesExhausted,
)
from fairlead.gateway import Gateway, Relay
from fairlead.manager import MCPManager
from fairlead.protocol.public_reason import public_reason

LIMIT = 40.0
ADMIN = {"X-Admin-Token": "open sesame"}
BOTH = "application/json, text/event-stream"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}

# These do not look like credentials, so redaction patterns do not match them.
PRINTED = "zebra crossing nineteen"
ARGUMENT = "walrus-umbrella"
VARIABLE = "velvet-typhoon"
PLACE = "quartz-lantern"
HIDDEN = (PRINTED, ARGUMENT, VARIABLE, PLACE, "Traceback", ".py")

# A server with the fault named in its argument.
FAULTY = f"""
import json, sys, time
fault = sys.argv[1]
print("{PRINTED}", file=sys.stderr, flush=True)
if fault == "exits":
    sys.exit(1)
if fault == "hangs":
    time.sleep(3600)
if fault == "chats":
    for _ in range(200):
        print("{PRINTED} on stdout", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if fault == "exits on a probe" and method != "notifications/initialized":
        sys.exit(7)
    answer = {{"jsonrpc": "2.0", "id": message.get("id")}}
    if method == "initialize":
        if fault == "refuses":
            answer["error"] = {{"code": -32000, "message": "refused"}}
        else:
            answer["result"] = {{
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {{"tools": {{}}}}, "serverInfo": {{"name": "x", "version": "1"}}}}
    elif method == "tools/list":
        answer["result"] = {{"tools": [{{"name": "do", "inputSchema": {{"type": "object"}}}}]}}
    elif method == "tools/call":
        if fault == "crashes in a call":
            print("{PRINTED}", file=sys.stderr, flush=True)
            sys.exit(3)
        if fault == "hangs in a call":
            continue
        if fault == "answers garbage":
            result = '{{"{PRINTED}": NaN}}'
            text = '{{"jsonrpc": "2.0", "id": %d, "result": %s}}' % (message["id"], result)
            print(text, flush=True)
            continue
    elif method != "ping":
        answer["error"] = {{"code": -32601, "message": "Method not found"}}
    if "id" in message:
        print(json.dumps(answer), flush=True)
"""
PROGRAMS = {
    "exits": "exited with code 1 during start-up",
    "hangs": "did not answer within 1.5 s",
    "chats": "writes output that is not MCP messages",
    "refuses": "answered with error -32000",
    "exits on a probe": "exited with code 7 during start-up",
    "crashes in a call": "exited with code 3",
    "hangs in a call": "did not answer within 1.5 s",
    "answers garbage": "sent a message that cannot be read",
}


def entry(folder: Path, fault: str) -> dict[str, Any]:
    program = folder / f"{PLACE}.py"
    program.write_text(FAULTY)
    return {
        "command": sys.executable,
        "args": [str(program), fault, f"--name={ARGUMENT}"],
        "env": {"FLAVOUR": VARIABLE},
        "timeout": 1500,
    }


@contextlib.asynccontextmanager
async def serving(server: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_http(port=0, started=ready.set_result))
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


class Visit:
    """A client that keeps every byte it receives."""

    def __init__(self, web: aiohttp.ClientSession) -> None:
        self._web = web
        self.heard: list[str] = []

    async def get(self, url: str, **headers: str) -> str:
        async with self._web.get(url, headers=headers) as answer:
            self.heard.append(f"{answer.headers} {await answer.text()}")
            return await answer.text()

    async def post(self, url: str, body: dict[str, Any], **headers: str) -> aiohttp.ClientResponse:
        sent = {"Accept": BOTH, **headers}
        message = {"jsonrpc": "2.0", "id": 1, **body}
        async with self._web.post(url, json=message, headers=sent) as answer:
            self.heard.append(f"{answer.headers} {await answer.text()}")
            return answer

    async def in_a_session(self, url: str, tool: str) -> None:
        about = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        hello = {**about, "clientInfo": {"name": "c", "version": "1"}}
        answer = await self.post(url, {"method": "initialize", "params": hello})
        session = answer.headers.get("Mcp-Session-Id")
        headers = {"Mcp-Session-Id": session} if session else {}
        for method, params in self._requests(tool):
            await self.post(url, {"method": method, "params": params}, **headers)

    async def without_a_session(self, url: str, tool: str) -> None:
        for method, params in (*self._requests(tool), ("server/discover", {})):
            headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
            if name := params.get("name"):
                headers["Mcp-Name"] = name
            body = {"method": method, "params": {**params, "_meta": META}}
            await self.post(url, body, **headers)

    async def over_a_socket(self, url: str, tool: str) -> None:
        async with self._web.ws_connect(url) as socket:
            for number, (method, params) in enumerate(self._requests(tool)):
                request = {"jsonrpc": "2.0", "id": number, "method": method}
                await socket.send_json({**request, "params": {**params, "_meta": META}})
                self.heard.append(await socket.receive_str(timeout=LIMIT))

    @staticmethod
    def _requests(tool: str) -> list[tuple[str, dict[str, Any]]]:
        return [("tools/list", {}), ("tools/call", {"name": tool, "arguments": {}})]

    def check(self, reason: str) -> None:
        """Assert that the client received the reason and no private detail."""
        everything = "\n".join(self.heard)
        assert reason in everything, everything
        for hidden in (*HIDDEN, sys.executable, os.path.basename(sys.executable)):
            assert hidden not in everything, everything


async def visit_gateway(web: aiohttp.ClientSession, given: dict[str, Any], reason: str) -> str:
    """Request a failing server over every transport, and return its status for an administrator."""
    settings = {"call_timeout": 1.5, "connect_timeout": 1.5}
    async with (
        Gateway(admin_token="open sesame", relay=_settings(settings)) as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"bad": given})
        async with asyncio.timeout(LIMIT):
            while not gateway.is_ready:
                await asyncio.sleep(0.01)
        visit, base = Visit(web), url.removesuffix("/mcp")
        for place, tool in ((url, "bad_do"), (f"{url}/bad", "do")):
            await visit.in_a_session(place, tool)
            await visit.without_a_session(place, tool)
        await visit.over_a_socket(f"{base}/ws", "bad_do")
        for path in ("/", "/status", "/ready", "/health", "/nothing"):
            await visit.get(base + path)
        visit.check(reason)
        return await Visit(web).get(f"{base}/admin/servers", **ADMIN)


def _settings(values: dict[str, Any]) -> Any:
    from fairlead.relay.relay_settings import RelaySettings

    return RelaySettings(**values)


@pytest.mark.covers("CON-07")
@pytest.mark.parametrize(("fault", "reason"), PROGRAMS.items())
async def test_clients_do_not_see_the_output_or_command_of_a_program(
    fault: str, reason: str, tmp_path: Path
) -> None:
    async with asyncio.timeout(LIMIT), aiohttp.ClientSession() as web:
        await visit_gateway(web, entry(tmp_path, fault), f"server 'bad' {reason}")


@pytest.mark.covers("CON-07")
@pytest.mark.parametrize(("fault", "reason"), PROGRAMS.items())
async def test_clients_of_a_proxy_do_not_see_the_output_or_command(
    fault: str, reason: str, tmp_path: Path
) -> None:
    relay = Relay(entry(tmp_path, fault), "bad", call_timeout=1.5, connect_timeout=1.5)
    async with (
        asyncio.timeout(LIMIT),
        aiohttp.ClientSession() as web,
        serving(relay) as url,
    ):
        visit = Visit(web)
        await visit.in_a_session(url, "do")
        await visit.without_a_session(url, "do")
        # an error response has the server's own message, which clients may see
        if fault != "refuses":
            visit.check(f"server 'bad' {reason}")
        assert PRINTED not in "".join(visit.heard)


@pytest.mark.parametrize(
    ("given", "reason", "owner"),
    [
        ({"command": f"/{PLACE}/x"}, "its program does not exist", f"/{PLACE}/x"),
        (
            {"command": sys.executable, "cwd": f"/{PLACE}"},
            "its working directory does not exist",
            f"/{PLACE}",
        ),
        ({"command": "/etc/passwd", "args": [ARGUMENT]}, "is not executable", ARGUMENT),
        (
            {"url": f"http://me:{ARGUMENT}@127.0.0.1:9/{PLACE}?key={VARIABLE}"},
            "refused the connection",
            "127.0.0.1:9",
        ),
        ({"url": f"http://{PLACE}.invalid/mcp"}, "host name cannot be resolved", PLACE),
        ({"type": "ws", "url": f"ws://127.0.0.1:9/{PLACE}"}, "refused the connection", PLACE),
    ],
    ids=["program", "folder", "not executable", "port", "host", "socket"],
)
async def test_clients_do_not_see_the_path_or_url_of_a_missing_server(
    given: dict[str, Any], reason: str, owner: str
) -> None:
    async with asyncio.timeout(LIMIT), aiohttp.ClientSession() as web:
        assert owner in await visit_gateway(web, given, reason)


async def answer_with(text: str) -> tuple[asyncio.Server, int]:
    """Serve the same HTTP response to every request."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            assert await reader.read(65536)
            writer.write(text.replace("\n", "\r\n").encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


def http_answer(status: str, body: str, *headers: str) -> str:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\n".join([*head, "", body])


PAGE = f"<html><body>{PRINTED}</body></html>"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (http_answer("500 Oh", PAGE, "Content-Type: text/html"), "answered with HTTP 500"),
        (http_answer(f"502 {PRINTED}", PAGE), "answered with HTTP 502"),
        (
            http_answer("401 No", PAGE, f'WWW-Authenticate: Bearer realm="{PRINTED}"'),
            "answered with HTTP 401",
        ),
        (http_answer("302 Go", "", f"Location: http://{PLACE}.invalid/"), "redirected"),
        (http_answer("200 OK", PAGE, "Content-Type: text/html"), "sent a message that cannot be"),
        (
            http_answer("200 OK", f"data: {PRINTED}\n\n", "Content-Type: text/event-stream"),
            "server 'bad' ",
        ),
        (f"{PRINTED}\n\n", "closed the connection"),
    ],
    ids=["500", "502", "401", "redirect", "html", "events", "no http"],
)
async def test_clients_do_not_see_the_response_of_a_web_server(said: str, reason: str) -> None:
    async with asyncio.timeout(LIMIT), aiohttp.ClientSession() as web:
        upstream, port = await answer_with(said)
        async with upstream:
            url = f"http://127.0.0.1:{port}/{PLACE}"
            await visit_gateway(web, {"url": url, "headers": {"X-Y": VARIABLE}}, reason)


async def test_clients_do_not_see_the_details_of_a_tls_failure() -> None:
    async with asyncio.timeout(LIMIT), aiohttp.ClientSession() as web:
        upstream, port = await answer_with(http_answer("200 OK", PAGE))
        async with upstream:
            url = f"https://localhost:{port}/{PLACE}"
            await visit_gateway(web, {"url": url}, "the TLS handshake failed")


async def test_clients_do_not_see_the_close_reason_of_a_websocket() -> None:
    async def hang_up(connection: websockets.ServerConnection) -> None:
        await connection.recv()
        await connection.close(1011, PRINTED)

    async with (
        asyncio.timeout(LIMIT),
        aiohttp.ClientSession() as web,
        websockets.serve(hang_up, "127.0.0.1", 0) as upstream,
    ):
        url = f"ws://127.0.0.1:{upstream.sockets[0].getsockname()[1]}/{PLACE}"
        shown = await visit_gateway(web, {"type": "ws", "url": url}, "closed the connection")
        assert PRINTED in shown


@pytest.mark.covers("STD-06")
async def test_the_owner_of_a_server_sees_its_output(tmp_path: Path) -> None:
    given = entry(tmp_path, "exits")
    command = [given["command"], *given["args"]]
    config = MCPClientConfig(timeout_seconds=10, max_retries=0)
    with pytest.raises(FairleadError) as caught:
        async with MCPClient.connect_stdio(command, config):
            pass
    assert isinstance(caught.value, ConnectFailed)
    assert (caught.value.exit_code, caught.value.stderr[-1]) == (1, PRINTED)
    assert PRINTED in str(caught.value)
    async with asyncio.timeout(LIMIT), MCPManager() as manager:
        loaded = await manager.connect_servers({"bad": given}, startup="wait")
        assert PRINTED in loaded.errors[0]["error"]
        with pytest.raises(FairleadError, match=PRINTED):
            await manager.wait_for_connection("bad")


def run_fairlead(folder: Path, *arguments: str, said: str = "") -> subprocess.CompletedProcess[str]:
    home = {"HOME": str(folder), "FAIRLEAD_HOME": str(folder / "ours")}
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *arguments],
        input=said,
        cwd=folder,
        env={**os.environ, **home, "XDG_CONFIG_HOME": "", "CLAUDE_CONFIG_DIR": ""},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def test_the_command_line_shows_the_output_of_a_server(tmp_path: Path) -> None:
    given = entry(tmp_path, "exits")
    file = tmp_path / "ours" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"mcpServers": {"bad": given}}))
    for arguments in (["mcp", "test", "bad"], ["doctor"]):
        done = run_fairlead(tmp_path, *arguments)
        assert PRINTED in done.stdout + done.stderr
    call = ["call", "do", "--", given["command"], *given["args"]]
    assert PRINTED in run_fairlead(tmp_path, *call).stderr


def test_the_proxy_command_sends_its_client_only_a_public_reason(tmp_path: Path) -> None:
    given = entry(tmp_path, "exits")
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    params = {**hello, "clientInfo": {"name": "c", "version": "1"}}
    said = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    done = run_fairlead(tmp_path, "proxy", "--", given["command"], *given["args"], said=said + "\n")
    assert "exited with code 1 during start-up" in done.stdout
    for hidden in (PRINTED, ARGUMENT, PLACE):
        assert hidden not in done.stdout
    assert PRINTED in done.stderr


def test_the_proxy_command_identifies_a_remote_server_only_by_its_host(tmp_path: Path) -> None:
    url = f"http://me:{ARGUMENT}@127.0.0.1:9/{PLACE}/mcp?key={VARIABLE}"
    said = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    )
    done = run_fairlead(tmp_path, "proxy", url, said=said + "\n")
    error = json.loads(done.stdout)["error"]
    assert error["message"] == "server '127.0.0.1:9' refused the connection"
    for hidden in HIDDEN:
        assert hidden not in done.stdout


async def test_a_failure_outside_of_tools_is_an_internal_error_without_details() -> None:
    server = MCPServer("own", rate_limit_rate=0)

    @server.resource("memo://one")
    async def one() -> str:
        raise RuntimeError(PRINTED)

    @server.resource("memo://items/{key}")
    async def item(key: str) -> str:
        raise OSError(2, "No such file", f"/{PLACE}")

    @server.prompt()
    async def greet(name: str) -> str:
        raise KeyError(PRINTED)

    @server.completion("greet", "name")
    async def names(begun: str) -> list[str]:
        raise ValueError(PRINTED)

    reference = {"type": "ref/prompt", "name": "greet"}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("resources/read", {"uri": "memo://one"}),
        ("resources/read", {"uri": "memo://items/1"}),
        ("prompts/get", {"name": "greet", "arguments": {"name": "x"}}),
        ("completion/complete", {"ref": reference, "argument": {"name": "name", "value": "x"}}),
    ]
    for version in ("2025-11-25", "2026-07-28"):
        config = MCPClientConfig(protocol_version=version, max_retries=0)
        async with asyncio.timeout(LIMIT), MCPClient.connect_inprocess(server, config) as client:
            for method, params in requests:
                with pytest.raises(RpcError) as caught:
                    await client.request(method, params)
                assert caught.value.message == "Internal error"
                assert list(caught.value.data) == ["correlation_id"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectFailed(PRINTED), "could not be reached"),
        (
            ConnectFailed(PRINTED, exit_code=2, stderr=[PRINTED]),
            "exited with code 2 during start-up",
        ),
        (ChannelClosed(PRINTED), "closed the connection"),
        (ChannelClosed(PRINTED, exit_code=-9, stderr=[PRINTED]), "was ended by SIGKILL"),
        (ChannelClosed(PRINTED, public="hangs"), "hangs"),
        (HttpError(503, PRINTED, {"www-authenticate": PRINTED}), "answered with HTTP 503"),
        (RequestTimeout(30, PRINTED), "did not answer within 30 s"),
        (NoAnswer(PRINTED, [PRINTED]), "ended its response without a result"),
        (RemoteProtocolError(PRINTED, code=-32700), "sent a message that cannot be read"),
        (RemoteProtocolError(PRINTED, code=-32600), "sent a message that is not valid"),
        (RpcError(-32000, PRINTED, PRINTED), "answered with error -32000"),
        (ConfigError(PRINTED, path=PRINTED, line=1), "is not configured correctly"),
        (RuntimeError(PRINTED), "could not be reached"),
        (None, "could not be reached"),
    ],
)
def test_the_public_reason_of_a_wrapped_error_has_no_details(
    error: BaseException | None, reason: str
) -> None:
    assert public_reason(error) == reason
    wrapped = ConnectFailed(PRINTED)
    wrapped.__cause__ = RetriesExhausted(PRINTED)
    wrapped.__cause__.__cause__ = error
    assert public_reason(wrapped) == reason
    circle = ConnectFailed(PRINTED)
    circle.__cause__ = circle
    assert public_reason(circle) == "could not be reached"
