"""Access control with access tokens for the endpoints of an application."""

import asyncio
import logging
import re
import time
from collections.abc import Callable, Container, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from ...errors import AuthorizationError, ConfigError
from ...protocol.caller import Principal
from ...protocol.identity.principal_scopes import missing_scopes
from ...protocol.identity.scoped_name import ScopedName
from ...protocol.identity.token_principal import TokenPrincipal
from ...transport.http.server.request_guard import RequestRefusal
from ...wire import to_json
from ..dpop import DPOP_ALGORITHMS
from .access_challenges import AccessChallenges
from .access_policy import AccessPolicy
from .issuer_keys import KeyMayBeNew
from .proof_check import BadProof, NonceDemanded
from .resource_document import (
    WELL_KNOWN,
    check_public_url,
    metadata_url,
    resource_document,
    resource_url,
)
from .token_claims import MAX_TOKEN, BadToken, TokenVerdict, WrongAudience, audience_forms
from .token_verifiers import NamedVerdict, TokenVerifier

__all__ = ["EndpointAccess", "ServerAccess"]

MAX_VERDICTS = 10_000  # maximum number of verdicts kept per endpoint
MAX_REFUSED = 10_000  # maximum number of remembered refusals per endpoint
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")  # name of an endpoint below a reserved path
_TOKEN = re.compile(rb"[A-Za-z0-9\-._~+/]+=*")  # `b64token` of RFC 6750

log = logging.getLogger("fairlead.auth")

Verdict = TokenVerdict | NamedVerdict


class ServerAccess:
    """Access control of one application: the verdicts of all endpoints, and their metadata.

    The rules can be replaced while the application runs.
    """

    def __init__(self, scopes: Callable[[], Sequence[str]]) -> None:
        """`scopes` returns the scopes that individual entries require."""
        self.scopes = scopes
        self.rules = AccessPolicy()
        self.generation = 0  # increases when earlier verdicts may be wrong
        self.watchers: set[Callable[[], object]] = set()  # called when verdicts are withdrawn
        self._base: str | None = None
        self._endpoints: dict[str, EndpointAccess] = {}
        self._reserved: str | None = None
        self._replaced: list[TokenVerifier] = []  # they may still be waiting for a response

    def replace_rules(
        self, rules: AccessPolicy, kept: Callable[[Verdict], bool] = lambda verdict: False
    ) -> None:
        """Apply other rules from the next request on. Earlier verdicts that are not `kept` are
        forgotten; streams stay open if their tokens are still accepted.

        Raises:
            ConfigError: `public_url` contains the path of an endpoint; nothing was changed.
        """
        if rules.public_url is not None:
            self._base = check_public_url(rules.public_url, next(iter(self._endpoints), None))
        if self.rules.verifier is not None and self.rules.verifier is not rules.verifier:
            self._replaced.append(self.rules.verifier)
        self.rules = rules
        for access in self._endpoints.values():
            access.rules_replaced(kept)
        self._withdraw()

    def refuse_all(self) -> None:
        """Accept no token from the next request on."""
        self.replace_rules(AccessPolicy())

    def endpoint(self, path: str, aliases: Mapping[str, str] | None = None) -> "EndpointAccess":
        """Return the verifier for an endpoint. `aliases` maps further paths of the server to
        the path that clients connect to.

        Raises:
            ConfigError: `public_url` contains the path of the endpoint.
        """
        if self.rules.public_url is not None and not self._endpoints:
            check_public_url(self.rules.public_url, path)
        access = EndpointAccess(self, path, aliases or {})
        self._endpoints[path] = access
        return access

    def forget(self, path: str) -> None:
        """Forget an endpoint that is no longer served."""
        self._endpoints.pop(path, None)

    def reserve(self, path: str) -> None:
        """Treat every name below a path as an endpoint, so that neither metadata nor challenges
        reveal which endpoints exist.
        """
        self._reserved = path.rstrip("/") + "/"

    def unused(self, path: str) -> "EndpointAccess | None":
        """Return the verifier for a path without an endpoint below the reserved path; None
        for all other paths.

        The verifier is not stored, because clients choose the name.
        """
        path = path.rstrip("/")
        if self._reserved is None or path in self._endpoints:
            return None
        if not path.startswith(self._reserved):
            return None
        if not _NAME.fullmatch(path, len(self._reserved)):
            return None
        return EndpointAccess(self, path, {})

    def listens_at(self, url: str | None) -> None:
        """Set the address of the socket: a URL on this machine, or None if there is no such URL.

        Raises:
            ConfigError: The metadata URLs are unknown; set `public_url`.
        """
        if self._base is None and url is not None:
            self._base = check_public_url(url)
        self.check_address()

    def check_address(self) -> None:
        """Check that the metadata URLs are known.

        Raises:
            ConfigError: The metadata URLs are unknown; set `public_url`.
        """
        rules = self.rules
        if self._base is None and (rules.authorization_servers or rules.verifier is not None):
            raise ConfigError(
                "the public URL of this server is not known: set public_url of ServerAuth to the "
                "URL that clients use, such as https://mcp.example.com"
            )

    @property
    def base(self) -> str | None:
        """The public base URL of the endpoints, if it is known."""
        return self._base

    def metadata(self, path: str) -> bytes | None:
        """Return the metadata document at a path below `/.well-known`, or None."""
        if not self.rules.authorization_servers or self._base is None:
            return None
        if not path.startswith(WELL_KNOWN):
            return None
        named = path.removeprefix(WELL_KNOWN).rstrip("/")
        found = self._endpoint_at(named)
        return None if found is None else to_json(found[0].document(found[1]))

    def _endpoint_at(self, path: str) -> "tuple[EndpointAccess, str] | None":
        if not path and len(self._endpoints) == 1:
            return next((one, one.path) for one in self._endpoints.values())
        assert self._base is not None
        prefix = "/" + "/".join(self._base.split("/")[3:]) if self._base.count("/") > 2 else ""
        for name in dict.fromkeys((path, path.removeprefix(prefix))):
            for access in self._endpoints.values():
                if name in access.paths:
                    return access, name
            if (unused := self.unused(name)) is not None:
                return unused, unused.path
        return None

    def forget_verdicts(self) -> None:
        """Verify every token again with its next request, because a key was withdrawn."""
        for access in self._endpoints.values():
            access.forget_verdicts()
        self._withdraw()

    def _withdraw(self) -> None:
        self.generation += 1
        for changed in list(self.watchers):
            changed()

    async def close(self) -> None:
        """Cancel requests to authorization servers."""
        for verifier in (self.rules.verifier, *self._replaced):
            if verifier is not None:
                await verifier.close()


