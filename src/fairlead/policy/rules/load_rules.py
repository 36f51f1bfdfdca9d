"""Reader for rule files in TOML, YAML or JSON, which reports all mistakes at once."""

import os
from collections.abc import Container, Iterable
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...config.files.config_reader import read_file
from ...config.files.formats import Document, parse
from ...config.files.source_locations import SourceLocation, location_of
from ...errors import ConfigError
from ...suggestions import unknown_name
from ..conditions.conditions import ALWAYS, NAMING, Condition, compile_condition, names
from ..conditions.rules_error import RuleMistake, RulesError
from ..interceptor_failures import FailurePolicy
from .build_actions import (
    TYPE_NAMES,
    WRITING,
    Action,
    ActionBuilder,
    ActionContext,
    canonical_json,
    parse_actions,
)

__all__ = ["KeptActions", "Rule", "actions_of", "close_unused", "read_rules", "rules_of"]

_FILE: Final = ("rules", "on_failure", "about", "$schema")
_RULE: Final[dict[str, Any]] = {
    "name": str,
    "about": str,
    "when": Any,
    "do": Any,
    "priority": int,
    "stop": bool,
    "enabled": bool,
    "on_failure": FailurePolicy,
    "timeout": float,
}
_POLICIES: Final = '"fail_closed", "fail_open" or "skip"'

# Actions of unchanged rules, which keep their state; keyed by rule name and digest of the actions.
KeptActions = dict[tuple[str, bytes], list[Action]]


class Rule(Struct, frozen=True, eq=False):
    """A condition, and the actions for messages that match it."""

    name: str
    condition: Condition
    actions: tuple[Action, ...]
    answers: bool = False  # True if the rule is evaluated when the response arrives
    # True if the condition depends on the server, which may still be starting
    about_server: bool = False
    stop: bool = False  # True if rules after this one are skipped when it applies
    # The same condition in strict mode, for rules that permit.
    strict: Condition | None = None
    priority: int = 0
    order: int = 0  # position in the list of all rules
    line: int | None = None
    # methods whose messages the actions see even if the condition does not hold
    also: frozenset[str] = frozenset()
    same: bytes = b""  # digest of the actions, by which unchanged rules are detected

    @property
    def key(self) -> tuple[str, bytes]:
        return self.name, self.same


def read_rules(
    path: str | os.PathLike[str],
    making: ActionContext | None = None,
    kept: KeptActions | None = None,
) -> list[Rule]:
    """Read the rules in a file, sorted by priority.

    Raises:
        RulesError: The file is missing or has mistakes; all of them are listed.
    """
    name, whole = os.fspath(path), os.path.abspath(path)
    try:
        content = read_file(whole)
    except ConfigError as exc:
        raise RulesError([RuleMistake(str(exc.args[0]), name)]) from None
    if content is None:
        raise RulesError([RuleMistake("the file does not exist", name)])
    try:
        document = parse(name, content)
    except ConfigError as exc:
        raise RulesError([RuleMistake(str(exc.args[0]), name, exc.line, exc.column)]) from None
    making = msgspec.structs.replace(making or ActionContext(), folder=os.path.dirname(whole))
    return rules_of(document, making, kept)


def rules_of(
    document: Document, making: ActionContext, kept: KeptActions | None = None
) -> list[Rule]:
    """Compile the rules in a parsed file; see `read_rules`."""
    try:
        return _rules_of(document, making, kept or {})
    except RecursionError:
        mistake = RuleMistake("the conditions are nested too deeply", document.path)
        raise RulesError([mistake]) from None


def _rules_of(document: Document, making: ActionContext, kept: KeptActions) -> list[Rule]:
    writing = {
        (action.name, canonical_json(action.options)): action
        for actions in kept.values()
        for action in actions
        if action.name in WRITING
    }
    making = msgspec.structs.replace(making, writing=writing)
    # The first pass creates no action that opens files: an invalid file has no side effects.
    careful = msgspec.structs.replace(making, unmade=making.unmade | WRITING)
    tried = _RulesParser(document, careful, kept).rules()
    made = {
        rule.key: list(rule.actions)
        for rule in tried
        if not any(action.name in WRITING for action in rule.actions)
    }
    fresh = actions_of(rule for rule in tried if rule.key not in kept)
    used: set[int] = set()
    try:
        rules = _RulesParser(document, making, {**made, **kept}).rules()
        used = {id(action) for action in actions_of(rules)}
    finally:
        close_unused(fresh, used)  # close the actions of the first pass that no rule uses
    return rules


