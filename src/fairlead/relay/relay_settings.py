"""How a relay treats its clients and its servers. Durations are in seconds."""

from typing import Literal, TypeAlias

from msgspec import Struct

from ..limits import PARKED_CALLS

__all__ = ["RelaySettings"]

LogLevel: TypeAlias = Literal[
    "off", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


class RelaySettings(Struct, frozen=True, kw_only=True):
    """What may be set."""

    upstream: Literal["shared", "per-session"] = "shared"
    """Whether sessions may share one process of a server; over HTTP each has its own anyway."""
    era: Literal["auto", "handshake", "stateless"] = "auto"
    """What to speak to the server; "auto" is what the client speaks, if the server does too."""
    log_level: LogLevel = "info"
    """What a stateless server logs for sessions that have set no level; "off" for nothing."""
    strict: bool = False
    """Whether notifications that only the other side may send are dropped; else they pass."""
    max_channels: int = 4  # connections to one server for callers who may be asked back
    connect_timeout: float = 30.0
    call_timeout: float = 3600.0  # without a word from the server; 0: no limit
    hang_timeout: float = 60.0
    """Without any answer, not even to a ping, after a call was given up: then the process of a
    server is ended, and started anew when it is needed; 0: never."""
    turn_timeout: float = 60.0  # until a call that has to wait for others is refused
    input_timeout: float = 600.0  # for an answer of a person or a model
    park_timeout: float = 300.0  # for a client that was asked back to come again
    max_parked: int = PARKED_CALLS.value  # calls of one principal that wait for such an answer
    collect: float = 0.02  # questions that a server asks together are asked together
    max_connections: int = 32  # to one server, for callers who may not share one
    linger: float = 600.0  # that a shared connection is kept when nobody uses it; 0: for ever
