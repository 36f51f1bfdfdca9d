"""The one table of the protocol's methods: who sends what, in which revisions, and what it needs.

Rows name the types of their params and results as `module:Name` and import that module on first
use. Importing all of them would add 5 ms to every start for about a hundred structs, and 6 ms for
their decoders.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from .revisions import HANDSHAKE, NEWEST_HANDSHAKE, STATELESS, Revision

__all__ = [
    "METHODS",
    "TASKS_EXTENSION",
    "MessageKind",
    "Method",
    "Sender",
    "Side",
    "by_era",
    "embedded",
    "exists",
    "find",
    "has_capability",
    "has_extension",
    "is_question",
    "notifications",
    "requests",
]

T = TypeVar("T")

MessageKind: TypeAlias = Literal["request", "notification"]
Side: TypeAlias = Literal["client", "server"]
Sender: TypeAlias = Literal["client", "server", "both"]

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"


class Method(Struct, frozen=True, kw_only=True):
    """One method over a span of revisions in which it keeps its shape."""

    name: str
    kind: MessageKind
    sender: Sender
    params: str  # "module:Name" below `types`
    result: str | None = None  # likewise; a notification has none
    since: Revision = Revision.V2024_11_05
    until: Revision | None = None  # the last revision that has it; None: not removed yet
    capability: str | None = None  # of a request's receiver, of a notification's sender
    target: Literal["name", "uri", "taskId"] | None = None  # the member of params that routes it
    cacheable: bool = False  # its result has ttlMs and cacheScope, in the stateless revisions
    asks: bool = False  # may be answered with input_required, in the stateless revisions
    extension: str | None = None  # both sides must have declared this one
    embedded_since: Revision | None = None  # from here on it is a question inside a result

    @property
    def params_type(self) -> type[Any]:
        """The struct that reads its params."""
        return _resolve(self.params)

    @property
    def result_type(self) -> type[Any] | None:
        """The struct that reads its complete result; `Raw` where that may be anything."""
        return None if self.result is None else _resolve(self.result)

    def within(self, revision: Revision) -> bool:
        """Whether that revision has it as a message."""
        return self.since <= revision and (self.until is None or revision <= self.until)

    def sent_by(self, side: Side) -> bool:
        """Whether that side may send it."""
        return self.sender in (side, "both")


def find(name: str, revision: Revision) -> Method | None:
    """The method of that name in a revision, or `None` if it has no such message."""
    return _BY_REVISION[revision].get(name)


def embedded(name: str, revision: Revision) -> Method | None:
    """The method of that name, if the revision embeds it in results as a request for input."""
    return _EMBEDDED[revision].get(name)


def is_question(name: str) -> bool:
    """Whether a person or a model on the client's side has to answer it, in whatever era."""
    return name in _QUESTIONS


def exists(name: str) -> bool:
    """Whether any revision has a method of that name."""
    return name in _NAMES


