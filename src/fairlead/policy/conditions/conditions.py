"""Rule conditions, combined with `all`, `any` and `not`."""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from ...config.files.source_locations import SourceLocation
from ...protocol.envelope import Direction
from ...protocol.targets.targets import NESTED
from ...suggestions import unknown_name
from .caller_identity import (
    claim_test,
    identity_names,
    token_issuer,
    token_scopes,
    token_subject,
)
from .facts import ANY, Facts, MessageKey
from .operators import OPERATORS, InvalidTest, Test, is_test, name_test, value_test
from .rule_index_hints import Hints, Hooks, IndexHook, hints_of_name, hints_of_value, most_selective
from .target_tests import TargetTest, server_test, target_test

__all__ = ["ALWAYS", "NAMING", "SOURCES", "Condition", "Report", "compile_condition", "names"]

# called with the location and description of a mistake
Report: TypeAlias = Callable[[SourceLocation, str], None]


class Condition(Protocol):
    """A condition on a message."""

    def known(self, key: MessageKey) -> bool | None:
        """Return the condition's value if the key alone determines it, else None."""

    def index_hooks(self, key: MessageKey) -> Hooks:
        """Return hooks for the rule index.

        The condition can hold for this key only if a hook matches.
        """

    def holds(self, facts: Facts, /) -> bool: ...


class _ByKey(Struct, eq=False):
    """A condition on a message's key: method, direction, kind or targets."""

    test: Callable[[MessageKey], bool]
    on_target: bool = False
    methods: Sequence[str] = ()

    def known(self, key: MessageKey) -> bool | None:
        if self.on_target and key.targets is ANY:
            return False if self.methods and key.method not in self.methods else None
        return self.test(key)

    def index_hooks(self, key: MessageKey) -> Hooks:
        return None if self.test(key) else ()

    def holds(self, facts: Facts) -> bool:
        return self.test(facts.key)


class _ByFacts(Struct, eq=False):
    """A condition that depends on more than a message's key."""

    holds: Callable[[Facts], bool]
    hooks: Hooks = None

    def known(self, key: MessageKey) -> bool | None:
        return None

    def index_hooks(self, key: MessageKey) -> Hooks:
        return self.hooks


class _Several(Struct, eq=False):
    """Conditions that must all hold; with `one_suffices`, at least one of them."""

    parts: Sequence[Condition]
    # If one part has this result, so has the whole condition.
    one_suffices: bool = False

    def known(self, key: MessageKey) -> bool | None:
        verdicts = [part.known(key) for part in self.parts]
        if self.one_suffices in verdicts:
            return self.one_suffices
        return None if None in verdicts else not self.one_suffices

    def index_hooks(self, key: MessageKey) -> Hooks:
        hooks = [part.index_hooks(key) for part in self.parts]
        # If all parts must hold, the hooks of any one part are enough. If one part suffices, the
        # hooks of all parts are needed, and a part without hooks may hold for any message.
        if not self.one_suffices:
            return most_selective(hooks)
        if None in hooks:
            return None
        return tuple(hook for several in hooks for hook in several or ())

    def holds(self, facts: Facts) -> bool:
        for part in self.parts:
            if part.holds(facts) == self.one_suffices:
                return self.one_suffices
        return not self.one_suffices


ALWAYS: Final = _Several(())  # used for a rule without conditions


class _Not:
    def __init__(self, part: Condition) -> None:
        self._part = part

    def known(self, key: MessageKey) -> bool | None:
        one = self._part.known(key)
        return None if one is None else not one

    def index_hooks(self, key: MessageKey) -> Hooks:
        # The index cannot find missing values, so negations are evaluated for each message.
        return () if self.known(key) is False else None

    def holds(self, facts: Facts) -> bool:
        return not self._part.holds(facts)


def names(raw: Any, *keys: str, kinds: Sequence[str] = ()) -> bool:
    """Return True if a `when` contains one of these keys, or one of these kinds, at any depth."""
    if isinstance(raw, list):
        return any(names(one, *keys, kinds=kinds) for one in raw)
    if not isinstance(raw, dict):
        return False
    named = raw.get("kind")
    chosen = named if isinstance(named, list) else [named]
    if raw.keys() & set(keys) or any(kind in chosen for kind in kinds):
        return True
    return any(names(raw[one], *keys, kinds=kinds) for one in ("all", "any", "not") if one in raw)


