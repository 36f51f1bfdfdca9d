"""The server given on a command line: a configured name, a script, a URL, or a command to start."""

import os
import re
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from .command_errors import UsageError
from .parser import Parser
from .suggested_commands import suggest

if TYPE_CHECKING:
    from ...client.server_entry import MCPServerEntry

__all__ = [
    "INTERPRETERS",
    "ConnectTarget",
    "interpreter_of",
    "name_of_command",
    "parse_with_server",
    "read_headers",
    "split_target",
    "words_in",
]

TOKEN_VARIABLE = "FAIRLEAD_TOKEN"
HOME_VARIABLE = "FAIRLEAD_HOME"

_URL = re.compile(r"(?i)(?:https?|wss?)://|unix:/")
_TAKE_A_VALUE = (
    "--answer",
    "--args",
    "--era",
    "--header",
    "--input",
    "--save",
    "--timeout",
    "--token",
)
# Programs that run a script, by file extension.
INTERPRETERS = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}
_CODE_OPTIONS = ("-c", "-e", "-ec", "-lc", "--eval")  # the next word is code
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # name of an HTTP header
_HARMLESS = ("accept", "host", "origin", "user-agent")
_BAD_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


@dataclass(frozen=True)
class ConnectTarget:
    """A server: given by the command that starts it, its URL, or its configured name."""

    command: tuple[str, ...] = ()
    url: str = ""
    name: str = ""

    @property
    def is_websocket(self) -> bool:
        return self.url[:2].lower() == "ws"

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables for the command in addition to those that servers inherit.

        The command may itself be a Fairlead command (`-- fairlead tap ...`), which must use the
        same FAIRLEAD_HOME.
        """
        home = os.environ.get(HOME_VARIABLE)
        return {} if home is None else {HOME_VARIABLE: home}

    def entry(self, headers: dict[str, str], *, sse: bool) -> "MCPServerEntry":
        """Return the equivalent configuration entry. The target must be a command or a URL."""
        from ...client import server_entry as entries

        if self.command:
            program, *args = self.command
            return entries.MCPStdioServerConfig(command=program, args=args, env=self.environment)
        if self.is_websocket:
            url = _with_path(self.url)
            return entries.MCPWebSocketServerConfig(url=url, headers=headers)
        kind = entries.MCPSseServerConfig if sse else entries.MCPHttpServerConfig
        return kind(url=self.url, headers=headers)

    def require(self, options: Namespace, example: str) -> None:
        """Check the target and the options that depend on it.

        Raises:
            CommandError: No server is given, or an option does not apply to it.
        """
        if not self.command and not self.url and not self.name:
            raise UsageError(
                "Missing server: pass a configured name, a URL, or a command after `--`",
                hint=f"for example `{example} -- python server.py` or "
                f"`{example} http://127.0.0.1:8080`; `fairlead list` shows the configured names, "
                "which come first",
            )
        given = {
            "--header": options.header,
            "--token": options.token is not None,
            "--sse": options.sse,
            "--insecure-tls": options.insecure_tls,
        }
        wrong = [name for name, value in given.items() if value]
        if wrong and not self.url:
            hint = "configure this in the entry of the server" if self.name else ""
            raise UsageError(f"{wrong[0]} only applies to a server with a URL", hint=hint)
        if options.input and not self.name:
            raise UsageError("--input only applies to a configured server")
        if self.is_websocket and options.sse:
            raise UsageError("--sse only applies to HTTP URLs, not to WebSocket URLs")

    def require_no_extra_arguments(self, words: Sequence[str], name: str) -> None:
        """Raise `UsageError` if extra words follow a command that takes no arguments."""
        if not words:
            return
        words = [self.name, *words] if self.name else words
        if self.url or _URL.match(words[0]):
            raise UsageError(
                "More than one server is given", hint="pass one URL, or a command after `--`"
            )
        raise UsageError(
            "A server command must follow `--`", hint=suggest(*name.split(), "--", *words)
        )

    def headers(self, options: Namespace) -> dict[str, str]:
        """Return the headers that are sent with every request.

        Raises:
            UsageError: A header or the token is invalid, or both set `Authorization`. The message
                contains no value.
        """
        found = read_headers(options.header)
        has_one = any(name.lower() == "authorization" for name in found)
        if has_one and options.token is not None:
            raise UsageError("--token and an Authorization header cannot be combined")
        token = options.token or os.environ.get(TOKEN_VARIABLE)
        if token and not has_one:
            if not re.fullmatch(r"[!-~]+", token):
                raise UsageError("Invalid token: expected ASCII characters without spaces")
            found["Authorization"] = f"Bearer {token}"
        return found

    def secrets(self, headers: dict[str, str]) -> list[str]:
        """Return the values that must not be displayed, longest first."""
        sent = [value for name, value in headers.items() if name.lower() not in _HARMLESS]
        values = [*sent, *(value.partition(" ")[2] for value in sent)]
        try:
            password = urlsplit(self.url).password or ""
        except ValueError:
            password = ""
        values += [password, unquote(password)]
        # Longest first, so that a secret that contains another secret is replaced as a whole.
        return sorted({value for value in values if len(value) > 3}, key=len, reverse=True)


def read_headers(texts: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--header`. Raises `UsageError` for an invalid value."""
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not _FIELD.fullmatch(name.strip()) or _BAD_VALUE.search(value):
            raise UsageError("Invalid --header: expected 'Name: value'")
        found[name.strip()] = value.strip()
    return found


