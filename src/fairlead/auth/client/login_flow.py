"""One login at an authorization server, from discovery to a record that can be stored.

The grant decides how tokens are obtained; discovery, registration and the record are the same for
all grants.
"""

import asyncio
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ...errors import AuthorizationError
from ..challenge import Challenge
from ..dpop import DpopKey
from ..guarded_fetch import GuardedFetcher
from ..metadata import AuthorizationServer, canonical_resource, check_pkce
from ..scopes import choose_scopes
from ..storage.credential_store import CredentialStore, StoredLogin
from ..token_response import (
    ClientRegistration,
    TokenSet,
    choose_auth_method,
    oauth_error,
    read_registration,
)
from .authorization_discovery import DiscoveredServer, discover
from .interactive_login import (
    Authorize,
    BrowserLogin,
    LoginPrompt,
    ask_person,
    ask_program,
    default_redirect_uri,
)
from .loopback_listener import LoopbackListener
from .oauth_settings import EnterpriseLogin, OAuthSettings
from .token_endpoint import TokenEndpoint, read_text

__all__ = ["LoginFlow", "LoginTarget"]

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
# The server no longer knows the client, so a dynamic registration has to be repeated.
_UNKNOWN_CLIENT = ("invalid_client", "unauthorized_client")


class LoginTarget(Struct, frozen=True):
    """The login of one owner at one server."""

    url: str  # of the server
    owner: str = ""
    server: str = ""  # key in the store


