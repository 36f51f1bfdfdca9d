"""The search index, and the three search tools."""

import json
import logging
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from msgspec import Raw

from fairlead.errors import MCPToolError
from fairlead.gateway.search import search_index
from fairlead.gateway.search.search_index import (
    CALL_TOOL,
    DESCRIBE_TOOL,
    SEARCH_TOOLS,
    CallToolArguments,
    DescribeToolArguments,
    SearchMatch,
    SearchToolsArguments,
    ToolSearchIndex,
    describe_result,
    not_found_result,
    read_arguments,
    search_page,
    search_result,
)
from fairlead.limits import SEARCH_QUERY, SEARCHED_TEXT
from fairlead.protocol.revisions import NEWEST, Revision
from fairlead.wire import to_json

Tools = dict[str, dict[str, Any]]

FLEET: Tools = {
    "github_create_issue": {
        "description": "Opens a new issue in a repository.",
        "inputSchema": {"properties": {"labels": {"description": "tags to attach"}}},
    },
    "github_list_issues": {"description": "Issues of a repository, newest first."},
    "mail_sendMessage": {
        "description": "Sends an e-mail.",
        "inputSchema": {
            "properties": {
                "attachments": {
                    "type": "array",
                    "items": {"properties": {"mimeType": {"type": "string"}}},
                }
            }
        },
    },
    "weather_forecast": {
        "description": "Météo et prévisions pour une ville. 明日の天気を取得する。"
    },
    "db_run-query.v2": {"description": "Runs SQL on PostgreSQL."},
    "odd_nothing": {"description": 5, "inputSchema": [1]},
}


def searching(tools: Tools, version: Callable[[], int] = lambda: 0) -> ToolSearchIndex:
    return ToolSearchIndex(
        lambda: ((name, Raw(to_json({"name": name, **tool}))) for name, tool in tools.items()),
        version,
    )


def names(found: list[SearchMatch]) -> list[str]:
    return [tool.name for tool in found]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue", "github_create_issue"),
        ("attach tags", "github_create_issue"),  # description of a parameter
        ("send message", "mail_sendMessage"),  # part of a compound word
        ("mime type of attachment", "mail_sendMessage"),  # nested parameter
        ("SQL query", "db_run-query.v2"),
        ("postgres", "db_run-query.v2"),  # prefix of a word
        ("prévisions", "weather_forecast"),
        ("天気", "weather_forecast"),
        ("list repositories' issues", "github_list_issues"),
    ],
)
def test_a_search_finds_tools_by_words_in_their_definitions(query: str, best: str) -> None:
    assert names(searching(FLEET).search(query))[0] == best


def test_search_results_have_descriptions_and_the_best_match_is_first() -> None:
    found = searching(FLEET).search("issue")
    assert {tool.name: tool.description for tool in found} == {
        "github_create_issue": "Opens a new issue in a repository.",
        "github_list_issues": "Issues of a repository, newest first.",
    }
    assert found[0].score >= found[1].score > 0


@pytest.mark.parametrize("query", ["", "   ", "\n", "?!", "zzzzqqq", "🙂", "_", "\ud800"])
def test_a_query_without_words_has_no_results(query: str) -> None:
    assert searching(FLEET).search(query) == []


def test_a_search_with_a_very_long_query_succeeds() -> None:
    search = searching(FLEET)
    assert names(search.search("forecast " + "x" * 1_000_000)) == ["weather_forecast"]
    assert names(search.search("issue repository " * 100_000, 1)) != []


def test_a_search_in_an_empty_index_has_no_results() -> None:
    search = searching({})
    assert search.search("anything") == []
    assert len(search) == 0


