"""Tests that log lines contain no secrets of servers or clients, at any log level."""

import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fairlead
from fairlead import Context, MCPClient, MCPClientConfig, MCPServer, RpcError
from fairlead.errors import FairleadError
from fairlead.interceptor import Answer, Exchange, Proceed
from fairlead.observe.log_filter import ABOUT

LIMIT = 20.0
SECRET = "hunter22-abcdef-4711"
TOKEN = "sk-live-0815-zyxwvu"


class Everything(logging.Handler):
    """A handler that formats each record normally and with all its attributes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text: list[str] = []
        self._usual = logging.Formatter("%(name)s %(message)s")

    def emit(self, record: logging.LogRecord) -> None:
        exc = record.exc_info[1] if record.exc_info else None
        self.text.append(f"{self._usual.format(record)} {record.__dict__!r} {exc!r}")


@pytest.fixture
def written() -> Iterator[Everything]:
    handler, root = Everything(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


@contextlib.asynccontextmanager
async def serving(server: Any, **options: Any) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        server.run_http(**{"port": 0, "started": ready.set_result, **options})
    )
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield ready.result()
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def leaky() -> MCPServer:
    """Return a server that repeats every secret it receives."""
    server = MCPServer("leaky", rate_limit_rate=0)

    @server.tool()
    async def number(password: int) -> str:
        return "never"

    @server.tool()
    async def fail(user: str, password: str) -> str:
        raise ValueError(f"{user} cannot log in with {password}")

    @server.tool()
    async def refuse(options: dict[str, Any]) -> str:
        raise RpcError(-32000, f"no: {options['auth']['api_key']}", {"token": SECRET})

    @server.tool(output_schema={"type": "object", "properties": {"token": {"type": "integer"}}})
    async def wrong() -> Any:
        return {"token": SECRET}

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit(f"Say it: https://me:{SECRET}@example.com/", str)
        return str(answer.data)

    @server.resource("vault://{name}")
    async def vault(name: str) -> str:
        raise OSError(f"https://example.com/?api_key={SECRET}&name={name}")

    @server.prompt()
    async def greet(token: str) -> str:
        raise LookupError(token)

    return server


def config(version: str) -> MCPClientConfig:
    return MCPClientConfig(protocol_version=version, timeout_seconds=5, max_retries=1)


async def everything(client: MCPClient) -> None:
    """Send all requests. Only the logs are examined, not the responses."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("number", {"password": SECRET}),
        ("fail", {"user": "ada", "password": SECRET}),
        ("refuse", {"options": {"auth": {"api_key": SECRET}}}),
        ("wrong", {}),
        ("ask", {}),
        (f"token={SECRET}", {}),
    ]
    for name, arguments in calls:
        with contextlib.suppress(FairleadError):
            await client.call(name, arguments)
    for uri in ("vault://x", f"vault://x?token={SECRET}", f"other://me:{SECRET}@x/"):
        with contextlib.suppress(FairleadError):
            await client.read(uri)
    with contextlib.suppress(FairleadError):
        await client.prompt("greet", {"token": SECRET})


async def careless(request: Any) -> Any:
    raise RuntimeError(f"cannot show {request!r}")


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("version", ["2025-11-25", "auto"])
async def test_log_lines_contain_no_secrets_from_http_requests(
    written: Everything, version: str
) -> None:
    async with asyncio.timeout(LIMIT), serving(leaky(), auth_token=TOKEN) as url:
        headers = {"Authorization": f"Bearer {TOKEN}", "X-Api-Key": SECRET}
        async with MCPClient.connect_http(
            f"{url}?api_key={SECRET}", config(version), headers=headers, on_elicit=careless
        ) as client:
            await everything(client)
        with contextlib.suppress(FairleadError):
            wrong = {"Authorization": f"Bearer {TOKEN}x"}
            async with MCPClient.connect_http(url, config(version), headers=wrong):
                pass
        async with aiohttp.ClientSession(headers=headers) as web:
            for body in (f"password={SECRET}", json.dumps({"password": SECRET})):
                async with web.post(
                    url, data=body, headers={"Content-Type": "application/json"}
                ) as answer:
                    assert answer.status == 400
    there_is_a_log_without(written, SECRET, TOKEN)
    assert any("cannot log in with [REDACTED]" in line for line in written.text)


