"""Tests of completions, and of prompts with typed parameters."""

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import pytest

from fairlead import Context, MCPServer
from fairlead.protocol.types.completion import Completion
from tests.support.raw_server_client import META, wire_to

PROMPT = {"type": "ref/prompt", "name": "greet"}


class Tone(enum.Enum):
    WARM = "warm"
    COOL = "cool"


def server_of_greetings() -> MCPServer:
    server = MCPServer("s")

    @server.prompt(title="Greeting")
    def greet(
        city: Annotated[str, "Where they live"],
        tone: Annotated[Tone, msgspec.Meta(title="Tone", description="How it sounds")] = Tone.WARM,
        times: int = 1,
        loud: bool = False,
    ) -> str:
        """Greet people."""
        return f"{tone.name} {city} {times + 1} {loud}"

    @server.resource("shop://{kind}/{item}")
    def item(kind: Literal["fruit", "fish"], item: str) -> str:
        return item

    @server.completion("greet", "city")
    async def cities(typed: str, others: Mapping[str, str]) -> list[str]:
        return [f"{typed}-{number}-{others.get('tone')}" for number in range(150)]

    @server.completion("shop://{kind}/{item}", "item")
    def items(typed: str) -> list[str]:
        return [name for name in ("apple", "apricot") if name.startswith(typed)]

    return server


async def complete(wire: Any, ref: Any, name: str, value: str, **more: Any) -> dict[str, Any]:
    params = {"ref": ref, "argument": {"name": name, "value": value}, **more}
    answer = await wire.ask("completion/complete", params)
    return answer.get("error") or answer["result"]  # type: ignore[no-any-return]


@pytest.mark.covers("PRO-35", "SRV-15")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_arguments_are_completed_from_functions_and_types(era: str) -> None:
    async with wire_to(server_of_greetings()) as wire:
        more: dict[str, Any] = {"_meta": META} if era == "stateless" else {}
        if era == "handshake":
            assert (await wire.greet())["capabilities"]["completions"] == {}
        context = {"arguments": {"tone": "warm"}}
        result = await complete(wire, PROMPT, "city", "R", context=context, **more)
        assert result["completion"] == {
            "values": [f"R-{number}-warm" for number in range(100)],
            "total": 150,
            "hasMore": True,
        }
        assert ("resultType" in result) is (era == "stateless")

        async def values(ref: Any, name: str, typed: str) -> Any:
            return (await complete(wire, ref, name, typed, **more))["completion"]["values"]

        template = {"type": "ref/resource", "uri": "shop://{kind}/{item}"}
        assert await values(template, "item", "apr") == ["apricot"]
        assert await values(template, "kind", "F") == ["fruit", "fish"]
        assert await values(PROMPT, "tone", "o") == ["cool"]
        assert await values(PROMPT, "tone", "c") == ["cool"]
        assert await values(PROMPT, "tone", "") == ["warm", "cool"]
        assert await values(PROMPT, "loud", "") == ["true", "false"]
        assert await values(PROMPT, "times", "1") == []
        assert await values(PROMPT, "nothing", "1") == []


async def test_the_completion_of_an_unknown_reference_is_rejected() -> None:
    async with wire_to(server_of_greetings()) as wire:
        await wire.greet()
        unknown = {"type": "ref/prompt", "name": "no"}
        assert (await complete(wire, unknown, "a", ""))["code"] == -32602
        nowhere = {"type": "ref/resource", "uri": "no://{x}"}
        assert (await complete(wire, nowhere, "a", ""))["code"] == -32602
        assert (await wire.ask("completion/complete", {}))["error"]["code"] == -32602


async def test_a_completion_function_may_return_the_total_number_of_values() -> None:
    server = MCPServer("s")
    server.register_prompt("greet", arguments=[{"name": "city"}], template="{city}")
    server.completion("greet", "city")(
        lambda typed: Completion(values=["Rome"] * 200, total=12_345)
    )
    async with wire_to(server) as wire:
        await wire.greet()
        found = (await complete(wire, PROMPT, "city", ""))["completion"]
        assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 12_345, True)