@pytest.mark.parametrize("query", ["{}", " {} ", "please use `{}` now", "{}?"])
def test_a_tool_with_the_exact_name_of_the_query_is_the_first_result(query: str) -> None:
    words = [f"word{number}" for number in range(60)]
    chance = random.Random(7)
    tools = {
        f"s{number % 50}_{'_'.join(chance.sample(words, 3))}_{number}": {
            "description": " ".join(chance.choices(words, k=30))
        }
        for number in range(1000)
    }
    tools["s1_get"] = {"description": "x " * 200}
    tools["s1_get_get"] = {"description": "s1 get " * 50}
    search = searching(tools)
    for name in ["s1_get", *chance.sample(sorted(tools), 20)]:
        found = search.search(query.format(name))
        assert found[0].name == name
        assert len(found) <= 10
    assert search.search(query.format("S1_GET"))[0].name == "s1_get"
    assert len(search.search("word1", 500)) == 50
    assert len(search.search("word1", -1)) == 1


def test_results_with_equal_scores_are_sorted_by_name() -> None:
    tools: Tools = {f"s_{letter}": {"description": "the same"} for letter in "dacb"}
    assert names(searching(tools).search("same")) == ["s_a", "s_b", "s_c", "s_d"]


def test_the_search_index_is_rebuilt_only_if_the_tools_have_changed() -> None:
    tools, version, asked = dict(FLEET), 1, 0

    def definitions() -> list[tuple[str, Raw]]:
        nonlocal asked
        asked += 1
        return [(name, Raw(to_json({"name": name, **tool}))) for name, tool in tools.items()]

    search = ToolSearchIndex(definitions, lambda: version)
    assert asked == 0
    for _ in range(3):
        assert search.search("forecast")
    assert asked == 1
    del tools["weather_forecast"]
    tools["new_tool"] = {"description": "A forecast for another city."}
    version = 2
    assert names(search.search("forecast")) == ["new_tool"]
    assert asked == 2


def test_the_search_index_can_be_built_in_a_thread() -> None:
    search = searching(FLEET)
    build = search.prepare()
    assert build is not None
    thread = threading.Thread(target=build)
    thread.start()
    thread.join(30)
    assert search.prepare() is None
    assert names(search.search("forecast")) == ["weather_forecast"]


