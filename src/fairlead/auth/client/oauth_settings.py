"""OAuth settings for one server, from a program or from an entry of a configuration file."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ...errors import AuthorizationError, ConfigError
from ...suggestions import unknown_name
from ..storage.credential_store import StoredLogin

__all__ = [
    "EnterpriseLogin",
    "OAuthSettings",
    "TextSource",
    "check_credentials",
    "key_kind",
    "settings_of_entry",
]

B = TypeVar("B", bound=Struct)
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

    def __repr__(self) -> str:
        return f"EnterpriseLogin({self.token_endpoint!r}, {self.client_id!r})"


class OAuthSettings(Struct, frozen=True, kw_only=True):
    """Settings that determine how a client obtains tokens for one server."""

    grant: Grant = "authorization_code"  # how a token is obtained
    client_id: str | None = None  # None: a metadata document or dynamic registration
    client_secret: str | None = None  # secret of the configured client
    private_key: str | None = None  # PEM, for `private_key_jwt`
    signing_algorithm: str = "ES256"  # algorithm of `private_key`
    # the only issuer to which client id, secret, key and assertion are sent
    issuer: str | None = None
    client_metadata_url: str | None = None  # URL of a client id metadata document
    client_name: str = "Fairlead"  # name of this program in a dynamic registration
    scopes: Sequence[str] | None = None  # None: the scopes that the server requests
    resource: str | Literal[False] | None = None  # False omits the parameter
    token_url: str | None = None  # token endpoint without discovery, for grants without a user
    # registered redirect URI; its port and path are listened on if it leads to this machine
    redirect_uri: str | None = None
    callback_port: int = 0  # port to listen on; 0: that of `redirect_uri`, or any free port
    callback_path: str = "/callback"  # without `redirect_uri`
    prompt: str | None = None  # OpenID Connect parameter `prompt`, such as "login"
    dpop: bool | None = None  # True requires bound tokens; None: only if the server requests it
    assertion: TextSource | None = None  # the workload's JWT, for the grant `jwt_bearer`
    enterprise: EnterpriseLogin | None = None  # identity provider, for the grant `enterprise`
    allow_private: bool = False  # permit authorization servers in private networks

    @property
    def secrets(self) -> dict[str, object]:
        """The secrets of the settings by names that indicate secrets."""
        company = self.enterprise
        texts = [self.assertion, None if company is None else company.id_token]
        return {
            "client_secret": self.client_secret,
            "private_key": self.private_key,
            # Secrets that come from files or functions are registered by the code that reads them.
            "secret_texts": [text for text in texts if isinstance(text, str)],
            "identity_client_secret": None if company is None else company.client_secret,
        }

    def match(self, login: StoredLogin) -> bool:
        """Return True if a login was made with these settings, as far as it contains them."""
        return (
            self.token_url in (None, login.token_endpoint)
            and self.issuer in (None, login.issuer)
            and (self.client_id or "") == login.client.client_id
            and self.fixed_scopes == login.configured_scopes
            and self.dpop in (None, login.dpop_key is not None)
        )

    @property
    def fixed_scopes(self) -> tuple[str, ...] | None:
        return None if self.scopes is None else tuple(self.scopes)

    def __repr__(self) -> str:
        # Secrets, keys and assertions are omitted.
        return f"OAuthSettings(grant={self.grant!r}, client_id={self.client_id!r})"


def check_credentials(
    settings: OAuthSettings, issuer: str, previous: StoredLogin | None, server_url: str
) -> None:
    """Check that configured credentials, if there are any, belong to an issuer.

    Raises:
        AuthorizationError: They belong to another issuer and must not be sent to this one.
    """
    if settings.client_id is None and settings.assertion is None:
        return
    bound = settings.issuer
    if bound is None and previous is not None and previous.client.origin == "configured":
        bound = previous.issuer
    if bound is not None and bound != issuer:
        what = "assertion" if settings.client_id is None else "client"
        raise AuthorizationError(
            f"the configured {what} belongs to {bound} and is not sent to {issuer}, which "
            f"{server_url} names as its authorization server: if this is right, "
            f"configure {issuer} as `issuer`, and credentials for it",
            step="registration",
            server=server_url,
            issuer=issuer,
        )


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.scheme) and text.isprintable() and " " not in text


# Members whose value has a certain form: a function that checks it, and its description.
_FORMS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "callback_port": (lambda port: 0 <= port <= 65535, "a port from 1 to 65535, or 0 for any"),
    "callback_path": (
        lambda path: re.fullmatch(r"/[^\s?#]*", path) is not None,
        "a path such as /callback",
    ),
    "redirect_uri": (_is_url, "a URL"),
    "resource": (_is_url, "a URL or false"),
    "client_metadata_url": (
        lambda url: _is_url(url) and url.startswith("https://"),
        "an https URL",
    ),
    "signing_algorithm": (lambda name: key_kind(name) is not None, "a name such as ES256"),
}


def key_kind(algorithm: str) -> str | None:
    """Return the kind of key that signs with a JWS algorithm, or None for other names."""
    if algorithm == "EdDSA":
        return "OKP"
    kinds = {"ES": "EC", "RS": "RSA", "PS": "RSA"}
    return kinds.get(algorithm[:2]) if algorithm[2:] in ("256", "384", "512") else None


class _EnterpriseBlock(Struct, kw_only=True, rename="camel"):
    """Members of the `enterprise` block inside an `auth` or `oauth` block."""

    token_endpoint: str
    client_id: str
    client_secret: str | None = None
    id_token_file: str


class _EntryBlock(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Members of the `auth` and `oauth` blocks of an entry, which are converted to settings."""

    grant: Grant | None = None
    client_id: str | None = None
    client_secret: str | None = None
    private_key: str | None = None
    signing_algorithm: str | None = None
    issuer: str | None = None
    client_metadata_url: str | None = None
    client_name: str | None = None
    scopes: list[str] | str | None = None
    resource: str | bool | None = None
    token_url: str | None = None
    redirect_uri: str | None = None
    callback_port: int | None = None
    callback_path: str | None = None
    prompt: str | None = None  # OpenID Connect parameter `prompt`, such as "login"
    dpop: bool | None = None
    allow_private: bool | None = None
    assertion_file: str | None = None
    enterprise: dict[str, Any] | None = None  # an `_EnterpriseBlock`
    type: Literal["oauth", "apikey"] | None = None  # read by other code, as is `credentialId`
    credential_id: str | None = None


