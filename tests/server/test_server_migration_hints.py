"""Tests of the hints for attributes that servers and contexts of other libraries have."""

import copy
import inspect
import pickle
import re
from typing import Any

import pytest

from fairlead import Context, MCPServer
from fairlead.server.server_migration_hints import CONTEXT_HINTS, SERVER_HINTS
from tests.support.in_memory_client import client_of

NO_SERVER = "'MCPServer' object has no attribute"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "add_middleware",
            f"{NO_SERVER} 'add_middleware': pass `interceptors=[...]` to `MCPServer`, see "
            "`fairlead.interceptor`",
        ),
        (
            "streamable_http_app",
            f"{NO_SERVER} 'streamable_http_app': use `server.create_http_app()`, an ASGI "
            "application",
        ),
        ("regster_tool", f"{NO_SERVER} 'regster_tool': did you mean 'register_tool'?"),
        ("quite_different", f"{NO_SERVER} 'quite_different'"),
        ("_registr", f"{NO_SERVER} '_registr'"),
    ],
)
def test_a_missing_attribute_of_a_server_is_reported_with_a_replacement(
    name: str, message: str
) -> None:
    server = MCPServer("s")
    with pytest.raises(AttributeError) as missing:
        getattr(server, name)
    assert str(missing.value) == message
    assert not hasattr(server, name)
    assert getattr(server, name, "default") == "default"


async def test_a_missing_attribute_of_a_context_is_reported_with_a_replacement() -> None:
    server = MCPServer("s")

    @server.tool()
    async def habits(name: str, ctx: Context) -> str:
        with pytest.raises(AttributeError) as missing:
            getattr(ctx, name)
        return str(missing.value)

    prefix = "'Context' object has no attribute"
    async with client_of(server) as client:
        for name, message in {
            "report_progress": "use `await ctx.progress(progress, total, message)`",
            "princpal": "did you mean 'principal'?",
        }.items():
            result = await client.call_tool("habits", {"name": name})
            assert result.data == f"{prefix} {name!r}: {message}"


async def test_arguments_of_other_libraries_are_reported_with_a_replacement() -> None:
    server = MCPServer("s")
    expected = {
        "elicit": ({"message": "m", "response_type": str}, "use `answer=`"),
        "info": ({"data": "d", "extra": {}}, "use a dict as data, as in `await ctx.info({"),
        "log": ({"level": "info", "data": "d", "logger_name": "n"}, "use `await ctx.log(level, "),
        "sample": ({"messages": "m", "system_prompt": "s"}, "use `systemPrompt=`, as on the wire"),
    }

    @server.tool()
    async def habits(name: str, ctx: Context) -> str:
        with pytest.raises(TypeError) as unknown:
            await getattr(ctx, name)(**expected[name][0])
        return str(unknown.value)

    async with client_of(server) as client:
        for name, (given, hint) in expected.items():
            result = await client.call_tool("habits", {"name": name})
            assert result.data.startswith(f"unknown keyword argument {list(given)[-1]!r}: {hint}")


async def test_misspelt_options_of_a_sampling_request_are_rejected() -> None:
    server = MCPServer("s")

    @server.tool()
    async def think(ctx: Context) -> str:
        with pytest.raises(TypeError, match="'max_token': did you mean 'max_tokens'"):
            await ctx.sample("x", max_token=5)
        with pytest.raises(TypeError, match="max_tokens must be a whole number"):
            await ctx.sample("x", max_tokens="5")  # type: ignore[arg-type]
        return "checked"

    async with client_of(server) as client:
        assert (await client.call_tool("think")).data == "checked"


@pytest.mark.parametrize(("kind", "hints"), [(MCPServer, SERVER_HINTS), (Context, CONTEXT_HINTS)])
def test_each_hint_is_for_a_missing_name_and_names_existing_members(
    kind: Any, hints: dict[str, str]
) -> None:
    attributes = {"config", "state", "exchange"}  # set in `__init__`
    for name, hint in hints.items():
        assert not hasattr(kind, name), name
        for owner, member in re.findall(r"`(?:@|await )?(server|ctx)\.(\w+)", hint):
            home = MCPServer if owner == "server" else Context
            assert hasattr(home, member) or member in attributes, hint


def test_the_error_of_a_property_is_not_hidden() -> None:
    class Odd(MCPServer):
        @property
        def odd(self) -> Any:
            return self.config.nothing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="'MCPServerConfig' object has no attribute 'nothing'"):
        _ = Odd("s").odd


class Small(MCPServer):
    def __init__(self) -> None:
        self.size = 1


def test_a_server_that_skips_its_constructor_can_be_copied_pickled_and_inspected() -> None:
    small = Small()
    for other in (copy.copy(small), copy.deepcopy(small), pickle.loads(pickle.dumps(small))):
        assert vars(other) == {"size": 1}
    assert not callable(small)
    assert dict(inspect.getmembers_static(small))["size"] == 1
    assert inspect.unwrap(small) is small  # type: ignore[arg-type]
