"""Snippets on the calling page, and the client members that it names."""

import ast
import builtins
import inspect
import re
from dataclasses import fields
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import fairlead
from fairlead import MCPClient, MCPClientConfig, MCPServer, errors, interceptor
from fairlead import client as client_folder
from fairlead.client import Callbacks
from fairlead.transport import channel

PAGE = Path(__file__).parents[3] / "docs" / "calling.md"


def snippets() -> list[CodeType]:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    return [compile(source, f"calling.md[{i}]", "exec", flags) for i, source in enumerate(found)]


async def test_every_snippet_on_the_calling_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for code in snippets():
        done = eval(code, names)  # a snippet with `await` evaluates to a coroutine
        if done is not None:
            await done
    printed = capsys.readouterr().out
    for words in (
        "add Add two numbers.",
        "over HTTP: 3",
        "over WebSocket: 3",
        "['Buy bread.']",
        "Say hello to Ada",
        "the server returned an error:",
        "{'elicitation': {'form': {}}, 'sampling': {}, 'roots': {'listChanged': True}}",
        "visit ['https://example.com/login']",
        "memo://today has changed",
        "client_to_server tools/call add",
    ):
        assert words in printed


def named(prose: str) -> set[str]:
    """Return every identifier in inline code outside of the snippets."""
    marked = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", prose, flags=re.DOTALL))
    return {word for code in marked for word in re.findall(r"[A-Za-z_]\w*", code)}


def test_the_calling_page_names_every_public_member_of_a_client() -> None:
    page = named(PAGE.read_text())
    public = {name for name in dir(MCPClient) if not name.startswith("_")}
    # These members are for internal use.
    inner = {"learn_tools", "list_raw", "open", "open_on", "restore"}
    assert public - inner - page == set()
    assert {field.name for field in fields(MCPClientConfig)} - page == set()
    assert set(Callbacks.__annotations__) - page == set()


async def test_every_member_named_on_the_calling_page_exists() -> None:
    text = PAGE.read_text()
    async with MCPClient.connect_inprocess(MCPServer("s")) as client:
        used = re.findall(
            r"\b(?:MCPClient|client)\.([a-z]\w*)", text.replace("fairlead.client", "")
        )
        called = re.findall(r"`([a-z]\w+)\(", text)
        assert len(used) > 20
        assert len(called) > 20
        assert {name for name in (*used, *called) if not hasattr(client, name)} == set()
    for name in re.findall(r"`([A-Z]\w+)`", text):
        assert any(
            hasattr(home, name)
            for home in (builtins, errors, client_folder, fairlead, channel, interceptor)
        ) or (name == "UnknownContent"), name


def test_the_defaults_on_the_calling_page_are_correct() -> None:
    defaults = {field.name: field.default for field in fields(MCPClientConfig)}
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    checked = 0
    for names, values in rows:
        for name, value in zip(names.split(", "), values.split(", "), strict=False):
            default = defaults.get(name.strip("`"))
            if isinstance(default, bool):
                assert value == ("yes" if default else "no"), name
            elif isinstance(default, int | float):
                assert float(value) == default, name
            else:
                continue
            checked += 1
    assert checked == sum(isinstance(d, int | float) for d in defaults.values())


def test_public_methods_of_a_client_have_docstrings() -> None:
    for name, member in inspect.getmembers(MCPClient):
        kind = inspect.isfunction(member) or isinstance(member, property)
        if kind and not name.startswith("_"):
            assert inspect.getdoc(member), name
