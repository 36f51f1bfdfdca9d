"""Files and tables on the rules page."""

import re
from pathlib import Path

from fairlead.policy.actions import ACTIONS
from fairlead.policy.conditions.conditions import _KEYS
from fairlead.policy.conditions.operators import OPERATORS
from fairlead.policy.hold_desk import HoldDesk
from fairlead.policy.rules import RuleSet
from fairlead.policy.rules.build_actions import _parameters
from fairlead.policy.rules.gateway_actions import gateway_actions
from fairlead.policy.rules.load_rules import _RULE

PAGE = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()


def test_rule_files_on_the_rules_page_are_valid(tmp_path: Path) -> None:
    files = re.findall(r'```\w+ title="([\w.]+)"\n(.*?)```', PAGE, re.DOTALL)
    for name, text in files:
        (tmp_path / name).write_text(text)
    rules = [name for name, _ in files if not name.endswith(".py")]
    assert rules == ["rules.toml", "rules.yaml", "own.toml"]
    for name in rules:
        made = RuleSet.of_file(tmp_path / name)
        assert made.rules
        made.close()


def test_tables_on_the_rules_page_list_every_action_condition_and_key() -> None:
    section = PAGE.split("## Actions")[1]
    told = {
        row[0]: set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row[1])))
        for row in re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", section, re.MULTILINE)
    }
    actions = {**ACTIONS, **gateway_actions(HoldDesk())}
    assert told == {name: set(_parameters(factory)) for name, factory in actions.items()}
    keys = PAGE.split("## Conditions")[1].split("## Actions")[0]
    named = set(re.findall(r"`(\w+)`", keys))
    assert {*_KEYS, *OPERATORS} <= named
    rule = PAGE.split("## Keys of a rule")[1].split("## Conditions")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", rule, re.MULTILINE)) == {*_RULE} - {"about"}