class LoginFlow:
    """Obtains tokens for one server with one grant."""

    def __init__(
        self,
        target: LoginTarget,
        settings: OAuthSettings,
        store: CredentialStore,
        fetcher: GuardedFetcher,
        *,
        authorize: Authorize | None = None,
        prompt: LoginPrompt | None = None,
    ) -> None:
        self._target = target
        self._settings = settings
        self._store = store
        self._fetcher = fetcher
        self._authorize = authorize
        self._prompt = prompt

    @property
    def possible(self) -> bool:
        """True if this program can log in: alone, or with a person that it can ask."""
        interactive = self._settings.grant in ("authorization_code", "device_code")
        return not interactive or self._authorize is not None or self._prompt is not None

    @property
    def needs_person(self) -> bool:
        return self._settings.grant in ("authorization_code", "device_code")

    async def run(
        self,
        challenge: Challenge | None,
        *,
        previous: StoredLogin | None = None,
        scopes: Sequence[str] | None = None,
    ) -> StoredLogin:
        """Log in and return the record. `scopes` replaces the usual choice after a step-up.

        Raises:
            AuthorizationError: A step failed.
        """
        found = await self._discovered(challenge, previous)
        wanted = choose_scopes(
            self._settings.scopes, challenge, found.protected, found.authorization
        )
        wanted = tuple(scopes) if scopes is not None else wanted
        dpop = DpopKey() if self._binds_tokens(challenge, found) else None
        match self._settings.grant:
            case "authorization_code" | "device_code":
                made = await self._with_person(found, wanted, dpop, previous)
            case "client_credentials":
                made = await self._client_credentials(found, wanted, dpop)
            case "jwt_bearer":
                made = await self._workload(found, wanted, dpop)
            case "enterprise":
                made = await self._enterprise(found, wanted, dpop)
        client, method, tokens = made
        generation = 1 if previous is None else previous.generation + 1
        return StoredLogin(
            owner=self._target.owner,
            server=self._target.server,
            url=self._target.url,
            issuer=found.authorization.issuer,
            resource=self._resource(found),
            token_endpoint=_token_endpoint(found.authorization),
            client=client,
            auth_method=method,
            tokens=tokens,
            requested=wanted,
            revocation_endpoint=found.authorization.revocation_endpoint,
            dpop_key=None if dpop is None else dpop.private,
            generation=generation,
        )

    # Discovery

    async def _discovered(
        self, challenge: Challenge | None, previous: StoredLogin | None
    ) -> DiscoveredServer:
        place, issuer = self._settings.token_url, self._settings.issuer
        if place is not None and not self.needs_person:
            server = AuthorizationServer(issuer=issuer or place, token_endpoint=place)
            return DiscoveredServer(server, canonical_resource(self._target.url), None)
        known = [name for name in (issuer, previous.issuer if previous else None) if name]
        found = await discover(self._fetcher, self._target.url, challenge, known)
        self._check_configured_issuer(found.authorization.issuer, previous)
        return found

    def _check_configured_issuer(self, issuer: str, previous: StoredLogin | None) -> None:
        """Refuse to send a configured client id to an issuer that it does not belong to."""
        settings = self._settings
        if settings.client_id is None:
            return
        bound = settings.issuer
        if bound is None and previous is not None and previous.client.origin == "configured":
            bound = previous.issuer
        if bound is not None and bound != issuer:
            raise AuthorizationError(
                f"the configured client belongs to {bound}, but {self._target.url} now uses the "
                f"authorization server {issuer}: configure a client for it",
                step="registration",
                server=self._target.url,
                issuer=issuer,
            )

    def _resource(self, found: DiscoveredServer) -> str | None:
        configured = self._settings.resource
        if configured is False:
            return None
        return configured if configured is not None else found.resource

    def _binds_tokens(self, challenge: Challenge | None, found: DiscoveredServer) -> bool:
        if self._settings.dpop is not None:
            return self._settings.dpop
        required = found.protected is not None and found.protected.dpop_bound_access_tokens_required
        return required or (challenge is not None and challenge.scheme == "dpop")

    # Clients

    def _configured_client(self) -> ClientRegistration | None:
        settings = self._settings
        if settings.client_id is None:
            return None
        method = "private_key_jwt" if settings.private_key is not None else None
        return ClientRegistration(settings.client_id, settings.client_secret, method)

    def _endpoint(
        self, server: AuthorizationServer, client: ClientRegistration | None, dpop: DpopKey | None
    ) -> tuple[TokenEndpoint, str]:
        method = "none" if client is None else choose_auth_method(server, client)
        endpoint = TokenEndpoint(
            self._fetcher,
            _token_endpoint(server),
            issuer=server.issuer,
            client=client,
            auth_method=method,
            private_key=self._settings.private_key,
            signing_algorithm=self._settings.signing_algorithm,
            dpop=dpop,
        )
        return endpoint, method

    # Grants

    async def _with_person(
        self,
        found: DiscoveredServer,
        scopes: Sequence[str],
        dpop: DpopKey | None,
        previous: StoredLogin | None,
    ) -> tuple[ClientRegistration, str, TokenSet]:
        server = found.authorization
        if found.documented:
            check_pkce(server)
        login = BrowserLogin(
            self._fetcher,
            server,
            self._settings,
            server_url=self._target.url,
            resource=self._resource(found),
            scopes=scopes,
            dpop=dpop,
        )
        registrations = _Registrations(self._store, self._fetcher, self._settings, server)
        client = self._configured_client() or await registrations.load()
        for attempt in (1, 2):
            try:
                return await self._one_login(login, registrations, client, server, dpop)
            except AuthorizationError as exc:
                stale = client is not None and client.origin == "dynamic"
                if attempt == 2 or not stale or exc.error not in _UNKNOWN_CLIENT:
                    raise
                await registrations.drop()
                client = None
        raise AssertionError("the second attempt returns or raises")

    async def _one_login(
        self,
        login: BrowserLogin,
        registrations: "_Registrations",
        client: ClientRegistration | None,
        server: AuthorizationServer,
        dpop: DpopKey | None,
    ) -> tuple[ClientRegistration, str, TokenSet]:
        authorize, prompt = self._authorize, self._prompt
        if self._settings.grant == "device_code":
            assert prompt is not None
            client = client or await registrations.register(default_redirect_uri(self._settings))
            endpoint, method = self._endpoint(server, client, dpop)
            return client, method, await login.run_device(client, endpoint, prompt)
        if authorize is not None:
            uri = default_redirect_uri(self._settings)
            client = client or await registrations.register(uri)
            endpoint, method = self._endpoint(server, client, dpop)

            async def by_program(request, state):  # type: ignore[no-untyped-def]
                return await ask_program(authorize, request)

            return client, method, await login.run(client, endpoint, uri, by_program)
        listener = LoopbackListener(self._settings.callback_path)
        fixed = self._settings.callback_port
        await listener.start(fixed or _port_of(client), fixed=bool(fixed))
        try:
            uri = self._settings.redirect_uri or listener.redirect_uri
            client = client or await registrations.register(uri)
            endpoint, method = self._endpoint(server, client, dpop)
            shown = prompt or LoginPrompt()

            async def by_person(request, state):  # type: ignore[no-untyped-def]
                return await ask_person(listener, shown, request, state)

            return client, method, await login.run(client, endpoint, uri, by_person)
        finally:
            await listener.close()

    async def _client_credentials(
        self, found: DiscoveredServer, scopes: Sequence[str], dpop: DpopKey | None
    ) -> tuple[ClientRegistration, str, TokenSet]:
        client = self._required_client()
        endpoint, method = self._endpoint(found.authorization, client, dpop)
        form = {
            "grant_type": "client_credentials",
            "scope": " ".join(scopes),
            "resource": self._resource(found),
        }
        return client, method, await endpoint.tokens(form, requested=scopes)

    async def _workload(
        self, found: DiscoveredServer, scopes: Sequence[str], dpop: DpopKey | None
    ) -> tuple[ClientRegistration, str, TokenSet]:
        """Exchange a JWT of the platform that runs this program; no client is registered."""
        if self._settings.assertion is None:
            raise AuthorizationError("the grant jwt_bearer needs an assertion", step="token")
        client = self._configured_client()
        endpoint, method = self._endpoint(found.authorization, client, dpop)
        form = {
            "grant_type": _JWT_BEARER,
            # Read for each request, because platforms replace these tokens.
            "assertion": await read_text(self._settings.assertion),
            "resource": self._resource(found),
            "scope": " ".join(scopes),
        }
        tokens = await endpoint.tokens(form, requested=scopes)
        return client or ClientRegistration(""), method, tokens

    async def _enterprise(
        self, found: DiscoveredServer, scopes: Sequence[str], dpop: DpopKey | None
    ) -> tuple[ClientRegistration, str, TokenSet]:
        """Exchange an ID token at the identity provider, and the result at the server's own."""
        server, company = found.authorization, self._settings.enterprise
        profiles = server.authorization_grant_profiles_supported
        if company is None or (profiles is not None and _ID_JAG_PROFILE not in profiles):
            raise AuthorizationError(
                f"the authorization server {server.issuer} does not support enterprise-managed "
                "authorization",
                step="token",
                issuer=server.issuer,
            )
        client = self._required_client()
        assertion = await self._exchanged(company, server.issuer, found.resource, scopes)
        endpoint, method = self._endpoint(server, client, dpop)
        form = {"grant_type": _JWT_BEARER, "assertion": assertion, "scope": " ".join(scopes)}
        return client, method, await endpoint.tokens(form, requested=scopes)

    async def _exchanged(
        self, company: EnterpriseLogin, audience: str, resource: str, scopes: Sequence[str]
    ) -> str:
        client = ClientRegistration(company.client_id, company.client_secret)
        endpoint = TokenEndpoint(
            self._fetcher,
            company.token_endpoint,
            issuer=company.token_endpoint,
            client=client,
            auth_method="none" if company.client_secret is None else "client_secret_post",
        )
        form = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": audience,
            "resource": resource,
            "scope": " ".join(scopes),
            "subject_token": await read_text(company.id_token),
            "subject_token_type": _ID_TOKEN,
        }
        found = await endpoint.send(form)
        code, _ = oauth_error(found.document)
        token = (found.document or {}).get("access_token")
        issued = (found.document or {}).get("issued_token_type")
        if code or not isinstance(token, str) or issued != _ID_JAG:
            # A refusal by the policy of the company never leads to an interactive login.
            raise AuthorizationError(
                "the identity provider refused to issue a token for this server: "
                f"{code or f'HTTP {found.status}'}",
                step="token",
                issuer=audience,
                error=code,
            )
        return token

    def _required_client(self) -> ClientRegistration:
        client = self._configured_client()
        if client is None:
            raise AuthorizationError(
                f"the grant {self._settings.grant} needs a configured client id",
                step="registration",
                server=self._target.url,
            )
        return client


