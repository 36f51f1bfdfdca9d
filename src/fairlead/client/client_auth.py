"""The `auth` argument of `MCPClient`, which determines the source of credentials."""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from ..lazy_names import call_late
from .server_entry import MCPServerEntry, MCPStdioServerConfig

if TYPE_CHECKING:
    from ..auth.client.interactive_login import Authorize
    from ..auth.client.oauth_settings import OAuthSettings
    from ..transport.http.client.request_authorizer import RequestAuthorizer

__all__ = ["ClientAuth", "with_auth"]

# "oauth", a bearer token, settings, a credential source, or a callback
# that sends the user to a login page and returns the final redirect URL.
ClientAuth: TypeAlias = (
    "Literal['oauth'] | str | OAuthSettings | RequestAuthorizer | Authorize | None"
)


def with_auth(
    entry: MCPServerEntry, auth: Any, name: str = ""
) -> tuple[MCPServerEntry, "RequestAuthorizer | None"]:
    """Return an entry and its credential source.

    A configured `Authorization` header, or credentials in the URL, are used instead of all other
    credentials except a bearer token.

    Raises:
        TypeError: The value has the wrong type, or the server is a local program.
        ConfigError: The entry's `auth` or `oauth` block is invalid.
    """
    if auth is None:
        # A plain URL does not need the login modules; `auth="oauth"` does.
        if not name and entry.auth is None and entry.oauth is None:
            return entry, None
        return entry, call_late("authorizer_for", entry, name=name)
    if isinstance(entry, MCPStdioServerConfig):
        raise TypeError("auth applies to URLs only; pass env, or an `auth` block, to a command")
    if isinstance(auth, str) and auth != "oauth":
        kept = {name: v for name, v in entry.headers.items() if name.lower() != "authorization"}
        return replace(entry, headers={**kept, "Authorization": f"Bearer {auth}"}), None
    found = _authorizer(entry, auth, name)
    return entry, None if entry.has_authorization else found


def _authorizer(entry: MCPServerEntry, auth: Any, name: str) -> "RequestAuthorizer | None":
    from ..auth.client.interactive_login import LoginPrompt
    from ..auth.client.oauth_settings import OAuthSettings
    from ..auth.storage.credential_store import MemoryCredentialStore
    from ..transport.http.client.request_authorizer import AuthorizerBase

    found: RequestAuthorizer | None
    if isinstance(auth, AuthorizerBase):
        found = auth  # type: ignore[assignment]  # derived classes have all methods
    elif auth == "oauth" or isinstance(auth, OAuthSettings):
        settings = None if auth == "oauth" else auth
        found = call_late(
            "authorizer_for", entry, name=name, settings=settings, prompt=LoginPrompt()
        )
    elif callable(auth):
        # A program that prompts its own users must not share their logins with other programs.
        store = MemoryCredentialStore()
        found = call_late("authorizer_for", entry, name=name, store=store, authorize=auth)
    else:
        raise TypeError(
            f"invalid auth {type(auth).__name__!r}: expected 'oauth', a bearer token, "
            "OAuthSettings, an object derived from AuthorizerBase, or a callback"
        )
    return found
