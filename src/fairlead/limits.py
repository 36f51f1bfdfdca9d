"""Limits on the bytes, items and seconds that a peer can make this process spend.

Every limit is defined here, next to its reason, and listed in `docs/security.md`. Code that
enforces a limit reads `LIMIT.value` and calls `LIMIT.hit()` when the limit is applied, so that
operators see the count as `fairlead_limit_hits_total{limit="..."}`. If a setting overrides the
default, the definition names the setting.
"""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

__all__ = ["Limit", "all_limits"]

Unit = Literal["bytes", "characters", "items", "seconds", "requests per second", "bytes per second"]
LimitScope = Literal["request", "connection", "session", "client", "server", "process"]


class Limit(Struct, gc=False):
    """A limit: its default value, its scope, and the effect of reaching it."""

    value: int
    unit: Unit
    per: LimitScope
    outcome: str  # effect that the peer observes when the limit is reached
    setting: str = ""  # the option that overrides `value`, if any
    hits: int = 0
    name: str = ""  # the constant's name in lower case; also the metric's label

    def hit(self) -> None:
        """Count one application of this limit."""
        self.hits += 1


def all_limits() -> Iterator[Limit]:
    """Yield every limit in this module, in the order of definition."""
    # All names in this module are searched, so that every limit is in the metrics and the docs.
    return (value for value in globals().values() if isinstance(value, Limit))


# Messages

MESSAGE_BYTES = Limit(16 << 20, "bytes", "request", "-32600; the message is not read")
# An array of small invalid items costs about sixty times its size in exception objects, so a batch
# has its own limits: items, bytes and invalid items.
BATCH = Limit(128, "items", "request", "-32600 for the whole batch")
BATCH_BYTES = Limit(1 << 20, "bytes", "request", "-32600 for the whole batch")
BATCH_MISTAKES = Limit(
    8, "items", "request", "-32600 for the whole batch if more items are invalid"
)
BATCH_QUEUE = Limit(1 << 20, "bytes", "connection", "-32600 for further requests of the batch")
WRITE_QUEUE = Limit(16 << 20, "bytes", "connection", "reading from the peer stops until it reads")
QUOTED_TEXT = Limit(200, "characters", "request", "the middle of a quoted value is omitted")
ERROR_TEXT = Limit(8 << 10, "characters", "request", "the middle of an error message is omitted")
ERROR_DATA = Limit(
    64 << 10, "bytes", "request", "`data` of an error created by Fairlead is omitted"
)
PROBLEMS = Limit(20, "items", "request", "further problems with arguments are only counted")
PROBLEM_TEXT = Limit(400, "characters", "request", "the middle of a problem's text is omitted")

LOG_TEXT = Limit(16 << 10, "characters", "process", "a log line is truncated")
LOG_LINES = Limit(
    100,
    "items",
    "process",
    "further log lines of the same kind are counted; 20 per second are written",
)
LOG_SECRETS = Limit(64, "items", "request", "a log line about the request is withheld")
LOG_SEARCHED = Limit(1000, "items", "request", "a log line about the request is withheld")
# Each secret is searched for in up to forty forms.
LOG_SECRET_TEXT = Limit(4096, "characters", "request", "a log line about the request is withheld")
# Declarations of a client are kept with its connection and in caches of decoded values.
DECLARATION_BYTES = Limit(
    64 << 10, "bytes", "connection", "-32602: capabilities or clientInfo are too large"
)

# JSON Schemas from other programs. The cost of validation is at most the number of paths times the
# size of the value; without a limit on paths it is exponential in the depth of references or of the
# value.

SCHEMA_BYTES = Limit(512 << 10, "bytes", "server", "values are not checked against the schema")
SCHEMA_PATTERN_BYTES = Limit(
    64 << 10,
    "bytes",
    "server",
    "values are not checked against the pattern, which is too large when compiled",
)
SCHEMA_PATTERNS = Limit(256, "items", "server", "values are not checked against the schema")
SCHEMA_PATHS = Limit(4096, "items", "server", "values are not checked against the schema")
EXPLAINED_VALUES = Limit(
    250, "items", "request", "only the names of invalid arguments are reported"
)
EXPLAINED_PATHS = Limit(
    64, "items", "request", "a value is refused without the location of the mistake"
)


