"""Tool search: three tools that find, describe and call all others.

The definitions of a large number of tools fill the context of a model, which uses few of them. In
search mode the list contains only these three tools. If a server has a tool of the same name as one
of them, that tool is reached through `call_tool`.
"""

import importlib.util
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice, takewhile
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ...errors import ConfigError, MCPErrorCode, MCPToolError
from ...limits import SEARCH_QUERY, SEARCHED_TEXT
from ...protocol.downgrade.results import downgrade_result
from ...protocol.json_edit import items_of, members_of, string_of
from ...protocol.revisions import Revision
from ...protocol.targets.name_forms import nfkc, without_long_mark_runs
from ...suggestions import did_you_mean
from ...wire import to_json

__all__ = [
    "CALL_TOOL",
    "DESCRIBE_TOOL",
    "SEARCH_TOOLS",
    "CallToolArguments",
    "DescribeToolArguments",
    "SearchMatch",
    "SearchToolsArguments",
    "ToolSearchIndex",
    "describe_result",
    "not_found_result",
    "read_arguments",
    "search_page",
    "search_result",
]

MAX_LIMIT: Final = 50  # maximum number of tools in one result
MAX_QUERY: Final = SEARCH_QUERY.value
MAX_TEXT: Final = 10_000  # maximum number of characters indexed per definition
MAX_DEPTH: Final = 4  # indexed levels of nested properties
MAX_WORDS: Final = 100  # maximum number of words used from a query
SHORTEST_TEXT: Final = 200  # minimum number of characters indexed per definition
NAME_WEIGHT: Final = 3  # a word in the name counts as much as this many in the description


class SearchMatch(Struct, frozen=True):
    """A tool that a search found."""

    name: str
    score: float
    description: str


class ToolSearchIndex:
    """Index of tools by the words of their names, descriptions and parameters (BM25).

    The index is built on the first search, and again after the tools have changed. Building takes
    about 0.1 s for 2000 tools, and 0.8 s the first time, because the library imports numpy. With an
    event loop, call `prepare` and run the returned function in a thread before you search.

    Raises:
        ConfigError: The library is not installed. Raised by the constructor.
    """

    def __init__(
        self,
        definitions: Callable[[], Iterable[tuple[str, Raw]]],
        version: Callable[[], int],
    ) -> None:
        """`definitions` returns the names and definitions of all tools. `version` returns a number
        that changes when they change.
        """
        if importlib.util.find_spec("bm25s") is None:
            raise ConfigError(
                "the search for tools needs bm25s: run `pip install 'fairlead[search]'`"
            )
        self._definitions = definitions
        self._version = version
        self._index: tuple[int, _Index] | None = None

    def search(self, query: str, limit: int = 10) -> list[SearchMatch]:
        """Return the best matches, best first. Tools that the query names in full come first."""
        index = self._current()
        if len(query) > MAX_QUERY:
            SEARCH_QUERY.hit()
        return index.search(query[:MAX_QUERY], min(max(limit, 1), MAX_LIMIT))

    def __len__(self) -> int:
        """Return the number of tools in the index."""
        return len(self._current().names)

    def prepare(self) -> Callable[[], None] | None:
        """Return a function that builds the index in a thread; None if it is up to date."""
        version = self._version()
        if self._index is not None and self._index[0] == version:
            return None
        known = {} if self._index is None else self._index[1].documents
        # Read here and not in the thread, because the event loop may change the tools.
        definitions = list(self._definitions())

        def build() -> None:
            self._index = version, _Index(definitions, known)

        return build

    def _current(self) -> "_Index":
        if (build := self.prepare()) is not None:
            build()
        assert self._index is not None
        return self._index[1]


class _Document(Struct, frozen=True):
    """The indexed part of one definition."""

    words: list[str]
    description: str