class _RulesParser(Struct, eq=False):
    """Parses one rule file."""

    document: Document
    making: ActionContext
    kept: KeptActions
    _mistakes: list[RuleMistake] = []

    def rules(self) -> list[Rule]:
        data = self.document.data
        self._know((), data, _FILE, "setting")
        default = self._value(("on_failure",), data.get("on_failure"), FailurePolicy)
        entries = self._entries(data.get("rules", []))
        taken: set[str] = set()
        rules: list[Rule] = []
        for number, (where, raw) in enumerate(entries):
            rule = self._rule(where, raw, number, default)
            if rule is None:
                continue
            if rule.name in taken:
                self._report((*where, "name"), f'duplicate rule name "{rule.name}"')
            taken.add(rule.name)
            rules.append(rule)
        if self._mistakes:
            self._close(actions_of(rules))
            raise RulesError(sorted(self._mistakes, key=lambda one: one.line or 0))
        # stable: rules with equal priority keep their order in the file
        rules.sort(key=lambda rule: -rule.priority)
        return [msgspec.structs.replace(rule, order=place) for place, rule in enumerate(rules)]

    def _entries(self, raw: Any) -> list[tuple[SourceLocation, dict[str, Any]]]:
        """Return the entries of a list of rules, or of a map of rules by name."""
        found: Iterable[tuple[SourceLocation, Any]]
        if isinstance(raw, dict):
            found = [
                (("rules", name), {"name": name, **one} if isinstance(one, dict) else one)
                for name, one in raw.items()
            ]
        elif isinstance(raw, list):
            found = [(("rules", number), one) for number, one in enumerate(raw)]
        else:
            self._report(("rules",), "`rules` must be a list of rules, or a map of them by name")
            return []
        good = []
        for where, one in found:
            if isinstance(one, dict):
                good.append((where, one))
            else:
                self._report(where, "a rule must be a map with `when` and `do`")
        return good

    def _rule(
        self, where: SourceLocation, raw: dict[str, Any], number: int, default: FailurePolicy | None
    ) -> Rule | None:
        before = len(self._mistakes)
        self._know(where, raw, _RULE, "key")
        given = {key: self._value((*where, key), raw.get(key), kind) for key, kind in _RULE.items()}
        name = given["name"] or f"rule {number + 1}"
        answers = names(raw.get("when"), "result", "error", kinds=("response", "error"))
        condition: Condition = ALWAYS
        if "when" in raw:
            here = (*where, "when")
            condition = compile_condition(raw["when"], here, self._report, answers=answers)
        if "do" not in raw:
            self._report(where, f'rule "{name}" has no actions: `do` is missing')
            return None
        policy: FailurePolicy | None = given["on_failure"] or default
        timeout = given["timeout"]
        if timeout is not None and not 0 <= timeout < inf:
            self._report(
                (*where, "timeout"),
                "`timeout` must be a finite number of at least 0 (0: unlimited)",
            )
            timeout = None
        same = canonical_json([raw["do"], policy, timeout, answers])
        maker = ActionBuilder(
            self.making, self._report, policy=policy, timeout=timeout, answers=answers
        )
        actions = self._actions(maker, raw["do"], (*where, "do"), (name, same))
        if len(self._mistakes) > before or given["enabled"] is False:
            self._close(actions)
            return None
        at = location_of(self.document, where)
        stop = bool(given["stop"]) or any(action.name == "allow" for action in actions)
        strict: Condition | None = None
        if stop and names(raw.get("when"), *NAMING):
            strict = compile_condition(raw["when"], where, _ignore, answers=answers, strict=True)
        return Rule(
            name=name,
            condition=condition,
            actions=tuple(actions),
            answers=answers,
            about_server=names(raw.get("when"), "server"),
            stop=stop,
            strict=strict,
            priority=given["priority"] or 0,
            line=None if at is None else at[0],
            also=frozenset().union(*(action.hooks.also for action in actions)),
            same=same,
        )

    def _actions(
        self, maker: ActionBuilder, raw: Any, where: SourceLocation, key: tuple[str, bytes]
    ) -> list[Action]:
        if key in self.kept:
            return self.kept[key]
        wanted = parse_actions(raw, where, self._report)
        made = [maker.make(*one) for one in wanted]
        return [action for action in made if action is not None]

    # Validation of values

    def _know(
        self, where: SourceLocation, raw: dict[str, Any], known: Iterable[str], what: str
    ) -> None:
        for key in raw:
            if key not in known:
                self._report((*where, str(key)), unknown_name(what, str(key), known))

    def _value(self, where: SourceLocation, raw: Any, kind: Any) -> Any:
        if raw is None:
            return None
        try:
            return msgspec.convert(raw, kind, strict=True)
        except msgspec.ValidationError:
            self._report(where, f"`{where[-1]}` must be {TYPE_NAMES.get(kind, _POLICIES)}")
            return None

    def _report(self, where: SourceLocation, reason: str) -> None:
        at = location_of(self.document, where)
        self._mistakes.append(RuleMistake(reason, self.document.path, *(at or ())))

    def _close(self, actions: Iterable[Action]) -> None:
        close_unused(actions, {id(one) for several in self.kept.values() for one in several})


def _ignore(where: SourceLocation, reason: str) -> None:
    """Ignore a mistake, because the first compilation has already reported it."""


def actions_of(rules: Iterable[Rule]) -> list[Action]:
    """Return the actions of all these rules."""
    return [action for rule in rules for action in rule.actions]


def close_unused(actions: Iterable[Action], used: Container[int]) -> None:
    """Release the resources of the actions whose ids are not in `used`."""
    for action in actions:
        if id(action) not in used:
            action.hooks.close()
