"""Tests of the line and column of a key or item in a configuration file."""

import pytest

from fairlead.config.files.formats import Document
from fairlead.config.files.source_locations import location_of

TOML = """\
a = 1
"b c" = 2
x.y = 3

[servers.one]
command = "x"
nested = { deep = 1 }

[servers."two.three"]
command = "y"

[views.narrow.rename]
a = "b"
"""

YAML = """\
servers:
  one:
    command: x
  'two': {command: y}
limit: 5
"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("a",), 1),
        (("b c",), 2),
        (("x", "y"), 3),
        (("servers", "one"), 5),
        (("servers", "one", "command"), 6),
        (("servers", "one", "nested", "deep"), 7),
        (("servers", "one", "missing"), 5),
        (("servers", "two.three", "command"), 10),
        (("views", "narrow"), 12),
        (("missing",), None),
    ],
)
def test_the_line_number_of_a_toml_key_is_found(where: tuple[str, ...], line: int | None) -> None:
    assert (location_of(Document("f", {}, TOML, "toml"), where) or [None])[0] == line


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("servers",), 1),
        (("servers", "one", "command"), 3),
        (("servers", "two", "command"), 4),
        (("limit",), 5),
        (("servers", "one", "missing"), 2),
        (("missing",), None),
    ],
)
def test_the_line_number_of_a_yaml_key_is_found(where: tuple[str, ...], line: int | None) -> None:
    assert (location_of(Document("f", {}, YAML, "yaml"), where) or [None])[0] == line


def test_the_line_number_of_a_key_in_json_indented_with_tabs_is_found() -> None:
    text = '{\n\t"servers": {\n\t\t"one": {}\n\t}\n}'
    assert location_of(Document("f", {}, text, "json"), ("servers", "one")) == (3, 3)


LISTS = """\
# [no.header]
top = [1, [2, 3], { a = "]" }, "x,y", 5]
many = [
  "a",  # , not a separator
  "b",
]
empty = []
text = \"\"\"
[not.a.header]
\"\"\"

[[rules]]
name = "first"

  [[rules.steps]]
  run = 1

  [[rules.steps]]
  run = 2

[[rules]]
name = "second"

[rules.limits]
calls = [10,  20]
"""


@pytest.mark.parametrize(
    ("where", "place"),
    [
        (("top",), (2, 1)),
        (("top", 0), (2, 8)),
        (("top", 1), (2, 11)),
        (("top", 2), (2, 19)),
        (("top", 3), (2, 32)),
        (("top", 4), (2, 39)),
        (("top", 5), (2, 1)),
        (("many", 0), (4, 3)),
        (("many", 1), (5, 3)),
        (("many", 2), (3, 1)),
        (("many", 0, "key"), (4, 3)),
        (("empty", 0), (7, 1)),
        (("not",), None),
        (("no",), None),
        (("rules",), (12, 1)),
        (("rules", 0), (12, 1)),
        (("rules", 0, "name"), (13, 1)),
        (("rules", 0, "steps", 0), (15, 3)),
        (("rules", 0, "steps", 0, "run"), (16, 3)),
        (("rules", 0, "steps", 1, "run"), (19, 3)),
        (("rules", 1), (21, 1)),
        (("rules", 1, "name"), (22, 1)),
        (("rules", 1, "limits"), (24, 1)),
        (("rules", 1, "limits", "calls", 1), (25, 15)),
        (("rules", 1, "limits", "calls", 2), (25, 1)),
    ],
)
def test_positions_of_list_items_and_tables_in_toml_are_found(
    where: tuple[str | int, ...], place: tuple[int, int] | None
) -> None:
    assert location_of(Document("f", {}, LISTS, "toml"), where) == place


@pytest.mark.parametrize(
    ("where", "place"),
    [
        (("a", 0), (2, 5)),
        (("a", 1), (3, 5)),
        (("a", 1, "b"), (3, 5)),
        (("a", 2), (1, 1)),
        (("a", "b"), (1, 1)),
        (("c", 0), (4, 1)),
        ((0,), None),
    ],
)
def test_positions_of_list_items_in_yaml_are_found(
    where: tuple[str | int, ...], place: tuple[int, int] | None
) -> None:
    text = "a:\n  - x\n  - b: 1\nc: {d: e}\n"
    assert location_of(Document("f", {}, text, "yaml"), where) == place


def test_keys_in_an_invalid_file_have_no_location() -> None:
    assert location_of(Document("f", {}, "a: [", "yaml"), ("a",)) is None
    assert location_of(Document("f", {}, "a:\n\t- b", "yaml"), ("a",)) is None


def test_comments_in_toml_are_not_read_as_headers_or_items() -> None:
    text = "a = [  # first\n  1,  # second\n  2,\n]\n\n[b]  # of [c]\nd = 1\n"
    document = Document("f", {}, text, "toml")
    assert location_of(document, ("a", 0)) == (2, 3)
    assert location_of(document, ("a", 1)) == (3, 3)
    assert location_of(document, ("b", "d")) == (7, 1)
    assert location_of(document, ("c",)) is None
