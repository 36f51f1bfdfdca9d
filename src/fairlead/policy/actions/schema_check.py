"""Action that validates arguments against the tools' input schemas."""

from typing import Any, ClassVar, Final, Literal

import msgspec
from msgspec import Raw, UnsetType

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...limits import CHECKED_SCHEMAS_BYTES
from ...protocol.envelope import Direction
from ...protocol.json_edit import items_of, members_of, string_of
from ...protocol.own_errors import own_error
from ...protocol.schema.validation import Checker, bounded
from ...protocol.targets.name_forms import normalize_name
from ...redaction.redact_messages import repeats_a_name
from ...wire.error_codes import INVALID_PARAMS
from ..edit_message import members_of_params

__all__ = ["SchemaCheck"]

# Maximum number of tool lists that are kept, one for each endpoint and principal.
MAX_VIEWS: Final = 1000
MAX_TOLD: Final = 10  # maximum number of problems reported in one error
CHANGED: Final = "notifications/tools/list_changed"

Tools = dict[str, Raw | Checker | None]


class SchemaCheck(InterceptorBase):
    """Action that validates arguments against the schemas in forwarded `tools/list` results.

    The error names each invalid argument and the constraint, but not its value, which may be
    secret.
    """

    also: ClassVar = frozenset({"tools/list", CHANGED})
    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, unknown: Literal["pass", "refuse"] = "pass") -> None:
        """Set `unknown`: whether calls of tools that no list contains are passed or refused."""
        self._refuses_unknown = unknown == "refuse"
        # The tools in each view and the size of their list in bytes; the latest list is last.
        self._views: dict[object, tuple[Tools, int]] = {}

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        method = exchange.method
        if method == "tools/call" and exchange.direction is Direction.CLIENT_TO_SERVER:
            self._check(exchange)
        elif method == CHANGED:
            self._views.clear()
        elif method == "tools/list":
            answer = await proceed(exchange)
            self._learn(exchange, answer)
            return answer
        return await proceed(exchange)

    def _check(self, exchange: Exchange) -> None:
        tools, _ = self._views.get(_view(exchange), ({}, 0))
        name = exchange.target or ""
        if name not in tools:
            name = _listed(tools, exchange, name)
        checker = self._checker(tools, name)
        if checker is None:
            if self._refuses_unknown and name not in tools:
                exchange.note("blocked: unknown tool")
                raise own_error(INVALID_PARAMS, f"Unknown tool: {exchange.target}")
            return
        problems = checker.problems(_arguments(exchange))
        if problems:
            exchange.note("blocked: invalid arguments")
            told = [
                msgspec.structs.replace(one, constraint=_told(one)) for one in problems[:MAX_TOLD]
            ]
            fields = [{"field": one.field, "constraint": one.constraint} for one in bounded(told)]
            names = ", ".join(dict.fromkeys(one["field"] for one in fields))
            raise own_error(INVALID_PARAMS, f"Invalid arguments: {names}", errors=fields)

    def _checker(self, tools: Tools, name: str) -> Checker | None:
        known = tools.get(name)
        if isinstance(known, Raw):
            known = tools[name] = _compiled(known)
        return known

    def _learn(self, exchange: Exchange, answer: Answer) -> None:
        items = items_of((members_of(answer) or {}).get("tools"))
        if answer is None or items is None:
            return
        view = _view(exchange)
        before = self._views.pop(view, None)
        # The first page replaces the list, so that removed tools disappear. Later pages extend it.
        is_later = "cursor" in (members_of_params(exchange.message.params) or {})
        tools, size = before if before is not None and is_later else ({}, 0)
        for item in items:
            tool = members_of(item) or {}
            name, schema = string_of(tool.get("name")), tool.get("inputSchema")
            if name is not None and schema is not None:
                # Copied, because a `Raw` keeps the buffer of the whole message alive.
                tools[name] = schema.copy()
        self._views[view] = tools, size + len(answer)
        total = sum(size for _, size in self._views.values())
        # The newest list is kept even if it alone exceeds the limit.
        while len(self._views) > 1 and (
            len(self._views) > MAX_VIEWS or total > CHECKED_SCHEMAS_BYTES.value
        ):
            CHECKED_SCHEMAS_BYTES.hit()
            total -= self._views.pop(next(iter(self._views)))[1]


def _view(exchange: Exchange) -> object:
    return exchange.server, exchange.caller.principal


def _listed(tools: Tools, exchange: Exchange, name: str) -> str:
    """Return the name under which the tool list contains a call's tool."""
    for target in exchange.targets:
        for other in target.names:
            if other in tools:
                return other
    spelled = normalize_name(name).casefold()
    alike = (one for one in tools if normalize_name(one).casefold() == spelled)
    return next(alike, name)


def _compiled(schema: Raw) -> Checker | None:
    """Compile a schema. Return None if it is invalid, because the caller cannot correct it."""
    try:
        decoded = msgspec.json.decode(schema)
        if not isinstance(decoded, dict):
            return None
        checker = Checker(decoded, foreign=True)
        checker.compile()
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
    return checker


def _arguments(exchange: Exchange) -> Any:
    given = exchange.head.arguments
    if isinstance(given, UnsetType):
        return {}
    try:
        read = msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Peers may disagree about which of two equal member names applies, so both are refused.
    if repeats_a_name(given, read):
        exchange.note("blocked: duplicate member name")
        raise own_error(INVALID_PARAMS, "Duplicate member name in the arguments")
    return read


def _told(problem: Any) -> str:
    """Return the validator's message without the value, which comes first in it."""
    constraint = str(problem.constraint)
    shown = msgspec.json.encode(problem.value).decode(errors="replace")
    for spelled in (shown, str(problem.value)):
        if problem.value is not None and constraint.startswith(spelled):
            return "it" + constraint[len(spelled) :]
    return constraint