# One connection cannot occupy the process: requests above `IN_FLIGHT` are queued, and requests
# above the size of the queue are refused.
IN_FLIGHT = Limit(256, "items", "connection", "further requests wait in a queue", "max_in_flight")
QUEUED_REQUESTS = Limit(1024, "items", "connection", "-32603, try again later")
QUEUED_REQUEST_BYTES = Limit(16 << 20, "bytes", "connection", "-32603, try again later")
QUEUED_NOTIFICATIONS = Limit(10_000, "items", "connection", "the oldest notifications are dropped")
QUEUED_NOTIFICATION_BYTES = Limit(
    16 << 20, "bytes", "connection", "the oldest notifications are dropped"
)

# HTTP and WebSocket endpoints

MESSAGES_PER_TURN = Limit(
    16,
    "items",
    "connection",
    "further messages of a batch or a WebSocket wait until other clients have been served",
)

# A body may take this many seconds, plus one second for each `BODY_RATE` bytes that have arrived. A
# slow link can still send the largest body, but a client that sends single bytes cannot keep a
# connection open.
BODY_TIMEOUT = Limit(
    30, "seconds", "request", "408, and the connection is closed", "HttpSettings.body_timeout"
)
BODY_RATE = Limit(32 << 10, "bytes per second", "request", "408, and the connection is closed")

# A client is a principal; an anonymous client is identified by its IPv4 address or the /64 of its
# IPv6 address. The totals are shared fairly: when a total is reached, the client that holds the
# most items loses one.
SESSIONS_PER_CLIENT = Limit(
    1000,
    "items",
    "client",
    "the least recently used idle session of the client ends, or 503 if all are in use",
    "HttpSettings.max_sessions_per_client",
)
SOCKETS_PER_CLIENT = Limit(
    1000,
    "items",
    "client",
    "the WebSocket is closed with 1013",
    "HttpSettings.max_sockets_per_client",
)
CONNECTIONS_PER_CLIENT = Limit(
    16,
    "items",
    "client",
    "the client's least recently used idle connection closes; if none is idle, calls fail",
    "RelaySettings.max_connections",
)
STORED_SESSIONS = Limit(
    10_000,
    "items",
    "server",
    "the oldest session of the client with the most sessions is not kept across a restart",
    "max_sessions of the session store",
)
# Events stored for clients that resume a stream. The events of each session are limited as well.
EVENT_BYTES = Limit(
    256 << 20,
    "bytes",
    "server",
    "the oldest sessions of the clients with the most events cannot be resumed",
)


# Servers

STATE_BYTES = Limit(64 << 10, "bytes", "request", "-32602; the state is too large")
ABANDONED_CALLS = Limit(
    1000, "items", "process", "calls that ignore their cancellation are awaited"
)
COMPLETION_VALUES = Limit(100, "items", "request", "further values are omitted (`hasMore`)")

SESSION_SUBSCRIPTIONS = Limit(
    1000, "items", "session", "-32602; `subscriptions/listen` accepts the first 1,000"
)
CLIENT_SUBSCRIPTIONS = Limit(4000, "items", "client", "-32602 for further subscriptions")
SUBSCRIPTIONS = Limit(100_000, "items", "process", "-32602 for further subscriptions")
CONNECTION_LISTENERS = Limit(32, "items", "connection", "-32602 for further listen streams")
CLIENT_LISTENERS = Limit(256, "items", "client", "-32602 for further listen streams")
LISTENERS = Limit(10_000, "items", "process", "-32602 for further listen streams")
TEMPLATE_TEXT = Limit(
    2048,
    "characters",
    "server",
    "a URI template is refused; a template of an upstream server is matched only by its prefix",
)
TEMPLATE_VARIABLES = Limit(
    32,
    "items",
    "server",
    "a URI template is refused; a template of an upstream server is matched only by its prefix",
)
URI_TEXT = Limit(16 << 10, "characters", "request", "a URI matches no template")

# Clients and upstream servers

