"""API keys that the user entered once, stored like logins."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from ...errors import LoginRequired
from ...observe.log_filter import register_secrets
from ...transport.http.client.request_authorizer import AuthorizerBase
from ..metadata import is_within, server_resource
from ..storage.credential_store import CredentialStore, StoredLogin
from ..storage.store_threads import in_store_thread
from ..token_response import ClientRegistration, TokenSet

__all__ = ["ApiKeyAuthorizer"]


class ApiKeyAuthorizer(AuthorizerBase):
    """`RequestAuthorizer` with a stored API key for one server and one owner.

    If the server refuses the key, no OAuth login is started.
    """

    def __init__(
        self,
        url: str,
        *,
        store: CredentialStore,
        owner: str = "",
        credential_id: str | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__()
        url = self._url = server_resource(url)
        self._store = store
        self._owner = owner
        self._server = credential_id or url
        self._remedy = remedy
        self._key: str | None = None

    def current(self, method: str, url: str) -> Mapping[str, str] | None:
        return None if self._key is None else {"Authorization": f"Bearer {self._key}"}

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {await self.access_token()}"}

    async def challenged(
        self, status: int, headers: Mapping[str, str], sent: Mapping[str, str]
    ) -> bool:
        if status != 401:
            return False
        before, self._key = self._key, None
        # Another program may have stored a new key meanwhile.
        if await self.access_token() != before:
            return True
        raise self._required("rejected the stored API key")

    def covers(self, url: str) -> bool:
        return is_within(url, self._url)

    async def access_token(self) -> str:
        if self._key is None:
            found = await in_store_thread(self._store.load, self._owner, self._server)
            # As for logins, a matching name is not enough: the key is sent to its own server only.
            if found is None or found.kind != "apikey" or not found.covers(self._url):
                raise self._required("requires an API key")
            self._key = found.tokens.access_token
            secrets = {"token": self._key}
            register_secrets(self, lambda: secrets)
        return self._key

    async def log_in(self, key: str) -> StoredLogin:
        """Store a key, replacing an older one."""
        login = StoredLogin(
            owner=self._owner,
            server=self._server,
            url=self._url,
            issuer="",
            resource=None,
            token_endpoint="",
            client=ClientRegistration(""),
            auth_method="none",
            tokens=TokenSet(key, "Bearer"),
            kind="apikey",
        )
        await in_store_thread(self._store.save, login)
        self._key = key
        return login

    async def log_out(self) -> bool:
        """Delete the stored key; return False if there was none."""
        self._key = None
        return await in_store_thread(self._store.delete, self._owner, self._server)

    def _required(self, what: str) -> LoginRequired:
        host = urlsplit(self._url).netloc.rpartition("@")[2]
        return LoginRequired(f"{host} {what}", remedy=self._remedy, server=self._url)
