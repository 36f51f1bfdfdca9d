"""From a file to rules: TOML, YAML or JSON, and everything that is wrong with it at once."""

import os
from collections.abc import Iterable
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct

from ...config.files.config_reader import read_file
from ...config.files.formats import Document, parse
from ...config.files.source_locations import SourceLocation, location_of
from ...errors import ConfigError
from ..conditions.conditions import NAMING, Always, Condition, compile_condition, names
from ..conditions.rules_error import RuleMistake, RulesError, unknown_name
from ..interceptor_failures import FailurePolicy
from .build_actions import (
    WRITING,
    Action,
    ActionBuilder,
    ActionContext,
    canonical_json,
    parse_actions,
)

__all__ = ["KeptActions", "Rule", "read_rules", "rules_of"]

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

# Actions of rules that stay as they were, with what they remember: by name and what they do.
KeptActions = dict[tuple[str, bytes], list[Action]]


class Rule(Struct, frozen=True, eq=False):
    """When something happens, and what."""

    name: str
    condition: Condition
    actions: tuple[Action, ...]
    answers: bool = False  # it is about answers, so it is asked when there is one
    about_server: bool = False  # it asks for the server, which may have to be waited for
    stop: bool = False  # rules behind it have no say
    # Holds only for what `condition` means to the letter: what a rule lets pass must not be more.
    strict: Condition | None = None
    priority: int = 0
    order: int = 0  # among all of them
    line: int | None = None
    also: frozenset[str] = frozenset()  # methods that some actions see whatever the condition says
    same: bytes = b""  # what it does, to know it again

    @property
    def key(self) -> tuple[str, bytes]:
        return self.name, self.same


def read_rules(
    path: str | os.PathLike[str],
    making: ActionContext | None = None,
    kept: KeptActions | None = None,
) -> list[Rule]:
    """The rules of a file, the first one first.

    Raises:
        RulesError: with everything that is wrong.
    """
    name = os.path.abspath(path)
    try:
        content = read_file(name)
    except ConfigError as exc:
        raise RulesError([RuleMistake(str(exc.args[0]), os.fspath(path))]) from None
    if content is None:
        raise RulesError([RuleMistake("there is no such file", os.fspath(path))])
    try:
        document = parse(name, content)
    except ConfigError as exc:
        mistake = RuleMistake(str(exc.args[0]), os.fspath(path), exc.line, exc.column)
        raise RulesError([mistake]) from None
    making = making or ActionContext()
    with_folder = msgspec.structs.replace(making, folder=os.path.dirname(name))
    return rules_of(document, with_folder, kept, shown_as=os.fspath(path))


def rules_of(
    document: Document,
    making: ActionContext,
    kept: KeptActions | None = None,
    *,
    shown_as: str | None = None,
) -> list[Rule]:
    """The same for a file that was read."""
    try:
        return _rules_of(document, making, kept or {}, shown_as)
    except RecursionError:
        path = shown_as or document.path
        raise RulesError([RuleMistake("the conditions are nested too deeply", path)]) from None


def _rules_of(
    document: Document, making: ActionContext, kept: KeptActions, shown_as: str | None
) -> list[Rule]:
    writing = {
        (action.name, canonical_json(action.options)): action
        for actions in kept.values()
        for action in actions
        if action.name in WRITING
    }
    making = msgspec.structs.replace(making, writing=writing)
    # First without what opens files: a file with mistakes does nothing at all.
    careful = msgspec.structs.replace(making, unmade=making.unmade | WRITING)
    tried = _RulesParser(document, careful, kept, shown_as).rules()
    made = {
        rule.key: list(rule.actions)
        for rule in tried
        if not any(action.name in WRITING for action in rule.actions)
    }
    fresh = {id(one): one for rule in tried if rule.key not in kept for one in rule.actions}
    try:
        rules = _RulesParser(document, making, {**made, **kept}, shown_as).rules()
        for rule in rules:
            for action in rule.actions:
                fresh.pop(id(action), None)
    finally:
        for action in fresh.values():  # those that were only tried
            close_action(action)
    return rules


