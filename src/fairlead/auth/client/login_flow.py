"""One login at an authorization server, from discovery to a record that can be stored.

The grant decides how tokens are obtained; discovery, registration and the record are the same for
all grants.
"""

import secrets
from collections.abc import Sequence

from ...errors import AuthorizationError
from ...observe.log_filter import register_secrets
from ..challenge import Challenge
from ..client_registration import RegisteredClients
from ..dpop import DpopKey, choose_proof_algorithm
from ..guarded_fetch import GuardedFetcher
from ..metadata import AuthorizationServer, canonical_resource, check_pkce
from ..scopes import choose_scopes
from ..storage.credential_store import CredentialStore, StoredLogin
from ..token_response import (
    ClientRegistration,
    TokenSet,
    UnexplainedRefusal,
    choose_auth_method,
    oauth_error,
)
from .authorization_discovery import DiscoveredServer, discover, first_challenge
from .interactive_login import (
    Authorize,
    BrowserLogin,
    LoginPrompt,
    LoginUnfinished,
    ask_person,
    ask_program,
    default_redirect_uri,
)
from .login_record import LoginTarget, LoginWish
from .loopback_listener import LoopbackListener, loopback_place
from .oauth_settings import EnterpriseLogin, OAuthSettings, TextSource, check_credentials
from .token_endpoint import EndpointMissing, TokenEndpoint, read_text

__all__ = ["UNKNOWN_CLIENT", "LoginFlow"]

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
_ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
# Errors after which a dynamic client registration has to be repeated.
UNKNOWN_CLIENT = ("invalid_client", "unauthorized_client")


