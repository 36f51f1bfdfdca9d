"""Where the server is that a command talks to: a name, a URL, or a command to start."""

import os
import re
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

__all__ = ["ConnectTarget", "parse_with_server", "read_headers", "split_target", "words_in"]

TOKEN_VARIABLE = "FAIRLEAD_TOKEN"
HOME_VARIABLE = "FAIRLEAD_HOME"

_URL = re.compile(r"(?i)(?:https?|wss?)://|unix:/")
_TAKE_A_VALUE = ("--args", "--header", "--input", "--timeout", "--token")
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # the name of a header
_HARMLESS = ("accept", "host", "origin", "user-agent")
_BAD_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


@dataclass(frozen=True)
class ConnectTarget:
    """A server: the command that starts it, its URL, or the name it is configured under."""

    command: tuple[str, ...] = ()
    url: str = ""
    name: str = ""

    @property
    def is_websocket(self) -> bool:
        return self.url[:2].lower() == "ws"

    @property
    def environment(self) -> dict[str, str]:
        """What a command gets that servers do not inherit: where our files are.

        It may be one of ours (`-- fairlead tap ...`), and whoever typed it means the same folder.
        """
        home = os.environ.get(HOME_VARIABLE)
        return {} if home is None else {HOME_VARIABLE: home}

    def entry(self, headers: dict[str, str], *, sse: bool) -> "MCPServerEntry":
        """The entry of a configuration file that says the same; not for a name."""
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
        """Raises `CommandError` if there is no server, or an option that does not fit it."""
        if not self.command and not self.url and not self.name:
            raise UsageError(
                "There is no server to talk to: its command goes after `--`, or name its URL",
                hint=f"for example `{example} -- python server.py` or "
                f"`{example} http://127.0.0.1:8080`; one that is configured (`fairlead list`) "
                "is named first",
            )
        given = {
            "--header": options.header,
            "--token": options.token is not None,
            "--sse": options.sse,
            "--insecure-tls": options.insecure_tls,
        }
        wrong = [name for name, value in given.items() if value]
        if wrong and not self.url:
            hint = "what it needs goes into its entry" if self.name else ""
            raise UsageError(f"{wrong[0]} is for a server that has a URL", hint=hint)
        if options.input and not self.name:
            raise UsageError("--input is for a server that is configured")
        if self.is_websocket and options.sse:
            raise UsageError("--sse is for HTTP, and this is a WebSocket")

    def require_no_extra_arguments(self, words: Sequence[str], name: str) -> None:
        """Raises `CommandError` for words that are no arguments of a command that takes none."""
        if not words:
            return
        words = [self.name, *words] if self.name else words
        if self.url or _URL.match(words[0]):
            raise UsageError(
                "There are two servers to talk to", hint="name one: a URL, or a command after `--`"
            )
        raise UsageError(
            "The server's command goes after `--`", hint=suggest(*name.split(), "--", *words)
        )

    def headers(self, options: Namespace) -> dict[str, str]:
        """What is sent with every request.

        Raises:
            CommandError: for what is no header; values may be secret and are not shown.
        """
        found = read_headers(options.header)
        has_one = any(name.lower() == "authorization" for name in found)
        if has_one and options.token is not None:
            raise UsageError("--token and an Authorization header exclude each other")
        token = options.token or os.environ.get(TOKEN_VARIABLE)
        if token and not has_one:
            if not re.fullmatch(r"[!-~]+", token):
                raise UsageError("A token has no blanks and only ASCII characters")
            found["Authorization"] = f"Bearer {token}"
        return found

    def secrets(self, headers: dict[str, str]) -> list[str]:
        """What must not be shown, the longest first."""
        sent = [value for name, value in headers.items() if name.lower() not in _HARMLESS]
        values = [*sent, *(value.partition(" ")[2] for value in sent)]
        try:
            password = urlsplit(self.url).password or ""
        except ValueError:
            password = ""
        values += [password, unquote(password)]
        return sorted({value for value in values if len(value) > 3}, key=len, reverse=True)


def read_headers(texts: Sequence[str]) -> dict[str, str]:
    """Read the texts of `--header`. Raises `CommandError` for one that is no header."""
    found: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon or not _FIELD.fullmatch(name.strip()) or _BAD_VALUE.search(value):
            raise UsageError("--header is written 'Name: value'")
        found[name.strip()] = value.strip()
    return found


def split_target(
    argv: Sequence[str], needs: int = 0, *, reads: bool = False
) -> tuple[list[str], ConnectTarget]:
    """Our own arguments, and the server: a command after `--`, or the last URL, or the first word.

    `needs` is how many words of its own the command has at least: without one word more, nothing
    names a server. A command that `reads` takes a URL after a name for what is to be read.
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
    heads = 0  # words before the first `key=value`
    while heads < len(words) and ("=" not in own[words[heads]] or reads):
        heads += 1
    if heads > needs:
        return own[: words[0]] + own[words[0] + 1 :], ConnectTarget(name=own[words[0]])
    return own, ConnectTarget()


def parse_with_server(
    parser: Parser, argv: Sequence[str], command: str
) -> tuple[Namespace, ConnectTarget]:
    """Parse options and `SERVER | URL | -- COMMAND`, of which the first two are `options.server`.

    Raises:
        CommandError: there is no server, or more than one, or an option does not fit it.
    """
    own, target = split_target(argv) if "--" in argv else (list(argv), ConnectTarget())
    options = parser.parse_intermixed_args(own)
    if options.server:
        if target.command:
            raise UsageError("There are two servers to talk to", hint="name one")
        if len(options.server) > 1:
            target.require_no_extra_arguments(options.server, command)
        _, target = split_target(options.server)
    # A --token is for clients of ours.
    about = Namespace(**{**vars(options), "token": None, "insecure_tls": False})
    target.require(about, f"fairlead {command}")
    return options, target


def _with_path(url: str) -> str:
    """A WebSocket without a path is meant to be where `fairlead serve` has it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # the library says what is wrong with it
    return url if parts.path not in ("", "/") else parts._replace(path="/ws").geturl()


def _spelled(url: str) -> str:
    """`unix:/path`, as one listens at it, is `unix:///path` for everybody else."""
    return re.sub(r"(?i)^unix:/(?!/)", "unix:///", url)


def words_in(argv: Sequence[str], take_a_value: Sequence[str]) -> list[int]:
    """Where the words are that are neither options nor their values."""
    found, skip = [], False
    for index, word in enumerate(argv):
        if skip:
            skip = False
        elif word in take_a_value:
            skip = True
        elif not word.startswith("-"):
            found.append(index)
    return found
