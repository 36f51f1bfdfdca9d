"""Tests of the hints for attributes that clients and results of other libraries have."""

import copy
import pickle
import re

import pytest

from fairlead import MCPClient, MCPServer
from fairlead.client import ToolCallResult
from fairlead.client.client_migration_hints import CLIENT_HINTS, RESULT_HINTS
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
    for name, hint in RESULT_HINTS.items():
        assert not hasattr(ToolCallResult, name), name
        assert all(hasattr(ToolCallResult, one) for one in re.findall(r"result\.(\w+)", hint)), hint


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
