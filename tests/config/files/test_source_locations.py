"""The line of a key in a configuration file."""

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
def test_keys_in_toml(where: tuple[str, ...], line: int | None) -> None:
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
def test_keys_in_yaml(where: tuple[str, ...], line: int | None) -> None:
    assert (location_of(Document("f", {}, YAML, "yaml"), where) or [None])[0] == line


def test_keys_in_json_with_tabs() -> None:
    text = '{\n\t"servers": {\n\t\t"one": {}\n\t}\n}'
    assert location_of(Document("f", {}, text, "json"), ("servers", "one")) == (3, 3)
