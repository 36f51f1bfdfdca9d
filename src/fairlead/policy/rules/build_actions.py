"""What a rule does: interceptors by their names, made with the options that the file gives."""

import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
from msgspec import Struct, field

from ...config.files.source_locations import SourceLocation
from ...errors import ConfigError
from ...interceptor import Interceptor, InterceptorBase, hooks_of
from ...recording.tape.format import LINES, base_of
from ...redaction.redact_messages import Redactor
from ..actions.action_registry import ACTIONS, Factory
from ..conditions.conditions import Report
from ..conditions.rules_error import unknown_name
from ..interceptor_failures import LIMIT, FailurePolicy, with_failure_policy

__all__ = [
    "WRITING",
    "Action",
    "ActionBuilder",
    "ActionContext",
    "canonical_json",
    "find_unwritable",
    "parse_actions",
]

# Parameters of factories that are not for files to set.
_OURS: Final = ("answers", "clock", "folder", "known", "write")
_SHOWN: Final = 60  # characters of an option, for people


class Action(Struct, frozen=True):
    """One thing to do."""

    name: str
    options: Mapping[str, Any]
    interceptor: Interceptor  # with a guard around it, if there is one
    bare: Interceptor
    hooks: InterceptorBase  # of the bare one

    def __str__(self) -> str:
        said = []
        for name, value in self.options.items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            said.append(f"{name}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}")
        return f"{self.name} ({', '.join(said)})" if said else self.name


WRITING: Final = frozenset({"audit", "record"})  # they open files
TOO_LATE: Final = frozenset({"cache", "inject", "rename", "timeout"})  # when the answer is there


class _Unmade(InterceptorBase):
    """The place of an action that is only looked at."""


class ActionContext(Struct, frozen=True):
    """What actions are made with that no file says."""

    folder: str = ""
    clock: Callable[[], float] | None = None
    actions: Mapping[str, Factory] = field(default_factory=lambda: ACTIONS)
    unmade: frozenset[str] = frozenset()  # those that are only looked at, because they write
    looks: bool = True  # also at the places where they would
    known: Redactor | None = None  # knows values that nobody else should
    # Those that write already, by name and options: a file is not opened anew under their hands.
    writing: Mapping[tuple[str, bytes], Action] = field(default_factory=dict)


class ActionBuilder:
    """Makes the actions of one rule."""

    def __init__(
        self,
        making: ActionContext,
        report: Report,
        *,
        policy: FailurePolicy | None = None,
        timeout: float | None = None,
        answers: bool = False,
    ) -> None:
        """`answers`: the rule is about answers."""
        self._making = making
        self._report = report
        self._policy: FailurePolicy | None = policy
        self._timeout = timeout
        self._answers = answers

    def make(self, name: str, given: Any, where: SourceLocation) -> Action | None:
        """None if that is not possible, which is reported."""
        factory = self._making.actions.get(name)
        if factory is None:
            self._report(where, unknown_name("action", name, self._making.actions))
            return None
        if self._answers and name in TOO_LATE:
            self._report(where, f"`{name}` comes too late: the rule is about answers")
            return None
        options = self._options(name, factory, given, where)
        if options is None:
            return None
        writes = self._making.writing.get((name, canonical_json(options)))
        if name in self._making.unmade:
            if self._making.looks and writes is None:
                self._look(name, options, where, short=not isinstance(given, dict))
            unmade = _Unmade()
            return Action(name, options, unmade, unmade, unmade)
        if writes is not None:
            return writes
        try:
            bare = factory(**options, **self._ours(factory))
        except ConfigError as exc:
            which = "" if exc.path is None else f"{exc.path} "
            self._report(where, f"`{name}`: {which}{exc.args[0]}")
            return None
        except (ValueError, TypeError, OSError) as exc:
            self._report(where, f"`{name}`: {exc}")
            return None
        return Action(name, options, self._guarded(name, bare), bare, hooks_of(bare))

    def _look(
        self, name: str, options: Mapping[str, Any], where: SourceLocation, *, short: bool
    ) -> None:
        found = find_unwritable(name, options, self._making.folder)
        if found is not None:
            option, reason = found
            self._report(where if short else (*where, option), f"`{name}`: {reason}")

    def _guarded(self, name: str, bare: Interceptor) -> Interceptor:
        """Ours do not fail; where somebody wants to be sure, or wrote it, there is a guard."""
        if self._policy is None and self._timeout is None and name != "use":
            return bare
        # Ours may wait on purpose, so they have as long as they want if nobody says otherwise.
        usual = LIMIT if name == "use" else 0.0
        timeout = usual if self._timeout is None else self._timeout
        return with_failure_policy(bare, self._policy or "fail_closed", timeout=timeout)

    def _ours(self, factory: Factory) -> dict[str, Any]:
        names = inspect.signature(factory).parameters
        ours: dict[str, Any] = {}
        if "answers" in names:
            ours["answers"] = self._answers
        if "folder" in names:
            ours["folder"] = self._making.folder
        if "clock" in names and self._making.clock is not None:
            ours["clock"] = self._making.clock
        if "known" in names and self._making.known is not None:
            ours["known"] = self._making.known
        return ours

    def _options(
        self, name: str, factory: Factory, given: Any, where: SourceLocation
    ) -> dict[str, Any] | None:
        kinds = _parameters(factory)
        if given is None or given is True:
            given = {}
        short = not isinstance(given, dict)
        if short:
            if not kinds:
                self._report(where, f"`{name}` takes no options")
                return None
            given = {next(iter(kinds)): given}
        options: dict[str, Any] = {}
        good = True
        for key, value in given.items():
            here = (*where, str(key))
            if key not in kinds:
                what = f"option of `{name}`"
                self._report(
                    here, unknown_name(what, key, kinds) if kinds else f"`{name}` takes no options"
                )
                good = False
                continue
            try:
                if isinstance(value, float) and not isfinite(value):
                    raise msgspec.ValidationError  # TOML and YAML have words for such
                options[key] = msgspec.convert(value, kinds[key], strict=True)
            except msgspec.ValidationError:
                given_kind = "" if get_origin(kinds[key]) is Literal else f", not {_shown(value)}"
                reason = f"`{key}` of `{name}` is {_words(kinds[key])}{given_kind}"
                self._report(where if short else here, reason)
                good = False
        missing = [key for key in _required(factory) if key not in given]
        if missing and good:
            words = " and ".join(f"`{key}`" for key in missing)
            self._report(where, f"`{name}` needs {words}")
            good = False
        return options if good else None