def test_the_search_library_does_not_log_debug_messages(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        searching(FLEET).search("forecast")
    assert caplog.records == []


def test_if_the_search_library_is_missing_the_error_names_the_package_to_install() -> None:
    program = """
import sys
sys.modules["bm25s"] = None
from fairlead.errors import ConfigError
from fairlead.gateway.search.search_index import ToolSearchIndex, search_page
try:
    ToolSearchIndex(list, int)
except ConfigError as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "the search for tools needs bm25s: run `pip install 'fairlead[search]'`\n"


def test_the_search_library_is_not_imported_before_the_first_search() -> None:
    program = """
import sys
from fairlead.gateway.search.search_index import ToolSearchIndex
search = ToolSearchIndex(list, int)
print("numpy" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "False\n", done.stderr


# The three tools.


def test_the_three_search_tools_are_listed_in_every_revision() -> None:
    for revision in Revision:
        tools = json.loads(b"{" + search_page(revision) + b"}")["tools"]
        assert [tool["name"] for tool in tools] == ["search_tools", "describe_tool", "call_tool"]
        for tool in tools:
            jsonschema_rs.validator_for(tool["inputSchema"])
    assert search_page(NEWEST) is search_page(NEWEST)


def answer(result: bytes, tool: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return text and structured content after validating the result with the tool's schema."""
    read = json.loads(result)
    jsonschema_rs.validate(tool["outputSchema"], read["structuredContent"])
    return read["content"][0]["text"], read["structuredContent"]


def test_the_search_result_has_a_text_and_structured_content() -> None:
    found = [SearchMatch("a_b", 2.5, "Does\n  it."), SearchMatch("c_d", 1.0, "long " * 1000)]
    text, structured = answer(search_result("it", found, 800), SEARCH_TOOLS)
    first, line, other, _ = text.split("\n")
    assert first == "2 of 800 tools, best match first:"
    assert line == "- a_b: Does it."
    assert len(other) < 260
    assert structured["total"] == 800
    assert structured["tools"][0] == {"name": "a_b", "description": "Does it.", "score": 2.5}
    text, structured = answer(search_result("no\ud800", [], 800), SEARCH_TOOLS)
    assert text.startswith("None of 800 tools matches")
    assert structured == {"tools": [], "total": 800}


def test_describe_tool_returns_the_definition_of_a_tool() -> None:
    definition = b'{"name":"a_b","x":1E400,"inputSchema":{"maximum":1.00},"_meta":{}}'
    result = describe_result(Raw(definition))
    assert b'"structuredContent":{"tool":' + definition + b"}" in result
    text = json.loads(result)["content"][0]["text"]
    assert text == '{"name":"a_b","inputSchema":{"maximum":1.00}}'
    answer(result, DESCRIBE_TOOL)


def test_the_error_for_an_unknown_tool_suggests_similar_names() -> None:
    result = json.loads(not_found_result("gti_log", [SearchMatch("git_log", 1, "")]))
    assert result["isError"] is True
    assert result["content"][0]["text"] == (
        "unknown tool 'gti_log': did you mean 'git_log'? Use search_tools to find a tool."
    )


def test_arguments_of_search_tools_are_decoded_except_those_for_the_called_tool() -> None:
    assert read_arguments(
        "search_tools", Raw(b'{"query":"x","limit":"5"}')
    ) == SearchToolsArguments("x", 5)
    assert read_arguments("describe_tool", Raw(b'{"name":"x"}')) == DescribeToolArguments("x")
    call = read_arguments("call_tool", Raw(b'{"name":"x","arguments":{"n":1.00}}'))
    assert isinstance(call, CallToolArguments)
    assert bytes(call.arguments) == b'{"n":1.00}'
    bare = read_arguments("call_tool", Raw(b'{"name":"x"}'))
    assert isinstance(bare, CallToolArguments)
    assert bytes(bare.arguments) == b"{}"
    assert read_arguments("git_log", Raw(b"nothing we would read")) is None


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("search_tools", None),
        ("search_tools", b"[]"),
        ("search_tools", b'{"query":1}'),
        ("search_tools", b'{"query":"x","limits":1}'),
        ("search_tools", b'{"query":"\xff"}'),
        ("describe_tool", b'{"tool":"x"}'),
        ("call_tool", b'{"name":"x","arguments":[1]}'),
        ("call_tool", b'{"name":"x","arguments":' + b"[" * 5000 + b"]" * 5000 + b"}"),
    ],
)
def test_invalid_arguments_of_a_search_tool_are_an_error_result(
    tool: str, arguments: bytes | None
) -> None:
    with pytest.raises(MCPToolError) as caught:
        read_arguments(tool, None if arguments is None else Raw(arguments))
    assert caught.value.to_mcp_response()["isError"] is True
    assert caught.value.code == "VALIDATION_ERROR"


def test_the_schemas_of_search_tools_match_their_argument_types() -> None:
    for tool, good in (
        (SEARCH_TOOLS, {"query": "x", "limit": 3}),
        (SEARCH_TOOLS, {"query": "x", "limit": 1}),
        (SEARCH_TOOLS, {"query": "x", "limit": 50}),
        (DESCRIBE_TOOL, {"name": "x"}),
        (CALL_TOOL, {"name": "x", "arguments": {"deep": [1]}}),
    ):
        jsonschema_rs.validate(tool["inputSchema"], good)
        assert read_arguments(tool["name"], Raw(to_json(good))) is not None
        assert not jsonschema_rs.is_valid(tool["inputSchema"], {**good, "other": 1})


def nested(depth: int, word: str, by: str) -> dict[str, Any]:
    """Return a schema with a property `word` below `depth` levels."""
    schema: dict[str, Any] = {"properties": {word: {}}}
    for _ in range(depth):
        schema = {
            "properties": {"properties": {"x": schema}},
            "items": {"items": schema},
            "anyOf": {"anyOf": [schema]},
        }[by]
    return schema


@pytest.mark.parametrize("by", ["properties", "items", "anyOf"])
def test_parameters_are_searched_four_levels_deep(by: str) -> None:
    tools = {
        "near": {"inputSchema": nested(3, "walrus", by)},
        "far": {"inputSchema": nested(4, "walrus", by)},
    }
    assert names(searching(tools).search("walrus")) == ["near"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Lists repositories", "repository"),
        ("Lists boxes of glass", "glass"),
        ("Shows the status", "status"),
        ("An analysis", "analysis"),
        ("GitHub", "git"),
        ("GitHub", "github"),
        ("HTTPServer", "server"),
        ("ties", "tie"),
        ("gas", "gas"),
        ("明日の天気", "天気"),
    ],
)
def test_a_query_matches_inflected_words_and_parts_of_names(text: str, query: str) -> None:
    assert names(searching({"a": {"description": text}, "b": {}}).search(query)) == ["a"]


