"""Log messages that a server sends to its client."""

from typing import Final, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = ["LEVELS", "LoggingLevel", "LoggingMessageParams", "SetLevelParams"]

LoggingLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]

LEVELS: Final[tuple[LoggingLevel, ...]] = (  # the least severe first
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)


class SetLevelParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """Asks for messages of this level and above (until 2025-11-25)."""

    level: LoggingLevel
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class LoggingMessageParams(Struct, frozen=True, kw_only=True, rename="camel"):
    """One log message; `data` is any JSON value."""

    level: LoggingLevel
    data: Raw
    logger: str | UnsetType = UNSET
    meta: Raw | UnsetType = field(default=UNSET, name="_meta")
