"""Routes of the admin API for messages: journal, metrics, held messages, and tapes.

Entries of tapes are redacted, as they are on disk.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from math import nan
from typing import Any, Final, TypeVar

from msgspec import UNSET, Raw, Struct, UnsetType

from ...errors import ConfigError
from ...policy.hold_desk import HoldDesk, NotHeld
from ...recording.journal import Journal
from ...recording.tape.tape_reader import read_page
from ..operations.observability import Observability
from ..operations.tape_control import TapeControl, about_tape
from .route import BadRequest, PageRequest, Route, mistakes, number_of

__all__ = ["message_routes"]

T = TypeVar("T")

MAX_WAIT: Final = 60.0  # maximum number of seconds to wait for new messages
PAGE: Final = 100  # default number of messages in one response
MOST: Final = 1000  # maximum number of messages in one response


class _Change(Struct, forbid_unknown_fields=True):
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET


class _Reason(Struct, forbid_unknown_fields=True):
    reason: str = ""


class _Start(Struct, forbid_unknown_fields=True):
    name: str | None = None
    tags: list[str] = []


async def read_journal(journal: Journal, request: PageRequest) -> Any:
    """Return the records after `?after=ID`. With `&wait=SECONDS`, wait up to that long for one."""
    query = request.query
    after = number_of(query.get("after", "0"))
    try:
        wait = min(float(query.get("wait", "0")), MAX_WAIT)
    except ValueError:
        wait = nan
    # `not wait >= 0` instead of `wait < 0`, because every comparison with NaN is False.
    if not wait >= 0:
        raise BadRequest("`wait` must be a number of seconds, 0 or more")
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
        # In the other branch, `reader.wait` calls `flag_hanging`.
        journal.flag_hanging()
    return {"records": found, "dropped": journal.dropped}


def read_exchange(journal: Journal, request: PageRequest) -> Any:
    """Return one exchange of the journal."""
    record = journal.get(request.number)
    if record is None:
        raise ConfigError(f"unknown exchange {request.value}: not in the journal")
    return record


def resume(desk: HoldDesk, request: PageRequest) -> Any:
    """Forward a held message unchanged."""
    desk.resume(request.number)
    return {"resumed": request.number}


async def change(desk: HoldDesk, request: PageRequest) -> Any:
    """Forward a held message with `{"params": {...}}`, or answer it with `{"result": {...}}`."""
    wanted = await request.body(_Change)
    with mistakes(NotHeld):
        desk.change(request.number, params=_own(wanted.params), result=_own(wanted.result))
    return {"changed": request.number}


async def block(desk: HoldDesk, request: PageRequest) -> Any:
    """Refuse a held message, with an optional `{"reason": "..."}`."""
    desk.block(request.number, (await request.body(_Reason)).reason)
    return {"blocked": request.number}


async def record(tapes: TapeControl, request: PageRequest) -> Any:
    """Start recording. The body is `{"name": "...", "tags": [...]}`; both are optional."""
    wanted = await request.body(_Start)
    with mistakes():
        tape = tapes.start(wanted.name, tags=wanted.tags)
    return {"recording": tape.info.name}


async def read_entries(tapes: TapeControl, request: PageRequest) -> Any:
    """Return one page of the entries of a tape: `?from=PLACE&limit=N`."""
    query = request.query
    limit = min(max(number_of(query.get("limit", str(PAGE))), 1), MOST)
    reader = tapes.open(request.value)
    try:
        # In a thread, because tapes may be large.
        return await asyncio.to_thread(read_page, reader, query.get("from", ""), limit)
    except ValueError as exc:
        raise BadRequest(str(exc)) from exc


def stop(tapes: TapeControl, request: PageRequest) -> Any:
    """Stop recording."""
    name, recording = request.value, tapes.recording
    if recording is None or recording.info.name != name:
        raise BadRequest(f"tape {name!r} is not being recorded")
    tapes.stop()
    return {"stopped": name, "entries": recording.info.entries}


async def delete(tapes: TapeControl, request: PageRequest) -> Any:
    """Delete a tape."""
    name = request.value

    def work() -> None:
        if tapes.open(name).info.status == "recording":
            raise BadRequest(f"tape {name!r} is being recorded: stop the recording first")
        tapes.delete(name)

    await asyncio.to_thread(work)
    return {"deleted": name}


def _own(raw: Raw | UnsetType) -> Raw | None:
    return None if isinstance(raw, UnsetType) else raw.copy()


def _with(
    part: T | None, handler: Callable[[T, PageRequest], object]
) -> Callable[[PageRequest], object] | None:
    """Return a handler bound to a gateway component; None if the component is disabled."""
    return None if part is None else partial(handler, part)


def message_routes(observing: Observability) -> tuple[Route, ...]:
    """Return the routes for messages. The routes of disabled components have no handler."""
    journal, desk, tapes = observing.journal, observing.desk, observing.tapes
    return (
        Route("GET", "/admin/journal", _with(journal, read_journal)),
        Route("GET", "/admin/journal/{id}", _with(journal, read_exchange)),
        Route(
            "GET", "/admin/metrics", _with(observing.metrics, lambda metrics, _: metrics.snapshot())
        ),
        Route("GET", "/admin/paused", _with(desk, lambda desk, _: desk.list())),
        Route("POST", "/admin/paused/{id}/resume", _with(desk, resume)),
        Route("POST", "/admin/paused/{id}/change", _with(desk, change)),
        Route("POST", "/admin/paused/{id}/block", _with(desk, block)),
        Route("GET", "/admin/tapes", _with(tapes, lambda tapes, _: asyncio.to_thread(tapes.list))),
        Route("POST", "/admin/tapes", _with(tapes, record)),
        Route(
            "GET",
            "/admin/tapes/{name}",
            _with(tapes, lambda tapes, request: about_tape(tapes.open(request.value))),
        ),
        Route("DELETE", "/admin/tapes/{name}", _with(tapes, delete)),
        Route("GET", "/admin/tapes/{name}/entries", _with(tapes, read_entries)),
        Route("POST", "/admin/tapes/{name}/stop", _with(tapes, stop)),
    )
