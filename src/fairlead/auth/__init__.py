"""Authorization: OAuth as a client, stored logins, and the verification of tokens.

For programs: `OAuthSettings`, `OAuthAuthorizer`, `ApiKeyAuthorizer`, `AuthorizerBase`,
`AuthorizationRequest`, `LoginPrompt`, `CredentialStore`, `FileCredentialStore`,
`MemoryCredentialStore`.

`challenge`, `metadata`, `authorization_code`, `scopes` and `token_response` do no I/O;
`guarded_fetch` sends every request to a URL that a remote party supplied.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names, public_names

if TYPE_CHECKING:
    from ..transport.http.client.request_authorizer import AuthorizerBase
    from .client.api_key import ApiKeyAuthorizer
    from .client.interactive_login import AuthorizationRequest, LoginPrompt
    from .client.oauth_authorizer import OAuthAuthorizer
    from .client.oauth_settings import OAuthSettings
    from .storage.credential_store import CredentialStore, MemoryCredentialStore
    from .storage.file_store import FileCredentialStore

__all__ = [
    "ApiKeyAuthorizer",
    "AuthorizationRequest",
    "AuthorizerBase",
    "CredentialStore",
    "FileCredentialStore",
    "LoginPrompt",
    "MemoryCredentialStore",
    "OAuthAuthorizer",
    "OAuthSettings",
]

# Imported on first use, because most programs need only a few of these modules.
_HOMES = {
    "ApiKeyAuthorizer": "fairlead.auth.client.api_key",
    "AuthorizationRequest": "fairlead.auth.client.interactive_login",
    "AuthorizerBase": "fairlead.transport.http.client.request_authorizer",
    "CredentialStore": "fairlead.auth.storage.credential_store",
    "FileCredentialStore": "fairlead.auth.storage.file_store",
    "LoginPrompt": "fairlead.auth.client.interactive_login",
    "MemoryCredentialStore": "fairlead.auth.storage.credential_store",
    "OAuthAuthorizer": "fairlead.auth.client.oauth_authorizer",
    "OAuthSettings": "fairlead.auth.client.oauth_settings",
}

# Hidden from type checkers: with a module-level `__getattr__` they would accept any misspelt name.
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
    __dir__ = public_names(__name__)
