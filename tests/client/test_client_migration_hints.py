"""Tests of the hints for attributes that clients and results of other libraries have."""

import copy
import pickle
import re
from typing import Any

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.client import Called, ToolCallResult
from fairlead.client.client_migration_hints import CALLED_HINTS, CLIENT_HINTS, RESULT_HINTS
from tests.support.in_memory_client import client_of


async def test_a_missing_attribute_of_a_client_is_reported_with_a_replacement() -> None:
    async with client_of(MCPServer("s")) as client:
        for name, hint in {
            "is_connected": "use `client.connected`, which is not a method",
            "list_tool": "did you mean 'list_tools'?",
        }.items():
            with pytest.raises(AttributeError) as missing:
                getattr(client, name)
            assert str(missing.value) == f"'MCPClient' object has no attribute {name!r}: {hint}"
            assert not hasattr(client, name)


def test_each_hint_is_for_a_missing_name_and_names_existing_members() -> None:
    attributes = {"on_log"}  # set in `__init__`
    for name, hint in CLIENT_HINTS.items():
        assert not hasattr(MCPClient, name), name
        members = re.findall(r"`(?:await )?client\.(\w+)", hint)
        assert all(hasattr(MCPClient, one) or one in attributes for one in members), hint
    for name in CALLED_HINTS:
        assert not hasattr(Called, name), name
    for name, hint in RESULT_HINTS.items():
        assert not hasattr(ToolCallResult, name), name
        assert all(hasattr(ToolCallResult, one) for one in re.findall(r"result\.(\w+)", hint)), hint


async def test_results_that_are_dicts_or_objects_name_the_replacement_of_an_attribute() -> None:
    server = MCPServer("s")
    server.tool(name="t")(lambda: "x")
    server.resource("memo://a")(lambda: "x")
    server.prompt(name="p")(lambda: "x")
    async with client_of(server) as client:
        read = await client.read_resource("memo://a")
        prompt = await client.get_prompt("p")
        called = await client.call("t")
    for result, name, hint in (
        (read, "contents", "use `result['contents']`; for objects, use `await client.read(uri)`"),
        (prompt, "messages", "use `result['messages']`; for objects, use `await client.prompt"),
        (called, "structured_content", "use `result.structured`, or `result.data`"),
        (called, "is_eror", "did you mean 'is_error'?"),
    ):
        with pytest.raises(AttributeError) as missing:
            getattr(result, name)
        assert f"has no attribute {name!r}: {hint}" in str(missing.value)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("raise_on_error", "check `result.is_error`, or use `result.raise_for_error()`"),
        ("a", "pass the arguments of the tool as a dict"),
    ],
)
async def test_an_unknown_keyword_of_a_call_is_reported_with_a_replacement(
    name: str, hint: str
) -> None:
    async with client_of(MCPServer("s")) as client:
        calls: dict[str, Any] = {"call_tool": client.call_tool, "call": client.call}
        for method, call in calls.items():
            with pytest.raises(TypeError) as wrong:
                await call("t", **{name: True})
            text = f"{method}() got an unexpected keyword argument {name!r}: {hint}"
            assert str(wrong.value) == text


def test_a_missing_attribute_of_a_result_is_reported_with_its_key() -> None:
    result = ToolCallResult({"content": [{"type": "text", "text": "a"}]})
    with pytest.raises(AttributeError) as missing:
        _ = result.content  # type: ignore[attr-defined]
    assert str(missing.value) == (
        "'ToolCallResult' object has no attribute 'content': use `result['content']`, or "
        "`result.text`; for typed results, use `await client.call(name, arguments)`"
    )
    for other in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert (type(other), other) == (ToolCallResult, result)
