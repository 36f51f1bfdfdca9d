"""Arguments held against what the server itself said that its tools take."""

from collections import OrderedDict
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

__all__ = ["SchemaCheck"]

MAX_VIEWS: Final = 1000  # of the tools: at one endpoint, by one principal
MAX_TOLD: Final = 10  # mistakes in one answer
CHANGED: Final = "notifications/tools/list_changed"

Tools = dict[str, Raw | Checker | None]


class SchemaCheck(InterceptorBase):
    """Refuses calls whose arguments do not fit the schema in the `tools/list` that passed.

    What is refused says which argument is wrong and why, but not its value.
    """

    also: ClassVar = frozenset({"tools/list", CHANGED})
    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, unknown: Literal["pass", "refuse"] = "pass") -> None:
        """`unknown`: tools that no list has shown."""
        self._refuses_unknown = unknown == "refuse"
        self._views: OrderedDict[object, Tools] = OrderedDict()
        self._sizes: dict[object, int] = {}  # of the lists that each was learnt from

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        method = exchange.method
        if method == "tools/call" and exchange.direction is Direction.CLIENT_TO_SERVER:
            self._check(exchange)
        elif method == CHANGED:
            self._views.clear()
            self._sizes.clear()
        elif method == "tools/list":
            answer = await proceed(exchange)
            self._learn(exchange, answer)
            return answer
        return await proceed(exchange)

    def _check(self, exchange: Exchange) -> None:
        tools = self._views.get(_view(exchange), {})
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
            exchange.note("blocked: arguments do not fit")
            told = [
                msgspec.structs.replace(one, constraint=_told(one)) for one in problems[:MAX_TOLD]
            ]
            fields = [{"field": one.field, "constraint": one.constraint} for one in bounded(told)]
            names = ", ".join(dict.fromkeys(one["field"] for one in fields))
            raise own_error(INVALID_PARAMS, f"Arguments do not fit: {names}", errors=fields)

    def _checker(self, tools: Tools, name: str) -> Checker | None:
        known = tools.get(name)
        if isinstance(known, Raw):
            known = tools[name] = _compiled(known)
        return known

    def _learn(self, exchange: Exchange, answer: Answer) -> None:
        members = None if answer is None else members_of(answer)
        items = None if members is None else items_of(members.get("tools"))
        if items is None:
            return
        view = _view(exchange)
        before = self._views.get(view)
        tools: Tools = before if before is not None and _is_later_page(exchange) else {}
        for item in items:
            tool = members_of(item) or {}
            name, schema = string_of(tool.get("name")), tool.get("inputSchema")
            if name is not None and schema is not None:
                tools[name] = schema.copy()
        self._sizes[view] = (self._sizes.get(view, 0) if tools is before else 0) + len(
            answer or b""
        )
        self._views[view] = tools
        self._views.move_to_end(view)
        while len(self._views) > 1 and (
            len(self._views) > MAX_VIEWS or sum(self._sizes.values()) > CHECKED_SCHEMAS_BYTES.value
        ):
            CHECKED_SCHEMAS_BYTES.hit()
            self._sizes.pop(self._views.popitem(last=False)[0], None)


def _view(exchange: Exchange) -> object:
    return exchange.server, exchange.caller.principal


def _listed(tools: Tools, exchange: Exchange, name: str) -> str:
    """The name under which a list had the tool that a call means, if it is another."""
    for target in exchange.targets:
        for other in target.names:
            if other in tools:
                return other
    spelled = normalize_name(name).casefold()
    alike = (one for one in tools if normalize_name(one).casefold() == spelled)
    return next(alike, name)


def _is_later_page(exchange: Exchange) -> bool:
    params = exchange.message.params
    members = None if isinstance(params, UnsetType) else members_of(params)
    return members is not None and "cursor" in members


def _compiled(schema: Raw) -> Checker | None:
    """None for what is no schema: a server's mistake is not the caller's."""
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
    if repeats_a_name(given, read):  # the server may go by the other one
        exchange.note("blocked: a name is there twice")
        raise own_error(INVALID_PARAMS, "A name is there twice in the arguments")
    return read


def _told(problem: Any) -> str:
    """Why, without the value, which the validator likes to repeat."""
    constraint = str(problem.constraint)
    shown = msgspec.json.encode(problem.value).decode(errors="replace")
    for spelled in (shown, str(problem.value)):
        if problem.value is not None and constraint.startswith(spelled):
            return "it" + constraint[len(spelled) :]
    return constraint
