"""Settings of an HTTP endpoint. Durations are in seconds."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ....keyword_arguments import named_settings
from ....limits import BODY_TIMEOUT, SESSIONS_PER_CLIENT, SOCKETS_PER_CLIENT
from ....protocol.identity.token_principal import TokenPrincipal

if TYPE_CHECKING:
    from .sessions.event_store import EventStore
    from .sessions.session_store import SessionStore
    from .token_access import AccessFactory, RequestRefusal

__all__ = ["HttpSettings", "VerifyToken"]

Whose: TypeAlias = str | TokenPrincipal | None
VerifyToken: TypeAlias = Callable[[str], Whose | Awaitable[Whose]]


@named_settings
@dataclass(kw_only=True)
class HttpSettings:
    """Settings of the MCP endpoint of a server or gateway."""

    path: str = "/mcp"  # path of the endpoint
    sse_path: str | None = "/sse"  # HTTP+SSE of 2024-11-05; None: disabled
    ws_path: str | None = "/ws"  # path for WebSockets; None: disabled
    auth_token: str | None = None  # expected value of `Authorization: Bearer`
    # returns the token's principal or None, at once or when awaited
    verify_token: "VerifyToken | None" = None
    auth: "AccessFactory | None" = None  # OAuth access tokens: a `ServerAuth`
    allowed_hosts: tuple[str, ...] = ()  # values of `Host` besides those of this machine
    allowed_origins: tuple[str, ...] = ()  # origins of allowed web pages; also for CORS
    max_body: int = 16 * 1024 * 1024  # maximum size of a request body
    body_timeout: float = BODY_TIMEOUT.value  # limit for a body, grows with its size; 0: no limit
    heartbeat: float = 15.0  # interval of comments on an idle event stream; 0: none
    answers: Literal["auto", "sse"] = "auto"  # auto: JSON, unless a message precedes the response
    error_status: Literal["spec", "mapped"] = "spec"  # mapped: each error has a status 4xx or 5xx
    sse_dialect: Literal["standard", "fragments"] = "standard"  # fragments: send results in parts
    sessions: bool = True  # False: handshake clients get no session, e.g. with several processes
    require_session: bool = False  # refuse messages of the handshake era without a session
    session_idle: float = 1800.0  # idle time until a session ends; 0: no limit
    session_kept: float = 86_400.0  # idle time for which a stored session can be restored
    max_sessions: int = 10_000  # concurrent sessions of all clients
    max_sessions_per_client: int = SESSIONS_PER_CLIENT.value  # a client is a principal or address
    max_sockets: int = 10_000  # concurrent WebSockets
    max_sockets_per_client: int = SOCKETS_PER_CLIENT.value  # concurrent WebSockets of one client
    retry: float = 1.0  # delay before a client resumes a stream
    fast_path: bool = True  # answer POSTs without ASGI where possible (`run_http` only)
    # called with each request that is refused by its headers or its token
    on_refused: "Callable[[RequestRefusal], None] | None" = None
    event_store: "EventStore | None" = None  # None: events are kept in memory
    session_store: "SessionStore | None" = None  # keeps sessions across restarts; None: not kept
