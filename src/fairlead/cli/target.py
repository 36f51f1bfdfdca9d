"""Where the server is that a command talks to: a command to start, or a URL."""

import os
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from .failed import USAGE, Failed

__all__ = ["Target", "split_target"]

TOKEN_VARIABLE = "FAIRLEAD_TOKEN"

_URL = re.compile(r"(?i)(?:https?|wss?|unix)://")
_TAKE_A_VALUE = ("--args", "--header", "--timeout", "--token")
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # the name of a header
_HARMLESS = ("accept", "host", "origin", "user-agent")
_BAD_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


@dataclass(frozen=True)
class Target:
    """A server: the command that starts it, or its URL."""

    command: tuple[str, ...] = ()
    url: str = ""

    @property
    def is_websocket(self) -> bool:
        return self.url[:2].lower() == "ws"

    def require(self, options: Namespace, example: str) -> None:
        """Raises `Failed` if there is no server, or an option that does not fit it."""
        if not self.command and not self.url:
            raise Failed(
                "There is no server to talk to: its command goes after `--`, or name its URL",
                hint=f"for example `{example} -- python server.py` or "
                f"`{example} http://127.0.0.1:8080`",
                code=USAGE,
            )
        given = {
            "--header": options.header,
            "--token": options.token is not None,
            "--sse": options.sse,
            "--insecure-tls": options.insecure_tls,
        }
        wrong = [name for name, value in given.items() if value]
        if self.command and wrong:
            raise Failed(f"{wrong[0]} is for a server that has a URL", code=USAGE)
        if self.is_websocket and options.sse:
            raise Failed("--sse is for HTTP, and this is a WebSocket", code=USAGE)

    def require_no_stray(self, words: Sequence[str], name: str) -> None:
        """Raises `Failed` for words that are no arguments of a command that takes none."""
        if not words:
            return
        if self.url or _URL.match(words[0]):
            raise Failed(
                "There are two servers to talk to",
                hint="name one: a URL, or a command after `--`",
                code=USAGE,
            )
        raise Failed(
            "The server's command goes after `--`",
            hint=f"`fairlead {name} -- {' '.join(words)}`",
            code=USAGE,
        )

    def headers(self, options: Namespace) -> dict[str, str]:
        """What is sent with every request.

        Raises:
            Failed: for what is no header; values may be secret and are not shown.
        """
        found: dict[str, str] = {}
        for text in options.header:
            name, colon, value = text.partition(":")
            if not colon or not _FIELD.fullmatch(name) or _BAD_VALUE.search(value):
                raise Failed("--header is written 'Name: value'", code=USAGE)
            found[name] = value.strip()
        has_one = any(name.lower() == "authorization" for name in found)
        if has_one and options.token is not None:
            raise Failed("--token and an Authorization header exclude each other", code=USAGE)
        token = options.token or os.environ.get(TOKEN_VARIABLE)
        if token and not has_one:
            if not re.fullmatch(r"[!-~]+", token):
                raise Failed("A token has no blanks and only ASCII characters", code=USAGE)
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


def split_target(argv: Sequence[str]) -> tuple[list[str], Target]:
    """Our own arguments, and the server: a command after `--`, or else the last URL."""
    if "--" in argv:
        index = argv.index("--")
        return list(argv[:index]), Target(command=tuple(argv[index + 1 :]))
    own = list(argv)
    for index in reversed(range(len(own))):
        is_value = index > 0 and own[index - 1] in _TAKE_A_VALUE
        if _URL.match(own[index]) and not is_value:
            return own[:index] + own[index + 1 :], Target(url=own[index])
    return own, Target()
