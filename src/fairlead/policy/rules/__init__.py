"""Rules: a file of conditions and actions, compiled into one interceptor."""

from ..conditions.rules_error import RuleMistake, RulesError
from .dry_run import DryRunResult, dry_run_tape
from .load_rules import Rule, read_rules
from .ruleset import RuleSet

__all__ = [
    "DryRunResult",
    "Rule",
    "RuleMistake",
    "RuleSet",
    "RulesError",
    "dry_run_tape",
    "read_rules",
]
