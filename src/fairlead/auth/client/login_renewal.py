"""Requests with the tokens of a stored login: renewal and revocation."""

import logging

import msgspec

from ...errors import AuthorizationError
from ..dpop import DpopKey
from ..guarded_fetch import GuardedFetcher
from ..storage.credential_store import StoredLogin
from ..token_response import ClientRegistration, oauth_error
from .authorization_discovery import discover_issuer
from .oauth_settings import OAuthSettings
from .token_endpoint import EndpointMissing, TokenEndpoint

__all__ = ["LoginRenewal"]

log = logging.getLogger("fairlead.auth")


class LoginRenewal:
    """Renews and revokes logins with the values that are stored with them."""

    def __init__(self, fetcher: GuardedFetcher, settings: OAuthSettings) -> None:
        self._fetcher = fetcher
        self._settings = settings

    async def renewed(self, login: StoredLogin) -> StoredLogin:
        """Return a login with tokens obtained with its refresh token.

        Raises:
            AuthorizationError: The server refused, or cannot be reached.
        """
        try:
            return await self._renewed_at(login)
        except EndpointMissing:
            # Never sent to a guessed URL: the metadata of the same issuer name the new one.
            found = (await discover_issuer(self._fetcher, login.issuer)).token_endpoint
            if found is None or found == login.token_endpoint:
                raise
        return await self._renewed_at(msgspec.structs.replace(login, token_endpoint=found))

    async def _renewed_at(self, login: StoredLogin) -> StoredLogin:
        refresh = login.tokens.refresh_token
        endpoint = self._endpoint(login, login.token_endpoint)
        # The setting may be newer than the login, because only the renewal was refused.
        resource = None if self._settings.resource is False else login.resource
        form = {"grant_type": "refresh_token", "refresh_token": refresh, "resource": resource}
        tokens = await endpoint.tokens(
            form, requested=login.tokens.scopes, refresh_token=refresh, step="renewal"
        )
        return login.renewed(tokens)

    async def revoke(self, login: StoredLogin) -> None:
        """Revoke the tokens of a login, if its server supports this; a failure is logged."""
        if login.revocation_endpoint is None:
            return
        token = login.tokens.refresh_token or login.tokens.access_token
        kind = "access_token" if login.tokens.refresh_token is None else "refresh_token"
        try:
            form = {"token": token, "token_type_hint": kind}
            found = await self._endpoint(login, login.revocation_endpoint).send(form)
        except AuthorizationError as exc:
            log.warning("cannot revoke the tokens at %s: %s", login.issuer, exc)
        else:
            if found.status >= 400:
                why = oauth_error(found.document)[0] or f"HTTP {found.status}"
                log.warning("%s refused the revocation of a login: %s", login.issuer, why)

    def _endpoint(self, login: StoredLogin, url: str) -> TokenEndpoint:
        client, method = self._client(login)
        return TokenEndpoint(
            self._fetcher,
            url,
            issuer=login.issuer,
            client=client,
            auth_method=method,
            private_key=self._settings.private_key,
            signing_algorithm=self._settings.signing_algorithm,
            dpop=None if login.dpop_key is None else DpopKey(login.dpop_key),
            must_be_bound=self._settings.dpop is True,
        )

    def _client(self, login: StoredLogin) -> tuple[ClientRegistration, str]:
        """Return the client of a login, with its present credentials if they are configured."""
        settings, client = self._settings, login.client
        same = client.origin == "configured" and client.client_id == settings.client_id
        if not same or settings.issuer not in (None, login.issuer):
            return client, login.auth_method
        if settings.private_key is not None:
            return client, "private_key_jwt"
        secret = settings.client_secret or client.client_secret
        return msgspec.structs.replace(client, client_secret=secret), login.auth_method
