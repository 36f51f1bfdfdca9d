"""Settings for connections to a server. Durations are in seconds; 0 means never or no limit."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from ..errors import ConfigError

__all__ = ["OLD_SHARE", "SERVER_SETTINGS", "Rules", "UpstreamSettings", "read_server_settings"]

LogLevel: TypeAlias = Literal[
    "off", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


Share: TypeAlias = Literal["all", "alike", "session"]
# Outdated values of `share`, accepted with a warning.
OLD_SHARE: Final[dict[str, Share]] = {"shared": "alike", "per-session": "session"}

S = TypeVar("S", bound="UpstreamSettings")


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """Settings for opening, sharing, monitoring and closing connections to a server."""

    share: Share = "alike"
    """Which clients share one connection to a server with sessions: "all" clients, clients "alike"
    in principal, capabilities and revision, or none (one connection for each "session")."""
    era: Literal["auto", "handshake", "stateless"] = "auto"
    """The protocol era used with the server; "auto" is the client's era, if supported."""
    capabilities: tuple[str, ...] = ()
    """Capabilities to declare with `share = "all"`, such as "elicitation"; ignored otherwise."""
    log_level: LogLevel = "info"
    """Log level requested from stateless servers for sessions that set none; "off" for no logs."""
    strict: bool = False
    """Drop notifications sent in a direction that the specification does not allow."""
    # Maximum number of connections to one server, for clients that cannot share a connection.
    max_connections: int = 32
    turn_wait: float = 0.25  # seconds before a waiting call opens another connection
    turn_timeout: float = 60.0  # seconds before a call that waits for a connection fails
    idle_close: float = 300.0  # seconds before an idle connection is closed that has had no calls
    # Seconds before an idle connection is closed that has had calls.
    idle_close_used: float = 1800.0
    # Seconds before a session without a request or an open stream releases its connection.
    idle_release: float = 600.0
    connect_timeout: float = 30.0  # time limit for connecting to a server
    call_timeout: float = 3600.0  # longest time without a message from the server; 0: unlimited
    input_timeout: float = 600.0  # seconds for a user or a model to respond to an input request
    # longest time until a stateless client sends the requested input
    park_timeout: float = 300.0
    # requests of a server within this time are sent to a stateless client together
    collect: float = 0.02
    health_interval: float = 60.0  # seconds between pings on an idle connection
    hang_timeout: float = 60.0
    """Time without any response, even to a ping, after a call timed out. Then the process of the
    server is terminated, and started again on the next call; 0: never."""
    # Seconds before a failed list is requested again; doubles on each failure.
    list_retry: float = 5.0

    def over(self, others: S) -> S:
        """Return other settings with the values of these settings that are not defaults."""
        own, default = structs.asdict(self), type(self)()
        changed = {name: one for name, one in own.items() if one != getattr(default, name)}
        return structs.replace(others, **changed)


class Rules(Struct, frozen=True, kw_only=True):
    """A manager's settings for monitoring servers. Durations are in seconds; 0 means never."""

    connect_timeout: float = 30.0  # time limit for connecting to a server
    health_interval: float = 60.0  # interval of pings on an idle connection
    # Seconds without a message after a call timed out, before the process is replaced.
    hang_timeout: float = 60.0
    idle_stop: float = 300.0  # seconds before an unused lazy server is stopped
    # Seconds before a failed `tools/list` is repeated; doubles on each failure.
    tools_retry: float = 5.0

    @property
    def settings(self) -> UpstreamSettings:
        """Return the connection settings with the same values."""
        return UpstreamSettings(
            connect_timeout=self.connect_timeout,
            health_interval=self.health_interval,
            hang_timeout=self.hang_timeout,
            idle_close=self.idle_stop,
            list_retry=self.tools_retry,
        )


# Settings that a server's entry may override, with their types.
SERVER_SETTINGS: Final[dict[str, Any]] = {
    one.name: one.type for one in structs.fields(UpstreamSettings)
}


def read_server_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection settings in an entry from Fairlead's own files.

    Raises:
        ConfigError: A value has the wrong type or is negative.
    """
    found: dict[str, Any] = {}
    for key in SERVER_SETTINGS.keys() & raw.keys():
        try:
            found[key] = msgspec.convert(raw[key], SERVER_SETTINGS[key])
        except msgspec.ValidationError as exc:
            raise ConfigError(f"`{key}`: {exc}") from None
        if isinstance(found[key], int | float) and found[key] < 0:
            raise ConfigError(f"`{key}` must not be negative")
    return found