def test_a_search_returns_at_most_fifty_results() -> None:
    search = searching({f"tool_{n}": {"description": "same"} for n in range(60)})
    assert len(search) == 60
    assert [len(search.search("same", limit)) for limit in (-1, 0, 1, 49, 50, 51)] == [
        *(1, 1, 1, 49, 50, 50)
    ]
    assert len(search.search("same")) == 10


def test_long_descriptions_are_truncated_on_one_line() -> None:
    for length, shown in ((240, "x" * 240), (241, "x" * 239 + "…")):
        result = json.loads(search_result("x", [SearchMatch("a", 1.0, "x" * length)], 1))
        assert result["structuredContent"]["tools"][0]["description"] == shown
    result = json.loads(search_result("x", [SearchMatch("a", 1.0, " a\n b ")], 1))
    assert result["structuredContent"]["tools"][0]["description"] == "a b"


def test_search_tools_that_only_read_are_annotated_and_all_limit_their_arguments() -> None:
    reading = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
    assert SEARCH_TOOLS["annotations"] == DESCRIBE_TOOL["annotations"] == reading
    assert "annotations" not in CALL_TOOL
    limit = SEARCH_TOOLS["inputSchema"]["properties"]["limit"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 50, 10)
    for tool in (SEARCH_TOOLS, DESCRIBE_TOOL, CALL_TOOL):
        assert tool["inputSchema"]["additionalProperties"] is False


def scores(tools: Tools, query: str) -> dict[str, float]:
    return {one.name: one.score for one in searching(tools).search(query)}


def test_a_tool_named_in_the_query_ranks_first() -> None:
    tools: Tools = {
        "run": {"description": "x"},
        "other": {"description": "run run run"},
        "third": {"description": "nothing"},
    }
    plain, named = scores(tools, "runs"), scores(tools, "run")
    assert next(iter(named)) == "run"
    assert named["other"] == plain["other"]
    assert named["run"] == pytest.approx(plain["run"] + max(plain.values()) + 1, abs=1e-3)
    assert "third" not in named
    assert all(round(score, 4) == score for score in named.values())


def test_a_tool_name_in_the_same_case_ranks_first() -> None:
    tools: Tools = {"Get": {}, "get": {}, "GET": {}}
    search = searching(tools)
    assert [search.search(name)[0].name for name in ("Get", "get", "GET")] == ["Get", "get", "GET"]
    found = search.search("Get")
    assert found[0].score >= found[1].score + 1


@pytest.mark.parametrize("name", ["!!!", "_", "...", "🙂"])
def test_a_tool_whose_name_has_no_letters_is_found(name: str) -> None:
    assert names(searching({name: {}, "a_b": {}}).search(f" {name} ")) == [name]


@pytest.mark.parametrize(
    ("query", "found"),
    [("pel", ["a"]), ("pelican", ["a"]), ("pe", []), ("elican", []), ("pelicanx", [])],
)
def test_a_query_word_of_at_least_three_letters_matches_as_a_prefix(
    query: str, found: list[str]
) -> None:
    assert names(searching({"a": {"description": "pelican"}, "b": {}}).search(query)) == found


