"""Authorization settings of a server."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import urlsplit

from ...errors import ConfigError
from ...observe.log_filter import register_secrets
from ...protocol.identity.client_names import UNNAMED, is_reserved
from ...protocol.identity.principal_scopes import scope_tuple
from ...protocol.identity.scoped_name import ScopedName
from ...protocol.identity.token_principal import TOKEN_PRINCIPAL
from ..guarded_fetch import GuardedFetcher
from .access_control import ServerAccess
from .access_policy import AccessPolicy
from .issuer_keys import IssuerKeys
from .key_set import ALGORITHMS, read_key_set
from .proof_check import ProofCheck
from .resource_document import check_public_url, resource_url
from .token_claims import TokenVerdict, expand_scopes
from .token_verifiers import (
    FunctionVerifier,
    IntrospectionVerifier,
    JwtVerifier,
    NamedVerdict,
    TokenVerifier,
    VerifyFunction,
)

__all__ = ["Introspection", "ServerAuth", "StaticClient", "TokenIssuer"]


@dataclass(frozen=True, kw_only=True)
class StaticClient:
    """A client with a configured token."""

    name: str
    scopes: str | Sequence[str] = ()


@dataclass(frozen=True)
class TokenIssuer:
    """An authorization server whose signed tokens are accepted."""

    issuer: str  # exact value of `iss`
    jwks_uri: str | None = None  # None: from the metadata of the issuer
    jwks: Mapping[str, Any] | None = field(default=None, repr=False)  # configured keys
    # URL announced to clients; None: the issuer, which must then be a URL
    authorization_server: str | None = None


@dataclass(frozen=True, kw_only=True)
class Introspection:
    """The endpoint that verifies opaque tokens (RFC 7662)."""

    url: str  # URL of the introspection endpoint
    client_id: str  # client id of this server at the endpoint
    client_secret: str = field(repr=False)  # client secret of this server at the endpoint
    require_audience: bool = True  # False: accept responses with a `token_type` but without `aud`


@dataclass(kw_only=True)
class ServerAuth:
    """Authorization of a server: the access tokens that it accepts, and their required content.

    `issuer` alone is enough for signed tokens (JWT): their keys are found through the metadata of
    the issuer, and their audience must be the URL of the endpoint.

        server = MCPServer("notes", auth=ServerAuth(
            issuer="https://login.example.com", public_url="https://mcp.example.com"
        ))
    """

    # the authorization servers; clients get the first one as the default
    issuer: str | TokenIssuer | Sequence[str | TokenIssuer] = ()
    audience: str | Sequence[str] | None = None  # None: the URL of each endpoint
    public_url: str | None = None  # base URL for clients; None: the server's loopback address
    scopes: str | Sequence[str] = ()  # required for every request
    # further scopes that clients request at their first login, but that only some requests need
    login_scopes: str | Sequence[str] = ()
    scopes_supported: str | Sequence[str] | None = (
        None  # published scopes; None: all scopes that any request requires
    )
    # narrower scopes that a scope includes, such as {"admin": ["read", "write"]}
    implied_scopes: Mapping[str, str | Sequence[str]] | None = None
    algorithms: Sequence[str] = tuple(ALGORITHMS)  # accepted signature algorithms
    introspection: Introspection | None = None  # verifies all tokens that are not in `tokens`
    # verifies all tokens that are not in `tokens`, instead of `introspection`
    verify: VerifyFunction | None = field(default=None, repr=False)
    # names of clients by their token
    tokens: Mapping[str, str | StaticClient] | None = field(default=None, repr=False)
    remember: float = 60.0  # seconds for which results of `introspection` and `verify` are cached
    dpop: Literal["off", "allowed", "required"] = "off"  # tokens bound to a client's key
    dpop_nonce: bool = False  # require a nonce from this server in proofs
    private_issuers: bool = False  # permit authorization servers in private networks

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: A setting is invalid, or no token could ever be accepted.
        """
        if self.public_url is not None:
            check_public_url(self.public_url)
        if self.dpop not in ("off", "allowed", "required"):
            raise ConfigError(f"invalid dpop {self.dpop!r}: expected off, allowed or required")
        self._check_values()
        for name in self.algorithms:
            if name not in ALGORITHMS:
                known = ", ".join(ALGORITHMS)
                raise ConfigError(f"invalid algorithm {name!r}: expected one of {known}")
        if self.introspection is not None and self.verify is not None:
            raise ConfigError("set either introspection or verify, not both")
        if not self.issuers and not self.tokens and not (self.introspection or self.verify):
            raise ConfigError(
                "no token would be accepted: set issuer, introspection, verify or tokens"
            )
        for issuer in self.issuers:
            _check_issuer(issuer, signed=self.introspection is None and self.verify is None)
        if "" in _listed(self.audience):
            raise ConfigError("invalid audience '': expected the `aud` of tokens, or None")
        for token, client in (self.tokens or {}).items():
            name = client if isinstance(client, str) else client.name
            _check_name(name)
            if not token:
                raise ConfigError(f"the token of the client {name!r} is empty")

    def _check_values(self) -> None:
        """Check values that would otherwise cause no error before the first request."""
        given = self.issuer
        several = given if isinstance(given, Sequence) else (given,)
        if not all(isinstance(one, str | TokenIssuer) for one in several):
            raise ConfigError(
                f"invalid issuer {self.issuer!r}: expected the URL of an authorization server"
            )
        if not self.algorithms or isinstance(self.algorithms, str):
            raise ConfigError(
                f"invalid algorithms {self.algorithms!r}: expected a list such as ['RS256']"
            )
        if not 0 <= self.remember < float("inf"):
            raise ConfigError(f"invalid remember {self.remember!r}: expected seconds")
        if self.introspection is not None and not _is_url(self.introspection.url):
            raise ConfigError(
                f"invalid url {self.introspection.url!r} of Introspection: expected the URL of the "
                "introspection endpoint"
            )

    @property
    def issuers(self) -> tuple[TokenIssuer, ...]:
        """The authorization servers as a tuple."""
        given = self.issuer
        many = (given,) if isinstance(given, str | TokenIssuer) else given
        return tuple(TokenIssuer(one) if isinstance(one, str) else one for one in many)

    @property
    def has_login(self) -> bool:
        """True if clients can log in at an authorization server, and need no configured token."""
        return bool(self.issuers)

    def client_url(self, url: str, path: str) -> str:
        """Return the URL of an endpoint for clients; `url` is its URL on this machine."""
        if self.public_url is None:
            return url
        return resource_url(check_public_url(self.public_url), path)

    def open_access(self, scopes: Callable[[], Sequence[str]] = tuple) -> ServerAccess:
        """Return the access control of one application; `scopes` returns its entries' scopes."""
        access = ServerAccess(scopes)
        self.change_access(access, None)
        return access

    def change_access(self, access: ServerAccess, before: "ServerAuth | None") -> None:
        """Apply these settings to an application that uses the settings `before`, if any.

        Keys and verdicts of issuers are kept if nothing that they depend on has changed.

        Raises:
            ConfigError: `public_url` contains the path of an endpoint; nothing was changed.
        """
        unchanged = self._unchanged_issuers(before)
        always, login = scope_tuple(self.scopes), scope_tuple(self.login_scopes)
        published = None if self.scopes_supported is None else scope_tuple(self.scopes_supported)
        rules = AccessPolicy(
            public_url=self.public_url,
            authorization_servers=tuple(
                one.authorization_server or one.issuer for one in self.issuers
            ),
            audiences=_listed(self.audience),
            scopes=always,
            login_scopes=login,
            scopes_supported=lambda: (
                (*always, *login, *access.scopes()) if published is None else published
            ),
            tokens={
                sha256(token.encode()).digest(): self._scoped(client)
                for token, client in (self.tokens or {}).items()
            },
            names=None if self.verify is not None else self._names,
            verifier=self._make_verifier(access, unchanged),
            bearer=self.dpop != "required",
            proofs=self._proofs(access, before),
        )
        same = before is not None and self._judgement == before._judgement
        names = {one.issuer for one in unchanged}
        access.replace_rules(rules, lambda verdict: same and _issuer_of(verdict) in names)
        register_secrets(access, self._secrets)

    @property
    def _judgement(self) -> tuple[object, ...]:
        """The settings on which every verdict depends."""
        return (
            *(self.audience, self.public_url, self.algorithms, self.implied_scopes),
            *(self.introspection, self.verify, self.remember),
        )

    def _unchanged_issuers(self, before: "ServerAuth | None") -> tuple[TokenIssuer, ...]:
        """Return the issuers whose keys can still be used."""
        if before is None or self._reach != before._reach:
            return ()
        return tuple(one for one in self.issuers if one in before.issuers)

    def _proofs(self, access: ServerAccess, before: "ServerAuth | None") -> ProofCheck | None:
        if self.dpop == "off":
            return None
        known = access.rules.proofs
        if known is not None and before is not None and before.dpop_nonce == self.dpop_nonce:
            return known  # accepted proofs must not be accepted again
        return ProofCheck(nonces=self.dpop_nonce)

    def _secrets(self) -> dict[str, object]:
        """Return the secrets of the settings, which must not appear in logs."""
        asked = self.introspection
        secret = None if asked is None else asked.client_secret
        return {"tokens": [{"token": token} for token in self.tokens or ()], "secret": secret}

    @property
    def _names(self) -> frozenset[str]:
        """The names of the clients with configured tokens."""
        clients = (self.tokens or {}).values()
        return frozenset(one if isinstance(one, str) else one.name for one in clients)

    def _scoped(self, client: str | StaticClient) -> ScopedName:
        if isinstance(client, str):
            return ScopedName(client)
        return ScopedName(
            client.name, expand_scopes(scope_tuple(client.scopes), self._implied_scopes)
        )

    @property
    def _implied_scopes(self) -> dict[str, tuple[str, ...]]:
        return {name: scope_tuple(several) for name, several in (self.implied_scopes or {}).items()}

    def _make_verifier(
        self, access: ServerAccess, unchanged: Sequence[TokenIssuer]
    ) -> TokenVerifier | None:
        if self.verify is not None:
            return FunctionVerifier(self.verify, self.remember, self._names, self._implied_scopes)
        loopback, private = self._reach
        fetcher = GuardedFetcher(
            allow_loopback=loopback, allow_private=private, private_setting="private_issuers"
        )
        if self.introspection is not None:
            asked = self.introspection
            return IntrospectionVerifier(
                asked.url,
                fetcher,
                client_id=asked.client_id,
                client_secret=asked.client_secret,
                issuers=[one.issuer for one in self.issuers],
                remember=min(self.remember, 60.0),
                require_audience=asked.require_audience,
                implied=self._implied_scopes,
            )
        if not self.issuers:
            return None
        used = access.rules.verifier
        issuers = []
        for one in self.issuers:
            known = None
            if one in unchanged and isinstance(used, JwtVerifier):
                known = used.keys_of(one.issuer)
            issuers.append(known or _keys_of(one, fetcher, access.forget_verdicts))
        return JwtVerifier(issuers, self.algorithms, self._implied_scopes)

    @property
    def _reach(self) -> tuple[bool, bool]:
        """Two flags: servers on this machine, and servers in private networks, are permitted."""
        return self.private_issuers or self._is_local, self.private_issuers

    @property
    def _is_local(self) -> bool:
        """True if only clients on the same machine can reach this server."""
        from ipaddress import ip_address

        if self.public_url is None:
            return True
        host = urlsplit(self.public_url).hostname or ""
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def _keys_of(
    issuer: TokenIssuer, fetcher: GuardedFetcher, removed: Callable[[], None]
) -> IssuerKeys:
    keys = None if issuer.jwks is None else read_key_set(dict(issuer.jwks))
    if issuer.jwks is not None and (keys is None or not keys.keys):
        raise ConfigError(f"the configured keys of the issuer {issuer.issuer!r} are not usable")
    return IssuerKeys(issuer.issuer, fetcher, jwks_uri=issuer.jwks_uri, keys=keys, removed=removed)