STREAM_URIS = Limit(
    100, "items", "connection", "a further `subscriptions/listen` is opened upstream"
)
RESULT_CACHE_ENTRIES = Limit(1000, "items", "server", "the oldest result is dropped")
RESULT_CACHE_BYTES = Limit(16 << 20, "bytes", "server", "the oldest result is dropped")
TOOL_CACHE_BYTES = Limit(8 << 20, "bytes", "server", "tools are not cached for the next start")
RELISTING = Limit(
    5,
    "seconds",
    "server",
    "list requests to a server that keeps reporting changes are delayed, up to this time",
)
STDERR_LINES = Limit(
    500, "items", "server", "further lines of the same second are neither logged nor forwarded"
)
LIST_PAGES = Limit(1000, "items", "server", "the list is refused; the previous list stays in use")
LIST_ITEMS = Limit(
    20_000,
    "items",
    "server",
    "the list is refused; the previous list stays in use",
    "max_list_items",
)
LIST_BYTES = Limit(
    8 << 20,
    "bytes",
    "server",
    "the list is refused; the previous list stays in use",
    "max_list_bytes",
)
LIST_SECONDS = Limit(
    120, "seconds", "server", "the list is refused; the previous list stays in use"
)
LIST_VARIANTS = Limit(
    32, "items", "server", "the least recently used variant of its lists is dropped"
)
ITEM_BYTES = Limit(512 << 10, "bytes", "server", "a gateway omits the item")
TEMPLATES = Limit(1000, "items", "server", "further resource templates are listed, but not matched")
SERVER_CATALOG_BYTES = Limit(
    16 << 20,
    "bytes",
    "server",
    "a list of the server is refused; the previous list stays in use",
    "max_server_bytes",
)
CATALOG_BYTES = Limit(
    64 << 20,
    "bytes",
    "process",
    "a list of a server is refused; the previous list stays in use",
    "max_catalog_bytes",
)
PAGE_BYTES = Limit(8 << 20, "bytes", "request", "a merged list continues on another page")
INSTRUCTIONS_TEXT = Limit(16 << 10, "characters", "server", "a server's instructions are truncated")
MERGED_INSTRUCTIONS_TEXT = Limit(
    128 << 10, "characters", "request", "further servers' instructions are omitted"
)


# Gateway and policies

PARKED_CALLS = Limit(64, "items", "client", "-32601 for the server's input request", "max_parked")
INTERRUPTED_CALLS = Limit(64, "items", "process", "the oldest interrupted call is cancelled")
KEPT_OUTCOMES = Limit(1024, "items", "process", "the oldest outcome of a round is dropped")
KEPT_OUTCOME_BYTES = Limit(16 << 20, "bytes", "process", "the oldest outcome of a round is dropped")
REMEMBERED_ROUNDS = Limit(10_000, "items", "process", "the oldest input request is dropped")
OWNED_TASKS = Limit(10_000, "items", "server", "the client of the oldest task can no longer use it")
HELD_MESSAGES = Limit(1000, "items", "process", "a further message is blocked")
LOCKED_TOOLS = Limit(10_000, "items", "process", "the oldest comparison is repeated")
CATALOG_VIEWS = Limit(256, "items", "process", "the oldest merged list is rebuilt")
JOURNAL_READERS = Limit(64, "items", "process", "a further reader is refused")
SEARCH_QUERY = Limit(2000, "characters", "request", "the query is truncated")
ADMIN_BODY_BYTES = Limit(16 << 20, "bytes", "request", "HTTP 400")
SEARCHED_TEXT = Limit(
    8 << 20, "characters", "process", "less of each tool's description is searched"
)
RATE_BUCKETS = Limit(10_000, "items", "process", "the least recently used bucket is dropped")
CHECKED_SCHEMAS_BYTES = Limit(64 << 20, "bytes", "process", "the oldest schemas are dropped")
DIFFERENCE_LINES = Limit(
    200, "items", "server", "further lines of a changed definition are omitted"
)
DIFFERENCE_TEXT = Limit(1000, "characters", "server", "a line of a changed definition is truncated")
DIFFERENCE_EFFORT = Limit(
    500_000, "items", "server", "all lines of a changed definition are shown as replaced"
)
# Decoding and resolving a name or URI takes time that grows with its length. Longer values are not
# compared; policies treat them as forbidden.
TARGET_LENGTH = Limit(
    4096,
    "characters",
    "request",
    "rules that deny tools, prompts or resources apply; rules that allow them do not",
)
# The number of URI forms grows with the escapes, `..` and doubled slashes it combines. The
# limit counts the characters of all forms, each as at least 256, so a long URI may have fewer.
TARGET_FORMS = Limit(
    24 << 10,
    "characters",
    "request",
    "rules that deny resources apply; rules that allow them do not",
)
# Each resource of a `subscriptions/listen` is compared with the patterns of every policy.
TARGETS = Limit(
    1000, "items", "request", "rules that deny resources apply; rules that allow them do not"
)


# Command line and configuration files

ENTRY_FILES = Limit(16, "items", "server", "the entry is rejected: it refers to too many files")

CONFIG_DEPTH = Limit(100, "items", "process", "the file is rejected: it is nested too deeply")
CONFIG_FILE_BYTES = Limit(4 << 20, "bytes", "process", "the file is refused")


def _name_limits() -> None:
    for constant, value in globals().items():
        if isinstance(value, Limit):
            value.name = constant.lower()


_name_limits()