def test_a_prefix_in_a_query_matches_at_most_five_words() -> None:
    tools: Tools = {
        f"t{n}": {"description": f"walrus{letter}"} for n, letter in enumerate("gfedcba")
    }
    assert sorted(names(searching(tools).search("walrus"))) == ["t2", "t3", "t4", "t5", "t6"]
    # The next words in alphabetical order do not have the prefix.
    tools = {"a": {"description": "walrus"}, "b": {"description": "walter"}}
    assert names(searching(tools).search("walru")) == ["a"]


def test_only_the_first_hundred_words_of_a_query_are_used() -> None:
    tools: Tools = {"a": {"description": "pelican"}, "b": {}}
    others = [f"{number}x" for number in range(100)]
    assert names(searching(tools).search(" ".join([*others[:99], "pelican"]))) == ["a"]
    assert names(searching(tools).search(" ".join([*others[:99], "0x", "pelican"]))) == ["a"]
    assert names(searching(tools).search(" ".join([*others, "pelican"]))) == []


def test_a_query_is_truncated_after_two_thousand_characters() -> None:
    search, hits = searching({"pelican": {}, "b": {}}), SEARCH_QUERY.hits
    assert names(search.search("-" * (2000 - 7) + "pelican")) == ["pelican"]
    assert SEARCH_QUERY.hits == hits
    assert names(search.search("-" * 2000 + "pelican")) == []
    assert SEARCH_QUERY.hits == hits + 1


def test_at_most_ten_thousand_characters_of_a_definition_are_indexed() -> None:
    tools: Tools = {
        "near": {"description": "- " * 4990 + "walrus"},
        "far": {"description": "- " * 5000 + "walrus"},
    }
    hits = SEARCHED_TEXT.hits
    assert names(searching(tools).search("walrus")) == ["near"]
    assert SEARCHED_TEXT.hits == hits


def test_with_many_tools_less_text_of_each_definition_is_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reach(tools: int, room: int) -> tuple[int, int]:
        """Return how many characters are indexed, and how often the limit was reached."""
        monkeypatch.setattr(SEARCHED_TEXT, "value", room)
        hits = SEARCHED_TEXT.hits
        text = " ".join(f"w{number:07}" for number in range(2000))
        more = {f"t{number}": {} for number in range(tools - 1)}
        search = searching({"a": {"description": text}, **more})
        # The indexed text begins with a space because the title is empty.
        found = [number for number in range(2000) if search.search(f"w{number:07}")]
        return (found[-1] + 1) * 9, SEARCHED_TEXT.hits - hits

    assert reach(1, 5000) == (5000 // 9 * 9, 1)
    assert reach(1, 20_000) == (1111 * 9, 0)
    assert reach(2, 20_000) == (1111 * 9, 0)
    assert reach(4, 20_000) == (5000 // 9 * 9, 1)
    assert reach(10, 1000) == (200 // 9 * 9, 1)


def test_at_least_two_hundred_characters_of_each_definition_are_indexed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SEARCHED_TEXT, "value", 10)
    # One space separates title and description.
    tools: Tools = {
        "near": {"description": "-" * (199 - 6) + "walrus"},
        "far": {"description": "-" * (200 - 6) + "walrus"},
    }
    assert names(searching(tools).search("walrus")) == ["near"]


def test_a_word_in_the_tool_name_counts_three_times() -> None:
    tools: Tools = {
        "walrus_x": {"description": "x"},
        "b": {"description": "walrus walrus walrus x"},
        "c": {"description": "walrus walrus x x"},
    }
    words = {
        name: search_index._document(name, Raw(to_json(tool))).words for name, tool in tools.items()
    }
    assert words["walrus_x"] == ["walrus", "x"] * 3 + ["x"]
    assert words["b"] == ["b"] * 3 + ["walrus"] * 3 + ["x"]


@pytest.mark.parametrize(
    ("tool", "description", "found"),
    [
        ({"title": "A pelican"}, "A pelican", True),
        ({"title": "A pelican", "description": "A bird"}, "A bird", True),
        ({"title": "A bird", "description": "A pelican"}, "A pelican", True),
        ({"title": 3, "description": "A bird"}, "A bird", False),
    ],
)
def test_titles_are_indexed_and_shown_instead_of_missing_descriptions(
    tool: dict[str, Any], description: str, found: bool
) -> None:
    search = searching({"a": tool, "b": {}})
    assert [one.description for one in search.search("a")] == [description]
    assert names(search.search("pelican")) == (["a"] if found else [])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (SEARCH_TOOLS, {}),
        (SEARCH_TOOLS, {"query": ""}),
        (SEARCH_TOOLS, {"query": "x", "limit": 0}),
        (SEARCH_TOOLS, {"query": "x", "limit": 51}),
        (DESCRIBE_TOOL, {}),
        (DESCRIBE_TOOL, {"name": 1}),
        (CALL_TOOL, {"arguments": {}}),
        (CALL_TOOL, {"name": "x", "arguments": []}),
    ],
    ids=["no query", "empty", "limit 0", "limit 51", "no name", "number", "no tool", "list"],
)
def test_the_schemas_of_search_tools_reject_invalid_arguments(
    tool: dict[str, Any], arguments: Any
) -> None:
    assert not jsonschema_rs.is_valid(tool["inputSchema"], arguments)


