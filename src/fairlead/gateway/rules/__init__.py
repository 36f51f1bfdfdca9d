"""Rules: a file that says what happens to which messages, as one interceptor."""

from .mistakes import Mistake, RulesError
from .reading import Rule, read_rules
from .rehearsal import Rehearsed, rehearse
from .ruleset import RuleSet

__all__ = ["Mistake", "Rehearsed", "Rule", "RuleSet", "RulesError", "read_rules", "rehearse"]