@pytest.mark.parametrize("version", ["2025-11-25", "auto"])
async def test_log_lines_contain_no_secrets_from_the_environment_or_stderr(
    written: Everything, version: str
) -> None:
    rough = (
        "import json, os, sys\n"
        "key = os.environ['SERVICE_API_KEY']\n"
        "print('using', key, file=sys.stderr, flush=True)\n"
        "print('Starting with', json.dumps({'password': key}), flush=True)\n"
        "for line in sys.stdin:\n"
        "    m = json.loads(line)\n"
        "    if 'id' not in m: continue\n"
        "    r = {'protocolVersion': '2025-11-25', 'capabilities': {'tools': {}},"
        " 'serverInfo': {'name': 'x', 'version': '1'}}\n"
        "    ok = m['method'] == 'initialize'\n"
        "    e = {'error': {'code': -32603, 'message': 'refused for ' + key}}\n"
        "    print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], **({'result': r} if ok else e)}),"
        " flush=True)\n"
        "    if m['method'] == 'tools/call': sys.exit(key)\n"
    )
    async with (
        asyncio.timeout(LIMIT),
        MCPClient.connect_stdio(
            [sys.executable, "-c", rough], config(version), env={"SERVICE_API_KEY": SECRET}
        ) as client,
    ):
        with contextlib.suppress(FairleadError):
            await client.list_tools()
        with contextlib.suppress(FairleadError):
            await client.call("x", {})
        with contextlib.suppress(FairleadError):
            await client.call("x", {})
    there_is_a_log_without(written, SECRET)
    assert any("using [REDACTED]" in line for line in written.text)


async def test_log_lines_contain_no_secrets_from_failing_interceptors_and_listeners(
    written: Everything,
) -> None:
    async def broken(exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method == "tools/call":
            raise RuntimeError(bytes(exchange.message.params))  # type: ignore[arg-type]
        return await proceed(exchange)

    def deaf(level: str, data: Any, logger: str | None) -> None:
        raise RuntimeError(data)

    server = MCPServer("broken", rate_limit_rate=0, interceptors=[broken])
    server.tool(name="login")(lambda password: "never")
    talking = MCPServer("talking", rate_limit_rate=0)

    @talking.tool()
    async def talk(ctx: Context) -> str:
        await ctx.info({"password": SECRET})
        return "said"

    async with asyncio.timeout(LIMIT):
        async with MCPClient.connect_inprocess(server, config("2025-11-25")) as client:
            with contextlib.suppress(FairleadError):
                await client.call("login", {"password": SECRET})
        async with MCPClient.connect_inprocess(
            talking, config("2025-11-25"), on_log=deaf
        ) as client:
            await client.call("talk")
    there_is_a_log_without(written, SECRET)


def test_every_logger_of_the_package_is_filtered(written: Everything) -> None:
    """Filters are not inherited. Audit lines are already redacted and need no filter."""
    source = Path(fairlead.__file__).parent
    texts = [file.read_text() for file in source.rglob("*.py")]
    names = {
        name for text in texts for name in re.findall(r'getLogger\("(fairlead\.[\w.]+)"', text)
    }
    assert len(names) > 10
    for name in names - {"fairlead.audit"}:
        logging.getLogger(name).error("%s: password=%s", name, SECRET)
        assert name in written.text[-1]
    there_is_a_log_without(written, SECRET)


def test_only_log_records_with_secrets_are_changed(written: Everything) -> None:
    log = logging.getLogger("fairlead.server")
    try:
        raise ValueError("plain")
    except ValueError:
        log.exception("%s went wrong", "this", extra={ABOUT: {"password": SECRET}})
    assert "'args': ('this',)" in written.text[-1]
    assert "ValueError('plain')" in written.text[-1]
    there_is_a_log_without(written, SECRET)
    try:
        raise ValueError(SECRET)
    except ValueError:
        log.exception("with %s", SECRET, extra={ABOUT: {"auth": {"password": SECRET}}})
    assert "ValueError: [REDACTED]" in written.text[-1]
    there_is_a_log_without(written, SECRET)


def there_is_a_log_without(written: Everything, *secrets: str) -> None:
    assert any(line.startswith("fairlead.") for line in written.text)
    for secret in secrets:
        assert [line for line in written.text if secret in line] == []
