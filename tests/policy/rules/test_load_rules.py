"""Tests of rule files: three equivalent formats, and mistakes with their locations."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairlead.policy.rules import RulesError, RuleSet, read_rules

TOML = """\
about = "rules for the file server"
on_failure = "fail_open"

[[rules]]
name = "slow"
when = { server = "files" }
do = [{ delay = 0.5 }, { delay = { seconds = 1, jitter = 0.2 } }]

[[rules]]
name = "no-deletes"
priority = 10
do = { block = { reason = "never", code = -32050 } }

[rules.when]
tool = ["*_delete", "rm"]
not = { any = [{ identity = "root" }, { params.arguments.force = false }] }

[[rules]]
name = "off"
enabled = false
do = "block"

[[rules]]
name = "pass"
when = { headers = { x-team = "core" } }
do = "allow"
"""
DATA: dict[str, Any] = {
    "about": "rules for the file server",
    "on_failure": "fail_open",
    "rules": [
        {
            "name": "slow",
            "when": {"server": "files"},
            "do": [{"delay": 0.5}, {"delay": {"seconds": 1, "jitter": 0.2}}],
        },
        {
            "name": "no-deletes",
            "priority": 10,
            "when": {
                "tool": ["*_delete", "rm"],
                "not": {"any": [{"identity": "root"}, {"params": {"arguments.force": False}}]},
            },
            "do": {"block": {"reason": "never", "code": -32050}},
        },
        {"name": "off", "enabled": False, "do": "block"},
        {"name": "pass", "when": {"headers": {"x-team": "core"}}, "do": "allow"},
    ],
}
BY_NAME = {
    "rules": {
        rule["name"]: {key: value for key, value in rule.items() if key != "name"}
        for rule in DATA["rules"]
    }
}


@pytest.mark.covers("GTW-09")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rules.toml", TOML),
        ("rules.json", json.dumps(DATA, indent=2)),
        ("rules.yaml", yaml.safe_dump(DATA, sort_keys=False)),
        ("named.yaml", yaml.safe_dump(BY_NAME, sort_keys=False)),
    ],
)
def test_rules_in_toml_yaml_and_json_are_equivalent(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    rules = read_rules(file)
    assert [(rule.name, [str(action) for action in rule.actions], rule.stop) for rule in rules] == [
        ("no-deletes", ["block (reason: never, code: -32050)"], False),
        ("slow", ["delay (seconds: 0.5)", "delay (seconds: 1.0, jitter: 0.2)"], False),
        ("pass", ["allow"], True),
    ]
    assert all(rule.line for rule in rules)


BAD = """\
[[rules]]
name = "a"
when = { metod = "x" }
do = "blok"

[[rules]]
priority = "high"
when = { all = [{ method = "m" }, { params = { "arguments.n" = { greter = 3 } } }] }
do = { delay = { secnds = 3 } }

[[rules]]
when.kind = "cat"
when.headers = { x-y = { matches = "(" } }
do = { fault = "explode", rate = {} }
on_failure = "open"

[[rules]]
name = "e"

[[rules]]
colour = "red"
do = { delay = "long", block = { code = "x" } }

