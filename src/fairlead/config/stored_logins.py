"""The user's stored logins for configured servers."""

import os
import re
import shlex
from typing import TYPE_CHECKING, Final

from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ..errors import ConfigError, HttpError, LoginRequired
from .paths import local_host_paths

if TYPE_CHECKING:
    from ..auth.client.interactive_login import Authorize, LoginPrompt
    from ..auth.client.oauth_settings import OAuthSettings
    from ..auth.client.renewed_headers import RenewHeaders
    from ..auth.storage.credential_store import CredentialStore
    from ..auth.storage.file_store import FileCredentialStore
    from ..transport.http.client.request_authorizer import RequestAuthorizer
    from .found_server import Source

__all__ = [
    "GATEWAY_FILE",
    "authorizer_for",
    "login_arguments",
    "login_folder",
    "login_needed",
    "login_url",
    "own_credential_store",
    "uses_api_key",
]

GATEWAY_FILE: Final = "fairlead-gateway"  # value of `provider` for servers in a gateway file
_METADATA: Final = re.compile(r"(?i)\bresource_metadata\s*=")


def login_folder() -> str:
    """Return the folder that contains stored logins."""
    machine = local_host_paths()
    return machine.join(machine.own_data, "auth")


def own_credential_store() -> "FileCredentialStore":
    """Return the store of the user's logins."""
    from ..auth.storage.file_store import FileCredentialStore

    return FileCredentialStore(login_folder())


def authorizer_for(
    entry: MCPServerEntry,
    *,
    name: str = "",
    store: "CredentialStore | None" = None,
    authorize: "Authorize | None" = None,
    prompt: "LoginPrompt | None" = None,
    settings: "OAuthSettings | None" = None,
    renew_headers: "RenewHeaders | None" = None,
) -> "RequestAuthorizer | None":
    """Return the source of credentials for requests to a server, or None if there is none.

    A configured `Authorization` header, or credentials in the URL, are used without OAuth.
    `renew_headers` is called when the server refuses headers printed by a command, even without
    OAuth. Without `authorize` and `prompt`, only a stored login is used. A local program gets a
    token only if its entry has an `auth` block.

    Raises:
        ConfigError: The entry's `auth` or `oauth` block is invalid.
    """
    if isinstance(entry, MCPStdioServerConfig):
        if entry.auth is None:
            return None
    elif renew_headers is not None:
        from ..auth.client.renewed_headers import RenewedHeaders

        return RenewedHeaders(entry.headers, renew_headers)
    elif entry.has_authorization:
        return None
    person = authorize is not None or prompt is not None
    configured = entry.auth is not None or entry.oauth is not None
    # Most users have no logins, so the OAuth modules are loaded only if they are needed.
    if not configured and not person and store is None and not os.path.isdir(login_folder()):
        return None
    from ..auth.client.oauth_settings import settings_of_entry
    from ..auth.metadata import server_resource

    settings = settings or settings_of_entry(entry.auth, entry.oauth)
    url = login_url(entry)
    store = own_credential_store() if store is None else store
    known = entry.auth.get("credentialId") if isinstance(entry.auth, dict) else None
    remedy = f"run `fairlead login {name or server_resource(url)}`"
    if uses_api_key(entry):
        from ..auth.client.api_key import ApiKeyAuthorizer

        return ApiKeyAuthorizer(url, store=store, credential_id=known, remedy=remedy)
    from ..auth.client.oauth_authorizer import OAuthAuthorizer

    return OAuthAuthorizer(
        url,
        settings,
        store=store,
        credential_id=known,
        authorize=authorize,
        prompt=prompt,
        remedy=remedy,
    )


def login_arguments(name: str, entry: MCPServerEntry, source: "Source") -> str:
    """Return the arguments of `fairlead login` for a configured server."""
    if source.provider != GATEWAY_FILE or source.path is None:
        return name
    # Replicas are not listed by name in the file.
    if "#" in name and not isinstance(entry, MCPStdioServerConfig):
        from ..auth.metadata import server_resource

        return server_resource(entry.url)
    return f"{name} --gateway {shlex.quote(source.path)}"


def login_needed(arguments: str, entry: MCPServerEntry, error: HttpError) -> LoginRequired | None:
    """Return the error for a server that requires OAuth but has no login; None for other failures.

    `arguments` are the arguments of `fairlead login` to suggest.
    """
    if isinstance(entry, MCPStdioServerConfig) or error.status != 401:
        return None
    if entry.has_authorization or _METADATA.search(error.www_authenticate or "") is None:
        return None
    from ..auth.metadata import server_resource

    return LoginRequired(
        "the server requires a login",
        remedy=f"run `fairlead login {arguments}`",
        server=server_resource(entry.url),
    )


def uses_api_key(entry: MCPServerEntry) -> bool:
    """Return True if an entry's `auth` block asks for a stored API key instead of OAuth."""
    return isinstance(entry.auth, dict) and entry.auth.get("type") == "apikey"


def login_url(entry: MCPServerEntry) -> str:
    """Return the URL of the server to log in to.

    Raises:
        ConfigError: A local program has no `resource` or `tokenUrl` in its `auth` block.
    """
    if not isinstance(entry, MCPStdioServerConfig):
        return entry.url
    block = entry.auth if isinstance(entry.auth, dict) else {}
    url = block.get("resource") or block.get("tokenUrl")
    if not isinstance(url, str):
        raise ConfigError(
            "the `auth` block of a local program needs `resource`, the URL that its token is for"
        )
    return url