def by_era(handlers: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Split what belongs to methods into those of handshake revisions, and of stateless ones."""
    handshake, stateless = (
        {name: one for name, one in handlers.items() if any(find(name, each) for each in era)}
        for era in (HANDSHAKE, STATELESS)
    )
    return handshake, stateless


def requests(revision: Revision, sender: Side) -> tuple[Method, ...]:
    """What a side may ask in a revision."""
    return _select("request", revision, sender)


def notifications(revision: Revision, sender: Side) -> tuple[Method, ...]:
    """What a side may tell in a revision."""
    return _select("notification", revision, sender)


def has_capability(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a capability, named by its dotted path (`resources.subscribe`), was declared.

    A member counts unless it is `false` or `null`; peers write `{}`, `true` and more. Elicitation
    that names no mode means form, the only one before 2025-11-25.
    """
    value: Any = capabilities
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
        if value is None or value is False:
            return path == "elicitation.form" and _names_no_mode(capabilities)
    return True


def has_extension(capabilities: Mapping[str, Any], extension: str) -> bool:
    """Whether an extension was declared. Its name has dots of its own, so it is no path."""
    extensions = capabilities.get("extensions")
    if not isinstance(extensions, Mapping):
        return False
    return extensions.get(extension) not in (None, False)


def _names_no_mode(capabilities: Mapping[str, Any]) -> bool:
    if not has_capability(capabilities, "elicitation"):
        return False
    elicitation = capabilities["elicitation"]
    if not isinstance(elicitation, Mapping):
        return True
    return elicitation.get("form") is None and elicitation.get("url") is None


def _select(kind: MessageKind, revision: Revision, sender: Side) -> tuple[Method, ...]:
    rows = _BY_REVISION[revision].values()
    return tuple(row for row in rows if row.kind == kind and row.sent_by(sender))


@cache
def _resolve(where: str) -> type[Any]:
    module, _, name = where.partition(":")
    type_: type[Any] = getattr(import_module(f".types.{module}", __package__), name)
    return type_


_2025_03_26: Final = Revision.V2025_03_26
_2025_06_18: Final = Revision.V2025_06_18
_2025_11_25: Final = Revision.V2025_11_25
_2026_07_28: Final = Revision.V2026_07_28

METHODS: Final[tuple[Method, ...]] = (
    # How peers meet.
    Method(
        name="initialize",
        kind="request",
        sender="client",
        until=NEWEST_HANDSHAKE,
        params="lifecycle:InitializeParams",
        result="lifecycle:InitializeResult",
    ),
    Method(
        name="notifications/initialized",
        kind="notification",
        sender="client",
        until=NEWEST_HANDSHAKE,
        params="notifications:NotificationParams",
    ),
    Method(
        name="ping",
        kind="request",
        sender="both",
        until=NEWEST_HANDSHAKE,
        params="base:RequestParams",
        result="base:EmptyResult",
    ),
    Method(
        name="server/discover",
        kind="request",
        sender="client",
        since=_2026_07_28,
        params="lifecycle:DiscoverParams",
        result="lifecycle:DiscoverResult",
        cacheable=True,
    ),
    # Tools.
    Method(
        name="tools/list",
        kind="request",
        sender="client",
        capability="tools",
        params="tools:ListToolsParams",
        result="tools:ListToolsResult",
        cacheable=True,
    ),
    Method(
        name="tools/call",
        kind="request",
        sender="client",
        capability="tools",
        target="name",
        params="tools:CallToolParams",
        result="tools:CallToolResult",
        asks=True,
    ),
    Method(
        name="notifications/tools/list_changed",
        kind="notification",
        sender="server",
        capability="tools.listChanged",
        params="notifications:NotificationParams",
    ),
    # Resources.
    Method(
        name="resources/list",
        kind="request",
        sender="client",
        capability="resources",
        params="resources:ListResourcesParams",
        result="resources:ListResourcesResult",
        cacheable=True,
    ),
    Method(
        name="resources/templates/list",
        kind="request",
        sender="client",
        capability="resources",
        params="resources:ListResourceTemplatesParams",
        result="resources:ListResourceTemplatesResult",
        cacheable=True,
    ),
    Method(
        name="resources/read",
        kind="request",
        sender="client",
        capability="resources",
        target="uri",
        params="resources:ReadResourceParams",
        result="resources:ReadResourceResult",
        cacheable=True,
        asks=True,
    ),
    Method(
        name="resources/subscribe",
        kind="request",
        sender="client",
        until=NEWEST_HANDSHAKE,
        capability="resources.subscribe",
        target="uri",
        params="resources:SubscribeParams",
        result="base:EmptyResult",
    ),
    Method(
        name="resources/unsubscribe",
        kind="request",
        sender="client",
        until=NEWEST_HANDSHAKE,
        capability="resources.subscribe",
        target="uri",
        params="resources:UnsubscribeParams",
        result="base:EmptyResult",
    ),
    Method(
        name="notifications/resources/list_changed",
        kind="notification",
        sender="server",
        capability="resources.listChanged",
        params="notifications:NotificationParams",
    ),
    Method(
        name="notifications/resources/updated",
        kind="notification",
        sender="server",
        capability="resources.subscribe",
        target="uri",
        params="notifications:ResourceUpdatedParams",
    ),
    # Prompts and completion.
    Method(
        name="prompts/list",
        kind="request",
        sender="client",
        capability="prompts",
        params="prompts:ListPromptsParams",
        result="prompts:ListPromptsResult",
        cacheable=True,
    ),
    Method(
        name="prompts/get",
        kind="request",
        sender="client",
        capability="prompts",
        target="name",
        params="prompts:GetPromptParams",
        result="prompts:GetPromptResult",
        asks=True,
    ),
    Method(
        name="notifications/prompts/list_changed",
        kind="notification",
        sender="server",
        capability="prompts.listChanged",
        params="notifications:NotificationParams",
    ),
    # 2024-11-05 has the method but no flag for it: there, the only way to find out is to ask.
    Method(
        name="completion/complete",
        kind="request",
        sender="client",
        until=Revision.V2024_11_05,
        params="completion:CompleteParams",
        result="completion:CompleteResult",
    ),
    Method(
        name="completion/complete",
        kind="request",
        sender="client",
        since=_2025_03_26,
        capability="completions",
        params="completion:CompleteParams",
        result="completion:CompleteResult",
    ),
    # Logging.
    Method(
        name="logging/setLevel",
        kind="request",
        sender="client",
        until=NEWEST_HANDSHAKE,
        capability="logging",
        params="logging:SetLevelParams",
        result="base:EmptyResult",
    ),
    Method(
        name="notifications/message",
        kind="notification",
        sender="server",
        capability="logging",
        params="logging:LoggingMessageParams",
    ),
    # What a server asks of its client. Stateless servers send no requests: they embed these.
    Method(
        name="roots/list",
        kind="request",
        sender="server",
        until=NEWEST_HANDSHAKE,
        embedded_since=_2026_07_28,
        capability="roots",
        params="roots:ListRootsParams",
        result="roots:ListRootsResult",
    ),
    Method(
        name="sampling/createMessage",
        kind="request",
        sender="server",
        until=NEWEST_HANDSHAKE,
        embedded_since=_2026_07_28,
        capability="sampling",
        params="sampling:CreateMessageParams",
        result="sampling:CreateMessageResult",
    ),
    Method(
        name="elicitation/create",
        kind="request",
        sender="server",
        since=_2025_06_18,
        until=NEWEST_HANDSHAKE,
        embedded_since=_2026_07_28,
        capability="elicitation",
        params="elicitation:ElicitParams",
        result="elicitation:ElicitResult",
    ),
    Method(
        name="notifications/roots/list_changed",
        kind="notification",
        sender="client",
        until=NEWEST_HANDSHAKE,
        capability="roots.listChanged",
        params="notifications:NotificationParams",
    ),
    # The server tells it, but the capability behind it (elicitation.url) is the client's: so none.
    Method(
        name="notifications/elicitation/complete",
        kind="notification",
        sender="server",
        since=_2025_11_25,
        until=_2025_11_25,
        params="notifications:ElicitationCompleteParams",
    ),
    # Requests under way. Stateless clients get progress and send none: nobody asks them anything.
    Method(
        name="notifications/cancelled",
        kind="notification",
        sender="both",
        params="notifications:CancelledParams",
    ),
    Method(
        name="notifications/progress",
        kind="notification",
        sender="both",
        until=NEWEST_HANDSHAKE,
        params="notifications:ProgressParams",
    ),
    Method(
        name="notifications/progress",
        kind="notification",
        sender="server",
        since=_2026_07_28,
        params="notifications:ProgressParams",
    ),
    # Subscriptions. The filter decides which capabilities matter, so there is no single one.
    Method(
        name="subscriptions/listen",
        kind="request",
        sender="client",
        since=_2026_07_28,
        params="subscriptions:ListenParams",
        result="subscriptions:ListenResult",
    ),
    Method(
        name="notifications/subscriptions/acknowledged",
        kind="notification",
        sender="server",
        since=_2026_07_28,
        params="subscriptions:AcknowledgedParams",
    ),
    # Tasks of 2025-11-25: part of the core, both ways.
    Method(
        name="tasks/get",
        kind="request",
        sender="both",
        since=_2025_11_25,
        until=_2025_11_25,
        capability="tasks",
        target="taskId",
        params="tasks:TaskParams",
        result="tasks:CoreTaskResult",
    ),
    Method(
        name="tasks/result",
        kind="request",
        sender="both",
        since=_2025_11_25,
        until=_2025_11_25,
        capability="tasks",
        target="taskId",
        params="tasks:TaskParams",
        result="tasks:CoreTaskPayload",
    ),
    Method(
        name="tasks/list",
        kind="request",
        sender="both",
        since=_2025_11_25,
        until=_2025_11_25,
        capability="tasks.list",
        params="tasks:ListCoreTasksParams",
        result="tasks:ListCoreTasksResult",
    ),
    Method(
        name="tasks/cancel",
        kind="request",
        sender="both",
        since=_2025_11_25,
        until=_2025_11_25,
        capability="tasks.cancel",
        target="taskId",
        params="tasks:TaskParams",
        result="tasks:CoreTaskResult",
    ),
    Method(
        name="notifications/tasks/status",
        kind="notification",
        sender="both",
        since=_2025_11_25,
        until=_2025_11_25,
        capability="tasks",
        target="taskId",
        params="tasks:CoreTaskStatusParams",
    ),
    # Tasks of the extension: the server's only.
    Method(
        name="tasks/get",
        kind="request",
        sender="client",
        since=_2026_07_28,
        extension=TASKS_EXTENSION,
        target="taskId",
        params="tasks:TaskParams",
        result="tasks:TaskResult",
    ),
    Method(
        name="tasks/update",
        kind="request",
        sender="client",
        since=_2026_07_28,
        extension=TASKS_EXTENSION,
        target="taskId",
        params="tasks:UpdateTaskParams",
        result="tasks:UpdateTaskResult",
    ),
    Method(
        name="tasks/cancel",
        kind="request",
        sender="client",
        since=_2026_07_28,
        extension=TASKS_EXTENSION,
        target="taskId",
        params="tasks:TaskParams",
        result="tasks:CancelTaskResult",
    ),
    Method(
        name="notifications/tasks",
        kind="notification",
        sender="server",
        since=_2026_07_28,
        extension=TASKS_EXTENSION,
        target="taskId",
        params="tasks:TaskStatusParams",
    ),
)

_NAMES = frozenset(row.name for row in METHODS)
_BY_REVISION = {
    revision: {row.name: row for row in METHODS if row.within(revision)} for revision in Revision
}
_EMBEDDED = {
    revision: {
        row.name: row
        for row in METHODS
        if row.embedded_since is not None and row.embedded_since <= revision
    }
    for revision in Revision
}
_QUESTIONS: Final = frozenset(row.name for row in METHODS if row.embedded_since is not None)
