"""A `server/discover` result for a tape on which no client requested it.

Some clients start one process to discover a server and another to use it. The tape then lacks the
result of `server/discover`, but most of its content can be derived from the recorded messages.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Raw

from ...protocol.caller import SERVER_INFO_KEY, VERSION_KEY
from ...protocol.downgrade.results import upgrade_result
from ...protocol.json_edit import members_of
from ...protocol.methods import METHODS
from ...wire import to_json
from .script import ScriptedCall

__all__ = ["synthetic_discover_result"]

_NEEDS: Final = {
    method.name: method.capability
    for method in METHODS
    if method.capability is not None
    and method.sent_by("client" if method.kind == "request" else "server")
}
_NEWS: Final = {
    "toolsListChanged": "tools.listChanged",
    "promptsListChanged": "prompts.listChanged",
    "resourcesListChanged": "resources.listChanged",
    "resourceSubscriptions": "resources.subscribe",
}
LOOKED_AT: Final = 1000  # maximum number of requests that are read from disk to build the result
_NOBODY: Final = b'{"name":"tape","version":"0"}'


def synthetic_discover_result(cues: Sequence[ScriptedCall]) -> Raw | None:
    """Return the result of `server/discover`; None if the tape has no stateless requests."""
    asked = [cue for cue in cues if cue.stateless and cue.is_request]
    first = asked[:LOOKED_AT]
    versions = dict.fromkeys(version for cue in first for version in _version(cue))
    if not versions:
        return None
    said = {"supportedVersions": list(versions), "capabilities": _capabilities(asked)}
    server = next((info for cue in first if (info := _server(cue)) is not None), _NOBODY)
    return upgrade_result("server/discover", Raw(to_json(said)), server_info=server)


def _version(cue: ScriptedCall) -> list[str]:
    meta = cue.params.get("_meta")
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    return [version] if isinstance(version, str) else []


def _server(cue: ScriptedCall) -> Raw | None:
    """Return the `serverInfo` in the `_meta` of a result, or None."""
    result = None if cue.answer is None else members_of(cue.answer.member("result"))
    return (members_of((result or {}).get("_meta")) or {}).get(SERVER_INFO_KEY)


def _capabilities(asked: Iterable[ScriptedCall]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cue in asked:
        for path in [_NEEDS.get(cue.method), *map(_NEWS.get, _wanted(cue))]:
            _declare(found, path)
        for step in cue.steps:
            _declare(found, _NEEDS.get(step.method or ""))
    return found


def _wanted(cue: ScriptedCall) -> Iterable[str]:
    """Return the notifications that a subscription asks for."""
    news = cue.params.get("notifications") if cue.method == "subscriptions/listen" else None
    return [name for name, wanted in news.items() if wanted] if isinstance(news, dict) else []


def _declare(capabilities: dict[str, Any], path: str | None) -> None:
    if path is None:
        return
    *parents, last = path.split(".")
    for name in parents:
        capabilities = capabilities.setdefault(name, {})
    capabilities.setdefault(last, True if parents else {})
