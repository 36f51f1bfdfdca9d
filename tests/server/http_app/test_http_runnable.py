"""Tests of running servers over HTTP."""

import asyncio
import ssl
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.errors import ConfigError
from fairlead.server.http_app import uvicorn_runner
from fairlead.server.http_app.http_runnable import HttpRunnable
from fairlead.transport.http.server.http_settings import HttpSettings

TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


class Runnable(HttpRunnable):
    port = 7

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.ended: list[Any] = []

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> Any:
        self.made.append((settings, options))
        return SimpleNamespace(settings=HttpSettings(path="/here"))

    def http_ended(self, app: Any) -> None:
        self.ended.append(app)


@pytest.mark.parametrize("fails", [None, KeyError("x"), asyncio.CancelledError()])
async def test_run_http_serves_the_application_and_calls_the_end_hook(
    fails: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound: list[Any] = []
    runs: list[Any] = []
    said: list[str] = []

    def bind(host: str, port: int, uds: str | None, settings: Any, *, insecure: bool) -> str:
        bound.append((host, port, uds, settings.path, insecure))
        return "a socket"

    async def serve_http(app: Any, listening: Any, *, tls: Any, started: Any) -> None:
        runs.append((app, listening, tls))
        if started is not None:
            started()
        if fails is not None:
            raise fails

    monkeypatch.setattr(uvicorn_runner, "bind", bind)
    monkeypatch.setattr(uvicorn_runner, "url_of", lambda *args, **options: repr((args, options)))
    monkeypatch.setattr(uvicorn_runner, "serve_http", serve_http)
    runnable, settings = Runnable(), HttpSettings()
    if fails is None:
        await runnable.run_http(settings=settings)
        await runnable.run_http(
            "::1", 0, uds="s", tls=TLS, insecure=True, started=said.append, auth_token="t"
        )
    else:
        with pytest.raises(type(fails)):
            await runnable.run_http(settings=settings)
    assert bound[0] == ("127.0.0.1", 7, None, "/here", False)
    assert runs[0][1:] == ("a socket", None)
    assert runnable.made[0] == (settings, {})
    if fails is None:
        assert bound[1] == ("::1", 0, "s", "/here", True)
        assert runs[1][1:] == ("a socket", TLS)
        assert said == [repr((("a socket", "/here"), {"tls": True}))]
        assert runnable.made[1] == (None, {"auth_token": "t"})
    assert runnable.ended == [app for app, _, _ in runs]


async def test_the_http_runnable_base_class_cannot_create_an_application() -> None:
    with pytest.raises(NotImplementedError):
        HttpRunnable().create_http_app()
    assert HttpRunnable.port == 8080


def test_settings_and_options_cannot_be_combined() -> None:
    server, settings = MCPServer("s"), HttpSettings(path="/here")
    assert server.create_http_app(settings).settings is settings
    assert server.create_http_app(path="/there").settings.path == "/there"
    assert server.create_http_app().settings.path == "/mcp"
    with pytest.raises(TypeError, match="^pass either HttpSettings or options, not both$"):
        server.create_http_app(settings, path="/there")


async def test_run_http_rejects_wrong_ports_and_misspelt_options() -> None:
    server: Any = MCPServer("s")
    with pytest.raises(TypeError, match="port must be a whole number or None, not '80'"):
        await server.run_http(port="80")
    with pytest.raises(TypeError, match="unknown keyword argument 'auth_tokn': did you mean 'auth"):
        await server.run_http(auth_tokn="t")
    with pytest.raises(ConfigError, match="invalid port 99999: expected a number from 0 to 65535"):
        await server.run_http(port=99999)
