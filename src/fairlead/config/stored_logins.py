"""Logins of this machine's user for configured servers."""

import os
from typing import TYPE_CHECKING

from ..client.server_entry import MCPServerEntry, MCPStdioServerConfig
from .paths import local_host_paths

if TYPE_CHECKING:
    from ..auth.client.interactive_login import LoginPrompt
    from ..auth.client.oauth_authorizer import OAuthAuthorizer
    from ..auth.client.oauth_settings import OAuthSettings
    from ..auth.storage.credential_store import CredentialStore

__all__ = ["authorizer_for", "login_folder", "own_credential_store"]


def login_folder() -> str:
    """Return the folder of stored logins."""
    machine = local_host_paths()
    return machine.join(machine.own_data, "auth")


def own_credential_store() -> "CredentialStore":
    """Return the store of the user's logins."""
    from ..auth.storage.file_store import FileCredentialStore

    return FileCredentialStore(login_folder())


def authorizer_for(
    entry: MCPServerEntry,
    *,
    name: str = "",
    store: "CredentialStore | None" = None,
    prompt: "LoginPrompt | None" = None,
    settings: "OAuthSettings | None" = None,
) -> "OAuthAuthorizer | None":
    """Return the authorizer of a server, or None if it has no login and needs none.

    A configured `Authorization` header is used as it is, without OAuth. Without `prompt`, only a
    stored login is used.

    Raises:
        ConfigError: The `auth` or `oauth` block of the entry is invalid.
    """
    if isinstance(entry, MCPStdioServerConfig):
        return None
    if any(field.lower() == "authorization" for field in entry.headers):
        return None
    configured = entry.auth is not None or entry.oauth is not None
    # Most users have no logins; their programs do not load the modules for OAuth.
    if not configured and prompt is None and store is None and not os.path.isdir(login_folder()):
        return None
    from ..auth.client.oauth_authorizer import OAuthAuthorizer
    from ..auth.client.oauth_settings import settings_of_entry

    known = entry.auth.get("credentialId") if isinstance(entry.auth, dict) else None
    return OAuthAuthorizer(
        entry.url,
        settings or settings_of_entry(entry.auth, entry.oauth),
        store=own_credential_store() if store is None else store,
        credential_id=known if isinstance(known, str) else None,
        prompt=prompt,
        remedy=f"run `fairlead login {name or entry.url}`",
    )