def _issuer_of(verdict: TokenVerdict | NamedVerdict) -> str | None:
    return verdict.principal.issuer if isinstance(verdict, TokenVerdict) else None


def _check_issuer(issuer: TokenIssuer, *, signed: bool) -> None:
    if not issuer.issuer:
        raise ConfigError("invalid issuer '': expected the `iss` of tokens")
    if signed and issuer.jwks_uri is None and issuer.jwks is None and not _is_url(issuer.issuer):
        raise ConfigError(
            f"the issuer {issuer.issuer!r} is not a URL, so its keys cannot be found: "
            "use TokenIssuer(..., jwks_uri=...)"
        )
    if issuer.jwks_uri is not None and not _is_url(issuer.jwks_uri):
        raise ConfigError(
            f"invalid jwks_uri {issuer.jwks_uri!r} of the issuer {issuer.issuer!r}: expected a URL"
        )
    if not _is_url(issuer.authorization_server or issuer.issuer):
        raise ConfigError(
            f"the issuer {issuer.issuer!r} is not a URL that clients can use: "
            "set authorization_server of TokenIssuer"
        )


def _is_url(text: str) -> bool:
    if not text.startswith(("https://", "http://")) or not text.isprintable() or " " in text:
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def _check_name(name: str) -> None:
    if is_reserved(name):
        raise ConfigError(
            f"invalid client name {name!r}: expected a name that is neither {UNNAMED!r} nor "
            f"begins with {TOKEN_PRINCIPAL!r}"
        )


def _listed(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
