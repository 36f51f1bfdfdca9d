"""The part of the admin API that is about tapes. What is on them is as it is on disk: redacted.

GET    /admin/tapes                                   which there are
POST   /admin/tapes                                   record: {"name": "...", "tags": [...]}, or {}
GET    /admin/tapes/NAME                              what is known about one
GET    /admin/tapes/NAME/entries[?from=PLACE][&limit=N]   what is on it, in pages
POST   /admin/tapes/NAME/stop                         record no longer
DELETE /admin/tapes/NAME                              delete it
"""

import asyncio
from typing import Any, Final

from msgspec import Struct

from ..errors import ConfigError
from ..transport.http.asgi import AsgiCall
from .admin_asking import Mistake, body_of, number_of, query_of
from .tape.paging import read_page
from .taping import Taping, about_tape

__all__ = ["TAPE_PATHS", "act_on_tapes"]

TAPE_PATHS: Final = (
    "GET and POST /admin/tapes, GET /admin/tapes/NAME[/entries], POST /admin/tapes/NAME/stop, "
    "DELETE /admin/tapes/NAME"
)
PAGE: Final = 100
MOST: Final = 1000


class _Start(Struct, forbid_unknown_fields=True):
    name: str | None = None
    tags: list[str] = []


async def act_on_tapes(tapes: Taping, call: AsgiCall, steps: list[str]) -> Any:
    """What to answer; None if there is nothing at these steps below `/admin/tapes`.

    Raises:
        ConfigError: there is no such tape.
        Mistake: it was not said right, or cannot be done now.
    """
    match call.method, steps:
        case "GET", []:
            return await asyncio.to_thread(tapes.list)
        case "POST", []:
            wanted = await body_of(call, _Start)
            try:
                tape = tapes.start(wanted.name, tags=wanted.tags)
            except ConfigError as exc:
                raise Mistake(str(exc)) from exc
            return {"recording": tape.info.name}
        case "GET", [name]:
            return about_tape(tapes.open(name))
        case "GET", [name, "entries"]:
            query = query_of(call)
            limit = min(max(number_of(query.get("limit", str(PAGE))), 1), MOST)
            reader = tapes.open(name)
            try:
                return await asyncio.to_thread(read_page, reader, query.get("from", ""), limit)
            except ValueError as exc:
                raise Mistake(str(exc)) from exc
        case "POST", [name, "stop"]:
            recording = tapes.recording
            if recording is None or recording.info.name != name:
                raise Mistake(f"{name} is not being recorded here")
            info = tapes.stop()
            return {"stopped": name, "entries": 0 if info is None else info.entries}
        case "DELETE", [name]:
            try:
                await asyncio.to_thread(_delete, tapes, name)
            except _Held as exc:
                raise Mistake(str(exc)) from exc
            return {"deleted": name}
    return None


class _Held(ConfigError):
    pass


def _delete(tapes: Taping, name: str) -> None:
    if tapes.open(name).info.status == "recording":
        raise _Held(f"{name} is being recorded: stop that first")
    tapes.delete(name)