async def test_the_completion_capability_is_declared_only_if_arguments_can_be_completed() -> None:
    server = MCPServer("s")
    server.prompt("p")(lambda **given: str(given))
    async with wire_to(server) as wire:
        assert "completions" not in (await wire.greet())["capabilities"]


@pytest.mark.covers("SRV-33")
async def test_prompt_arguments_are_typed_and_described() -> None:
    async with wire_to(server_of_greetings()) as wire:
        await wire.greet()
        (prompt,) = (await wire.ask("prompts/list"))["result"]["prompts"]
        assert prompt == {
            "name": "greet",
            "title": "Greeting",
            "description": "Greet people.",
            "arguments": [
                {"name": "city", "description": "Where they live", "required": True},
                {
                    "name": "tone",
                    "title": "Tone",
                    "description": "How it sounds",
                    "required": False,
                },
                {"name": "times", "required": False},
                {"name": "loud", "required": False},
            ],
        }

        async def get(**arguments: str) -> Any:
            answer = await wire.ask("prompts/get", {"name": "greet", "arguments": arguments})
            return answer.get("error") or answer["result"]["messages"][0]["content"]["text"]

        assert await get(city="Rome") == "WARM Rome 2 False"
        assert await get(city="7", tone="cool", times="2", loud="true") == "COOL 7 3 True"
        assert (await get(city="Rome", tone="hot"))["message"] == "tone: must be one of warm, cool"
        assert (await get(city="Rome", times="many"))["code"] == -32602
        assert (await get(times="1"))["data"] == {"missing": ["city"]}


async def test_prompts_may_have_a_context_parameter() -> None:
    server = MCPServer("s")

    @server.prompt()
    async def who(ctx: Context) -> str:
        return ctx.client

    async with wire_to(server) as wire:
        await wire.greet()
        (prompt,) = (await wire.ask("prompts/list"))["result"]["prompts"]
        assert "arguments" not in prompt
        got = (await wire.ask("prompts/get", {"name": "who"}))["result"]
        assert got["messages"][0]["content"]["text"] == "c"


@pytest.mark.parametrize(
    ("given", "shown", "total", "more"),
    [
        (None, 0, 0, False),
        (range(100), 100, 100, False),
        (range(101), 100, 101, True),
        (Completion(values=["a"]), 1, None, None),
        (Completion(values=["a"] * 100), 100, None, None),
        (Completion(values=["a"] * 100, total=500, has_more=True), 100, 500, True),
        (Completion(values=["a"] * 101), 100, 101, True),
        (Completion(values=["a"] * 101, total=500), 100, 500, True),
    ],
)
async def test_a_completion_result_has_at_most_a_hundred_values(
    given: Any, shown: int, total: int | None, more: bool | None
) -> None:
    server = MCPServer("s")

    @server.prompt()
    def greet(city: str) -> str:
        return city

    @server.completion("greet", "city")
    def cities(typed: str) -> Any:
        return given

    async with wire_to(server) as wire:
        completion = (await complete(wire, PROMPT, "city", "", _meta=META))["completion"]
    assert len(completion["values"]) == shown
    assert (completion.get("total"), completion.get("hasMore")) == (total, more)


async def test_a_completion_can_be_registered_for_a_fixed_resource() -> None:
    server = MCPServer("s")
    server.register_resource("r://1", "one", content_provider="1")
    server.completion("r://1", "a")(lambda typed: [f"{typed}!"])
    async with wire_to(server) as wire:
        await wire.greet()
        fixed = {"type": "ref/resource", "uri": "r://1"}
        assert (await complete(wire, fixed, "a", "x"))["completion"]["values"] == ["x!"]
        assert (await complete(wire, fixed, "b", "x"))["completion"]["values"] == []


