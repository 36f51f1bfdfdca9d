"""Filters for servers that duplicate a built-in feature of the application."""

import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from ..client.server_entry import MCPStdioServerConfig
from .found_server import FoundServer
from .variables.variable_syntax import DIALECTS, VariableScope, substitute

__all__ = ["ExaFilter", "Removal", "ServerFilter"]


class Removal(Struct, frozen=True):
    """The reason why a server is removed, and the API keys found in its entry."""

    reason: str
    keys: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Removal {self.reason!r}, {len(self.keys)} keys>"


class ServerFilter(Protocol):
    """A function that decides whether an enabled server is removed.

    If the function raises an exception, the server is kept and a warning is added.
    """

    def __call__(self, found: FoundServer, env: Mapping[str, str]) -> Removal | None: ...


_HOST = "mcp.exa.ai"
_PACKAGE = re.compile(r"(?:^|/)exa-mcp-server(?:@|$)")
_KEY_ARGUMENT = re.compile(r"--?(?:exa[-_]?)?api[-_]?key(?:=(.*))?", re.IGNORECASE)
_KEY_PARAMETERS = {"exaapikey", "apikey", "api_key"}
_KEY_HEADERS = {"x-api-key", "x-exa-api-key"}


class ExaFilter:
    """A filter for Exa servers, recognised by name, URL or package; it collects their API keys."""

    def __call__(self, found: FoundServer, env: Mapping[str, str]) -> Removal | None:
        if not self._is_exa(found):
            return None
        # A project's file must not be able to read an arbitrary variable of the user as an API key.
        if found.level == "project":
            env = {name: value for name, value in env.items() if "EXA" in name.upper()}
        scope = VariableScope(env=env, home=found.home, workspace=found.workspace)
        keys: dict[str, None] = {}
        for raw in self._keys(found):
            if key := _known(raw, found, scope):
                keys[key] = None
        return Removal("Exa is built in", tuple(keys))

    def _is_exa(self, found: FoundServer) -> bool:
        if found.name.strip().lower() == "exa":
            return True
        entry = found.entry
        if isinstance(entry, MCPStdioServerConfig):
            words = [entry.command, *entry.args]
            return any(_is_exa_url(word) or _PACKAGE.search(word) for word in words)
        return _is_exa_url(entry.url)

    def _keys(self, found: FoundServer) -> list[str]:
        entry = found.entry
        if not isinstance(entry, MCPStdioServerConfig):
            named = [v for k, v in entry.headers.items() if k.lower() in _KEY_HEADERS]
            return [*_keys_of_url(entry.url), *named]
        keys = [key for word in entry.args for key in _keys_of_url(word)]
        for word, following in zip(entry.args, [*entry.args[1:], ""], strict=False):
            if named_by := _KEY_ARGUMENT.fullmatch(word):
                keys.append(named_by[1] if named_by[1] is not None else following)
        keys += [value for name, value in entry.env.items() if name.upper() == "EXA_API_KEY"]
        return keys


def _known(raw: str, found: FoundServer, scope: VariableScope) -> str | None:
    """Return a key written in the entry or in an environment variable. Commands are not run."""
    rules = DIALECTS[found.dialect]
    if rules.runs_commands and raw.startswith("!"):
        return None
    if rules.runs_commands and raw in scope.env:
        return scope.env[raw]
    scope.missing.clear()
    try:
        key = substitute(raw, found.dialect, scope, "url").strip()
    # The key is unknown: an input is missing, or a variable that the host requires.
    except Exception:
        return None
    return None if scope.missing or key.startswith("-") else key or None


def _is_exa_url(word: str) -> bool:
    return "://" in word and _host(word) == _HOST


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _keys_of_url(url: str) -> list[str]:
    if not _is_exa_url(url):
        return []
    parameters = parse_qs(urlsplit(url).query)
    return [
        value
        for name, values in parameters.items()
        if name.lower() in _KEY_PARAMETERS
        for value in values
    ]
