"""Bytes and durations in the format of pydantic."""

import base64
import datetime
from typing import Any

import msgspec
from msgspec import Raw

from .foreign_types import RESPELLED, to_plain

__all__ = ["in_pydantic_format"]


def in_pydantic_format(value: Any) -> Any:
    """Return a value for JSON with bytes and durations in the format of pydantic.

    msgspec encodes bytes in base64, and writes hours and minutes as seconds.

    Raises:
        TypeError: The value has no JSON form.
    """
    return _respell(msgspec.to_builtins(value, builtin_types=(Raw, *RESPELLED), enc_hook=to_plain))


def _respell(value: Any) -> Any:
    if isinstance(value, dict):
        return {_respell(key): _respell(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_respell(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return _duration(value)
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return value


def _duration(span: datetime.timedelta) -> str:
    """Return a duration in the form of ISO 8601: `P1DT2H`."""
    sign = "-" if span < datetime.timedelta(0) else ""
    span = abs(span)
    years, days = divmod(span.days, 365)
    hours, rest = divmod(span.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{span.microseconds:06}".rstrip("0") if span.microseconds else ""
    day_part = _amounts((years, "Y"), (days, "D"))
    time_part = _amounts((hours, "H"), (minutes, "M"))
    if seconds or fraction or not day_part + time_part:
        time_part += f"{seconds}{fraction}S"
    return f"{sign}P{day_part}" + (f"T{time_part}" if time_part else "")


def _amounts(*parts: tuple[int, str]) -> str:
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount)
