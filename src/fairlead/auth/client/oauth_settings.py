"""Settings of OAuth for one server, from a program or from a configured entry."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ...errors import ConfigError
from ...suggestions import unknown_name

__all__ = ["EnterpriseLogin", "OAuthSettings", "TextSource", "settings_of_entry"]

TextSource: TypeAlias = str | Callable[[], str | Awaitable[str]]
Grant = Literal[
    "authorization_code", "device_code", "client_credentials", "jwt_bearer", "enterprise"
]


class EnterpriseLogin(Struct, frozen=True, kw_only=True):
    """Enterprise-managed authorization: an ID token is exchanged at the identity provider."""

    token_endpoint: str
    client_id: str
    id_token: TextSource
    client_secret: str | None = None


class OAuthSettings(Struct, frozen=True, kw_only=True):
    """How a client obtains tokens for one server."""

    grant: Grant = "authorization_code"
    client_id: str | None = None  # None: a metadata document or dynamic registration
    client_secret: str | None = None
    private_key: str | None = None  # PEM, for `private_key_jwt`
    signing_algorithm: str = "ES256"
    issuer: str | None = None  # the only issuer that receives the configured client
    client_metadata_url: str | None = None  # client id metadata document
    client_name: str = "Fairlead"
    scopes: Sequence[str] | None = None  # None: those that the server asks for
    resource: str | Literal[False] | None = None  # False omits the parameter
    token_url: str | None = None  # used instead of a discovery, for grants without a person
    redirect_uri: str | None = None  # for programs that receive the redirect themselves
    callback_port: int = 0  # 0: any free port
    callback_path: str = "/callback"
    prompt: str | None = None
    dpop: bool | None = None  # None: if the server asks for it
    assertion: TextSource | None = None  # `jwt_bearer`: a JWT of the workload
    enterprise: EnterpriseLogin | None = None
    allow_private: bool = False  # authorization servers in private networks


# Members of `auth` and `oauth` blocks, and the settings they become.
_MEMBERS = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "tokenUrl": "token_url",
    "resource": "resource",
    "redirectUri": "redirect_uri",
    "callbackPort": "callback_port",
    "callbackPath": "callback_path",
    "prompt": "prompt",
    "scopes": "scopes",
    "scope": "scopes",
    "grant": "grant",
    "issuer": "issuer",
    "clientMetadataUrl": "client_metadata_url",
    "clientName": "client_name",
    "privateKey": "private_key",
    "signingAlgorithm": "signing_algorithm",
    "dpop": "dpop",
    "allowPrivate": "allow_private",
    "assertionFile": "assertion",
}
_OTHERS = {"type", "credentialId"}


def settings_of_entry(auth: object, oauth: object) -> OAuthSettings:
    """Return the settings of the `auth` and `oauth` blocks of an entry.

    Raises:
        ConfigError: A block is not an object, or has an unknown member or a wrong value.
    """
    import msgspec

    found: dict[str, Any] = {}
    for block in (auth, oauth):
        if block is None or block == "oauth" or block is True:
            continue
        if not isinstance(block, Mapping):
            raise ConfigError(f"invalid auth block {block!r}: expected an object")
        for name, value in block.items():
            if name in _OTHERS:
                continue
            if name not in _MEMBERS:
                raise ConfigError(unknown_name("member of an auth block", str(name), _MEMBERS))
            found[_MEMBERS[name]] = value
    if isinstance(found.get("scopes"), str):
        found["scopes"] = found["scopes"].split()
    if (path := found.pop("assertion", None)) is not None:
        found["assertion"] = _FileText(os.fspath(path))
        found.setdefault("grant", "jwt_bearer")
    try:
        assertion = found.pop("assertion", None)
        settings = msgspec.convert(found, OAuthSettings)
        return msgspec.structs.replace(settings, assertion=assertion)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"invalid auth block: {exc}") from exc


class _FileText:
    """Text of a file that is read for each use, because platforms rotate workload tokens."""

    def __init__(self, path: str) -> None:
        self._path = os.path.expanduser(path)

    def __call__(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read(1 << 16).strip()
        except OSError as exc:
            raise ConfigError(
                f"cannot read the assertion: {exc.strerror}", path=self._path
            ) from exc
