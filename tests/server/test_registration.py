"""Tests of the registration of tools, resources, prompts and completions."""

import functools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPServer
from fairlead.protocol.types.tools import ToolAnnotations
from fairlead.server.features.resource_registry import CacheHints
from fairlead.server.features.tool_registry import MCPToolRegistry
from tests.support.in_memory_client import META, ask


def changes_of(server: MCPServer) -> list[str]:
    """Return a list to which announced changes are appended."""
    told: list[str] = []
    server.changes.changed = lambda method, uri=None: told.append(  # type: ignore[method-assign]
        method.removeprefix("notifications/") if uri is None else uri
    )
    return told


def test_registration_decorators_return_the_function_unchanged() -> None:
    server = MCPServer("s")

    def function(a: str = "") -> str:
        """Words."""
        return a

    def plain() -> str:
        return ""

    assert server.tool(function) is function
    assert server.tool("other")(function) is function
    assert server.tool()(plain) is plain
    assert server.resource("r://{a}")(function) is function
    assert server.prompt()(function) is function
    assert server.completion("function", "a")(function) is function
    assert server.registry.listing.names() == ["function", "other", "plain"]
    assert server.completions.find("function", "a", is_prompt=True) is function


def test_a_tool_has_the_properties_given_at_registration() -> None:
    server, annotations = MCPServer("s"), ToolAnnotations(read_only_hint=True)
    server.tool(
        "n", "D", "T", {"type": "object"}, annotations=annotations, meta={"a": 1}, timeout=5
    )(lambda: {"a": 1})
    entry = server.registry.get("n")
    assert entry is not None
    definition = entry.definition
    assert (definition.description, definition.title) == ("D", "T")
    assert (definition.annotations, entry.timeout, entry.inline) == (annotations, 5, False)
    assert bytes(definition.meta) == b'{"a":1}'  # type: ignore[arg-type]
    assert entry.convert is not None
    server.register_tool("m", {}, lambda: {"a": 1}, "M", {"type": "object"})
    given = server.registry.get("m")
    assert given is not None
    assert (given.definition.title, given.convert is not None) == ("M", True)


def test_a_resource_has_the_properties_given_at_registration() -> None:
    server = MCPServer("s", cache_ttl=5, cache_scope="public")

    @server.resource("r://doc")
    def doc() -> str:
        """From the docstring."""
        return ""

    server.resource("r://all", name="n", title="T", description="D", mime_type="a/b", cache_ttl=0)(
        doc
    )
    server.register_resource("r://given", "g", "D", "a/b", "x", title="T", cache_scope="private")
    server.register_resource("r://bare", "b")
    server.register_resource_template(
        "r://{a}/x", "t", lambda a: a, "D", "a/b", title="T", cache_ttl=1, cache_scope="private"
    )
    server.register_resource_template("s://{a}", "t", lambda a: a)
    listed = {
        uri: (
            (about := entry.definition).name,
            about.title or None,
            about.description or None,
            entry.definition.mime_type,
            entry.cache,
        )
        for listing in (server.resources.fixed, server.resources.templates)
        for uri, entry in zip(listing.names(), listing.entries(), strict=True)
    }
    assert listed == {
        "r://doc": ("doc", None, "From the docstring.", "text/plain", None),
        "r://all": ("n", "T", "D", "a/b", CacheHints(0, "public")),
        "r://given": ("g", "T", "D", "a/b", CacheHints(5, "private")),
        "r://bare": ("b", None, None, "text/plain", None),
        "r://{a}/x": ("t", "T", "D", "a/b", CacheHints(1, "private")),
        "s://{a}": ("t", None, None, "text/plain", None),
    }
    assert (server.resource_count, len(server.resources.templates)) == (4, 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [("text", "text"), (None, ""), (lambda: "made", "made"), ("", "")],
    ids=["text", "nothing", "function", "empty"],
)
async def test_the_content_of_a_resource_may_be_a_text_a_function_or_absent(
    given: Any, text: str
) -> None:
    server = MCPServer("s")
    server.register_resource("r://{1}", "one", content_provider=given)
    answer = await ask(server, "resources/read", {"uri": "r://{1}"})
    assert answer["result"]["contents"][0]["text"] == text