class _RulesParser:
    """One file being read."""

    def __init__(
        self, document: Document, making: ActionContext, kept: KeptActions, shown_as: str | None
    ) -> None:
        self._document = document
        self._making = making
        self._kept = kept
        self._shown_as = shown_as
        self._mistakes: list[RuleMistake] = []

    def rules(self) -> list[Rule]:
        data = self._document.data
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
                self._report((*where, "name"), f'there are two rules "{rule.name}"')
            taken.add(rule.name)
            rules.append(rule)
        if self._mistakes:
            self._close(rules)
            raise RulesError(sorted(self._mistakes, key=lambda one: one.line or 0))
        rules.sort(key=lambda rule: -rule.priority)  # stable: equal ones as they stand in the file
        return [msgspec.structs.replace(rule, order=place) for place, rule in enumerate(rules)]

    def _entries(self, raw: Any) -> list[tuple[SourceLocation, dict[str, Any]]]:
        """A list of rules, or a map of them by their names."""
        found: Iterable[tuple[SourceLocation, Any]]
        if isinstance(raw, dict):
            found = [
                (("rules", name), {"name": name, **one} if isinstance(one, dict) else one)
                for name, one in raw.items()
            ]
        elif isinstance(raw, list):
            found = [(("rules", number), one) for number, one in enumerate(raw)]
        else:
            self._report(("rules",), "`rules` is a list of rules, or a map of them by name")
            return []
        good = []
        for where, one in found:
            if isinstance(one, dict):
                good.append((where, one))
            else:
                self._report(where, "a rule is a map with `when` and `do`")
        return good

    def _rule(
        self, where: SourceLocation, raw: dict[str, Any], number: int, default: FailurePolicy | None
    ) -> Rule | None:
        before = len(self._mistakes)
        self._know(where, raw, _RULE, "key")
        given = {key: self._value((*where, key), raw.get(key), kind) for key, kind in _RULE.items()}
        name = given["name"] or f"rule {number + 1}"
        answers = names(raw.get("when"), "result", "error", kinds=("response", "error"))
        condition: Condition = Always()
        if "when" in raw:
            here = (*where, "when")
            condition = compile_condition(raw["when"], here, self._report, answers=answers)
        if "do" not in raw:
            self._report(where, f'"{name}" does nothing: `do` is expected')
            return None
        policy: FailurePolicy | None = given["on_failure"] or default
        timeout = given["timeout"]
        if timeout is not None and not 0 <= timeout < inf:
            self._report((*where, "timeout"), "`timeout` is not below 0 (0: no limit)")
            timeout = None
        same = canonical_json([raw["do"], policy, timeout, answers])
        maker = ActionBuilder(
            self._making, self._report, policy=policy, timeout=timeout, answers=answers
        )
        actions = self._actions(maker, raw["do"], (*where, "do"), (name, same))
        if len(self._mistakes) > before or given["enabled"] is False:
            self._close_actions(actions)
            return None
        at = location_of(self._document, where)
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
        if key in self._kept:
            return self._kept[key]
        wanted = parse_actions(raw, where, self._report)
        made = [maker.make(*one) for one in wanted]
        return [action for action in made if action is not None]

    # Values, and what is wrong with them

    def _know(
        self, where: SourceLocation, raw: dict[str, Any], known: Iterable[str], what: str
    ) -> None:
        for key in raw:
            if key not in known:
                self._report((*where, str(key)), unknown_name(what, key, known))

    def _value(self, where: SourceLocation, raw: Any, kind: Any) -> Any:
        if raw is None:
            return None
        try:
            return msgspec.convert(raw, kind, strict=True)
        except msgspec.ValidationError:
            names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
            self._report(where, f"`{where[-1]}` is {names.get(kind, _POLICIES)}")
            return None

    def _report(self, where: SourceLocation, reason: str) -> None:
        at = location_of(self._document, where)
        line, column = at or (None, None)
        path = self._shown_as or self._document.path
        self._mistakes.append(RuleMistake(reason, path, line, column))

    def _close(self, rules: list[Rule]) -> None:
        for rule in rules:
            self._close_actions(rule.actions)

    def _close_actions(self, actions: Iterable[Action]) -> None:
        held = {id(action) for several in self._kept.values() for action in several}
        for action in actions:
            if id(action) not in held:
                close_action(action)


def _ignore(where: SourceLocation, reason: str) -> None:
    """Report nothing: the same mistakes have been reported before."""


def close_action(action: Action) -> None:
    """Let go of what an action holds open."""
    action.hooks.close()