async def test_a_prompt_is_rendered_from_a_function_a_text_or_its_description() -> None:
    server = MCPServer("s")
    server.register_prompt("function", template=lambda: "made")
    server.register_prompt("given", arguments=[{"name": "a"}], template=lambda a: f"<{a}>")
    server.register_prompt("text", arguments=[{"name": "a"}], template="{a} {{b}}")
    server.register_prompt("described", "says this")
    server.register_prompt("bare")
    expected = {
        "function": "made",
        "given": "<1>",
        "text": "1 {b}",
        "described": "says this",
        "bare": "bare",
    }
    async with wire_to(server) as wire:
        await wire.greet()
        for name, text in expected.items():
            arguments = {"a": "1"} if name in ("given", "text") else {}
            answer = await wire.ask("prompts/get", {"name": name, "arguments": arguments})
            [message] = answer["result"]["messages"]
            assert (message["role"], message["content"]["text"]) == ("user", text)


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("", ["Tea", "steam", "team", "east"]),
        ("te", ["Tea", "team", "steam"]),
        ("EA", ["east", "Tea", "steam", "team"]),
        ("st", ["steam", "east"]),
        ("x", []),
    ],
)
async def test_completion_choices_that_start_with_the_typed_text_are_first(
    typed: str, values: list[str]
) -> None:
    server = MCPServer("s")

    @server.prompt()
    def greet(word: Literal["Tea", "steam", "team", "east"]) -> str:
        return word

    async with wire_to(server) as wire:
        assert (await wire.greet())["capabilities"]["completions"] == {}
        found = await complete(wire, PROMPT, "word", typed)
        assert found["completion"] == {"values": values, "total": len(values), "hasMore": False}


class Cities:
    """Completion functions with different signatures."""

    async def __call__(self, typed: str, *others: Any) -> list[str]:
        return [typed, *map(str, others)]

    def plain(self, typed: str) -> list[str]:
        return [typed]

    def named(self, typed: str, *, more: int = 1) -> list[str]:
        return [typed, str(more)]

    def wrapped(self, typed: str, others: Mapping[str, str], /) -> Any:
        return self(typed, others)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("__call__", ["R", "{'a': 'b'}"]),
        ("plain", ["R"]),
        ("named", ["R", "1"]),
        ("wrapped", ["R", "{'a': 'b'}"]),
    ],
)
async def test_a_completion_function_gets_the_other_arguments_if_it_accepts_them(
    kind: str, values: list[str]
) -> None:
    server, cities = MCPServer("s"), Cities()
    server.register_prompt("greet", arguments=[{"name": "city"}], template="{city}")
    completer = cities if kind == "__call__" else getattr(cities, kind)
    assert server.completion("greet", "city")(completer) is completer
    async with wire_to(server) as wire:
        await wire.greet()
        given = {"context": {"arguments": {"a": "b"}}}
        found = await complete(wire, PROMPT, "city", "R", **given)
        assert found["completion"]["values"] == values
        for nothing in ({}, {"context": {}}):
            found = await complete(wire, PROMPT, "city", "R", **nothing)
            assert found["completion"]["values"] == [v.replace("'a': 'b'", "") for v in values]


async def test_completions_of_mounted_servers_are_found_under_the_names_of_the_outer_server() -> (
    None
):
    outer, first, second = MCPServer("outer"), MCPServer("first"), MCPServer("second")
    assert not outer.completions
    for server, name in ((first, "x"), (second, "y"), (outer, "z")):
        server.register_prompt(name, arguments=[{"name": "a"}], template="{a}")
        server.completion(name, "a")(lambda typed, name=name: [f"{name} {typed}"])
    first.resource("t://{a}")(lambda a: a)
    first.completion("t://{a}", "a")(lambda typed: ["template"])
    plain = MCPServer("plain")
    plain.mount(MCPServer("empty"), "e")
    assert not plain.completions
    plain.mount(first, "one")
    assert plain.completions
    outer.mount(first, "one")
    outer.mount(second, "two")

    def complete(reference: str, argument: str = "a") -> Any:
        is_prompt = "://" not in reference
        completer = outer.completions.find(reference, argument, is_prompt=is_prompt)
        return completer and completer("?")

    found = {
        reference: complete(reference)
        for reference in ("z", "x", "one_x", "two_y", "t://{a}", "one_y", "two_x", "one", "a_x")
    }
    assert found == {
        "z": ["z ?"],
        "x": None,
        "one_x": ["x ?"],
        "two_y": ["y ?"],
        "t://{a}": ["template"],
        "one_y": None,
        "two_x": None,
        "one": None,
        "a_x": None,
    }
    assert complete("one_x", "b") is None