@pytest.mark.parametrize(
    ("own", "hints"),
    [
        ({}, {"ttlMs": 5000, "cacheScope": "public"}),
        ({"cache_ttl": 1}, {"ttlMs": 1000, "cacheScope": "public"}),
        ({"cache_scope": "private"}, {"ttlMs": 5000, "cacheScope": "private"}),
    ],
    ids=["server", "time", "scope"],
)
async def test_resource_results_have_the_registered_cache_hints(own: Any, hints: Any) -> None:
    server = MCPServer("s", cache_ttl=5, cache_scope="public")
    server.register_resource("r://1", "one", content_provider="x", **own)
    result = (await ask(server, "resources/read", {"uri": "r://1", "_meta": META}))["result"]
    assert {name: result[name] for name in ("ttlMs", "cacheScope")} == hints
    listed = (await ask(server, "resources/list", {"_meta": META}))["result"]
    assert (listed["ttlMs"], listed["cacheScope"]) == (5000, "public")
    old = (await ask(server, "resources/read", {"uri": "r://1"}))["result"]
    assert list(old) == ["contents"]


def test_added_and_removed_entries_are_announced_to_clients(tmp_path: Path) -> None:
    server = MCPServer("s")
    told = changes_of(server)
    (tmp_path / "a.txt").write_text("x")

    def announced(*expected: str) -> None:
        assert told == list(expected)
        told.clear()

    server.register_tool("t", {}, lambda: "")
    announced("tools/list_changed")
    server.remove_tool("t")
    announced("tools/list_changed")
    server.register_resource("r://1", "one")
    announced("resources/list_changed")
    server.remove_resource("r://1")
    announced("resources/list_changed")
    server.register_resource_template("r://{a}", "t", lambda a: a)
    announced("resources/list_changed")
    server.remove_resource("r://{a}")
    announced("resources/list_changed")
    assert server.register_file_resource(str(tmp_path / "a.txt")).endswith("/a.txt")
    announced("resources/list_changed")
    server.register_prompt("p")
    announced("prompts/list_changed")
    server.remove_prompt("p")
    announced("prompts/list_changed")
    server.resource_updated("r://1")
    announced("r://1")
    for remove in (server.remove_tool, server.remove_resource, server.remove_prompt):
        with pytest.raises(KeyError):
            remove("nothing")
    announced()


def greeting() -> str:
    return "x"


def test_changes_of_a_replaced_registry_are_not_announced_to_clients() -> None:
    server, old, new = MCPServer("s"), MCPToolRegistry(), MCPToolRegistry()
    first = server.registry
    server.registry = old
    assert server.registry is old
    told = changes_of(server)
    server.registry = new
    assert told == ["tools/list_changed"]
    told.clear()
    for registry in (first, old):
        registry.register(greeting)
        assert registry.listing.listeners == []
    assert (told, server.tool_count) == ([], 0)
    new.register(greeting)
    assert (told, server.tool_count) == (["tools/list_changed"], 1)


def test_a_prompt_has_the_properties_given_at_registration() -> None:
    server = MCPServer("s")

    @server.prompt("n", title="T", description="D")
    def function(a: str) -> str:
        return a

    server.register_prompt("m", "D", [{"name": "a"}], "{a}", title="T")
    listed = [
        (name, entry.definition.name, entry.definition.title, entry.definition.description)
        for name, entry in zip(server.prompts.names(), server.prompts.entries(), strict=True)
    ]
    assert listed == [("n", "n", "T", "D"), ("m", "m", "T", "D")]
    assert server.prompt_count == 2


@pytest.mark.covers("SRV-01", "SRV-06")
def test_registration_decorators_may_be_used_without_parentheses() -> None:
    server = MCPServer("s")

    @server.tool
    def add(a: int) -> int:
        return a

    @server.prompt
    def ask_for(topic: str) -> str:
        """Ask for a topic."""
        return topic

    assert (add(1), ask_for("x")) == (1, "x")
    assert [entry.name for entry in server.registry.list_tools()] == ["add"]
    (prompt,) = server.prompts.entries()
    assert (prompt.definition.name, prompt.definition.description) == (
        "ask_for",
        "Ask for a topic.",
    )


