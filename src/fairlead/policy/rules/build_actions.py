"""Building a rule's actions: interceptors created by name with the options in the file."""

import inspect
import os
import typing
from collections.abc import Callable, Mapping, Sequence
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
from ...suggestions import unknown_name
from ..actions import ACTIONS, Factory
from ..conditions.conditions import Report
from ..interceptor_failures import LIMIT, FailurePolicy, with_failure_policy

__all__ = [
    "TYPE_NAMES",
    "WRITING",
    "Action",
    "ActionBuilder",
    "ActionContext",
    "canonical_json",
    "parse_actions",
]

# Parameters of factories that Fairlead sets itself; a rule file cannot set them.
_OURS: Final = ("answers", "clock", "folder", "known", "write")
_SHOWN: Final = 60  # maximum length of an option's value in messages and listings, in characters


class Action(Struct, frozen=True):
    """An action of a rule, and its interceptor."""

    name: str
    options: Mapping[str, Any]
    interceptor: Interceptor  # wrapped in its failure policy, if it has one
    bare: Interceptor
    hooks: InterceptorBase  # hooks of the interceptor without its failure policy

    def __str__(self) -> str:
        said = []
        for name, value in self.options.items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            said.append(f"{name}: {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}")
        return f"{self.name} ({', '.join(said)})" if said else self.name


WRITING: Final = frozenset({"audit", "record"})  # actions that open files
# Actions that need the request, so they cannot be used for a response.
TOO_LATE: Final = frozenset({"cache", "inject", "rename", "timeout"})


TYPE_NAMES: Final = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


class _Unmade(InterceptorBase):
    """Placeholder for an action that is checked but not created."""


class ActionContext(Struct, frozen=True):
    """Values for actions that are not taken from the rule file."""

    folder: str = ""
    clock: Callable[[], float] | None = None
    actions: Mapping[str, Factory] = field(default_factory=lambda: ACTIONS)
    # names of actions that are checked but not created, because they write files
    unmade: frozenset[str] = frozenset()
    looks: bool = True  # True to check that the actions' files can be written
    known: Redactor | None = None  # redactor with registered secrets
    # Existing actions with an open file, by name and options, which are reused.
    writing: Mapping[tuple[str, bytes], Action] = field(default_factory=dict)


class ActionBuilder(Struct, eq=False):
    """Creates the actions of one rule. `answers` is True if the rule applies to responses."""

    making: ActionContext
    report: Report
    policy: FailurePolicy | None = None
    timeout: float | None = None
    answers: bool = False

    def make(self, name: str, given: Any, where: SourceLocation) -> Action | None:
        """Create an action; return None after reporting why it cannot be created."""
        factory = self.making.actions.get(name)
        if factory is None:
            self.report(where, unknown_name("action", name, self.making.actions))
            return None
        if self.answers and name in TOO_LATE:
            self.report(where, f"`{name}` cannot be used in a rule about responses")
            return None
        options = self._options(name, factory, given, where)
        if options is None:
            return None
        writes = self.making.writing.get((name, canonical_json(options)))
        if name in self.making.unmade:
            looks = self.making.looks and writes is None
            found = find_unwritable(name, options, self.making.folder) if looks else None
            if found is not None:
                option, reason = found
                here = (*where, option) if isinstance(given, dict) else where
                self.report(here, f"`{name}`: {reason}")
            unmade = _Unmade()
            return Action(name, options, unmade, unmade, unmade)
        if writes is not None:
            return writes
        # Constructors raise these errors for invalid values and missing files; others are bugs.
        try:
            bare = factory(**options, **self._ours(factory))
        except ConfigError as exc:
            which = "" if exc.path is None else f"{exc.path} "
            self.report(where, f"`{name}`: {which}{exc.args[0]}")
            return None
        except (ValueError, TypeError, OSError) as exc:
            self.report(where, f"`{name}`: {exc}")
            return None
        return Action(name, options, self._guarded(name, bare), bare, hooks_of(bare))

    def _guarded(self, name: str, bare: Interceptor) -> Interceptor:
        """Wrap an action in a failure policy if the rule sets one or if the action is user code."""
        if self.policy is None and self.timeout is None and name != "use":
            return bare
        # Built-in actions such as `delay` wait intentionally, so they have no default timeout.
        usual = LIMIT if name == "use" else 0.0
        timeout = usual if self.timeout is None else self.timeout
        return with_failure_policy(bare, self.policy or "fail_closed", timeout=timeout)

    def _ours(self, factory: Factory) -> dict[str, Any]:
        making, names = self.making, inspect.signature(factory).parameters
        ours = {
            "answers": self.answers,
            "folder": making.folder,
            "clock": making.clock,
            "known": making.known,
        }
        return {name: ours[name] for name in ours if name in names and ours[name] is not None}

    def _options(
        self, name: str, factory: Factory, given: Any, where: SourceLocation
    ) -> dict[str, Any] | None:
        kinds = _parameters(factory)
        if given is None or given is True:
            given = {}
        short = not isinstance(given, dict)
        if short:
            if not kinds:
                self.report(where, f"`{name}` takes no options")
                return None
            given = {next(iter(kinds)): given}
        options: dict[str, Any] = {}
        good = True
        for key, value in given.items():
            here = (*where, str(key))
            if key not in kinds:
                what = f"option of `{name}`"
                self.report(
                    here,
                    unknown_name(what, str(key), kinds) if kinds else f"`{name}` takes no options",
                )
                good = False
                continue
            try:
                if isinstance(value, float) and not isfinite(value):
                    # TOML and YAML can express inf and nan, JSON cannot
                    raise msgspec.ValidationError
                options[key] = msgspec.convert(value, kinds[key], strict=True)
            except msgspec.ValidationError:
                # The error shows only the type, because the value could be a secret.
                given_kind = "" if get_origin(kinds[key]) is Literal else f", not {_shown(value)}"
                reason = f"`{key}` of `{name}` must be {_words(kinds[key])}{given_kind}"
                self.report(where if short else here, reason)
                good = False
        missing = [key for key in _required(factory) if key not in given]
        if missing and good:
            words = " and ".join(f"`{key}`" for key in missing)
            self.report(where, f"`{name}` requires {words}")
            good = False
        return options if good else None