def compile_condition(
    raw: Any, where: SourceLocation, report: Report, *, answers: bool, strict: bool = False
) -> Condition:
    """Compile a rule's `when`. If `answers`, it is evaluated when the response arrives.

    A condition on names and URIs holds if any form of any name matches, so that another spelling
    does not bypass a rule that forbids. With `strict`, used for rules that permit, it holds only if
    every form matches. Inside `not`, the two modes are swapped.
    """
    if isinstance(raw, list):
        return _Several(_several(raw, where, report, answers, strict))
    if not isinstance(raw, dict):
        report(where, 'expected a map of conditions, such as { method = "tools/call" }')
        return ALWAYS
    parts: list[Condition] = []
    for key, wanted in raw.items():
        here = (*where, str(key))
        match key:
            case "all" | "any":
                inner = _several(wanted, here, report, answers, strict)
                parts.append(_Several(inner, one_suffices=key == "any"))
            case "not":
                negated = compile_condition(
                    wanted, here, report, answers=answers, strict=not strict
                )
                parts.append(_Not(negated))
            case _:
                parts.extend(_leaf(str(key), wanted, here, report, answers, strict))
    return parts[0] if len(parts) == 1 else _Several(parts) if parts else ALWAYS


def _several(
    raw: Any, where: SourceLocation, report: Report, answers: bool, strict: bool
) -> list[Condition]:
    if not isinstance(raw, list):
        raw, wheres = [raw], [where]
    else:
        wheres = [(*where, number) for number in range(len(raw))]
    if not raw:
        report(where, "the list of conditions must not be empty")
    return [
        compile_condition(one, here, report, answers=answers, strict=strict)
        for one, here in zip(raw, wheres, strict=True)
    ]


def _leaf(
    key: str, wanted: Any, where: SourceLocation, report: Report, answers: bool, strict: bool
) -> list[Condition]:
    try:
        if key in _TREES:
            tree = _TREES[key]
            paths = _paths(wanted, where, report, exact=key != "headers")
            return [
                _ByFacts(_at(tree, path, test), _hooked(tree, hints, path))
                for path, test, hints in paths
            ]
        if key == "claim":
            paths = _paths(wanted, where, report, exact=True)
            return [_ByFacts(claim_test(path, test)) for path, test, _ in paths]
        if key == "kind":
            return [_kind(wanted, answers)]
        if key == "direction":
            directions = {_DIRECTIONS[one] for one in _few(wanted, tuple(_DIRECTIONS))}
            return [_ByKey(lambda one: one.direction in directions)]
        if key == "era":
            eras = _few(wanted, ("handshake", "stateless"))
            return [
                _ByFacts(lambda facts: _era(facts) in eras, _hooked(key, hints_of_value([*eras])))
            ]
        if key == "method":
            by_method = name_test(wanted)
            return [_ByKey(lambda one: by_method((one.method,)))]
        if key in _TARGETS:
            methods = _TARGETS[key]
            of_key = _about(target_test(wanted, strict=strict), methods, _KINDS.get(key))
            return [_ByKey(of_key, on_target=True, methods=methods)]
        if key == "server":
            by_server = server_test(wanted, strict=strict)
            hooks = _hooked(key, hints_of_name(wanted))
            return [_ByFacts(lambda facts: by_server(facts.servers), hooks)]
        if key in _NAMES:
            test = _of(_NAMES[key], name_test(wanted))
            return [_ByFacts(test, _hooked(key, hints_of_name(wanted)))]
        if key == "size":
            return [_ByFacts(_of(lambda facts: facts.size, value_test(wanted)))]
    except InvalidTest as wrong:
        _report_invalid(key, wrong, where, report)
        return []
    report(where, unknown_name("condition", key, _KEYS))
    return []


def _report_invalid(key: object, wrong: InvalidTest, where: SourceLocation, report: Report) -> None:
    if wrong.operator is not None:
        report((*where, wrong.operator), unknown_name("operator", wrong.operator, OPERATORS))
    else:
        report(where, f"`{key}`: {wrong}")


# Names


_RESOURCES: Final = ("resources/read", "resources/subscribe", "resources/unsubscribe")
# Methods that a condition on names applies to; an empty tuple means all methods.
_TARGETS: Final[dict[str, tuple[str, ...]]] = {
    "target": (),
    "tool": ("tools/call",),
    "prompt": ("prompts/get", "completion/complete"),
    "resource": (*_RESOURCES, "notifications/resources/updated", *sorted(NESTED)),
}
NAMING: Final = (*_TARGETS, "server")  # keys for conditions on the targets of a message
# kinds of targets to compare, for methods whose targets are of several kinds
_KINDS: Final = {"prompt": "prompt", "resource": "resource"}
_NAMES: Final[dict[str, Callable[[Facts], str | tuple[str, ...] | None]]] = {
    "identity": identity_names,
    "issuer": token_issuer,
    "subject": token_subject,
    "scope": token_scopes,
    "client": lambda facts: facts.exchange.caller.name,
    "session": lambda facts: facts.exchange.edge.session.session_id,
    "transport": lambda facts: facts.exchange.transport.transport_type,
    "address": lambda facts: facts.exchange.transport.peer_address,
    "path": lambda facts: _path(facts.exchange.transport.path),
    "revision": lambda facts: facts.exchange.caller.revision.value,
}