class _Registrations:
    """The client of this program at one authorization server, if none is configured."""

    def __init__(
        self,
        store: CredentialStore,
        fetcher: GuardedFetcher,
        settings: OAuthSettings,
        server: AuthorizationServer,
    ) -> None:
        self._store = store
        self._fetcher = fetcher
        self._settings = settings
        self._server = server
        # Loopback redirects differ only in their port, which servers ignore (RFC 8252).
        self._redirect = settings.redirect_uri or f"loopback {settings.callback_path}"

    async def load(self) -> ClientRegistration | None:
        document = self._settings.client_metadata_url
        if document is not None and self._server.client_id_metadata_document_supported:
            return ClientRegistration(document, origin="document", auth_method="none")
        issuer = self._server.issuer
        stored = await asyncio.to_thread(self._store.load_registration, issuer, self._redirect)
        return stored if stored is not None and stored.is_usable(time.time()) else None

    async def drop(self) -> None:
        issuer = self._server.issuer
        await asyncio.to_thread(self._store.save_registration, issuer, self._redirect, None)

    async def register(self, redirect_uri: str) -> ClientRegistration:
        """Register this program dynamically (RFC 7591), once per issuer.

        Raises:
            AuthorizationError: The server offers no registration, or refuses it.
        """
        place, issuer = self._server.registration_endpoint, self._server.issuer
        if place is None:
            raise AuthorizationError(
                f"the authorization server {issuer} offers no registration of clients: register "
                "one there and configure its `clientId`",
                step="registration",
                issuer=issuer,
            )
        found = await self._fetcher.post_json(place, self._metadata(redirect_uri))
        client = read_registration(found.document if found.status < 300 else None, issuer)
        client = msgspec.structs.replace(client, redirect_uri=redirect_uri)
        await asyncio.to_thread(self._store.save_registration, issuer, self._redirect, client)
        return client

    def _metadata(self, redirect_uri: str) -> dict[str, object]:
        path = self._settings.callback_path
        uris = [redirect_uri]
        if self._settings.redirect_uri is None:
            uris += [f"http://127.0.0.1{path}", f"http://localhost{path}"]
        supported = self._server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        usual = ("none", "client_secret_basic", "client_secret_post")
        method = next((one for one in usual if one in supported), "none")
        grants = ["authorization_code", "refresh_token"]
        if self._settings.grant == "device_code":
            grants.append("urn:ietf:params:oauth:grant-type:device_code")
        return {
            "client_name": self._settings.client_name,
            "redirect_uris": list(dict.fromkeys(uris)),
            "grant_types": grants,
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            "application_type": "native",
        }


def _token_endpoint(server: AuthorizationServer) -> str:
    if server.token_endpoint is None:
        raise AuthorizationError(
            f"the authorization server {server.issuer} has no token endpoint",
            step="discovery",
            issuer=server.issuer,
        )
    return server.token_endpoint


def _port_of(client: ClientRegistration | None) -> int:
    from urllib.parse import urlsplit

    if client is None or client.redirect_uri is None:
        return 0
    return urlsplit(client.redirect_uri).port or 0