def test_the_output_schemas_of_search_tools_name_the_required_members() -> None:
    schema = SEARCH_TOOLS["outputSchema"]
    assert schema["required"] == ["tools", "total"]
    assert schema["properties"]["tools"]["items"]["required"] == ["name", "description", "score"]
    assert DESCRIBE_TOOL["outputSchema"]["required"] == ["tool"]
    assert "outputSchema" not in CALL_TOOL


def test_only_optional_arguments_of_search_tools_may_be_omitted() -> None:
    assert read_arguments("search_tools", Raw(b'{"query":"x"}')) == SearchToolsArguments("x", 10)
    with pytest.raises(MCPToolError, match="`arguments` must be an object") as caught:
        read_arguments("call_tool", Raw(b'{"name":"x","arguments":7}'))
    assert caught.value.tool_name == "call_tool"
    with pytest.raises(MCPToolError, match="missing required field `query`"):
        read_arguments("search_tools", None)


def test_the_text_of_a_search_result_has_one_line_per_tool() -> None:
    found = [SearchMatch("a", 2.0, "Does a."), SearchMatch("b", 1.0, "")]
    assert json.loads(search_result("q", found, 7)) == {
        "content": [
            {
                "type": "text",
                "text": "2 of 7 tools, best match first:\n- a: Does a.\n- b: \n"
                "Use describe_tool to read the arguments of a tool, and call_tool to call it.",
            }
        ],
        "structuredContent": {
            "tools": [
                {"name": "a", "description": "Does a.", "score": 2.0},
                {"name": "b", "description": "", "score": 1.0},
            ],
            "total": 7,
        },
    }
    nothing = json.loads(search_result("q" * 101, [], 7))
    assert nothing["content"][0]["text"] == (
        f"None of 7 tools matches '{'q' * 100}'. Try other or fewer words."
    )


def test_the_text_of_describe_tool_omits_icons_and_execution() -> None:
    hidden = {"execution": {}, "icons": []}
    tool = {
        **hidden,
        "annotations": {},
        "outputSchema": {},
        "inputSchema": {},
        "description": "d",
        "title": "t",
        "name": "n",
    }
    text = json.loads(describe_result(Raw(to_json(tool))))["content"][0]["text"]
    shown = ["name", "title", "description", "inputSchema", "outputSchema", "annotations"]
    assert list(json.loads(text)) == shown
