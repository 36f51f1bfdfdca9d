"""Registration of this program at authorization servers (RFC 7591), once for each server."""

import time

import msgspec

from ..errors import AuthorizationError
from .client.oauth_settings import OAuthSettings
from .guarded_fetch import GuardedFetcher
from .metadata import AuthorizationServer
from .storage.credential_store import CredentialStore
from .storage.store_threads import in_store_thread
from .token_response import ClientRegistration, read_registration

__all__ = ["RegisteredClients"]


class RegisteredClients:
    """The client of this program at one authorization server, if none is configured."""

    def __init__(
        self,
        store: CredentialStore,
        fetcher: GuardedFetcher,
        settings: OAuthSettings,
        server: AuthorizationServer,
        *,
        bound: bool = False,
    ) -> None:
        """`bound` selects the registration of a client whose tokens are bound to a DPoP key."""
        self._store = store
        self._fetcher = fetcher
        self._settings = settings
        self._server = server
        # One key for all loopback redirects: servers ignore the port (RFC 8252).
        self._redirect = settings.redirect_uri or f"loopback {settings.callback_path}"
        # A client that was registered for a browser may not use device codes.
        if settings.grant == "device_code":
            self._redirect += " device"
        # A client that is registered for bound tokens may not request others.
        self._bound = bound
        if bound:
            self._redirect += " dpop"

    async def load(self) -> ClientRegistration | None:
        document = self._settings.client_metadata_url
        if document is not None and self._server.client_id_metadata_document_supported:
            return ClientRegistration(document, origin="document", auth_method="none")
        issuer = self._server.issuer
        stored = await in_store_thread(self._store.load_registration, issuer, self._redirect)
        return stored if stored is not None and stored.is_usable(time.time()) else None

    async def drop(self, client_id: str | None = None) -> None:
        """Delete the registration; with `client_id`, only if it has this id."""
        issuer = self._server.issuer
        # Another process may have registered again.
        if client_id is not None:
            held = await in_store_thread(self._store.load_registration, issuer, self._redirect)
            if held is None or held.client_id != client_id:
                return
        await in_store_thread(self._store.save_registration, issuer, self._redirect, None)

    async def register(self, redirect_uri: str) -> ClientRegistration:
        """Register this program dynamically (RFC 7591), and store the registration.

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
        client = read_registration(found.document, issuer, found.status)
        client = msgspec.structs.replace(client, redirect_uri=redirect_uri)
        await in_store_thread(self._store.save_registration, issuer, self._redirect, client)
        return client

    def _metadata(self, redirect_uri: str) -> dict[str, object]:
        path = self._settings.callback_path
        uris = [redirect_uri]
        if self._settings.redirect_uri is None:
            uris += [f"http://127.0.0.1{path}", f"http://localhost{path}"]
        supported = self._server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
        # Servers disagree about the encoding of Basic credentials, and servers of the official SDK
        # expect the secret of a revocation request in its form fields.
        usual = ("none", "client_secret_post", "client_secret_basic")
        method = next((one for one in usual if one in supported), "none")
        grants = ["authorization_code", "refresh_token"]
        if self._settings.grant == "device_code":
            grants.append("urn:ietf:params:oauth:grant-type:device_code")
        bound = {"dpop_bound_access_tokens": True} if self._bound else {}
        return {
            **bound,
            "client_name": self._settings.client_name,
            "redirect_uris": list(dict.fromkeys(uris)),
            "grant_types": grants,
            "response_types": ["code"],
            "token_endpoint_auth_method": method,
            "application_type": "native",
        }