class _Index:
    """The index of one version of the tools."""

    def __init__(
        self, definitions: Iterable[tuple[str, Raw]], known: "dict[bytes, _Document]"
    ) -> None:
        """`known` are the documents of the previous index, which are reused."""
        self.names: list[str] = []
        self.documents: dict[bytes, _Document] = {}
        self._listed: list[_Document] = []
        definitions = list(definitions)
        # The index keeps all words in memory, so with many tools less text of each is indexed.
        longest = min(MAX_TEXT, max(SHORTEST_TEXT, SEARCHED_TEXT.value // max(len(definitions), 1)))
        if longest < MAX_TEXT:
            SEARCHED_TEXT.hit()
        for name, raw in definitions:
            text = bytes(raw)
            # Most tools stay the same between two versions, and extracting words is expensive.
            document = known.get(text) or _document(name, raw, longest)
            self.names.append(name)
            self.documents[text] = document
            self._listed.append(document)
        self._by_name = {name: at for at, name in enumerate(self.names)}
        self._by_folded = {name.casefold(): at for at, name in enumerate(self.names)}
        self._bm25: Any = None
        if self.names:
            self._bm25 = _library().BM25()
            self._bm25.index([document.words for document in self._listed], show_progress=False)
        # Sorted, so that words with a prefix are found by bisection.
        self._vocabulary = sorted(self._bm25.vocab_dict) if self._bm25 is not None else []

    def search(self, query: str, limit: int) -> list[SearchMatch]:
        if self._bm25 is None or not query.strip():
            return []
        words = self._known(_words(query))
        scores = self._bm25.get_scores(words).tolist() if words else [0.0] * len(self.names)
        best = max(scores)
        for at in self._named(query):
            # Tools that the query names rank above all other matches.
            scores[at] += best + 1
        hits = [at for at, score in enumerate(scores) if score > 0]
        hits.sort(key=lambda at: (-scores[at], self.names[at]))
        return [
            SearchMatch(self.names[at], round(scores[at], 4), self._listed[at].description)
            for at in hits[:limit]
        ]

    def _named(self, query: str) -> set[int]:
        """Return the tools whose full name occurs in the query."""
        found = set()
        for word in {query.strip(), *re.split(r"[\s,;:!?()\"'`]+", query)}:
            at = self._by_name.get(word, self._by_folded.get(word.casefold()))
            if at is not None:
                found.add(at)
        return found

    def _known(self, words: Iterable[str]) -> list[str]:
        """Return the words that are in the index. An unknown word is replaced by words that start
        with it.
        """
        vocabulary: dict[str, int] = self._bm25.vocab_dict
        ordered = self._vocabulary
        known: dict[str, None] = {}
        for word in islice(dict.fromkeys(words), MAX_WORDS):
            if word in vocabulary:
                known[word] = None
            elif len(word) > 2:
                # At most five words, because a short prefix matches many.
                at = bisect_left(ordered, word)
                longer = takewhile(lambda one: one.startswith(word), ordered[at : at + 5])  # noqa: B023
                known.update(dict.fromkeys(longer))
        return list(known)


@cache
def _library() -> Any:
    module = importlib.import_module("bm25s")
    # The library sets its logger to DEBUG, whatever level the program has chosen.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return module


def _document(name: str, raw: Raw, longest: int = MAX_TEXT) -> _Document:
    tool = members_of(raw) or {}
    description = string_of(tool.get("description")) or string_of(tool.get("title")) or ""
    texts = [string_of(tool.get("title")) or "", description, *_texts(tool.get("inputSchema"))]
    named = list(_words(name)) or [name.casefold()]
    said = _words(" ".join(texts)[:longest])
    return _Document([*named * NAME_WEIGHT, *said], description)


def _texts(schema: Raw | None, depth: int = MAX_DEPTH) -> Iterator[str]:
    """Yield the names and descriptions of the properties of a schema."""
    members = members_of(schema)
    if members is None or not depth:
        return
    for name, inner in (members_of(members.get("properties")) or {}).items():
        yield name
        if (property_ := members_of(inner)) is not None:
            yield string_of(property_.get("description")) or ""
            yield from _texts(inner, depth - 1)
    yield from _texts(members.get("items"), depth - 1)
    for branch in items_of(members.get("anyOf")) or ():
        yield from _texts(branch, depth - 1)


# Words: `createIssue`, `create_issue` and "create issues" all yield "create" and "issue".

_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNSPACED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(nfkc(without_long_mark_runs(text)) or ""):
        # Text in scripts without spaces between words is indexed as pairs of characters.
        # Searches then find nearly as much as with real words.
        if _UNSPACED.search(word):
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))
            continue
        parts = _HUMP.split(word)
        yield from map(_singular, parts)
        if len(parts) > 1:
            yield _singular(word)  # "GitHub" also matches "github".


def _singular(word: str) -> str:
    word = word.casefold()
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


# Definitions and results of the three search tools

_NAME: Final = {
    "type": "string",
    "description": "The full name of the tool, as search_tools lists it.",
}
_TEXT: Final = {"type": "string"}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _tool(
    name: str, title: str, description: str, takes: dict[str, Any], gives: dict[str, Any] | None
) -> dict[str, Any]:
    """Return a tool definition. A tool with an output schema (`gives`) is read-only."""
    tool = {
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": {**takes, "additionalProperties": False},
    }
    if gives is not None:
        tool["outputSchema"] = gives
        hints = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
        tool["annotations"] = hints
    return tool


