"""Tests of parsing JSON, TOML and YAML files, and of the lines in error messages."""

import datetime
import json
from typing import Any

import pytest

from fairlead.config.files.formats import Document, format_of, parse
from fairlead.errors import ConfigError
from fairlead.limits import CONFIG_DEPTH

DEPTH = CONFIG_DEPTH.value


@pytest.mark.parametrize(
    ("path", "kind"),
    [("a.json", "json"), ("a.TOML", "toml"), ("a.yml", "yaml"), ("a.yaml", "yaml"), ("a", "json")],
)
def test_the_file_extension_selects_the_format(path: str, kind: str) -> None:
    assert format_of(path) == kind


@pytest.mark.parametrize(
    ("path", "content", "data"),
    [
        ("a.json", b"", {}),
        ("a.json", b" \n", {}),
        ("a.json", b"// nothing", {}),
        ("a.json", b"\xef\xbb\xbf{}", {}),
        ("a.json", '{"a": "ü"}'.encode("utf-16"), {"a": "ü"}),
        ("a.json", b"null", {}),
        ("a.json", b'{"a": 1, // x\n "b": [1,],}', {"a": 1, "b": [1]}),
        ("a.toml", b"a = 1\n[b]\nc = 2", {"a": 1, "b": {"c": 2}}),
        ("a.yaml", b"on: 1\n1: x\nnull: y\n", {"on": 1, "1": "x", "null": "y"}),
        ("a.yaml", b"a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a.yaml", b"a: &x {b: 1}\nc:\n  <<: *x\n  d: 2", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_files_are_parsed_into_json_types(path: str, content: bytes, data: dict[str, Any]) -> None:
    document = parse(path, content)
    assert (document.data, document.path) == (data, path)
    assert document.format == format_of(path)
    assert repr(document) == f"<Document {path}>"


@pytest.mark.parametrize(
    ("path", "content", "line", "reason"),
    [
        ("a.json", b"a\0", 1, "the file is binary"),
        ("a.json", b"\n\n\xff", 3, "the file is not UTF-8"),
        ("a.json", b"\xff", 1, "the file is not UTF-8"),
        ("a.json", b"[]", 1, "expected a map, not a list"),
        ("a.json", b'{"a":\n\n}', 3, "not valid JSON: Expecting value"),
        ("a.json", b'{"a":1,\n"a":2}', 2, None),
        ("a.toml", b"a = 1\nb = ", 2, "not valid TOML: Invalid value"),
        ("a.toml", b"a = 1\na = 2", 2, "not valid TOML: Cannot overwrite a value"),
        ("a.yaml", b"a: 1\n b: 2", 2, None),
        ("a.yaml", b"? [1]\n: x", 1, "not valid YAML: a key must not be a list or a map"),
        ("a.yaml", b"a: 1\nb: !!map [1]", 2, "not valid YAML: expected a map"),
        ("a.yaml", b"a: 1\na: 2", 2, None),
        ("a.yaml", b"a: 2001-99-99", 1, "not valid YAML: ValueError"),
        ("a.yaml", b"a: !!binary aGk=", None, "a value is binary or a set: use a string or a list"),
        ("a.yaml", b"a: !!set {x}", None, "a value is binary or a set: use a string or a list"),
    ],
)
def test_parse_errors_contain_the_line_of_the_error(
    path: str, content: bytes, line: int | None, reason: str | None
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(path, content)
    assert (refused.value.path, refused.value.line) == (path, line)
    if reason is not None:
        assert refused.value.args[0] == reason


def test_files_of_other_programs_are_parsed_leniently() -> None:
    assert parse("a.json", b'{"a":1,"a":2}', strict=False).data == {"a": 2}
    assert parse("a.yaml", b"a: 1\na: 2", strict=False).data == {"a": 2}
    content = b"a: !!binary aGk=\nb: !!set {y, x}\nc: 2026-01-02"
    assert parse("a.yaml", content, strict=False).data == {
        "a": "aGk=",
        "b": ["x", "y"],
        "c": "2026-01-02",
    }
    assert parse("a.toml", b"a = 2026-01-02", strict=False).data == {"a": "2026-01-02"}
    assert parse("a.toml", b"a = 10:00:00", strict=False).data == {"a": "10:00:00"}


def test_dates_in_toml_and_yaml_stay_dates() -> None:
    day = datetime.date(2026, 1, 2)
    assert parse("a.toml", b"a = 2026-01-02").data == {"a": day}
    assert parse("a.yaml", b"a: 2026-01-02").data == {"a": day}


def nested(kind: str, depth: int) -> bytes:
    """Return a file with values nested to the given depth; the outermost map is level one."""
    lists = depth - 1
    match kind:
        case "json":
            return b'{"a":' + b"[" * lists + b"]" * lists + b"}"
        case "toml":
            return b"a = " + b"[" * lists + b"]" * lists
    return b"a: " + b"[" * lists + b"]" * lists


@pytest.mark.parametrize("kind", ["json", "toml", "yaml"])
def test_a_file_may_have_at_most_a_hundred_levels_of_nesting(kind: str) -> None:
    # An empty list adds no level, except in the YAML parser.
    deepest = DEPTH if kind == "yaml" else DEPTH + 1
    parse(f"a.{kind}", nested(kind, deepest))
    hits = CONFIG_DEPTH.hits
    with pytest.raises(ConfigError, match="^a.*:1: the file is nested too deeply$"):
        parse(f"a.{kind}", nested(kind, deepest + 1))
    assert CONFIG_DEPTH.hits == hits + 1


def test_only_open_brackets_count_towards_the_nesting_limit() -> None:
    many = b"a:\n" + b"".join(b"  - {b: [1]}\n" for _ in range(DEPTH))
    assert len(parse("a.yaml", many).data["a"]) == DEPTH
    wide = json.dumps({"a": [{"b": [1]} for _ in range(DEPTH)]}).encode()
    assert len(parse("a.json", wide).data["a"]) == DEPTH


@pytest.mark.parametrize(("steps", "fits"), [(DEPTH - 1, True), (DEPTH, False)])
def test_parts_of_a_dotted_key_count_towards_the_nesting_limit(steps: int, fits: bool) -> None:
    content = ("a." * steps + "a = 1").encode()
    if fits:
        parse("a.toml", content)
    else:
        with pytest.raises(ConfigError, match="nested too deeply"):
            parse("a.toml", content)


@pytest.mark.parametrize(("count", "fits"), [(30, True), (31, False)])
def test_yaml_has_at_most_thirty_aliases(count: int, fits: bool) -> None:
    content = ("a: &x 1\nb: [" + ", ".join(["*x"] * count) + "]").encode()
    if fits:
        assert parse("a.yaml", content).data["b"] == [1] * count
    else:
        with pytest.raises(ConfigError, match="^a.yaml:1: more than 30 aliases$"):
            parse("a.yaml", content)


@pytest.mark.parametrize(("bits", "fits"), [(13_999, True), (14_000, False)])
def test_integers_of_more_than_14000_bits_are_rejected(bits: int, fits: bool) -> None:
    content = f"a = {hex(1 << bits)}".encode()
    if fits:
        assert parse("a.toml", content).data["a"] == 1 << bits
    else:
        with pytest.raises(ConfigError, match="^a.toml: a number is too large$"):
            parse("a.toml", content)


@pytest.mark.parametrize(
    ("path", "text", "name", "raw", "nth", "line"),
    [
        ("a.json", '{"x": {\n"a": {"b": 1}}}', "a", {"b": 1}, 0, 2),
        ("a.json", '{"a": 1,\n"m": {"a": 2}}', "a", 2, 0, 2),
        ("a.json", '{"a": 1,\n"m": {"a": 2}}', "a", 1, 0, 1),
        ("a.json", '{\n"\\u00fc": 1}', "ü", 1, 0, 2),
        ("a.json", '{\n"ü": 1}', "ü", 1, 0, 2),
        ("a.json", '[\n\n{"name": "ü", "b": 1}]', "ü", {"name": "ü", "b": 1}, 0, 3),
        ("a.json", '{\n"b": 1}', "a", 1, 0, 1),
        ("a.toml", "x = 1\n\n[servers.a]\nb = 1", "a", None, 0, 3),
        ("a.toml", 'x = 1\n[servers."a b"]\n', "a b", None, 0, 2),
        ("a.toml", "x = 1\n[servers.'a'.env]\n", "a", None, 0, 2),
        ("a.toml", "[[servers]]\nname='x'\n[[servers]]\nname='a'", "a", None, 0, 1),
        ("a.toml", "[[servers]]\nname='x'\n[[servers]]\nname='a'", "a", None, 1, 3),
        ("a.toml", "[[servers]]\nname='x'\n[[servers]]\nname='a'", "a", None, 2, 1),
        ("a.yaml", "servers:\n  a:\n    b: 1", "a", None, 0, 2),
        ("a.yaml", 'servers:\n  "a":\n    b: 1', "a", None, 0, 2),
        ("a.yaml", "servers:\n\n  - name: a\n    b: 1", "a", None, 0, 3),
        ("a.yaml", "servers:\n  ab: 1", "a", None, 0, 1),
    ],
)
def test_the_line_number_of_an_entry_is_found_in_each_format(
    path: str, text: str, name: str, raw: Any, nth: int, line: int
) -> None:
    document = Document(path, {}, text, format_of(path))
    assert document.line_of(name, raw, nth) == line