def _about(
    test: TargetTest, methods: tuple[str, ...], kind: str | None
) -> Callable[[MessageKey], bool]:
    def holds(key: MessageKey) -> bool:
        if methods and key.method not in methods:
            return False
        targets = key.targets
        if kind is not None:
            # A target of unclear kind is included, so that a rule that forbids does not miss it.
            targets = tuple(one for one in targets if one.kind == kind or one.unclear)
        return test(targets)

    return holds


def _path(path: str | None) -> str | None:
    """Return the path without trailing slashes, because endpoints accept both forms."""
    return path if path is None else path.rstrip("/") or "/"


def _of(look: Callable[[Facts], Any], test: Test) -> Callable[[Facts], bool]:
    def holds(facts: Facts) -> bool:
        found = look(facts)
        return test(() if found is None else found if isinstance(found, tuple) else (found,))

    return holds


# Conditions with a fixed set of allowed values


def _kind(wanted: Any, answers: bool) -> Condition:
    kinds = _few(wanted, ("request", "notification", "response", "error"))
    if answers:
        return _ByFacts(lambda facts: ("response" if facts.error is None else "error") in kinds)
    return _ByKey(lambda key: ("request" if key.asked else "notification") in kinds)


_DIRECTIONS: Final = {
    "to_server": Direction.CLIENT_TO_SERVER,
    "to_client": Direction.SERVER_TO_CLIENT,
    "client_to_server": Direction.CLIENT_TO_SERVER,
    "server_to_client": Direction.SERVER_TO_CLIENT,
}


def _era(facts: Facts) -> str:
    return "stateless" if facts.exchange.caller.stateless else "handshake"


# For each hook source, the function that returns the values to compare.
SOURCES: Final[dict[str, Callable[[Facts], str | tuple[str, ...] | None]]] = {
    **_NAMES,
    "server": lambda facts: facts.servers,
    "era": _era,
}


def _hooked(source: str, hints: Hints, path: tuple[str, ...] = ()) -> Hooks:
    return None if hints is None else tuple(IndexHook(source, path, hint) for hint in hints)


def _few(wanted: Any, options: tuple[str, ...]) -> frozenset[str]:
    chosen = wanted if isinstance(wanted, list) else [wanted]
    for one in chosen:
        if one not in options:
            words = " or ".join(f'"{option}"' for option in options)
            raise InvalidTest(f"must be {words}")
    if not chosen:
        raise InvalidTest("the list must not be empty")
    return frozenset(chosen)


# Conditions on message members, by path

# The `Facts` attribute that each condition key searches.
_TREES: Final = {"params": "params", "result": "result", "error": "failure", "headers": "headers"}
_KEYS: Final = (
    *("all", "any", "not", "kind", "direction", "era", "method", "server", "size", "claim"),
    *(*_TREES, *_TARGETS, *_NAMES),
)


def _paths(
    raw: Any, where: SourceLocation, report: Report, *, exact: bool, before: tuple[str, ...] = ()
) -> list[tuple[tuple[str, ...], Test, Hints]]:
    """Return the tests in a map of paths. Nested maps extend the path until a map of operators is
    reached.

    `exact` is False only for headers: their names are case-insensitive and may contain dots, and a
    string value is a pattern.
    """
    if not isinstance(raw, dict) or not raw:
        report(where, 'expected a map of paths to values, such as { "arguments.path" = "/etc" }')
        return []
    found: list[tuple[tuple[str, ...], Test, Hints]] = []
    for key, wanted in raw.items():
        here = (*where, str(key))
        path = (*before, *(str(key).split(".") if exact else [str(key).lower()]))
        if exact and isinstance(wanted, dict) and wanted and not is_test(wanted):
            if wanted.keys() & OPERATORS.keys() or _looks_wrong(wanted):
                wrong = next(name for name in wanted if name not in OPERATORS)
                _report_invalid(key, InvalidTest("", str(wrong)), here, report)
            else:
                found += _paths(wanted, here, report, exact=exact, before=path)
            continue
        test, hints = (value_test, hints_of_value) if exact else (name_test, hints_of_name)
        try:
            found.append((path, test(wanted), hints(wanted)))
        except InvalidTest as invalid:
            _report_invalid(key, invalid, here, report)
    return found


def _looks_wrong(wanted: dict[str, Any]) -> bool:
    """Return True if a map looks like a misspelled operator: one key with a scalar value."""
    # Imported here, because it is needed only to report a mistake.
    from difflib import get_close_matches

    if len(wanted) != 1:
        return False
    name, value = next(iter(wanted.items()))
    return not isinstance(value, dict) and bool(get_close_matches(str(name), OPERATORS, 1, 0.8))


def _at(tree: str, path: tuple[str, ...], test: Test) -> Callable[[Facts], bool]:
    return lambda facts: test(facts.at(tree, path))
