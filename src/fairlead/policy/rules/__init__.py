"""Rules: a file that says what happens to which messages, as one interceptor."""

from ..conditions.rules_error import Mistake, RulesError
from .dry_run import Rehearsed, rehearse
from .load_rules import Rule, read_rules
from .ruleset import RuleSet

__all__ = ["Mistake", "Rehearsed", "Rule", "RuleSet", "RulesError", "read_rules", "rehearse"]
