"""Settings for the connections to a server. Durations are in seconds; 0 is never or no limit."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from ..errors import ConfigError

__all__ = [
    "OLD_SHARE",
    "SERVER_SETTINGS",
    "LogLevel",
    "Rules",
    "Share",
    "UpstreamSettings",
    "read_server_settings",
]

LogLevel: TypeAlias = Literal[
    "off", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


Share: TypeAlias = Literal["all", "alike", "session"]
# Old spellings, which are accepted with a warning.
OLD_SHARE: Final[dict[str, Share]] = {"shared": "alike", "per-session": "session"}


class UpstreamSettings(Struct, frozen=True, kw_only=True):
    """How connections to a server are opened, shared, supervised and closed."""

    share: Share = "alike"
    """Which clients may use one connection to a server that keeps a session: all of them, those of
    one principal with equal capabilities and revision, or one session each."""
    era: Literal["auto", "handshake", "stateless"] = "auto"
    """The era to speak to the server; "auto" is the client's, if the server speaks it."""
    capabilities: tuple[str, ...] = ()
    """Capabilities to declare with `share = "all"`, such as "elicitation"; otherwise unused."""
    log_level: LogLevel = "info"
    """What a stateless server logs for sessions that have set no level; "off" for nothing."""
    strict: bool = False
    """Whether notifications that only the other side may send are dropped; else they pass."""
    max_connections: int = 32  # to one server, for clients that may not share one
    turn_wait: float = 0.25  # until a call that waits for its turn gets another connection
    turn_timeout: float = 60.0  # until a call that has to wait for others is refused
    idle_close: float = 300.0  # until a connection that was never called is closed
    idle_close_used: float = 1800.0  # the same for one that was
    connect_timeout: float = 30.0
    input_timeout: float = 600.0  # for an answer of a person or a model
    health_interval: float = 60.0  # between pings of a connection that is not in use
    hang_timeout: float = 60.0
    """Without any response, not even to a ping, after a call was given up: then the process of a
    server is ended, and started again when it is needed; 0: never."""
    list_retry: float = 5.0  # until a failed list is requested again; then ever later


class Rules(Struct, frozen=True, kw_only=True):
    """How a manager supervises its servers. Durations are in seconds; 0 means never."""

    connect_timeout: float = 30.0
    health_interval: float = 60.0
    hang_timeout: float = 60.0  # of silence after a call was given up, until a process is replaced
    idle_stop: float = 300.0  # after which a lazy server that is not used is stopped
    tools_retry: float = 5.0  # until a failed `tools/list` is tried again; then ever later

    @property
    def settings(self) -> UpstreamSettings:
        """The same as settings of the connections."""
        return UpstreamSettings(
            connect_timeout=self.connect_timeout,
            health_interval=self.health_interval,
            hang_timeout=self.hang_timeout,
            idle_close=self.idle_stop,
            list_retry=self.tools_retry,
        )


# Settings that may also stand in the entry of one server, with their types.
SERVER_SETTINGS: Final[dict[str, Any]] = {
    one.name: one.type for one in structs.fields(UpstreamSettings)
}


def read_server_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in an entry of our own files.

    Raises:
        ConfigError: A value is not of the expected type.
    """
    found: dict[str, Any] = {}
    for key in SERVER_SETTINGS.keys() & raw.keys():
        try:
            found[key] = msgspec.convert(raw[key], SERVER_SETTINGS[key])
        except msgspec.ValidationError as exc:
            raise ConfigError(f"`{key}`: {exc}") from None
        if isinstance(found[key], int | float) and found[key] < 0:
            raise ConfigError(f"`{key}` is not below zero")
    return found