def canonical_json(value: Any) -> bytes:
    """Encode a value; equal values give the same bytes."""
    try:
        return msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError):
        return repr(value).encode()


def parse_actions(
    raw: Any, where: SourceLocation, report: Report
) -> list[tuple[str, Any, SourceLocation]]:
    """Return the actions in `do`, which is a name, a map of actions, or a list."""
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
    report(where, 'expected an action, such as "block" or { delay = 2 }')
    return []


def _parameters(factory: Factory) -> dict[str, Any]:
    """Return the names and types of a factory's options."""
    hints = typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    names = inspect.signature(factory).parameters
    return {name: hints.get(name, Any) for name in names if name not in _OURS}


def _required(factory: Factory) -> list[str]:
    return [
        name
        for name, one in inspect.signature(factory).parameters.items()
        if one.default is one.empty and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]


def _words(kind: Any) -> str:
    """Describe a type for an error message."""
    origin = get_origin(kind)
    if origin is Literal:
        return " or ".join(f'"{one}"' for one in get_args(kind))
    if origin is UnionType or origin is typing.Union:
        words = [_words(one) for one in get_args(kind) if one is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin in (list, tuple, Sequence):
        inner = get_args(kind)[0]
        return "a list of strings" if inner is str else f"a list of {_words(inner)}"
    return TYPE_NAMES.get(kind) or ("a map" if (origin or kind) is dict else "something else")


def _shown(value: Any) -> str:
    """Describe the type of a value; the value itself could be a secret."""
    names = {dict: "a map", list: "a list", str: "a string", bool: "true or false"}
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    return names.get(type(value), "a number")


# Files that actions write

# For each action, the option that names the file.
_FILES: Final = {"audit": "path", "record": "tape"}


def find_unwritable(action: str, options: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """Return the option whose file cannot be written and the reason, or None."""
    option = _FILES.get(action)
    named = None if option is None else options.get(option)
    if option is None or not isinstance(named, str):
        return None
    path = os.path.join(folder or os.curdir, named)
    try:
        if action == "record":  # creates missing directories
            path = f"{base_of(path)}{LINES}"
        reason = _unwritable(path, creates_folders=action == "record")
    except ValueError as exc:  # for example a null character in the path
        reason = str(exc)
    return None if reason is None else (option, reason)


def _unwritable(path: str, *, creates_folders: bool) -> str | None:
    """Return the reason why a file cannot be written or created, or None."""
    if os.path.isdir(path):
        return f"{path} is a directory, not a file"
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            return f"{path} is not writable"
        if not creates_folders:  # The folder of a log file may be read-only for this user.
            return None
    folder = os.path.dirname(path)
    while creates_folders and not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    if not os.path.exists(folder):
        return f"directory {folder} does not exist"
    if not os.path.isdir(folder):
        return f"{folder} is not a directory"
    writable = os.access(folder, os.W_OK | os.X_OK)
    return None if writable else f"directory {folder} is not writable"