def test_the_error_for_a_resource_without_a_uri_shows_the_correct_form() -> None:
    server: Any = MCPServer("s")
    with pytest.raises(TypeError, match=r'use @server.resource\("scheme://path"\)'):

        @server.resource
        def hours() -> str:
            return "9 to 5"

    with pytest.raises(
        TypeError, match=r'^@server.resource needs uri: use @server.resource\("scheme://path"'
    ):
        server.resource(title="Hours")
    with pytest.raises(ValueError, match="invalid URI 'hours': expected scheme://path, such as "):
        server.resource("hours")(lambda: "9 to 5")
    assert server.resource_count == 0


def test_the_error_for_an_incomplete_completion_shows_the_correct_form() -> None:
    server: Any = MCPServer("s")
    with pytest.raises(
        TypeError, match="^@server.completion needs reference and argument: use @server.c"
    ):

        @server.completion
        def cities(typed: str) -> list[str]:
            return [typed]

    with pytest.raises(TypeError, match="use @server.completion"):
        server.completion("greet")
    with pytest.raises(TypeError, match="unknown keyword argument 'arg': expected one of argument"):
        server.completion("greet", arg="city")
    with pytest.raises(TypeError, match="expected a function, not 3"):
        server.completion("greet", "city")(3)


def parts() -> Iterator[str]:
    yield "part"


async def parts_later() -> AsyncIterator[str]:
    yield "part"


def by_position(a: str, /) -> str:
    return a


class Parts:
    def __call__(self) -> Iterator[str]:
        yield "part"

    def read(self, part: str) -> str:
        return part


def read(self, part: str):  # type: ignore[no-untyped-def]
    return part


@pytest.mark.covers("SRV-30")
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (parts, "parts is a generator function: return a list instead of yielding"),
        (parts_later, "parts_later is a generator function: return a list instead of yielding"),
        (functools.partial(parts), "parts is a generator function: return a list"),
        (Parts(), "Parts is a generator function: return a list instead of yielding"),
        (by_position, "parameter 'a' is positional-only; .* so remove the '/'"),
        (3, "expected a function, not 3"),
        (
            classmethod(parts),
            "not <classmethod.*: register the method after the class",
        ),
        (Parts, "expected a function, not the class Parts: write a function that creates"),
        (functools.partial(Parts), "expected a function, not the class Parts"),
        (max, "the parameters of max are unknown: write a function that calls it"),
        (Parts.read, r"Parts.read is a method without an object: .*, such as Parts\(\).read$"),
        (read, "read is a method without an object: .* register its method$"),
    ],
)
def test_functions_that_cannot_be_called_are_rejected_with_the_reason(
    function: Any, reason: str
) -> None:
    server: Any = MCPServer("s")
    ways = [
        server.tool("t"),
        server.tool,
        server.registry.register,
        lambda f: server.register_tool("t", {}, f),
        server.prompt("p"),
        server.prompt,
        server.resource("r://{a}"),
        lambda f: server.register_prompt("p", template=f) if callable(f) else server.prompt(f),
    ]
    for register in ways:
        with pytest.raises(TypeError, match=reason):
            register(function)
    assert (server.tool_count, server.prompt_count, len(server.resources)) == (0, 0, 0)


@pytest.mark.covers("SRV-30")
def test_a_lambda_function_needs_a_name() -> None:
    server = MCPServer("s")
    for register in (server.tool, server.prompt, server.tool(), server.prompt()):
        with pytest.raises(TypeError, match="a lambda function has no name: pass a name, or def"):
            register(lambda: "x")  # type: ignore[operator]
    server.tool("t")(lambda: "x")
    server.prompt("p")(lambda: "x")
    server.resource("r://x")(lambda: "x")
    assert (server.tool_count, server.prompt_count) == (1, 1)
    [resource] = server.resources.fixed.entries()
    assert resource.definition.name == "r://x"


@pytest.mark.covers("SRV-30")
def test_a_tool_whose_only_parameters_have_no_names_is_rejected() -> None:
    def repeated(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @repeated
    def add(a: int) -> int:
        return a

    server = MCPServer("s")
    reason = (
        r"wrapper: callers cannot pass \*args: Any and \*\*kwargs: Any: .* `functools.wraps` in"
    )
    with pytest.raises(TypeError, match=reason):
        server.tool(add)
    server.tool("add")(lambda a, **others: a)
    assert server.tool_count == 1
