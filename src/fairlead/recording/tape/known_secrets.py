"""Secrets in a server's configuration, which the server may repeat in its responses."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig, read_entry
from ...redaction.redact_text import is_folder, is_secret_name, redact
from ...transport.stdio.child_environment import child_environment

__all__ = ["secrets_in", "secrets_of"]

# Additional names of variables and headers that contain secrets. These words are too common in
# messages to be redacted there.
_VARIABLE: Final = re.compile(r"(?i)(?:^|[_-])(?:key|pat|pass|auth|dsn|jwt|pin|signature|creds?)$")


def secrets_of(entry: MCPServerEntry | dict[str, Any] | None) -> list[str]:
    """Return the secrets in an entry and in the environment that its command inherits.

    Raises:
        ConfigError: The `dict` is not a valid entry.
    """
    if isinstance(entry, dict):
        entry = read_entry(entry)
    if entry is None:
        return []
    if isinstance(entry, MCPStdioServerConfig):
        environment = child_environment(inherit=entry.inherit_env) | entry.env
        return secrets_in([entry.command, *entry.args], environment)
    return [*_values(entry.headers), *_passwords(entry.url)]


def secrets_in(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the secrets in the options and the environment of a command."""
    return [*_values(environment), *_options(command)]


def _values(named: Mapping[str, str]) -> list[str]:
    """Return the values whose names indicate a secret, with and without a prefix such as `Bearer`.

    Passwords in URLs are included for any name, because a server may use them separately.
    """
    held = [value for name, value in named.items() if _is_secret_variable(name, value)]
    urls = [value for value in named.values() if "://" in value]
    bare = [value.partition(" ")[2] for value in held]
    return [*held, *bare, *(word for url in urls for word in _passwords(url))]


def _is_secret_variable(name: str, value: str) -> bool:
    if is_folder(name, value):
        return False
    return is_secret_name(name) or bool(_VARIABLE.search(name)) or redact(value) != value


def _options(command: Sequence[str]) -> Iterator[str]:
    """Yield the values of options such as `--api-key VALUE` and `--api-key=VALUE`."""
    for option, value in pairwise(command):
        if _is_secret(option) and not value.startswith("--"):
            yield value
    for word in command:
        option, equals, value = word.partition("=")
        if equals and _is_secret(option):
            yield value


def _is_secret(option: str) -> bool:
    name = option.lstrip("-")
    return name != option and "=" not in name and is_secret_name(name.replace("-", "_"))


def _passwords(url: str | None) -> list[str]:
    try:
        password = urlsplit(url or "").password or ""
    except ValueError:
        return []
    # A server may log the password in either form.
    return [password, unquote(password)]