class EndpointAccess:
    """Verification of the tokens in requests to one endpoint."""

    def __init__(self, server: ServerAccess, path: str, aliases: Mapping[str, str]) -> None:
        self.path = path.rstrip("/")
        self.paths = frozenset(one.rstrip("/") for one in (path, *aliases.values()))
        self._aliases = aliases
        self.verdicts: dict[bytes, Verdict] = {}
        # Time until which a token is refused without being verified again, and the reason.
        self._refused: dict[bytes, tuple[float, type[BadToken], str]] = {}
        self.server = server
        self._audiences: frozenset[str] | None = None
        self._judging: dict[bytes, asyncio.Task[Verdict]] = {}
        self._challenges: dict[str, AccessChallenges] = {}

    @property
    def names(self) -> Container[str] | None:
        """The names of clients with a configured token; None if a function returns names."""
        return self.server.rules.names

    @property
    def host(self) -> str | None:
        """The host of the public URL, with a port if it has one."""
        base = self.server.base
        return None if base is None else urlsplit(base).netloc

    def verify_now(
        self, headers: Mapping[bytes, bytes], method: str, path: str | None
    ) -> Principal | RequestRefusal | None:
        """Return the principal of a token or its refusal, or None if `verify` has to decide.

        Tokens bound to a key are left to `verify`, because each of their requests needs a proof.
        """
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        digest = sha256(token).digest()
        verdict, rules = self.verdicts.get(digest), self.server.rules
        if verdict is None:
            if not rules.bearer:
                return None
            name = rules.tokens.get(digest)
            return self._decided(digest, token, path) if name is None else name
        if verdict.key is not None or time.time() >= verdict.until or not rules.bearer:
            return None
        if rules.verifier is not None:
            rules.verifier.renew_if_due()
        return verdict.principal

    def _decided(
        self, digest: bytes, token: bytes, path: str | None
    ) -> Principal | RequestRefusal | None:
        """Return the outcome for a new token if no wait is needed; a flood of forged tokens then
        costs neither a task nor the ASGI path.
        """
        verifier = self.server.rules.verifier
        if verifier is None or len(token) > MAX_TOKEN or _TOKEN.fullmatch(token) is None:
            return None
        text = token.decode()
        try:
            verdict = verifier.verify_now(text, self._expected_audiences())
        except BadToken as exc:
            return self._challenges_at(path).invalid(self._why(exc, path))
        if verdict is None:
            return None
        kept = self._keep(digest, text, verdict)
        return kept.principal if kept.key is None else None

    async def verify(
        self, headers: Mapping[bytes, bytes], method: str, path: str | None
    ) -> Principal | RequestRefusal:
        """Return the principal of a request, or the refusal with its challenge."""
        challenges, rules = self._challenges_at(path), self.server.rules
        scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
        kind, token = scheme.lower(), rest.strip()
        if kind not in (b"bearer", b"dpop"):
            return challenges.missing()
        digest = sha256(token).digest()
        name = rules.tokens.get(digest)
        if name is not None and kind == b"bearer" and rules.bearer:
            return name
        if len(token) > MAX_TOKEN or _TOKEN.fullmatch(token) is None:
            return challenges.malformed("expected one token after the scheme")
        try:
            verdict = await self.judge(digest, token.decode())
            return self._bound(kind, verdict, token.decode(), headers, method, path)
        except BadToken as exc:
            return challenges.invalid(self._why(exc, path))
        except BadProof as exc:
            proofs = rules.proofs
            nonce = None if proofs is None else proofs.nonce()
            demanded = isinstance(exc, NonceDemanded)
            return challenges.bad_proof(str(exc), nonce, demand_nonce=demanded)
        except KeyMayBeNew as exc:  # logged with the keys, once per fetch
            return challenges.unavailable(exc.retry_after)
        except AuthorizationError as exc:
            log.warning("an access token cannot be verified: %s", exc)
            return challenges.unavailable()

    def forget_verdicts(self) -> None:
        """Verify every token again with its next request."""
        self.verdicts.clear()
        self._refused.clear()

    def rules_replaced(self, kept: Callable[[Verdict], bool]) -> None:
        """Forget everything that depends on the earlier rules."""
        self.verdicts = {digest: one for digest, one in self.verdicts.items() if kept(one)}
        self._refused.clear()
        self._challenges.clear()
        self._audiences = None

    def refuse_scopes(
        self, principal: Principal, scopes: Sequence[str], path: str | None = None
    ) -> RequestRefusal | None:
        """Return the 403 for a principal that lacks a scope, or None."""
        always = self.server.rules.scopes
        needed = (*always, *scopes) if scopes else always
        if not needed or not missing_scopes(principal, needed):
            return None
        return self._challenges_at(path).insufficient(scopes)

    async def judge(self, digest: bytes, token: str) -> Verdict:
        """Return the verdict on a token, which is remembered by its hash.

        Raises:
            BadToken: The token is not valid here.
            AuthorizationError: The token cannot be verified now.
        """
        verdict = self.verdicts.get(digest)
        if verdict is not None and time.time() < verdict.until:
            return verdict
        until, kind, why = self._refused.get(digest, (0.0, BadToken, ""))
        if time.time() < until:
            raise kind(why)
        task = self._judging.get(digest)
        if task is None:
            work = self._remembered(digest, token)
            task = self._judging[digest] = asyncio.get_running_loop().create_task(work)
        # Shielded, because other requests with the same token wait for the same verdict.
        return await asyncio.shield(task)

    async def _remembered(self, digest: bytes, token: str) -> Verdict:
        try:
            return self._keep(digest, token, await self._verified(token))
        except BadToken as exc:
            if exc.until:
                self._refused.pop(digest, None)
                if len(self._refused) >= MAX_REFUSED:
                    del self._refused[next(iter(self._refused))]
                self._refused[digest] = exc.until, type(exc), str(exc)
            raise
        finally:
            del self._judging[digest]

    def _keep(self, digest: bytes, token: str, verdict: Verdict) -> Verdict:
        standing = _Standing(self, digest, token)
        verdict = replace(verdict, principal=verdict.principal.with_standing(standing))
        if len(self.verdicts) >= MAX_VERDICTS:
            self._drop_some()
        self.verdicts[digest] = verdict
        return verdict

    async def _verified(self, token: str) -> Verdict:
        server = self.server
        while True:
            verifier, generation = server.rules.verifier, server.generation
            if verifier is None:
                raise BadToken("the token is not accepted")
            verdict = await verifier.verify(token, self._expected_audiences())
            # Verified again if rules or keys were replaced meanwhile.
            if generation == server.generation:
                return verdict

    def _drop_some(self) -> None:
        """Drop all expired verdicts; if none has expired, drop the oldest tenth."""
        now = time.time()
        ended = [digest for digest, verdict in self.verdicts.items() if verdict.until <= now]
        for digest in ended or list(self.verdicts)[: MAX_VERDICTS // 10]:
            del self.verdicts[digest]

    def _bound(
        self,
        kind: bytes,
        verdict: Verdict,
        token: str,
        headers: Mapping[bytes, bytes],
        method: str,
        path: str | None,
    ) -> Principal:
        """Return the principal of a token, if its scheme and proof match its binding to a key.

        Raises:
            BadToken: A bound token has the scheme Bearer, or an unbound token the scheme DPoP.
            BadProof: The proof is invalid.
        """
        rules = self.server.rules
        if kind == b"bearer":
            if verdict.key is not None:
                raise BadToken("the token is bound to a key and requires a DPoP proof")
            if not rules.bearer:
                raise BadToken("only tokens that are bound to a key are accepted (DPoP)")
            return verdict.principal
        if rules.proofs is None or verdict.key is None:
            raise BadToken("the token is not bound to a key; use the scheme Bearer")
        proof = headers.get(b"dpop")
        if proof is None:
            raise BadProof("the request has no proof (header DPoP)")
        url = f"{self.server.base}{self.path if path is None else path}"
        text = proof.decode("latin-1")
        rules.proofs.check(text, method=method, url=url, token=token, key=verdict.key)
        return verdict.principal

    def _expected_audiences(self) -> frozenset[str]:
        if self._audiences is None:
            base, configured = self.server.base, self.server.rules.audiences
            # The base URL is known before the first request is served.
            own = [] if base is None else [resource_url(base, path) for path in self.paths]
            self._audiences = audience_forms(configured or own)
        return self._audiences

    def _why(self, exc: BadToken, path: str | None) -> str:
        """Return the reason to refuse a token, with the expected audience if that is the reason.

        The audience is not secret: the metadata publish it as well.
        """
        base, configured = self.server.base, self.server.rules.audiences
        if not isinstance(exc, WrongAudience) or base is None:
            return str(exc)
        named = configured[0] if configured else resource_url(base, self._name_of(path))
        return f"{exc}, expected {named}"

    def _name_of(self, path: str | None) -> str:
        """Return the path that clients connect to; paths of pages have that of the endpoint."""
        named = None if path is None else self._aliases.get(path)
        return self.path if named is None else named.rstrip("/")

    def _challenges_at(self, path: str | None) -> AccessChallenges:
        """Return the challenges for a path."""
        name = self._name_of(path)
        found = self._challenges.get(name)
        if found is None:
            base, rules = self.server.base, self.server.rules
            published = base is not None and rules.authorization_servers
            found = self._challenges[name] = AccessChallenges(
                metadata_url(base, name) if published and base is not None else None,
                rules.scopes,
                login_scopes=rules.login_scopes,
                bearer=rules.bearer,
                proof_algorithms=DPOP_ALGORITHMS if rules.proofs is not None else (),
            )
        return found

    def document(self, path: str) -> dict[str, Any]:
        """Return the metadata of the endpoint, for one of its paths."""
        base, rules = self.server.base, self.server.rules
        assert base is not None
        return resource_document(
            resource_url(base, path),
            rules.authorization_servers,
            rules.scopes_supported(),
            proof_algorithms=DPOP_ALGORITHMS if rules.proofs is not None else (),
            proof_required=not rules.bearer,
        )


class _Standing:
    """A token that opened a stream; see `TokenStanding`. The token is not displayed."""

    __slots__ = ("_access", "_digest", "_generation", "_token")

    def __init__(self, access: EndpointAccess, digest: bytes, token: str) -> None:
        self._access = access
        self._generation = access.server.generation
        self._digest = digest
        self._token = token

    def due(self) -> float:
        verifier = self._access.server.rules.verifier
        if verifier is not None:
            verifier.renew_if_due()
        verdict = self._access.verdicts.get(self._digest)
        # A kept verdict is checked too, because the rules may require other scopes or a proof.
        is_old = self._generation != self._access.server.generation
        return 0.0 if verdict is None or is_old else verdict.until

    async def check(self) -> TokenPrincipal | ScopedName | None:
        self._generation = self._access.server.generation
        try:
            verdict = await self._access.judge(self._digest, self._token)
        except BadToken:
            return None
        rules = self._access.server.rules
        accepted = rules.bearer if verdict.key is None else rules.proofs is not None
        if not accepted or missing_scopes(verdict.principal, rules.scopes):
            return None
        return verdict.principal

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        watchers = self._access.server.watchers
        watchers.add(changed)
        return lambda: watchers.discard(changed)
