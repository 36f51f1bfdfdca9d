"""Keys of an issuer, fetched when they are needed and renewed in the background.

A request waits for a fetch only if the keys were never loaded, or if its token names a key that the
last set did not contain. Unknown keys cause one fetch per `COOL_DOWN` at most, however many tokens
name them. In between, a token that was issued after the last fetch may have a newer key, so it is
neither accepted nor refused. While the issuer cannot be reached, the known keys remain valid.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence

from ...errors import AuthorizationError
from ..guarded_fetch import FetchBudget, FetchedDocument, GuardedFetcher
from ..metadata import check_issuer, read_authorization_server, server_metadata_urls
from .key_set import KeySet, SigningKey, read_key_set
from .pending_tokens import PendingTokens

__all__ = ["IssuerKeys", "KeyMayBeNew", "cache_seconds"]

COOL_DOWN = 30.0  # seconds between two fetches caused by tokens with unknown keys
FIRST_RETRY = 5.0  # seconds between two attempts to load the first set
MIN_AGE, MAX_AGE = 300.0, 86_400.0  # seconds until a key set is renewed, at least and at most
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE)

log = logging.getLogger("fairlead.auth")


class KeyMayBeNew(AuthorizationError):
    """A token was issued after the last fetch of keys, and names a key that the set lacks.

    `retry_after` is the number of seconds until the keys can be fetched again.
    """

    def __init__(self, issuer: str, retry_after: int) -> None:
        super().__init__(
            f"a token names a key of {issuer} that was unknown when its keys were fetched; they "
            f"can be fetched again in {retry_after} s",
            step="token",
            issuer=issuer,
            temporary=True,
        )
        self.retry_after = retry_after


class IssuerKeys:
    """The current key set of one issuer."""

    def __init__(
        self,
        issuer: str,
        fetcher: GuardedFetcher,
        *,
        jwks_uri: str | None = None,
        keys: KeySet | None = None,
        removed: Callable[[], None] = lambda: None,
    ) -> None:
        """Without `jwks_uri`, the issuer's metadata supply the URI. `keys` are configured
        keys, which are never fetched. `removed` is called when a new set lacks a key.
        """
        self.issuer = issuer
        self.fetches = 0
        self._fetcher = fetcher
        self._configured_uri = jwks_uri
        self._uri = jwks_uri
        self._keys = keys
        self._fixed = keys is not None
        self._removed = removed
        self._due = float("inf") if self._fixed else 0.0  # time of the next renewal
        self._attempt = float("-inf")  # time of the last attempt
        self._known_at = 0.0  # Unix time at which the last successful fetch began
        self._reported = float("-inf")  # `_attempt` when a possibly new key was last logged
        self._fetching: asyncio.Task[None] | None = None
        self._pending = PendingTokens()

    async def find(
        self, key_id: str | None, algorithm: str, issued: float | None = None
    ) -> Sequence[SigningKey]:
        """Return the keys that may have signed a token, which was `issued` at this Unix time.

        Raises:
            KeyMayBeNew: The key is unknown, but may be newer than the last fetch.
            AuthorizationError: The keys were never loaded and cannot be loaded now, or too many
                tokens wait for them.
        """
        found = self.find_now(key_id, algorithm, issued)
        if found is not None:
            return found
        if self._keys is None:
            await self._load_first()
        elif self._may_fetch():
            await self._fetch()
        assert self._keys is not None
        self.renew_if_due()
        # The fetch may have failed, or may have begun before the token was issued.
        if self._lacks(self._keys, key_id) and self._is_newer(issued):
            raise self._may_be_new()
        return self._keys.find(key_id, algorithm)

    def find_now(
        self, key_id: str | None, algorithm: str, issued: float | None = None
    ) -> Sequence[SigningKey] | None:
        """Return the keys that may have signed a token; None if `find` has to fetch keys first, or
        would raise an error.
        """
        if self._keys is None:
            return None
        if self._lacks(self._keys, key_id) and (self._is_newer(issued) or self._may_fetch()):
            return None
        self.renew_if_due()
        return self._keys.find(key_id, algorithm)

    def _lacks(self, keys: KeySet, key_id: str | None) -> bool:
        return key_id is not None and not self._fixed and not keys.has(key_id)

    def _is_newer(self, issued: float | None) -> bool:
        """Return True if a token was issued after the last successful fetch began."""
        return issued is not None and issued > self._known_at

    def _may_fetch(self) -> bool:
        """Return True if a token with an unknown key may wait for a fetch, or start one."""
        return self._fetching is not None or _now() - self._attempt >= COOL_DOWN

    def _may_be_new(self) -> KeyMayBeNew:
        # The age is subtracted, because the rounded sum of two clock times may exceed the limit.
        left = max(math.ceil(COOL_DOWN - (_now() - self._attempt)), 1)
        error = KeyMayBeNew(self.issuer, left)
        # Logged once per fetch, because forged tokens may come in floods.
        if self._reported != self._attempt:
            self._reported = self._attempt
            log.warning("%s", error)
        return error

    def renew_if_due(self) -> None:
        """Start to renew the keys in the background if they are old. Returns at once."""
        if self._fetching is None and self._keys is not None and _now() >= self._due:
            self._start()

    async def close(self) -> None:
        """Cancel a fetch in progress."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))

    async def _load_first(self) -> None:
        if self._fetching is None and _now() - self._attempt < FIRST_RETRY:
            raise _unreachable(self.issuer)
        await self._fetch()
        if self._keys is None:
            raise _unreachable(self.issuer)

    async def _fetch(self) -> None:
        """Wait for the fetch in progress, which all tokens share, or for a new one."""
        with self._pending:
            # Shielded, because the fetch belongs to all requests that wait for it.
            await asyncio.shield(self._fetching or self._start())

    def _start(self) -> asyncio.Task[None]:
        self._attempt = _now()
        self._fetching = asyncio.get_running_loop().create_task(self._renew())
        return self._fetching

    async def _renew(self) -> None:
        began = time.time()
        try:
            found, age = await self._download()
        except AuthorizationError as exc:
            log.warning("cannot load the keys of the issuer %s: %s", self.issuer, exc)
            self._due = _now() + COOL_DOWN
            self._uri = self._configured_uri  # the key set may have moved
        else:
            before, self._keys, self._known_at = self._keys, found, began
            self._due = _now() + age
            if before is not None and found.lacks_a_key_of(before):
                log.info("a key of the issuer %s is no longer valid", self.issuer)
                self._removed()
        finally:
            self._fetching = None

    async def _download(self) -> tuple[KeySet, float]:
        self.fetches += 1
        budget = FetchBudget()
        if self._uri is None:
            self._uri = await self._discover(budget)
        reply = await self._fetcher.get(self._uri, budget)
        keys = read_key_set(reply.document) if reply.status == 200 else None
        if keys is None:
            raise _problem(self.issuer, reply, "is not a key set")
        return keys, cache_seconds(reply.headers)

    async def _discover(self, budget: FetchBudget) -> str:
        reply = None
        for url in server_metadata_urls(self.issuer):
            reply = await self._fetcher.get(url, budget)
            metadata = read_authorization_server(reply.document) if reply.status == 200 else None
            if metadata is not None:
                check_issuer(metadata, self.issuer)
                if metadata.jwks_uri is not None:
                    return metadata.jwks_uri
        assert reply is not None
        raise _problem(self.issuer, reply, "names no key set (jwks_uri)")


def cache_seconds(headers: Mapping[str, str]) -> float:
    """Return the seconds for which `Cache-Control` allows a key set to be used."""
    control = next((text for name, text in headers.items() if name.lower() == "cache-control"), "")
    found = _MAX_AGE.search(control)
    age = float(found[1]) if found is not None and "no-store" not in control.lower() else MIN_AGE
    return min(max(age, MIN_AGE), MAX_AGE)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unreachable(issuer: str) -> AuthorizationError:
    return AuthorizationError(
        f"the keys of the issuer {issuer} cannot be loaded", step="discovery", temporary=True
    )


def _problem(issuer: str, reply: FetchedDocument, why: str) -> AuthorizationError:
    # The message does not quote the response, which may contain secrets.
    return AuthorizationError(
        f"the issuer {issuer} responded with HTTP {reply.status} and a document that {why}",
        step="discovery",
        issuer=issuer,
        temporary=True,
    )
