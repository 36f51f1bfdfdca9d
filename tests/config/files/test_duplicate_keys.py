"""Tests of duplicate keys in configuration files."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.config.files.config_reader import ConfigReader
from fairlead.config.files.formats import parse
from fairlead.errors import ConfigError
from fairlead.gateway.gateway_file import read_gateway_file
from fairlead.policy.rules.load_rules import read_rules

TWICE = [
    ("a.json", '{"a": 1,\n  "b": 2, "a": 3}', "a", (1, 2), (2, 11)),
    ("a.json", '{"x": [{"a": 1}, {"a": 2,\n"a": "a"}]}', "a", (1, 19), (2, 1)),
    ("a.json", '{"x": {"y": "x"}, "x": 0}', "x", (1, 2), (1, 19)),
    ("a.json", '{"\\u0061": 1, "a": 2}', "a", (1, 2), (1, 15)),
    ("a.json", '// "a"\n{"a": "\\"}", /* "a": */ "a": [],}', "a", (2, 2), (2, 25)),
    ("a.yaml", "a: 1\nb: {a: 2}\na: 3\n", "a", (1, 1), (3, 1)),
    ("a.yaml", "- no\n", None, None, None),
    ("a.yaml", "s:\n  red: {}\n  blue: {}\n  'red': {}\n", "red", (2, 3), (4, 3)),
    ("a.yaml", "x: [{k: 1, k: 2}]\n", "k", (1, 6), (1, 12)),
    ("a.yaml", "x: &one {k: 1, k: 2}\ny: *one\n", "k", (1, 10), (1, 16)),
]


@pytest.mark.parametrize(("name", "text", "key", "first", "again"), TWICE)
def test_a_duplicate_key_is_rejected_with_both_positions(
    name: str, text: str, key: str | None, first: tuple[int, int], again: tuple[int, int]
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(name, text.encode())
    if key is None:
        assert caught.value.args[0] == "expected a map, not a list"
        return
    assert (caught.value.path, caught.value.line) == (name, again[0])
    assert caught.value.args[0] == (
        f'duplicate key "{key}" (column {again[1]}): first used in line '
        f"{first[0]}, column {first[1]}; remove or rename one of them"
    )


def test_keys_from_yaml_merges_may_be_overridden() -> None:
    text = "base: &b {x: 1, y: 1}\nmid: &m {<<: *b, x: 2}\ntop: {<<: [*m, *b], y: 3}\n"
    assert parse("a.yaml", text.encode()).data["top"] == {"x": 2, "y": 3}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_without_duplicate_keys_is_accepted(value: Any) -> None:
    for text in (json.dumps({"a": value}), json.dumps({"a": value}, indent=1, ensure_ascii=False)):
        assert parse("a.json", text.encode("utf-8", "surrogatepass")).data == {"a": value}


@given(st.dictionaries(st.text(), st.text(), min_size=1), st.data())
def test_json_with_a_duplicate_key_is_rejected(value: dict[str, str], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(value)))
    text = json.dumps(value)[:-1] + f", {json.dumps(key)}: {{}}}}"
    with pytest.raises(ConfigError, match="duplicate key"):
        parse("a.json", text.encode())


@pytest.mark.parametrize(
    ("ending", "text", "line"),
    [
        ("toml", "[servers.red]\ncommand = 'a'\n[servers.red]\ncommand = 'b'\n", 3),
        ("yaml", "servers:\n  red: {command: a}\n  red: {command: b}\n", 3),
        ("json", '{"servers": {\n"red": {"command": "a"},\n"red": {"command": "b"}}}', 3),
    ],
)
def test_duplicate_servers_in_a_gateway_file_are_rejected(
    tmp_path: Path, ending: str, text: str, line: int
) -> None:
    file = tmp_path / f"gateway.{ending}"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_gateway_file(file)
    assert (caught.value.path, caught.value.line) == (str(file), line)


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_a_rule_file_with_duplicate_rule_names_is_rejected(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"rules.{ending}"
    file.write_text('{"rules": {\n"a": {"do": "block"},\n"a": {"do": "allow"}}}')
    with pytest.raises(ConfigError, match='duplicate key "a"') as caught:
        read_rules(file)
    assert caught.value.line == 3


def test_the_last_duplicate_key_applies_in_files_of_other_programs(tmp_path: Path) -> None:
    file = tmp_path / "theirs.json"
    file.write_text('{"a": 1, "a": 2}')
    files = ConfigReader()
    found = files.document(str(file))
    assert found is not None
    assert found.data == {"a": 2}
    assert not files.problems


def test_the_error_for_a_duplicate_key_too_long_for_yaml_contains_its_start() -> None:
    key = "k" * 2000
    with pytest.raises(ConfigError) as caught:
        parse("a.json", f'{{"{key}": 1, "a": 2, "{key}": 3}}'.encode())
    shown = "k" * 100
    assert str(caught.value) == f"a.json: duplicate key '{shown}': remove or rename one of them"