def settings_of_entry(auth: object, oauth: object) -> OAuthSettings:
    """Return the settings of the `auth` and `oauth` blocks of an entry.

    Raises:
        ConfigError: A block is not an object, or has an unknown member or a wrong value.
    """
    members: dict[str, Any] = {}
    for block in (auth, oauth):
        if isinstance(block, Mapping):
            members |= block
        elif block not in (None, True, "oauth"):
            # The value is not shown, because a text may be a token.
            raise ConfigError(
                f'invalid auth block: expected an object or "oauth", not a {_kind_of(block)}; '
                "put a token into `headers`, as `Authorization`"
            )
    read = _read_block(members, _EntryBlock, "auth block", "")
    if read.resource is True:
        raise ConfigError("invalid auth block: expected `resource` to be a URL or false")
    found = {
        name: value for name, value in msgspec.structs.asdict(read).items() if value is not None
    }
    for name in ("type", "credential_id"):
        found.pop(name, None)
    _check_forms(found)
    if not found.get("client_id", True):
        del found["client_id"]  # other programs write an empty text for a missing client
    if isinstance(found.get("scopes"), str):
        found["scopes"] = found["scopes"].split()
    if (path := found.pop("assertion_file", None)) is not None:
        found = {"grant": "jwt_bearer", **found, "assertion": _FileText(path, "assertion")}
    if (block := found.pop("enterprise", None)) is not None:
        found = {"grant": "enterprise", **found, "enterprise": _enterprise_login(block)}
    settings = OAuthSettings(**found)
    if settings.grant == "jwt_bearer" and settings.assertion is None:
        raise ConfigError("invalid auth block: the grant `jwt_bearer` needs `assertionFile`")
    if settings.grant == "enterprise" and settings.enterprise is None:
        raise ConfigError("invalid auth block: the grant `enterprise` needs an `enterprise` block")
    return settings


def _check_forms(members: Mapping[str, Any]) -> None:
    for name, (is_valid, expected) in _FORMS.items():
        value = members.get(name)
        if value not in (None, False) and not is_valid(value):
            member = name.split("_")[0] + "".join(map(str.capitalize, name.split("_")[1:]))
            raise ConfigError(f"invalid auth block: expected `{member}` to be {expected}")


def _read_block(members: Mapping[str, Any], kind: type[B], what: str, place: str) -> B:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name in members.keys() - set(names):
        raise ConfigError(unknown_name(f"member of an {what}", str(name), names))
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as exc:
        raise ConfigError(f"invalid auth block: {exc}{place}") from exc


def _kind_of(value: object) -> str:
    kinds = {str: "string", bool: "boolean", list: "list"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "number")


def _enterprise_login(block: Mapping[str, Any]) -> EnterpriseLogin:
    read = _read_block(block, _EnterpriseBlock, "`enterprise` block", " in `enterprise`")
    return EnterpriseLogin(
        token_endpoint=read.token_endpoint,
        client_id=read.client_id,
        client_secret=read.client_secret,
        id_token=_FileText(read.id_token_file, "ID token"),
    )


class _FileText:
    """The text of a file, read for each use, because platforms rotate workload tokens."""

    def __init__(self, path: str, what: str) -> None:
        self._path = os.path.expanduser(path)
        self._what = what

    def __call__(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                return file.read(1 << 16).strip()
        except OSError as exc:
            raise ConfigError(
                f"cannot read the {self._what}: {exc.strerror}", path=self._path
            ) from exc
