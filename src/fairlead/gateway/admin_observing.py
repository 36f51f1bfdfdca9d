"""The part of the admin API that is about messages: journal, metrics, and what is held.

GET  /admin/journal[?after=ID][&wait=SECONDS]   what has passed; `wait` for something new
GET  /admin/journal/ID                          one exchange
GET  /admin/metrics                             as JSON; `/metrics` has them for Prometheus
GET  /admin/paused                              what is held
POST /admin/paused/ID/resume
POST /admin/paused/ID/change                    {"params": {...}} or {"result": {...}}
POST /admin/paused/ID/block                     {"reason": "..."}, or nothing

and `/admin/tapes`, see there.
"""

from math import nan
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import ConfigError
from ..transport.http.asgi import AsgiCall
from .admin_asking import Mistake, body_of, number_of, query_of
from .admin_tapes import TAPE_PATHS, act_on_tapes
from .observing import Observing
from .pausing import NotHeld

__all__ = ["PATHS", "act"]

PATHS: Final = (
    "GET /admin/journal[/ID], GET /admin/metrics, GET /admin/paused, "
    f"POST /admin/paused/ID/resume|change|block, {TAPE_PATHS}"
)
MAX_WAIT: Final = 60.0


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
    if steps[:1] == ["tapes"] and observing.tapes is not None:
        return await act_on_tapes(observing.tapes, call, steps[1:])
    match call.method, steps:
        case "GET", ["journal"] if journal is not None:
            return await _journal(observing, call)
        case "GET", ["journal", number] if journal is not None:
            record = journal.get(number_of(number))
            if record is None:
                raise ConfigError(f"there is no exchange {number} in the journal")
            return record
        case "GET", ["metrics"] if observing.metrics is not None:
            return observing.metrics.snapshot()
        case "GET", ["paused"] if desk is not None:
            return desk.list()
        case "POST", ["paused", number, "resume"] if desk is not None:
            desk.resume(number_of(number))
            return {"resumed": number_of(number)}
        case "POST", ["paused", number, "change"] if desk is not None:
            change = await body_of(call, _Change)
            try:
                desk.change(
                    number_of(number), params=_own(change.params), result=_own(change.result)
                )
            except NotHeld:
                raise
            except ConfigError as exc:
                raise Mistake(str(exc)) from exc
            return {"changed": number_of(number)}
        case "POST", ["paused", number, "block"] if desk is not None:
            desk.block(number_of(number), (await body_of(call, _Reason)).reason)
            return {"blocked": number_of(number)}
    return None


async def _journal(observing: Observing, call: AsgiCall) -> Any:
    journal = observing.journal
    assert journal is not None
    query = query_of(call)
    after = number_of(query.get("after", "0"))
    try:
        wait = min(float(query.get("wait", "0")), MAX_WAIT)
    except ValueError:
        wait = nan
    if not wait >= 0:
        raise Mistake("`wait` is a number of seconds")
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


def _own(raw: Raw | UnsetType) -> Raw | None:
    return None if isinstance(raw, UnsetType) else raw.copy()
