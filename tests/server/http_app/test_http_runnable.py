"""Tests of running servers over HTTP."""

import asyncio
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.server.http_app import uvicorn_runner
from fairlead.server.http_app.http_runnable import HttpRunnable
from fairlead.transport.http.server.http_settings import HttpSettings


class Runnable(HttpRunnable):
    port = 7

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.ended: list[Any] = []

    def create_http_app(self, settings: HttpSettings | None = None, **options: Any) -> Any:
        self.made.append((settings, options))
        return "the application"

    def http_ended(self, app: Any) -> None:
        self.ended.append(app)


@pytest.mark.parametrize("fails", [None, KeyError("x"), asyncio.CancelledError()])
async def test_application_runs_and_its_end_is_reported(
    fails: BaseException | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[Any] = []

    async def run_app(*args: Any, **options: Any) -> None:
        runs.append((args, options))
        if fails is not None:
            raise fails

    monkeypatch.setattr(uvicorn_runner, "run_app", run_app)
    runnable, settings = Runnable(), HttpSettings()
    if fails is None:
        await runnable.run_http(settings=settings)
        await runnable.run_http("::1", 0, uds="s", insecure=True, started=print, auth_token="t")
    else:
        with pytest.raises(type(fails)):
            await runnable.run_http(settings=settings)
    plain = {"uds": None, "tls": None, "insecure": False, "started": None}
    assert runs[0] == (("the application", "127.0.0.1", 7), plain)
    assert runnable.made[0] == (settings, {})
    if fails is None:
        own = {"uds": "s", "tls": None, "insecure": True, "started": print}
        assert runs[1] == (("the application", "::1", 0), own)
        assert runnable.made[1] == (None, {"auth_token": "t"})
    assert runnable.ended == ["the application"] * len(runs)


async def test_base_class_has_no_application() -> None:
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
