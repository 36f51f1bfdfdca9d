"""Targets that `MCPClient.connect` accepts: paths, URLs, commands, names, entries and servers."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ConfigError
from .mcp_transport.inprocess import Attachable
from .server_entry import (
    MCPHttpServerConfig,
    MCPServerEntry,
    MCPStdioServerConfig,
    MCPWebSocketServerConfig,
    read_entry,
)

__all__ = [
    "ClientTarget",
    "ConfiguredName",
    "command_words",
    "entry_with",
    "read_target",
    "refuse_options",
]

ClientTarget: TypeAlias = (
    str | os.PathLike[str] | Sequence[str] | MCPServerEntry | Mapping[str, Any] | Attachable
)

_ENTRIES = MCPServerEntry.__args__
_INTERPRETERS = {
    ".py": (sys.executable,),
    ".js": ("node",),
    ".mjs": ("node",),
    ".cjs": ("node",),
}
_URL = re.compile(r"(?i)([a-z][a-z0-9+.-]*)://|(unix):/")
# Server objects of these libraries run on stdio or HTTP only: the streams that their own clients
# use in one process are not part of their public interface.
_OTHER_SDKS = ("fastmcp", "mcp")
_EXPECTED = (
    "expected a path, a URL, a command, the name of a configured server, an entry, "
    "a configuration or a server object"
)


class ConfiguredName(Struct, frozen=True):
    """A server's name in a configuration file, as listed by `fairlead list`."""

    name: str


def read_target(target: Any) -> MCPServerEntry | Attachable | ConfiguredName:
    """Return the entry that a target describes; a server object or configured name is returned
    unchanged.

    Raises:
        TypeError: The target has none of the accepted types.
        ConfigError: The script does not exist, or the entry or URL is invalid.
    """
    if isinstance(target, str):
        return _read_text(target)
    if isinstance(target, os.PathLike):
        return _script(os.fspath(target))
    if isinstance(target, Mapping):
        return read_entry(_only_entry(dict(target)))
    if isinstance(target, _ENTRIES):
        return target  # type: ignore[no-any-return]  # isinstance with a computed tuple
    if isinstance(target, Sequence) and target and all(isinstance(one, str) for one in target):
        return _command(list(target))
    if isinstance(target, Attachable) and not isinstance(target, type):
        return target
    package = type(target).__module__.partition(".")[0]
    if package in _OTHER_SDKS:
        raise TypeError(
            f"cannot connect to {_described(target)} of the package {package} in this process: "
            "pass the path of the file that runs it, for example "
            "`MCPClient.connect('server.py')`, or its URL"
        )
    raise TypeError(f"cannot connect to {_described(target)}: {_EXPECTED}")


def entry_with(
    entry: MCPServerEntry, env: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> MCPServerEntry:
    """Return an entry with additional environment variables or headers.

    Raises:
        TypeError: `env` is given for a URL, or `headers` for a command.
    """
    if isinstance(entry, MCPStdioServerConfig):
        if headers:
            raise TypeError("headers apply to URLs only; pass env to a command")
        return replace(entry, env={**entry.env, **env}) if env else entry
    if env:
        raise TypeError("env applies to commands only; pass headers to a URL")
    return replace(entry, headers={**entry.headers, **headers}) if headers else entry


def refuse_options(**options: object) -> None:
    """Check that no options are given for a server in this process.

    Raises:
        TypeError: An option has a value.
    """
    for name, value in options.items():
        if value is not None:
            raise TypeError(f"{name} does not apply to a server in this process")


def command_words(command: object) -> list[str]:
    """Return the program of a command and its arguments.

    Raises:
        TypeError: The command is not a list of strings and paths.
    """
    if not isinstance(command, Sequence) or isinstance(command, str | bytes) or not command:
        raise TypeError("command must be a list of the program and each of its arguments")
    for word in command:
        if not isinstance(word, str | os.PathLike):
            raise TypeError(f"command must be a list of strings and paths, but contains {word!r}")
    return list(map(os.fspath, command))


def _read_text(text: str) -> MCPServerEntry | ConfiguredName:
    if match := _URL.match(text):
        return _remote(text, (match[1] or match[2]).lower())
    if os.path.isfile(os.path.expanduser(text)):
        return _script(text)
    words = _words(text)
    if not words or not words[0]:
        raise ConfigError("cannot connect to an empty string: " + _EXPECTED)
    if len(words) > 1:
        return _command(words)
    if os.path.splitext(text)[1] in _INTERPRETERS or text.startswith((".", "/", "~")):
        return _script(text)
    return ConfiguredName(words[0])


def _words(text: str) -> list[str]:
    if " " not in text.strip():
        return [text.strip()]
    # Imported here, because few programs connect to a command in a string.
    import shlex

    return shlex.split(text)


def _remote(url: str, scheme: str) -> MCPServerEntry:
    if scheme in ("http", "https"):
        return MCPHttpServerConfig(url=url)
    if scheme in ("ws", "wss"):
        return MCPWebSocketServerConfig(url=url)
    if scheme == "unix":
        # `unix:/path`, the form used for listening, means `unix:///path`.
        return MCPHttpServerConfig(url=re.sub(r"(?i)^unix:/(?!/)", "unix:///", url))
    raise ConfigError(f"unknown URL scheme {scheme!r}: expected http, https, ws, wss or unix")


def _script(text: str) -> MCPServerEntry:
    """Return the entry that runs a script or another program."""
    path = os.path.expanduser(text)
    if not os.path.isfile(path):
        raise ConfigError(f"server script not found: {path!r} is not a file")
    runner = _INTERPRETERS.get(os.path.splitext(path)[1].lower(), ())
    if not runner and not os.access(path, os.X_OK):
        raise ConfigError(f"{path!r} is not executable: expected a .py or .js file or a program")
    return _command([*runner, os.path.abspath(path)])


def _command(words: list[str]) -> MCPServerEntry:
    return MCPStdioServerConfig(command=words[0], args=words[1:])


def _only_entry(given: dict[str, Any]) -> Any:
    """Return the only server's entry in a configuration; an entry is returned unchanged."""
    servers = given.get("mcpServers", given.get("servers"))
    if servers is None:
        return given
    if not isinstance(servers, Mapping) or not servers:
        raise ConfigError("the configuration has no servers")
    if len(servers) > 1:
        names = ", ".join(sorted(map(str, servers)))
        raise ConfigError(
            f"the configuration has several servers ({names}): pass the entry of one of them, "
            "or use MCPManager for all"
        )
    [(name, entry)] = servers.items()
    if isinstance(entry, _ENTRIES):
        return entry
    if not isinstance(entry, Mapping):
        raise ConfigError(f"the entry of {name!r} is not an object")
    return dict(entry)


def _described(target: Any) -> str:
    if isinstance(target, type):
        return f"the class {target.__name__}"
    return f"an object of type {type(target).__name__}"
