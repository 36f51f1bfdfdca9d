"""Settings for connections to a server. Durations are in seconds; 0 means never or no limit."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

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


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """Settings for opening, sharing, supervising and closing connections to a server."""

    share: Share = "alike"
    """Which clients share one connection to a server with sessions: "all" clients, clients "alike"
    in principal, capabilities and revision, or none (one connection for each "session")."""
    era: Literal["auto", "handshake", "stateless"] = "auto"
    """The protocol era used with the server; "auto" is the era of the client, if supported."""
    capabilities: tuple[str, ...] = ()
    """Capabilities to declare with `share = "all"`, such as "elicitation"; ignored otherwise."""
    log_level: LogLevel = "info"
    """Log level requested from stateless servers for sessions that set none; "off" for no logs."""
    strict: bool = False
    """Drop notifications that the specification allows only in the other direction."""
    max_connections: int = 32  # to one server, for clients that cannot share a connection
    turn_wait: float = 0.25  # before a waiting call opens another connection
    turn_timeout: float = 60.0  # before a call that waits for a connection fails
    idle_close: float = 300.0  # before an unused connection is closed
    idle_close_used: float = 1800.0  # the same for a connection that was used before
    connect_timeout: float = 30.0
    input_timeout: float = 600.0  # for the response of a person or a model to an input request
    health_interval: float = 60.0  # between pings of an idle connection
    hang_timeout: float = 60.0
    """Time without any response, even to a ping, after a call timed out. Then the process of the
    server is terminated, and started again on the next call; 0: never."""
    list_retry: float = 5.0  # before a failed list is requested again; doubles on each failure


class Rules(Struct, frozen=True, kw_only=True):
    """Supervision of servers by a manager. Durations are in seconds; 0 means never."""

    connect_timeout: float = 30.0
    health_interval: float = 60.0
    hang_timeout: float = 60.0  # of silence after a call timed out, before the process is replaced
    idle_stop: float = 300.0  # before an unused lazy server is stopped
    tools_retry: float = 5.0  # before a failed `tools/list` is repeated; doubles on each failure

    @property
    def settings(self) -> UpstreamSettings:
        """Return the same values as connection settings."""
        return UpstreamSettings(
            connect_timeout=self.connect_timeout,
            health_interval=self.health_interval,
            hang_timeout=self.hang_timeout,
            idle_close=self.idle_stop,
            list_retry=self.tools_retry,
        )


# Settings that an entry of one server may override, with their types.
SERVER_SETTINGS: Final[dict[str, Any]] = {
    one.name: one.type for one in structs.fields(UpstreamSettings)
}


def read_server_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection settings in an entry of Fairlead's own files.

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