SEARCH_TOOLS: Final = _tool(
    "search_tools",
    "Search tools",
    "Find tools for a task. Many more tools are available than are listed here: search whenever "
    "none of the tools you know fits, before you decide that the task cannot be done. Describe "
    "the task in a few words (action, object and product), for example 'create issue github' or "
    "'query postgres database'. The result lists names and short descriptions, best match first. "
    "Use describe_tool next to read which arguments a tool takes, and call_tool to call it. If "
    "no tool fits, try other words.",
    _object(
        {
            "query": {
                **_TEXT,
                "minLength": 1,
                "description": "A few words about the task, or the name of a tool.",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "default": 10,
                "description": "The maximum number of tools to list.",
            },
        },
        "query",
    ),
    _object(
        {
            "tools": {
                "type": "array",
                "items": _object(
                    {"name": _TEXT, "description": _TEXT, "score": {"type": "number"}},
                    *("name", "description", "score"),
                ),
            },
            "total": {"type": "integer", "description": "The number of tools that were searched."},
        },
        *("tools", "total"),
    ),
)
DESCRIBE_TOOL: Final = _tool(
    "describe_tool",
    "Describe a tool",
    "Show the full definition of one tool that search_tools found: what it does and the JSON "
    "Schema of its arguments. Read it before the first call of a tool.",
    _object({"name": _NAME}, "name"),
    _object({"tool": {"type": "object"}}, "tool"),
)
CALL_TOOL: Final = _tool(
    "call_tool",
    "Call a tool",
    "Call a tool that search_tools found, and return its result. The arguments must match the "
    "inputSchema that describe_tool shows for it.",
    _object(
        {
            "name": _NAME,
            "arguments": {
                "type": "object",
                "description": "The arguments of that tool. Omit if it takes none.",
                "additionalProperties": True,
            },
        },
        "name",
    ),
    None,
)


@cache
def search_page(revision: Revision) -> bytes:
    """Return the members of a list result with the three tools, without the braces."""
    result = to_json({"tools": [SEARCH_TOOLS, DESCRIBE_TOOL, CALL_TOOL]})
    return downgrade_result("tools/list", result, revision)[1:-1]


class SearchToolsArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `search_tools`."""

    query: str
    limit: int = 10


class DescribeToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `describe_tool`."""

    name: str


class CallToolArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `call_tool`. The arguments for the called tool stay encoded."""

    name: str
    arguments: Raw = Raw(b"{}")


_ARGUMENTS: Final[
    dict[str, type[SearchToolsArguments | DescribeToolArguments | CallToolArguments]]
] = {
    "search_tools": SearchToolsArguments,
    "describe_tool": DescribeToolArguments,
    "call_tool": CallToolArguments,
}


def read_arguments(
    tool: str, arguments: Raw | None
) -> SearchToolsArguments | DescribeToolArguments | CallToolArguments | None:
    """Return the arguments of a call; None if the call is not for one of these tools.

    Raises:
        MCPToolError: The arguments are invalid. Its `to_mcp_response` returns the result for the
        model.
    """
    kind = _ARGUMENTS.get(tool)
    if kind is None:
        return None
    try:
        # Not strict, because models often send numbers as strings.
        read = msgspec.json.decode(
            b"{}" if arguments is None else arguments, type=kind, strict=False
        )
        if isinstance(read, CallToolArguments) and members_of(read.arguments) is None:
            raise ValueError("`arguments` must be an object")
    except (msgspec.DecodeError, ValueError, RecursionError) as exc:
        raise MCPToolError(str(exc), code=MCPErrorCode.VALIDATION_ERROR, tool_name=tool) from exc
    return read


def search_result(query: str, found: Sequence[SearchMatch], total: int) -> bytes:
    """Return the result of `search_tools`."""
    tools = [
        {"name": tool.name, "description": _short(tool.description), "score": tool.score}
        for tool in found
    ]
    if tools:
        lines = [f"- {tool['name']}: {tool['description']}" for tool in tools]
        text = (
            "\n".join([f"{len(tools)} of {total} tools, best match first:", *lines])
            + "\nUse describe_tool to read the arguments of a tool, and call_tool to call it."
        )
    else:
        text = f"None of {total} tools matches {query[:100]!r}. Try other or fewer words."
    return _result(text, {"tools": tools, "total": total})


def describe_result(definition: Raw) -> bytes:
    """Return the result of `describe_tool`."""
    members = members_of(definition) or {}
    shown = {name: members[name] for name in _SHOWN if name in members}
    return _result(to_json(shown).decode(), {"tool": definition})


_SHOWN: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")


def not_found_result(name: str, near: Sequence[SearchMatch] = ()) -> bytes:
    """Return the result of `describe_tool` and `call_tool` for an unknown tool."""
    question = did_you_mean(tool.name for tool in near)
    known = f": {question}" if question else "."
    text = f"unknown tool {name[:100]!r}{known} Use search_tools to find a tool."
    return to_json({"content": [{"type": "text", "text": text}], "isError": True})


def _result(text: str, structured: dict[str, Any]) -> bytes:
    return to_json({"content": [{"type": "text", "text": text}], "structuredContent": structured})


def _short(description: str, most: int = 240) -> str:
    """Return a description on one line, shortened to `most` characters."""
    line = " ".join(description[: 4 * most].split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