def split_target(
    argv: Sequence[str], needs: int = 0, *, reads: bool = False
) -> tuple[list[str], ConnectTarget]:
    """Separate the command's own arguments from those that specify the server.

    The server is a command after `--`, the last URL, or the first word: a script that exists, or a
    configured name. `needs` is the minimum number of the command's own words; the first word names
    a server only if more words are given. With `reads`, a URL after a name is the resource to read,
    not the server.
    """
    if "--" in argv:
        index = argv.index("--")
        return list(argv[:index]), ConnectTarget(command=tuple(argv[index + 1 :]))
    own = list(argv)
    words = words_in(own, _TAKE_A_VALUE)
    reads_url = reads and len(words) == 2 and ":" not in own[words[0]]
    for index in reversed(range(len(own))):
        is_value = index > 0 and own[index - 1] in _TAKE_A_VALUE
        if _URL.match(own[index]) and not is_value and not reads_url:
            return own[:index] + own[index + 1 :], ConnectTarget(url=_spelled(own[index]))
    heads = 0  # number of words before the first `key=value`
    while heads < len(words) and ("=" not in own[words[heads]] or reads):
        heads += 1
    if heads > needs:
        return own[: words[0]] + own[words[0] + 1 :], _named(own[words[0]])
    return own, ConnectTarget()


def parse_with_server(
    parser: Parser, argv: Sequence[str], command: str
) -> tuple[Namespace, ConnectTarget]:
    """Parse options and `SERVER | URL | -- COMMAND`. `options.server` is the name or URL, if given.

    Raises:
        CommandError: No server or more than one is given, or an option does not apply to it.
    """
    own, target = split_target(argv) if "--" in argv else (list(argv), ConnectTarget())
    options = parser.parse_intermixed_args(own)
    if options.server:
        if target.command:
            raise UsageError("More than one server is given", hint="pass only one of them")
        if len(options.server) > 1:
            target.require_no_extra_arguments(options.server, command)
        _, target = split_target(options.server)
    # In these commands, `--token` is the token that clients must send, not a token for the server.
    about = Namespace(**{**vars(options), "token": None, "insecure_tls": False})
    target.require(about, f"fairlead {command}")
    return options, target


def interpreter_of(word: str) -> str | None:
    """Return the program that runs an existing script; None if the word is not such a script."""
    program = INTERPRETERS.get(os.path.splitext(word)[1].lower())
    return program if os.path.isfile(word) else None


def name_of_command(command: Sequence[str]) -> str:
    """Return a name for the server: its script or package, otherwise the program."""
    program = os.path.basename(command[0])
    words = [word for word in command[1:] if not word.startswith("-")]
    if any(word in _CODE_OPTIONS for word in command[1:]):
        return program  # code may contain secrets, and clients see the name
    if words and re.fullmatch(r"(python|node|uv|uvx|npx|bunx?|deno|sh|bash)[\d.]*", program):
        if words[0] == "run" and len(words) > 1:  # skip the subcommand in `uv run server.py`
            del words[0]
        return os.path.basename(words[0].rstrip("/")) or program
    return program


def _named(word: str) -> ConnectTarget:
    """Return the target for an existing script, as `MCPClient.connect` does, or for a name."""
    program = interpreter_of(word)
    if program is not None:
        return ConnectTarget(command=(program, os.path.abspath(word)))
    return ConnectTarget(name=word)


def _with_path(url: str) -> str:
    """Return a WebSocket URL; if it has no path, add the default path of `fairlead serve`."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # The invalid URL is reported when the command connects.
    return url if parts.path not in ("", "/") else parts._replace(path="/ws").geturl()


def _spelled(url: str) -> str:
    """Convert `unix:/path`, the form used for listening, to the URL `unix:///path`."""
    return re.sub(r"(?i)^unix:/(?!/)", "unix:///", url)


def words_in(argv: Sequence[str], take_a_value: Sequence[str]) -> list[int]:
    """Return the positions of words that are neither options nor values of options."""
    found, skip = [], False
    for index, word in enumerate(argv):
        if skip:
            skip = False
        elif word in take_a_value:
            skip = True
        elif not word.startswith("-"):
            found.append(index)
    return found
