"""Tests of URI templates, and of servers with resource templates."""

import enum
import re
from typing import Any, Literal
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead import Context, MCPServer
from fairlead.limits import TEMPLATE_VARIABLES
from fairlead.protocol.uri_templates.template import UriTemplate
from tests.support.raw_server_client import META, wire_to


def expand(template: str, values: dict[str, str]) -> str:
    """Expand a template of levels 1 to 3 (RFC 6570, section 3.2.1)."""

    def fill(found: re.Match[str]) -> str:
        symbol, names = found[1], found[2].split(",")
        separator = {"/": "/", "?": "&", "&": "&"}.get(symbol, ",")
        texts = [quote(values[name], safe="-._~") for name in names]
        if symbol in "?&" and symbol:
            texts = [f"{name}={text}" for name, text in zip(names, texts, strict=True)]
        return symbol + separator.join(texts)

    return re.sub(r"\{([/?&]?)([^{}]*)\}", fill, template)


TEXT = st.text(min_size=1, max_size=20)


@given(a=TEXT, b=TEXT, c=TEXT)
@pytest.mark.parametrize(
    "template",
    [
        "users://{a}/profile",
        "x://{a}/{b}/{c}",
        "x://{a,b}/{c}",
        "x:{/a,b}/end{?c}",
        "x://{a}{?b,c}",
        "x://{a}?fixed=1{&b,c}",
        "x://{a}{?b}{&c}",
        "x://{a};{b}/{c}",
    ],
)
def test_matching_an_expanded_template_returns_the_original_values(
    template: str, a: str, b: str, c: str
) -> None:
    parsed = UriTemplate(template)
    values = {k: v for k, v in {"a": a, "b": b, "c": c}.items() if k in parsed.variables}
    assert parsed.match(expand(template, values)) == values


def test_variables_of_reserved_expansion_match_slashes() -> None:
    template = UriTemplate("file:///{+path}")
    assert template.match("file:///a/b%20c.txt") == {"path": "a/b c.txt"}
    assert UriTemplate("x://{+path}/{name}").match("x://a/b/c") == {"path": "a/b", "name": "c"}
    assert UriTemplate("x://a{#part}").match("x://a#one/two") == {"part": "one/two"}


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("note://übersicht/{id}", "note://übersicht/7", {"id": "7"}),
        ("note://übersicht/{id}", "note://%C3%BCbersicht/7", {"id": "7"}),
        ("note://übersicht/{id}", "note://%c3%bcbersicht/7", {"id": "7"}),
        ("note://%c3%bcbersicht/{id}", "note://übersicht/7", {"id": "7"}),
        ("note://%c3%bcbersicht/{id}", "note://%C3%BCbersicht/7", {"id": "7"}),
        ("note://{id}/日本.txt", "note://7/%E6%97%A5%E6%9C%AC.txt", {"id": "7"}),
        ("note://{id}/日本.txt", "note://7/日%E6%9C%AC.txt", {"id": "7"}),
        ("note://my notes/{id}", "note://my%20notes/7", {"id": "7"}),
        ("note://ü/{id}", "note://ü/ö%C3%B6%2fä", {"id": "öö/ä"}),
        ("note://ü/{+path}", "note://%C3%BC/a/ö", {"path": "a/ö"}),
        ("note://ü{?größe}", "note://%C3%BC?gr%C3%B6%C3%9Fe=%C3%A4", {"größe": "ä"}),
        ("note://a{?größe}", "note://a?größe=3", {"größe": "3"}),
        ("note://a{?größe}", "note://a?gr%c3%b6%c3%9fe=3", {"größe": "3"}),
    ],
)
def test_literals_of_a_template_match_as_characters_and_as_escapes(
    template: str, uri: str, values: dict[str, str]
) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("note://übersicht/{id}", "note://ubersicht/7"),
        ("note://übersicht/{id}", "note://%FCbersicht/7"),  # Latin-1
        ("note://übersicht/{id}", "note://%25C3%25BCbersicht/7"),
        ("note://ü/{id}", "note://ü/7/8"),
        ("note://ü/{id}", "note://ü%2F7"),  # the escaped slash is part of a value
        ("note://a/{id}", "note://%61/7"),
        ("note://ü/{id}", "note://ü/" + "7" * 100_000),
    ],
)
def test_similar_characters_and_escaped_ascii_letters_do_not_match_literals(
    template: str, uri: str
) -> None:
    assert UriTemplate(template).match(uri) is None


