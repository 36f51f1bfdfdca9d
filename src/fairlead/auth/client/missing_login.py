"""Errors about a login that is missing or lacks scopes, with the command that obtains it."""

import re
import shlex
from collections.abc import Iterable

from ...errors import LoginRequired
from ..challenge import Challenge
from ..metadata import named_endpoint
from ..storage.credential_store import StoredLogin

__all__ = ["MissingLogin"]

MAX_SCOPES = 50  # maximum number of scopes in an error
# The characters of a scope (RFC 6749, section 3.3). Scopes come from the server.
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,200}")


class MissingLogin:
    """Builds errors about the login of one server."""

    def __init__(self, url: str, host: str, remedy: str) -> None:
        """`remedy` is the hint on how to log in, such as "run `fairlead login NAME`"."""
        self._url = url
        self._host = host
        self._remedy = remedy

    def login(
        self,
        previous: StoredLogin | None,
        why: str = "",
        challenge: Challenge | None = None,
    ) -> LoginRequired:
        """Return the error about a missing login, or about a `previous` one that has ended.

        The `challenge` of the server may show that the URL has the wrong path.
        """
        what = "requires a login" if previous is None else "requires a new login"
        text = f"{self._host} {what}{why}"
        named = [] if challenge is None else challenge.values("resource_metadata")
        endpoint = next(filter(None, (named_endpoint(self._url, one) for one in named)), "")
        remedy = self._remedy
        if endpoint:
            text += f"; its endpoint is {endpoint}, not {self._url}"
            remedy = remedy.replace(f" {self._url}`", f" {shlex.quote(endpoint)}`")
            remedy = remedy and f"use that URL, and {remedy}"
        return LoginRequired(
            text,
            remedy=remedy,
            server=self._url,
            issuer="" if previous is None else previous.issuer,
            endpoint=endpoint,
        )

    def scopes(self, needed: Iterable[str], login: StoredLogin | None) -> LoginRequired:
        """Return the error about a login that lacks needed scopes.

        The command requests the missing scopes and those that were requested before.
        """
        needed = _valid(needed)
        granted = () if login is None else login.tokens.scopes
        requested = () if login is None else (*login.requested, *granted)
        missing = tuple(scope for scope in needed if scope not in granted) or needed
        wanted = dict.fromkeys((*_valid(requested), *needed))
        options = [f"--scope {shlex.quote(scope)}" for scope in wanted]
        return LoginRequired(
            f"{self._host} requires more scopes ({' '.join(missing)})",
            remedy=_with_options(self._remedy, *options),
            server=self._url,
            issuer="" if login is None else login.issuer,
            scopes=missing,
            login_scopes=tuple(wanted),
        )


def _valid(scopes: Iterable[str]) -> tuple[str, ...]:
    return tuple(scope for scope in scopes if _SCOPE.fullmatch(scope))[:MAX_SCOPES]


def _with_options(remedy: str, *options: str) -> str:
    """Return a remedy such as "run `fairlead login NAME`" with options of the command."""
    command = remedy.removesuffix("`")
    return " ".join((command, *options)) + remedy[len(command) :] if remedy else ""
