"""Table of methods: their senders, revisions and required capabilities."""

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import Struct

from .revisions import HANDSHAKE, NEWEST_HANDSHAKE, STATELESS, Revision

__all__ = ["METHODS", "METHOD_NAMES", "QUESTIONS", "REQUESTS", "TASKS_EXTENSION", "by_era", "find"]

T = TypeVar("T")

MessageKind: TypeAlias = Literal["request", "notification"]
Side: TypeAlias = Literal["client", "server"]
Sender: TypeAlias = Literal["client", "server", "both"]

TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"


class Method(Struct, frozen=True, kw_only=True):
    """A method and the range of revisions in which its form does not change."""

    name: str
    kind: MessageKind
    sender: Sender
    since: Revision = Revision.V2024_11_05
    until: Revision | None = None  # last revision that has the method; None if it was not removed
    # capability that the receiver of a request, or the sender of a notification, must declare
    capability: str | None = None
    # params member by which the message is routed
    target: Literal["name", "uri", "taskId"] | None = None
    cacheable: bool = False  # the result has ttlMs and cacheScope (stateless revisions)
    asks: bool = False  # the result may be input_required (stateless revisions)
    extension: str | None = None  # extension that both sides must declare
    embedded_since: Revision | None = None  # first revision in which the method is an input request

    def within(self, revision: Revision) -> bool:
        """Return True if a revision has this method."""
        return self.since <= revision and (self.until is None or revision <= self.until)

    def sent_by(self, side: Side) -> bool:
        """Return True if this side may send the method."""
        return self.sender in (side, "both")


def find(name: str, revision: Revision) -> Method | None:
    """Return the method with this name in a revision; None if the revision does not have it."""
    return _BY_REVISION[revision].get(name)


def by_era(handlers: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T]]:
    """Split a mapping keyed by method into two: for handshake and for stateless revisions."""
    handshake, stateless = (
        {name: one for name, one in handlers.items() if any(find(name, each) for each in era)}
        for era in (HANDSHAKE, STATELESS)
    )
    return handshake, stateless


_2025_03_26: Final = Revision.V2025_03_26
_2025_06_18: Final = Revision.V2025_06_18
_2025_11_25: Final = Revision.V2025_11_25
_2026_07_28: Final = Revision.V2026_07_28

# By default, requests are sent by clients and notifications by servers.
_request = partial(Method, kind="request", sender="client")
_notification = partial(Method, kind="notification", sender="server")
_input_request = partial(
    Method,
    kind="request",
    sender="server",
    until=NEWEST_HANDSHAKE,
    embedded_since=_2026_07_28,
)
_task_request = partial(Method, kind="request", sender="both", since=_2025_11_25, until=_2025_11_25)

METHODS: Final[tuple[Method, ...]] = (
    # Lifecycle.
    _request(name="initialize", until=NEWEST_HANDSHAKE),
    _notification(name="notifications/initialized", sender="client", until=NEWEST_HANDSHAKE),
    _request(name="ping", sender="both", until=NEWEST_HANDSHAKE),
    _request(name="server/discover", since=_2026_07_28, cacheable=True),
    # Tools.
    _request(name="tools/list", capability="tools", cacheable=True),
    _request(name="tools/call", capability="tools", target="name", asks=True),
    _notification(name="notifications/tools/list_changed", capability="tools.listChanged"),
    # Resources.
    _request(name="resources/list", capability="resources", cacheable=True),
    _request(name="resources/templates/list", capability="resources", cacheable=True),
    _request(
        name="resources/read", capability="resources", target="uri", cacheable=True, asks=True
    ),
    _request(
        name="resources/subscribe",
        until=NEWEST_HANDSHAKE,
        capability="resources.subscribe",
        target="uri",
    ),
    _request(
        name="resources/unsubscribe",
        until=NEWEST_HANDSHAKE,
        capability="resources.subscribe",
        target="uri",
    ),
    _notification(name="notifications/resources/list_changed", capability="resources.listChanged"),
    _notification(
        name="notifications/resources/updated", capability="resources.subscribe", target="uri"
    ),
    # Prompts and completion.
    _request(name="prompts/list", capability="prompts", cacheable=True),
    _request(name="prompts/get", capability="prompts", target="name", asks=True),
    _notification(name="notifications/prompts/list_changed", capability="prompts.listChanged"),
    # 2024-11-05 has the method but no capability, so clients cannot tell if it is supported.
    _request(name="completion/complete", until=Revision.V2024_11_05),
    _request(name="completion/complete", since=_2025_03_26, capability="completions"),
    # Logging.
    _request(name="logging/setLevel", until=NEWEST_HANDSHAKE, capability="logging"),
    _notification(name="notifications/message", capability="logging"),
    # Input requests to clients. Stateless servers send no requests and embed these in results.
    _input_request(name="roots/list", capability="roots"),
    _input_request(name="sampling/createMessage", capability="sampling"),
    _input_request(name="elicitation/create", since=_2025_06_18, capability="elicitation"),
    _notification(
        name="notifications/roots/list_changed",
        sender="client",
        until=NEWEST_HANDSHAKE,
        capability="roots.listChanged",
    ),
    # The server sends this notification, but it depends on a client capability (`elicitation.url`),
    # so the row names no server capability.
    _notification(name="notifications/elicitation/complete", since=_2025_11_25, until=_2025_11_25),
    # Requests in progress. A stateless client receives no requests, so it sends no progress.
    _notification(name="notifications/cancelled", sender="both"),
    _notification(name="notifications/progress", sender="both", until=NEWEST_HANDSHAKE),
    _notification(name="notifications/progress", since=_2026_07_28),
    # Subscriptions. The row names no capability, because the filter determines which are needed.
    _request(name="subscriptions/listen", since=_2026_07_28),
    _notification(name="notifications/subscriptions/acknowledged", since=_2026_07_28),
    # Tasks of 2025-11-25: part of the core, in both directions.
    _task_request(name="tasks/get", capability="tasks", target="taskId"),
    _task_request(name="tasks/result", capability="tasks", target="taskId"),
    _task_request(name="tasks/list", capability="tasks.list"),
    _task_request(name="tasks/cancel", capability="tasks.cancel", target="taskId"),
    _notification(
        name="notifications/tasks/status",
        sender="both",
        since=_2025_11_25,
        until=_2025_11_25,
        capability="tasks",
        target="taskId",
    ),
    # Tasks of the extension: only servers have tasks.
    _request(name="tasks/get", since=_2026_07_28, extension=TASKS_EXTENSION, target="taskId"),
    _request(name="tasks/update", since=_2026_07_28, extension=TASKS_EXTENSION, target="taskId"),
    _request(name="tasks/cancel", since=_2026_07_28, extension=TASKS_EXTENSION, target="taskId"),
    _notification(
        name="notifications/tasks", since=_2026_07_28, extension=TASKS_EXTENSION, target="taskId"
    ),
)

METHOD_NAMES: Final = frozenset(row.name for row in METHODS)
# Indexed once, because every message looks up its method.
_BY_REVISION = {
    revision: {row.name: row for row in METHODS if row.within(revision)} for revision in Revision
}
# Methods of requests, whose messages must have an id.
REQUESTS: Final = frozenset(row.name for row in METHODS if row.kind == "request")
# Input requests, which a user or a model on the client side answers.
QUESTIONS: Final = frozenset(row.name for row in METHODS if row.embedded_since is not None)