def canonical_json(value: Any) -> bytes:
    """The same bytes for the same value."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError):
        return repr(value).encode()


def parse_actions(
    raw: Any, where: SourceLocation, report: Report
) -> list[tuple[str, Any, SourceLocation]]:
    """The actions that `do` names: one, a map of them, or a list."""
    if isinstance(raw, str):
        return [(raw, None, where)]
    if isinstance(raw, dict) and raw:
        return [(str(name), given, (*where, str(name))) for name, given in raw.items()]
    if isinstance(raw, list) and raw:
        return [
            one
            for number, item in enumerate(raw)
            for one in parse_actions(item, (*where, number), report)
        ]
    report(where, 'an action is expected, like "block" or { delay = 2 }')
    return []


def _parameters(factory: Factory) -> dict[str, Any]:
    """What may be set, and what kind of value is expected."""
    function: Any = factory.func if isinstance(factory, partial) else factory
    if inspect.isclass(function):
        function = function.__init__
    hints = typing.get_type_hints(function)
    names = inspect.signature(factory).parameters
    return {name: hints.get(name, Any) for name in names if name not in _OURS}


def _required(factory: Factory) -> list[str]:
    return [
        name
        for name, one in inspect.signature(factory).parameters.items()
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _words(kind: Any) -> str:
    """What a kind of value is called by people."""
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(f'"{one}"' for one in get_args(kind))
    if origin is UnionType or origin is typing.Union:
        words = [_words(one) for one in get_args(kind) if one is not type(None)]
        return " or ".join(dict.fromkeys(words))
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
    if origin in (list, tuple, Sequence):
        inner = get_args(kind)[0]
        return "a list of texts" if inner is str else f"a list of {_words(inner)}"
    return names.get(kind) or ("a map" if (origin or kind) is dict else "something else")


def _shown(value: Any) -> str:
    """The kind of a value; the value itself could be a secret."""
    names = {dict: "a map", list: "a list", str: "a text", bool: "true or false"}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return names.get(type(value), "a number")


# Files that actions write

_FILES: Final = {"audit": "path", "record": "tape"}  # the option that names the file


def find_unwritable(action: str, options: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """The option that is wrong, and why; None if all is well as far as one can see."""
    option = _FILES.get(action)
    named = None if option is None else options.get(option)
    if option is None or not isinstance(named, str):
        return None
    path = os.path.join(folder or os.curdir, named)
    try:
        if action == "record":  # it makes the folders that it needs
            path = f"{base_of(path)}{LINES}"
            reason = _of_file(path) or _of_folder(_nearest(os.path.dirname(path)))
        elif os.path.exists(path):  # often all that somebody may write in a folder of logs
            reason = _of_file(path)
        else:
            reason = _of_folder(os.path.dirname(path))
    except ValueError as exc:  # no path at all
        reason = str(exc)
    return None if reason is None else (option, reason)


def _of_file(path: str) -> str | None:
    """What hinders to write what is there already."""
    if os.path.isdir(path):
        return f"{path} is a folder, where a file is expected"
    if os.path.exists(path) and not os.access(path, os.W_OK):
        return f"{path} may not be written"
    return None


def _of_folder(path: str) -> str | None:
    """What hinders to put a file there."""
    if not os.path.exists(path):
        return f"there is no folder {path}"
    if not os.path.isdir(path):
        return f"{path} is no folder"
    if not os.access(path, os.W_OK | os.X_OK):
        return f"nothing may be written to the folder {path}"
    return None


def _nearest(path: str) -> str:
    """The folder, or the one above it that is there."""
    while not os.path.lexists(path) and (above := os.path.dirname(path)) != path:
        path = above
    return path
