"""What an HTTP endpoint is like. Durations are in seconds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ....limits import BODY_TIMEOUT, SESSIONS_PER_CLIENT, SOCKETS_PER_CLIENT

if TYPE_CHECKING:
    from .sessions.event_store import EventStore
    from .sessions.session_store import SessionStore

__all__ = ["HttpSettings"]


@dataclass(kw_only=True)
class HttpSettings:
    """Settings of the MCP endpoint of a server or gateway."""

    path: str = "/mcp"
    sse_path: str | None = "/sse"  # HTTP+SSE of 2024-11-05; None: not served
    ws_path: str | None = "/ws"
    auth_token: str | None = None  # what `Authorization: Bearer` has to say
    verify_token: Callable[[str], str | None] | None = None  # or: whose token it is, None: nobody's
    allowed_hosts: tuple[str, ...] = ()  # names in `Host` besides those of this machine
    allowed_origins: tuple[str, ...] = ()  # pages that may use the endpoint; also for CORS
    max_body: int = 16 * 1024 * 1024
    body_timeout: float = (
        BODY_TIMEOUT.value
    )  # for a body, besides the time its size allows; 0: none
    heartbeat: float = 15.0
    answers: Literal["auto", "sse"] = "auto"  # auto: JSON, unless something comes before the answer
    error_status: Literal["spec", "mapped"] = "spec"
    sse_dialect: Literal["standard", "fragments"] = "standard"
    sessions: bool = True  # False: handshake clients are served without, e.g. by several processes
    require_session: bool = False
    session_idle: float = 1800.0  # without a request or a stream, until a session ends; 0: never
    session_kept: float = 86_400.0  # for which one in the store goes on with its next request
    max_sessions: int = 10_000
    max_sessions_per_client: int = SESSIONS_PER_CLIENT.value  # a principal, or an address
    max_sockets: int = 10_000  # WebSockets open at once
    max_sockets_per_client: int = SOCKETS_PER_CLIENT.value
    retry: float = 1.0  # how long a client waits before it takes up a stream again
    fast_path: bool = True  # answer stateless POSTs without the way through ASGI (`run_http` only)
    event_store: "EventStore | None" = None  # None: in memory
    session_store: "SessionStore | None" = None  # where sessions survive a restart; None: nowhere
