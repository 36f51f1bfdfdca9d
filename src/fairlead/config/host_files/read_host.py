"""Reading all servers of one host program from its existing files."""

import logging
import re
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from ...errors import ConfigError
from ..files.config_reader import ConfigReader
from ..files.formats import Document
from ..found_server import FoundServer, Input, NormalizedEntry
from ..paths import HostPaths
from ..upstream_settings import read_server_settings
from ..variables.entry_references import files_of, hide_values, texts_in, values_of
from ..variables.variable_syntax import looks_like_variables
from .host import ConfigLocation, Host, WhyOff
from .normalize_entry import normalize_entry

__all__ = ["find_servers"]

log = logging.getLogger("fairlead.manager")

_INPUT = re.compile(r"\$\{input:([^}]+)\}")


def find_servers(host: Host, machine: HostPaths, files: ConfigReader) -> Iterator[FoundServer]:
    """Yield a host program's servers in order of precedence; problems are added to `files`."""
    why_off: WhyOff | None = None
    seen: set[tuple[str, str]] = set()
    places = list(host.places(machine, files))
    trusted = {place.path for place in places if place.level != "project"}
    for place in places:
        # In the home folder, the project's file is also the user's file and therefore trusted.
        if place.level == "project" and place.path in trusted:
            continue
        if (place.path, place.level) in seen:
            continue
        seen.add((place.path, place.level))
        document = files.document(place.path)
        if document is None:
            continue
        # The switches are in additional files, which are read only if the host has any file.
        if why_off is None and host.switches is not None:
            why_off = host.switches(machine, files)
        yield from _in_document(host, machine, files, document, place, why_off)


def _in_document(
    host: Host,
    machine: HostPaths,
    files: ConfigReader,
    document: Document,
    place: ConfigLocation,
    why_off: WhyOff | None,
) -> Iterator[FoundServer]:
    for nth, (name, raw) in enumerate(host.servers(document, place, machine)):
        line = document.line_of(name, raw, nth)
        try:
            if not isinstance(raw, dict):
                raise ConfigError("the entry must be a map")
            plain = host.adapt(raw) if host.adapt is not None else raw
            if plain is None:
                continue
            spelled = normalize_entry(plain, unit=host.timeout_unit, url_means=host.url_means)
            if host.dialect == "fairlead":
                spelled = structs.replace(spelled, settings=read_server_settings(plain))
            off = why_off(name, place, raw) if why_off is not None else None
            found = _found(host, machine, document, place, line, name, raw, spelled, off)
            # Read now, so that an approval covers the content of these files, not only their paths.
            if place.level == "project":
                paths = files_of(found, machine.env)
                contents = {path: files.content(path) for path in paths}
                found = structs.replace(found, contents=contents)
        except ConfigError as exc:
            held = values_of(raw) if isinstance(raw, dict) else ()
            files.problem(
                place.path, line, f'Server "{name}": {hide_values(str(exc.args[0]), held)}'
            )
            continue
        # An error in one entry must not hide the other entries in the file.
        except Exception as exc:
            log.warning("the entry %r in %s: %s", name, place.path, type(exc).__name__)
            reason = f'Server "{name}": the entry cannot be read ({type(exc).__name__})'
            files.problem(place.path, line, reason)
            continue
        yield found


def _found(
    host: Host,
    machine: HostPaths,
    document: Document,
    place: ConfigLocation,
    line: int,
    name: str,
    raw: dict[str, Any],
    spelled: NormalizedEntry,
    off: str | None,
) -> FoundServer:
    notes = list(spelled.notes)
    if not spelled.enabled:
        notes.append("disabled in the entry")
    if off is not None:
        notes.append(off)
    if host.dialect == "unknown" and looks_like_variables(raw):
        notes.append(
            f"values look like variables, but the variable syntax of {host.title} is unknown"
        )
    declared = _declared(raw, document.data.get("inputs"))
    about: dict[str, Any] = structs.asdict(spelled) | {
        "enabled": spelled.enabled and off is None,
        "notes": tuple(notes),
    }
    return FoundServer(
        **about,
        name=name,
        host=host.id,
        host_title=host.title,
        path=place.path,
        line=line,
        level=place.level,
        raw=raw,
        dialect=host.dialect,
        needs_input=tuple(_input(id, said) for id, said in declared.items()),
        declared_inputs=tuple(declared.values()),
        workspace=place.folder or machine.cwd,
        home=machine.home,
        platform=machine.platform,
    )


def _declared(raw: dict[str, Any], declared: Any) -> dict[str, dict[str, Any]]:
    """Return the definition of each `${input:...}` that an entry refers to.

    A definition may refer to further inputs. If two definitions have the same id, the last
    definition applies.
    """
    known = {
        item["id"]: item
        for item in (declared if isinstance(declared, list) else ())
        if isinstance(item, dict) and isinstance(item.get("id"), str)
    }
    found: dict[str, dict[str, Any]] = {}
    waiting = [raw]
    while waiting:
        ids = [id for text in texts_in(waiting.pop(0)) for id in _INPUT.findall(text)]
        for id in dict.fromkeys(ids):
            if id not in found:
                found[id] = known.get(id, {})
                waiting.append(found[id])
    return found


def _input(id: str, said: dict[str, Any]) -> Input:
    options = said.get("options")
    default = said.get("default")
    return Input(
        id,
        description=str(said.get("description") or ""),
        password=said.get("password") is True,
        options=tuple(str(option) for option in options) if isinstance(options, list) else (),
        default=default if isinstance(default, str) else None,
    )
