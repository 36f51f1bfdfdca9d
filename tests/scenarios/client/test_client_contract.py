"""The documented settings, health check and exceptions of a client."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import fairlead
from fairlead import MCPClient, MCPClientConfig, MCPServer, errors
from fairlead.client.connection.era_cache import known_eras
from fairlead.transport.stdio.start_error import StartFailed
from tests.support.scripted_stdio_server import heard, program


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


@pytest.mark.covers("CLT-10")
def test_client_settings_have_the_documented_defaults() -> None:
    defaults = {field.name: field.default for field in fields(MCPClientConfig)}
    required: dict[str, Any] = {
        "timeout_seconds": 30.0,
        "max_retries": 3,
        "retry_delay": 0.5,
        "connection_pool_size": 10,
        "protocol_version": "auto",
        "name": "fairlead",
        "version": fairlead.__version__,
        "health_check_interval": 0.0,
        "auto_reconnect": False,
        "retry_tool_calls": False,
        "probe_timeout": 1.0,
        "max_total_seconds": 600.0,
        "input_timeout": 600.0,
    }
    assert {name: defaults[name] for name in required} == required
    # The other defaults are not documented.
    assert {name: defaults[name] for name in defaults.keys() - required.keys()} == {
        "cache": True,
        "max_list_bytes": 8 << 20,
        "max_list_items": 20_000,
        "max_rounds": 20,
        "stale_seconds": 0.0,
        "strict": False,
        "validate_output": True,
    }


@pytest.mark.covers("CLT-04")
@pytest.mark.parametrize("stateless", [True, False])
async def test_a_health_check_uses_the_request_of_the_era_and_never_raises(
    tmp_path: Path, stateless: bool
) -> None:
    source = """
    for request in requests():
        if "id" in request: os._exit(3)
    """
    command = program(tmp_path, source, stateless=stateless)
    config = MCPClientConfig(protocol_version="auto" if stateless else "latest")
    async with MCPClient.connect_stdio(command, config) as client:
        before = len(heard(tmp_path))
        good = await client.health_check()
        asked = [message["method"] for message in heard(tmp_path)[before:] if "id" in message]
        assert asked == ["server/discover" if stateless else "ping"]
        assert good.pop("latency_ms") > 0
        assert good == {"ok": True, "server": None if stateless else "hand-made"}
        with pytest.raises(errors.ChannelClosed):
            await client.call("die")
        bad = await client.health_check()
        assert list(bad) == ["ok", "latency_ms", "server", "error"]
        assert bad["ok"] is False
        assert "exited with code 3" in bad["error"]


@pytest.mark.covers("CLT-04")
async def test_a_health_check_of_a_closed_client_is_not_ok() -> None:
    connecting = MCPClient.connect_inprocess(MCPServer("s"))
    async with connecting as client:
        assert (await client.health_check())["server"] == "s"
    assert (await client.health_check())["ok"] is False


@pytest.mark.covers("ARC-12")
def test_every_exception_is_in_the_documented_class_tree() -> None:
    found = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    drawn = inspect.getdoc(errors) or ""
    for name, value in found.items():
        assert issubclass(value, errors.FairleadError), name
        assert name in errors.__all__
        assert value.__name__ in drawn
    assert errors.MCPClientError is errors.FairleadError
    assert errors.ClientClosedError is errors.ChannelClosed
    assert issubclass(errors.RequestTimeout, TimeoutError)
    assert issubclass(errors.ChannelClosed, ConnectionError)
    for kind in (
        errors.ConnectFailed,
        errors.HttpError,
        errors.RequestTimeout,
        errors.ChannelClosed,
    ):
        assert issubclass(kind, errors.TransportError)


@pytest.mark.covers("ARC-12")
def test_details_of_an_exception_are_attributes() -> None:
    refused = errors.RpcError(-1, "no", {"why": 1})
    assert (refused.code, refused.message, refused.data) == (-1, "no", {"why": 1})
    http = errors.HttpError(503, "busy", {"retry-after": "3"})
    assert (http.status, http.body, http.headers) == (503, "busy", {"retry-after": "3"})
    unread = errors.RemoteProtocolError("no JSON", code=-32700)
    assert (unread.code, unread.request_id) == (-32700, None)
    wrong = errors.ConfigError("no command", path="a.json", line=3)
    assert str(wrong) == "a.json:3: no command"


def test_client_exceptions_are_importable_from_the_client_package() -> None:
    from fairlead import client

    assert client.InputNotGiven is errors.InputNotGiven
    assert client.OutputMismatch is errors.OutputMismatch
    assert client.UrlElicitationRequired is errors.UrlElicitationRequired


@pytest.mark.covers("ARC-12")
async def test_every_error_of_a_call_is_a_fairlead_error(tmp_path: Path) -> None:
    source = """
    for request in requests():
        name = request.get("params", {}).get("name")
        if name == "refused":
            refuse(request, -32000, "no")
        elif name == "nonsense":
            answer(request, [])
        elif name == "die":
            os._exit(1)
        elif request["method"] == "tools/list":
            answer(request, 5)
    """
    command = program(tmp_path, source, stateless=False)
    config = MCPClientConfig(protocol_version="latest", max_retries=1, retry_delay=0.01)
    raised: list[type[BaseException]] = []
    async with MCPClient.connect_stdio(command, config) as client:
        for work in (
            client.call("refused"),
            client.call("nonsense"),
            client.tools(),
            client.call("silent", timeout=0.05),
            client.request("prompts/get", {"name": "silent"}, timeout=0.05),
            client.call("die"),
            client.call("dead"),
        ):
            with pytest.raises(errors.MCPClientError) as caught:
                await work
            raised.append(caught.type)
    with pytest.raises(errors.MCPClientError) as caught:
        await MCPClient.connect_stdio(["no-such-program-at-all"])
    assert [*raised, caught.type] == [
        errors.RpcError,
        errors.RemoteProtocolError,
        errors.RemoteProtocolError,
        errors.RequestTimeout,
        errors.RetriesExhausted,
        errors.ChannelClosed,
        errors.ChannelClosed,
        StartFailed,
    ]