[[rules]]
do = { mock = {}, use = "nowhere.py:x", rate = 0 }
"""


@pytest.mark.covers("GTW-09")
def test_all_mistakes_are_reported_at_once_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(BAD)
    with pytest.raises(RulesError) as wrong:
        RuleSet.of_file(file)
    told = str(wrong.value).replace(f"{file}:", "").replace(str(tmp_path), "").splitlines()
    assert told == [
        "3:10: unknown condition 'metod': did you mean 'method'?",
        "4:1: unknown action 'blok': did you mean 'block'?",
        "7:1: `priority` must be an integer",
        "8:66: unknown operator 'greter': did you mean 'greater'?",
        "9:18: unknown option of `delay` 'secnds': did you mean 'seconds'?",
        '12:6: `kind`: must be "request" or "notification" or "response" or "error"',
        "13:18: `x-y`: `matches`: '(' is not a regular expression: missing ), unterminated "
        "subpattern at position 0",
        '14:8: `kind` of `fault` must be "drop" or "duplicate" or "corrupt" or "cut" or "error" or '
        '"slow"',
        "14:27: `rate` requires `rate`",
        '15:1: `on_failure` must be "fail_closed", "fail_open" or "skip"',
        '17:1: rule "e" has no actions: `do` is missing',
        "21:1: unknown key 'colour': expected one of about, do, enabled, name, on_failure, "
        "priority, stop, timeout, when",
        "22:8: `seconds` of `delay` must be a number, not a string",
        "22:34: `code` of `block` must be an integer, not a string",
        "25:8: `mock`: exactly one of `result` and `error` must be given",
        "25:19: `use`: file /nowhere.py does not exist",
        "25:41: `rate`: `rate` must be greater than 0, and `burst` must be 0 or at least 1, "
        "not 0 and 0",
    ]
    assert (wrong.value.path, wrong.value.line) == (str(file), 3)


@pytest.mark.parametrize(
    ("name", "text", "place", "words"),
    [
        ("a.yaml", "rules:\n  - name: x\n    do: blok\n", "3:5", "did you mean 'block'"),
        (
            "a.yaml",
            "rules:\n  - when: {tool: 3}\n    do: block\n",
            "2:12",
            "`tool`: expected a string",
        ),
        ("a.json", '{"rules": [\n {"do": "block",\n  "when": []}]}', "3:3", "must not be empty"),
        (
            "a.json",
            '{"rules": [\n {"do": {"delay": {"seconds": []}}}]}',
            "2:20",
            "must be a number",
        ),
        ("a.json", '{"rules": 7}', "1:2", "must be a list of rules"),
        ("a.json", '{"rules": [7]}', "1:12", "a rule must be a map"),
        ("a.json", '{"rule": []}', "1:2", "did you mean 'rules'"),
        ("a.toml", 'rules = [\n{ do = "block" },\n{ do = "x" }]', "3:3", "unknown action 'x'"),
        (
            "a.toml",
            '[rules.one]\ndo = "block"\nwhen.tool = 1\n',
            "3:6",
            "`tool`: expected a string",
        ),
        ("a.toml", '[rules.one]\ndo = "allow"\nwhen.any = []\n', "3:6", "must not be empty"),
        ("a.toml", "[[rules]]\ndo = { allow = 3 }\n", "2:8", "takes no options"),
        ("a.toml", '[[rules]]\ndo = "block"\ntimeout = -1\n', "3:1", "at least 0"),
        ("a.toml", '[[rules]]\ndo = "block"\ntimeout = nan\n', "3:1", "at least 0"),
        ("a.toml", "[[rules]]\ndo = { timeout = nan }\n", "2:8", "must be a number, not nan"),
        ("a.yaml", "rules:\n- do: {rate: {rate: .inf}}\n", "2:15", "must be a number, not inf"),
        ("a.toml", "[[rules]]\ndo = { cache = -1 }\n", "2:8", "greater than 0"),
        ("a.toml", "[[rules]]\ndo = { audit.max_payload = -1 }\n", "2:8", "at least 0"),
        (
            "a.toml",
            '[[rules]]\ndo = { fault = { kind = "slow", seconds = -1 } }\n',
            "2:8",
            "at least 0",
        ),
        (
            "a.toml",
            '[[rules]]\ndo = "block"\nwhen.params.day = 2024-01-01\n',
            "3:13",
            "must be a string in quotes",
        ),
        (
            "a.yaml",
            "rules:\n- do: block\n  when: {params: {day: {not_in: [2024-01-01]}}}\n",
            "3:19",
            "must be a string in quotes",
        ),
        ("a.json", '{"rules":' + "[" * 100_000, "1", "nested too deeply"),
        ("a.toml", "rules = " + "[" * 100_000, "1", "nested too deeply"),
        (
            "a.toml",
            '[[rules]]\nwhen.kind = "error"\ndo = { timeout = 1 }\n',
            "3:8",
            "about responses",
        ),
        ("a.toml", "[[rules]\n", "1:8", "not valid TOML"),
        ("a.yaml", "rules: [\n", "2:1", "not valid YAML"),
        ("a.json", '{\n"rules" 3}', "2:9", "not valid JSON"),
        (
            "a.toml",
            '[[rules]]\nname="a"\ndo="block"\n[[rules]]\nname="a"\ndo="block"',
            "5:1",
            "duplicate rule name",
        ),
    ],
)
def test_a_mistake_in_a_rule_file_has_a_location_in_every_format(
    tmp_path: Path, name: str, text: str, place: str, words: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(RulesError) as wrong:
        read_rules(file)
    assert str(wrong.value).startswith(f"{file}:{place}: ")
    assert words in str(wrong.value)


OPENS = """\
opened = []

class Opens:
    def __init__(self):
        opened.append(self)

    async def __call__(self, exchange, proceed):
        return await proceed(exchange)

    def close(self):
        opened.remove(self)
"""


def test_actions_created_only_to_check_a_file_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fl_opens.py").write_text(OPENS)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "rules.json"
    use = {"use": "fl_opens:Opens"}
    both = {"name": "a", "do": [use, {"audit": "audit.jsonl"}]}
    file.write_text(json.dumps({"rules": [both, {"name": "b", "do": use}]}))
    rules = RuleSet.of_file(file)
    opened = sys.modules["fl_opens"].opened
    assert len(opened) == 2
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)  # detected only when the file is opened
    for place, why in (
        ("no/such/file", "directory .*/no/such does not exist"),
        ("socket", "No such device"),
    ):
        nowhere = {"name": "c", "do": [use, {"audit": place}]}
        file.write_text(json.dumps({"rules": [both, nowhere]}))
        with pytest.raises(RulesError, match=why):
            rules.reload()
        assert len(opened) == 2, "the rules are still active"
    rules.close()
    assert opened == []


def test_conditions_that_are_nested_too_deeply_are_rejected(tmp_path: Path) -> None:
    file, deep = tmp_path / "rules.json", 900
    when = '{"not":' * deep + '{"tool": "x"}' + "}" * deep
    file.write_text('{"rules": [{"do": "block", "when": ' + when + "}]}")
    with pytest.raises(RulesError, match="nested too deeply"):
        read_rules(file)


def test_a_missing_rule_file_is_rejected_and_an_empty_one_has_no_rules(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="the file does not exist"):
        read_rules(tmp_path / "no.toml")
    with pytest.raises(RulesError, match="expected a file, but the path is a directory"):
        read_rules(tmp_path)
    (tmp_path / "empty.toml").write_text("")
    assert read_rules(tmp_path / "empty.toml") == []
