"""The part of the admin API that is about messages: journal, metrics, and what is held.

GET  /admin/journal[?after=ID][&wait=SECONDS]   what has passed; `wait` for something new
GET  /admin/journal/ID                          one exchange
GET  /admin/metrics                             as JSON; `/metrics` has them for Prometheus
GET  /admin/paused                              what is held
POST /admin/paused/ID/resume
POST /admin/paused/ID/change                    {"params": {...}} or {"result": {...}}
POST /admin/paused/ID/block                     {"reason": "..."}, or nothing
"""

from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import ChannelClosed, ConfigError
from ..transport.http.asgi import AsgiCall, TooLarge
from .observing import Observing
from .pausing import NotHeld

__all__ = ["PATHS", "Mistake", "act"]

PATHS: Final = (
    "GET /admin/journal[/ID], GET /admin/metrics, GET /admin/paused, "
    "POST /admin/paused/ID/resume|change|block"
)
MAX_BODY: Final = 16 << 20
MAX_WAIT: Final = 60.0


class Mistake(ConfigError):
    """Whoever asked did not say it right."""


class _Change(Struct, forbid_unknown_fields=True):
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET


class _Reason(Struct, forbid_unknown_fields=True):
    reason: str = ""


async def act(observing: Observing, call: AsgiCall, steps: list[str]) -> Any:
    """What to answer; None if there is nothing at these steps below `/admin`.

    Raises:
        ConfigError: that is not here.
        Mistake: it was not said right.
    """
    journal, desk = observing.journal, observing.desk
    match call.method, steps:
        case "GET", ["journal"] if journal is not None:
            return await _journal(observing, call)
        case "GET", ["journal", number] if journal is not None:
            record = journal.get(_number(number))
            if record is None:
                raise ConfigError(f"there is no exchange {number} in the journal")
            return record
        case "GET", ["metrics"] if observing.metrics is not None:
            return observing.metrics.snapshot()
        case "GET", ["paused"] if desk is not None:
            return desk.list()
        case "POST", ["paused", number, "resume"] if desk is not None:
            desk.resume(_number(number))
            return {"resumed": _number(number)}
        case "POST", ["paused", number, "change"] if desk is not None:
            change = await _body(call, _Change)
            try:
                desk.change(_number(number), params=_own(change.params), result=_own(change.result))
            except NotHeld:
                raise
            except ConfigError as exc:
                raise Mistake(str(exc)) from exc
            return {"changed": _number(number)}
        case "POST", ["paused", number, "block"] if desk is not None:
            desk.block(_number(number), (await _body(call, _Reason)).reason)
            return {"blocked": _number(number)}
    return None


async def _journal(observing: Observing, call: AsgiCall) -> Any:
    journal = observing.journal
    assert journal is not None
    query = parse_qs(call.scope.get("query_string", b"").decode("latin-1"))
    after = _number(query.get("after", ["0"])[-1])
    try:
        wait = min(max(float(query.get("wait", ["0"])[-1]), 0.0), MAX_WAIT)
    except ValueError:
        raise Mistake("`wait` is a number of seconds") from None
    found = journal.records(after)
    if wait and not found:
        try:
            reader = journal.follow()
        except RuntimeError as exc:
            raise ConfigError(str(exc)) from exc
        try:
            found = await reader.wait(wait)
        finally:
            reader.close()
    else:
        journal.look_over()
    return {"records": found, "dropped": journal.dropped}


async def _body(call: AsgiCall, kind: Any) -> Any:
    try:
        raw = await call.body(MAX_BODY)
        return msgspec.json.decode(raw or b"{}", type=kind)
    except TooLarge:
        raise Mistake(f"that is more than {MAX_BODY} bytes") from None
    except ChannelClosed:
        raise ConfigError("nobody is there any more") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise Mistake(f"the body cannot be read: {exc}") from None


def _own(raw: Raw | UnsetType) -> Raw | None:
    return None if isinstance(raw, UnsetType) else raw.copy()


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise Mistake(f"{text[:50]!r} is no number")
    return int(text)