@given(a=TEXT, b=TEXT)
def test_template_values_are_matched_between_literals_of_any_script(a: str, b: str) -> None:
    text = "ü://{a}/ñ é{?größe}"
    template, uri = UriTemplate(text), expand(text, {"a": a, "größe": b})
    assert template.match(uri) == {"a": a, "größe": b}
    assert template.match(quote(uri, safe=":/?=&%-._~")) == {"a": a, "größe": b}


def test_query_parameters_may_have_any_order_or_be_missing() -> None:
    template = UriTemplate("s://find{?q,limit}")
    assert template.match("s://find?limit=3&q=a%26b") == {"q": "a&b", "limit": "3"}
    assert template.match("s://find") == {}
    assert template.match("s://find?other=1") is None
    assert template.optional == {"q", "limit"}


def test_uris_that_differ_from_the_template_do_not_match() -> None:
    template = UriTemplate("users://{id}/profile")
    assert template.match("users://1/2/profile") is None
    assert template.match("users:///profile") is None
    assert template.match("users://1/profile/x") is None
    assert template.match("users://" + "1" * 100_000 + "/profile") is None


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("x://{a", "brace"),
        ("x://a}", "brace"),
        ("x://{}", "RFC 6570"),
        ("x://{a*}", r"explode are not supported\): use \{a\} for one segment, or \{\+a\}, which"),
        ("x://{a:path}", r"or \{\+a\}, which also matches slashes"),
        ("x://{a:3}", "RFC 6570"),
        ("x://{=a}", "RFC 6570"),
        ("x://{a}/{a}", "twice"),
        ("x://{+a}{+b}{+c}{+d}", "must separate its variables"),
    ],
)
def test_invalid_uri_templates_are_rejected(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        UriTemplate(template)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def server_of_users() -> MCPServer:
    server = MCPServer("s")

    @server.resource("users://{id}/profile", mime_type="application/json")
    async def profile(id: int, full: bool = False) -> Any:
        """One user."""
        return {"id": id, "next": id + 1, "full": full}

    @server.resource("users://{id}/{part}", title="A part")
    def part(id: int, part: str) -> str:
        return f"{part} of {id}"

    server.register_resource("users://0/profile", "root", content_provider="the root")
    return server


async def read(wire: Any, uri: str, era: str) -> dict[str, Any]:
    params = {"uri": uri} | ({"_meta": META} if era == "stateless" else {})
    return await wire.ask("resources/read", params)  # type: ignore[no-any-return]


@pytest.mark.covers("PRO-35", "SRV-15")
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_resource_templates_of_a_server_are_listed_and_read(era: str) -> None:
    async with wire_to(server_of_users()) as wire:
        params: Any = {"_meta": META}
        if era == "handshake":
            await wire.greet()
            params = None
        listed = (await wire.ask("resources/templates/list", params))["result"]
        assert listed["resourceTemplates"] == [
            {
                "uriTemplate": "users://{id}/profile",
                "name": "profile",
                "description": "One user.",
                "mimeType": "application/json",
            },
            {
                "uriTemplate": "users://{id}/{part}",
                "name": "part",
                "title": "A part",
                "mimeType": "text/plain",
            },
        ]
        (content,) = (await read(wire, "users://41/profile", era))["result"]["contents"]
        assert content == {
            "uri": "users://41/profile",
            "mimeType": "application/json",
            "text": '{"id":41,"next":42,"full":false}',
        }
        (content,) = (await read(wire, "users://41/photo", era))["result"]["contents"]
        assert content["text"] == "photo of 41"
        (content,) = (await read(wire, "users://0/profile", era))["result"]["contents"]
        assert content["text"] == "the root"  # exact URIs precede templates
        wrong = (await read(wire, "users://x/profile", era))["error"]
        assert (wrong["code"], wrong["data"]) == (-32602, {"argument": "id"})
        missing = (await read(wire, "users://1", era))["error"]
        assert missing["code"] == (-32002 if era == "handshake" else -32602)
        assert missing["data"] == {"uri": "users://1"}


async def test_variables_are_converted_to_the_types_of_parameters() -> None:
    server = MCPServer("s")

    @server.resource("x://{color}/{size}{?tags,exact}")
    async def thing(
        ctx: Context,
        color: Color,
        size: Literal["s", "l"],
        tags: list[int] | None = None,
        exact: bool = False,
    ) -> str:
        return f"{color.name} {size} {tags} {exact} {ctx.protocol_version}"

    async with wire_to(server) as wire:
        await wire.greet()

        async def text(uri: str) -> Any:
            answer = await wire.ask("resources/read", {"uri": uri})
            return answer.get("error") or answer["result"]["contents"][0]["text"]

        assert await text("x://red/s") == "RED s None False 2025-11-25"
        assert await text("x://blue/l?exact=true&tags=%5B1,2%5D") == (
            "BLUE l [1, 2] True 2025-11-25"
        )
        assert (await text("x://green/l"))["message"] == "color: must be one of red, blue"
        assert (await text("x://red/m"))["message"] == "size: must be one of s, l"


def test_function_parameters_must_equal_the_template_variables() -> None:
    server = MCPServer("s")
    with pytest.raises(TypeError, match="no variable for b"):
        server.resource("x://{a}")(lambda a, b: a)
    with pytest.raises(TypeError, match="has no parameter b"):
        server.resource("x://{a}/{b}")(lambda a: a)
    with pytest.raises(TypeError, match="has no variable for a"):
        server.resource("x://fixed")(lambda a: a)
    server.register_resource_template("x://{a}/{b}", "any", lambda **given: str(given))
    with pytest.raises(ValueError, match="already"):
        server.register_resource_template("x://{a}/{b}", "any", lambda **given: str(given))


async def test_cache_hints_of_a_resource_override_those_of_the_server() -> None:
    server = MCPServer("s", cache_ttl=2.5, cache_scope="public")
    server.register_resource("r://1", "one", content_provider="1")
    server.register_resource("r://2", "two", content_provider="2", cache_ttl=60)
    server.resource("t://{a}", cache_scope="private", cache_ttl=0)(lambda a: a)
    async with wire_to(server) as wire:

        async def hints(method: str, **params: str) -> tuple[Any, Any]:
            result = (await wire.ask(method, {**params, "_meta": META}))["result"]
            return result["ttlMs"], result["cacheScope"]

        assert await hints("resources/read", uri="r://1") == (2500, "public")
        assert await hints("resources/read", uri="r://2") == (60_000, "public")
        assert await hints("resources/read", uri="t://x") == (0, "private")
        assert await hints("tools/list") == (2500, "public")
        assert await hints("server/discover") == (2500, "public")
        await wire.greet()
        old = (await wire.ask("resources/read", {"uri": "r://1"}))["result"]
        assert set(old) == {"contents"}
    with pytest.raises(ValueError, match="cache_scope"):
        MCPServer("s", cache_scope="everybody")
    with pytest.raises(ValueError, match="cache_ttl"):
        MCPServer("s", cache_ttl=-1)


async def test_a_handler_of_a_resource_or_prompt_may_request_input() -> None:
    server = MCPServer("s")

    @server.resource("secret://{name}")
    async def secret(name: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"Show {name}?", bool)
        return f"{name} {answer.data}"

    @server.prompt()
    async def write(ctx: Context) -> str:
        answer = await ctx.elicit("For whom?", str)
        return f"for {answer.data}"

    key = "io.modelcontextprotocol/clientCapabilities"
    meta = {**META, key: {"elicitation": {"form": {}}}}
    async with wire_to(server) as wire:
        for method, target, value in (
            ("resources/read", {"uri": "secret://x"}, True),
            ("prompts/get", {"name": "write"}, "Ada"),
        ):
            refused = await wire.ask(method, {**target, "_meta": META})
            assert refused["error"]["code"] == -32021
            asked = (await wire.ask(method, {**target, "_meta": meta}))["result"]
            assert asked["resultType"] == "input_required"
            ((name, question),) = asked["inputRequests"].items()
            (field,) = question["params"]["requestedSchema"]["properties"]
            answers = {name: {"action": "accept", "content": {field: value}}}
            again = {"inputResponses": answers, "requestState": asked["requestState"]}
            done = (await wire.ask(method, {**target, **again, "_meta": meta}))["result"]
            assert done["resultType"] == "complete"
            assert str(value) in str(done)


def test_the_number_of_variables_in_a_template_is_limited() -> None:
    most, hits = TEMPLATE_VARIABLES.value, TEMPLATE_VARIABLES.hits
    text = "x:" + "".join(f"/{{v{number}}}" for number in range(most))
    assert len(UriTemplate(text).variables) == most
    assert TEMPLATE_VARIABLES.hits == hits
    with pytest.raises(ValueError, match=f"has more than {most} variables"):
        UriTemplate(text + "/{more}")
    assert TEMPLATE_VARIABLES.hits == hits + 1


@pytest.mark.parametrize(
    ("text", "specificity"),
    [("x://a", (5, 0, 0)), ("x://{a}/b", (6, 0, -1)), ("x://{+a}/{b}", (5, -1, -2))],
)
def test_a_template_with_more_literal_text_is_more_specific(
    text: str, specificity: tuple[int, int, int]
) -> None:
    assert UriTemplate(text).specificity == specificity