def is_unknown(client: ClientRegistration, refusal: AuthorizationError) -> bool:
    """Return True if a refusal may mean that a server has deleted a dynamic registration."""
    kinds = (UnexplainedRefusal, LoginUnfinished)
    unknown = refusal.error in UNKNOWN_CLIENT or isinstance(refusal, kinds)
    return client.origin == "dynamic" and unknown


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
        self.register_again = False  # the next login registers this program again
        self._target = target
        self._settings = settings
        self._store = store
        self._fetcher = fetcher
        self._authorize = authorize
        self._prompt = prompt
        secrets = self._secrets = settings.secrets
        register_secrets(self, lambda: secrets)

    @property
    def possible(self) -> bool:
        """True if this program can log in: without a user, or with a prompt for the user."""
        interactive = self._settings.grant in ("authorization_code", "device_code")
        return not interactive or self._authorize is not None or self._prompt is not None

    @property
    def needs_person(self) -> bool:
        return self._settings.grant in ("authorization_code", "device_code")

    async def run(self, wish: LoginWish) -> StoredLogin:
        """Log in and return the record.

        Scopes of the previous login are requested again, because a 403 may have demanded them,
        unless the user asked for a new login.

        Raises:
            AuthorizationError: A step failed.
        """
        challenge, previous, scopes = wish.challenge, wish.previous, wish.scopes
        found = await self._discovered(challenge, previous)
        if scopes is None and previous is not None and not wish.explicit:
            same = found.authorization.issuer == previous.issuer
            if same and previous.configured_scopes == self._settings.fixed_scopes:
                more = () if challenge is None else challenge.scopes
                scopes = tuple(dict.fromkeys((*previous.requested, *more))) or None
        return await self._obtained(found, previous, scopes, challenge)

    async def repeat(self, login: StoredLogin, challenge: Challenge | None) -> StoredLogin:
        """Obtain new tokens for a login without a refresh token and without a user.

        Without a challenge, the values that are stored with the login are used, as for a renewal.

        Raises:
            AuthorizationError: A step failed.
        """
        if challenge is None and self._settings.match(login):
            key = None if login.dpop_key is None else DpopKey(login.dpop_key)
            server = _stored_server(login)
            try:
                return await self._obtained(server, login, login.requested, None, key)
            except AuthorizationError as exc:
                # The endpoint has moved, or wants another kind of client authentication.
                if not isinstance(exc, EndpointMissing) and exc.error != "invalid_client":
                    raise
        return await self.run(LoginWish(challenge, login))

    async def _obtained(
        self,
        found: DiscoveredServer,
        previous: StoredLogin | None,
        scopes: Sequence[str] | None,
        challenge: Challenge | None,
        key: DpopKey | None = None,
    ) -> StoredLogin:
        wanted = choose_scopes(
            self._settings.scopes,
            challenge,
            found.protected,
            found.authorization,
            offline=self.needs_person,
        )
        wanted = tuple(scopes) if scopes is not None else wanted
        dpop = key or self._new_key(challenge, found)
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
            configured_scopes=self._settings.fixed_scopes,
            revocation_endpoint=found.authorization.revocation_endpoint,
            dpop_key=None if dpop is None else dpop.private,
            login_id=secrets.token_hex(8),
            replaced_id=None if previous is None else previous.login_id,
            generation=generation,
        )

    async def forget_registration(self, login: StoredLogin) -> None:
        """Delete the dynamic registration that a login was made with."""
        server, bound = AuthorizationServer(issuer=login.issuer), login.dpop_key is not None
        await self._registered(server, bound=bound).drop(login.client.client_id)

    # Discovery

    async def first_challenge(self) -> Challenge | None:
        """Return the challenge of the server to a request without a token, if one is needed."""
        if self._settings.token_url is not None and not self.needs_person:
            return None
        return await first_challenge(self._target.url)

    async def find_issuer(self, challenge: Challenge | None, previous: StoredLogin) -> str:
        """Return the issuer that the next login would use.

        Raises:
            AuthorizationError: The discovery failed.
        """
        return (await self._discovered(challenge, previous)).authorization.issuer

    async def _discovered(
        self, challenge: Challenge | None, previous: StoredLogin | None
    ) -> DiscoveredServer:
        place, issuer = self._settings.token_url, self._settings.issuer
        if place is not None and not self.needs_person:
            server = AuthorizationServer(issuer=issuer or place, token_endpoint=place)
            return DiscoveredServer(server, canonical_resource(self._target.url), None)
        known = [name for name in (issuer, previous.issuer if previous else None) if name]

        async def is_registered(name: str) -> bool:
            server = AuthorizationServer(issuer=name)
            held = [await self._registered(server, bound=bound).load() for bound in (False, True)]
            return any(client is not None for client in held)

        found = await discover(self._fetcher, self._target.url, challenge, known, is_registered)
        check_credentials(self._settings, found.authorization.issuer, previous, self._target.url)
        return found

    def _resource(self, found: DiscoveredServer) -> str | None:
        configured = self._settings.resource
        if configured is False:
            return None
        return configured if configured is not None else found.resource

    def _new_key(self, challenge: Challenge | None, found: DiscoveredServer) -> DpopKey | None:
        """Return a key that the tokens will be bound to, or None for bearer tokens."""
        server, resource = found.authorization, found.protected
        asked = challenge if challenge is not None and challenge.scheme == "dpop" else None
        wanted = self._settings.dpop
        if wanted is None:
            required = resource is not None and resource.dpop_bound_access_tokens_required
            wanted = required or asked is not None
        if not wanted:
            return None
        algorithm = choose_proof_algorithm(
            server.dpop_signing_alg_values_supported,
            None if resource is None else resource.dpop_signing_alg_values_supported,
            None if asked is None else (asked.get("algs") or "").split(),
        )
        if algorithm is None:
            raise AuthorizationError(
                f"{self._target.url} and {server.issuer} accept no common algorithm for DPoP of "
                "ES256, ES384 or ES512",
                step="discovery",
                server=self._target.url,
                issuer=server.issuer,
            )
        return DpopKey(algorithm=algorithm)

    # Clients

    def _configured_client(self) -> ClientRegistration | None:
        settings = self._settings
        if settings.client_id is None:
            return None
        method = "private_key_jwt" if settings.private_key is not None else None
        return ClientRegistration(settings.client_id, settings.client_secret, method)

    def _registered(self, server: AuthorizationServer, *, bound: bool) -> RegisteredClients:
        return RegisteredClients(self._store, self._fetcher, self._settings, server, bound=bound)

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
            must_be_bound=self._settings.dpop is True,
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
        registrations = self._registered(server, bound=dpop is not None)
        if self.register_again:
            await registrations.drop()
            self.register_again = False
        client = self._configured_client() or await registrations.load()
        for attempt in (1, 2):
            try:
                return await self._one_login(login, registrations, client, server, dpop)
            except AuthorizationError as exc:
                unregistered = isinstance(exc, UnexplainedRefusal) and exc.step == "registration"
                if unregistered and not found.documented:
                    raise AuthorizationError(
                        f"{self._target.url} names no authorization server: it needs no login, or "
                        "its MCP endpoint has another URL",
                        step="discovery",
                        server=self._target.url,
                    ) from exc
                if attempt == 2 or client is None or not is_unknown(client, exc):
                    raise
                await registrations.drop(client.client_id)
                if isinstance(exc, LoginUnfinished):
                    raise  # another page would not help a user who has not noticed this one
                client = None
        raise AssertionError("the second attempt returns or raises")

    async def _one_login(
        self,
        login: BrowserLogin,
        registrations: RegisteredClients,
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
        configured = self._settings.redirect_uri
        place = loopback_place(configured)
        host, port, path = place or ("127.0.0.1", 0, self._settings.callback_path)
        listener = LoopbackListener(path, host)
        fixed = self._settings.callback_port or port
        # A server may ignore that the port of a loopback redirect may change (RFC 8252).
        registered = None if client is None else client.redirect_uri
        _, used, _ = loopback_place(registered) or ("", 0, "")
        await listener.start(fixed or used, fixed=bool(fixed))
        try:
            # A loopback redirect without a port gets the one that was free.
            sent_as_is = configured is not None and (place is None or port > 0)
            uri = str(configured) if sent_as_is else listener.redirect_uri
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
        """Exchange a JWT from the platform that runs this program, without registering a client."""
        if self._settings.assertion is None:
            raise AuthorizationError("the grant jwt_bearer needs an assertion", step="token")
        client = self._configured_client()
        endpoint, method = self._endpoint(found.authorization, client, dpop)
        form = {
            "grant_type": _JWT_BEARER,
            # Read for each request, because platforms replace these tokens.
            "assertion": await self._read_secret(self._settings.assertion),
            "resource": self._resource(found),
            "scope": " ".join(scopes),
        }
        tokens = await endpoint.tokens(form, requested=scopes)
        return client or ClientRegistration(""), method, tokens

    async def _enterprise(
        self, found: DiscoveredServer, scopes: Sequence[str], dpop: DpopKey | None
    ) -> tuple[ClientRegistration, str, TokenSet]:
        """Exchange an ID token at the identity provider, then its grant for an access token."""
        server, company = found.authorization, self._settings.enterprise
        if company is None:
            raise AuthorizationError("the grant enterprise needs `enterprise`", step="token")
        profiles = server.authorization_grant_profiles_supported
        if profiles is not None and _ID_JAG_PROFILE not in profiles:
            raise AuthorizationError(
                f"the authorization server {server.issuer} does not support enterprise-managed "
                "authorization",
                step="token",
                issuer=server.issuer,
            )
        client = self._required_client()
        # The identity provider needs the resource, even if the authorization server refuses it.
        resource = self._resource(found) or found.resource
        assertion = await self._exchanged(company, server.issuer, resource, scopes)
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
            "subject_token": await self._read_secret(company.id_token),
            "subject_token_type": _ID_TOKEN,
        }
        found = await endpoint.send(form)
        code, _ = oauth_error(found.document)
        token = (found.document or {}).get("access_token")
        issued = (found.document or {}).get("issued_token_type")
        if code or not isinstance(token, str) or issued != _ID_JAG:
            # If the company's policy refuses the exchange, no interactive login is started.
            raise AuthorizationError(
                "the identity provider refused to issue a token for this server: "
                f"{code or f'HTTP {found.status}'}",
                step="token",
                issuer=audience,
                error=code,
            )
        return token

    async def _read_secret(self, source: TextSource) -> str:
        text = self._secrets["secret_read"] = await read_text(source)
        secrets = self._secrets
        register_secrets(self, lambda: secrets)
        return text

    def _required_client(self) -> ClientRegistration:
        client = self._configured_client()
        if client is None:
            raise AuthorizationError(
                f"the grant {self._settings.grant} needs a configured client id",
                step="registration",
                server=self._target.url,
            )
        return client


def _stored_server(login: StoredLogin) -> DiscoveredServer:
    server = AuthorizationServer(
        issuer=login.issuer,
        token_endpoint=login.token_endpoint,
        revocation_endpoint=login.revocation_endpoint,
        token_endpoint_auth_methods_supported=[login.auth_method],
    )
    return DiscoveredServer(server, login.resource or login.url, None)


def _token_endpoint(server: AuthorizationServer) -> str:
    if server.token_endpoint is None:
        raise AuthorizationError(
            f"the authorization server {server.issuer} has no token endpoint",
            step="discovery",
            issuer=server.issuer,
        )
    return server.token_endpoint
