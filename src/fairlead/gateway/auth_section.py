"""The section `[auth]` of a gateway file: issuers of access tokens, and the rights of tokens."""

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct, field

from ..policy.conditions.operators import OPERATORS, InvalidTest
from ..protocol.identity.client_names import is_reserved
from ..suggestions import unknown_name
from .clients.auth_rules import AuthRule
from .file_values import FileValues

if TYPE_CHECKING:
    from ..auth.server.server_auth import ServerAuth

__all__ = ["GatewayAuth", "IntrospectionEntry", "read_auth"]

Dpop = Literal["off", "allowed", "required"]


class IntrospectionEntry(Struct, frozen=True, kw_only=True):
    """Introspection endpoint (RFC 7662) for tokens that are not JWTs, with credentials for it."""

    url: str
    client_id: str
    client_secret: str

    def __repr__(self) -> str:
        return f"<Introspection {self.url}>"


class GatewayAuth(Struct, frozen=True, kw_only=True):
    """Settings for access with OAuth access tokens."""

    issuers: tuple[str, ...]
    public_url: str  # URL of the gateway as clients use it, without the path of an endpoint
    audience: str | None = None  # audience of all endpoints; None: the URL of each endpoint
    scopes: tuple[str, ...] = ()  # scopes that every token needs
    # narrower scopes that a scope includes
    implied_scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dpop: Dpop = "off"
    private_issuers: bool = False  # permit issuers in private networks
    introspection: IntrospectionEntry | None = None
    rules: tuple[AuthRule, ...]

    @property
    def login_scopes(self) -> tuple[str, ...]:
        """Scopes that clients request at their first login.

        Without them, no rule may match a token, and users would have to log in twice. The last rule
        with scopes counts, because rules for more rights come first.
        """
        for rule in reversed(self.rules):
            if rule.scopes:
                return rule.scopes
            if rule.issuer is None and not rule.groups and not rule.claims:
                return ()  # this rule matches all tokens that no earlier rule matches
        return ()

    @property
    def has_admin(self) -> bool:
        """True if a rule gives access to the admin API."""
        return any(rule.admin for rule in self.rules)

    def server_auth(self) -> "ServerAuth":
        """Return the settings that verify tokens.

        Raises:
            ConfigError: A value cannot be used.
        """
        # Imported on demand: most gateways accept no access tokens.
        from ..auth.server.server_auth import Introspection, ServerAuth

        asked = self.introspection
        return ServerAuth(
            issuer=self.issuers,
            audience=self.audience,
            public_url=self.public_url,
            scopes=self.scopes,
            login_scopes=self.login_scopes,
            implied_scopes=self.implied_scopes,
            dpop=self.dpop,
            private_issuers=self.private_issuers,
            introspection=None
            if asked is None
            else Introspection(
                url=asked.url, client_id=asked.client_id, client_secret=asked.client_secret
            ),
        )


_AUTH: Final[dict[str, Any]] = {
    "issuer": str | tuple[str, ...],
    "public_url": str,
    "audience": str,
    "scopes": tuple[str, ...],
    "implied_scopes": dict[str, tuple[str, ...]],
    "dpop": Dpop,
    "private_issuers": bool,
}
_INTROSPECTION: Final[dict[str, Any]] = {
    **dict.fromkeys(("url", "client_id", "client_secret", "client_secret_env"), str)
}
_RULE: Final[dict[str, Any]] = {
    "client": str,
    "view": str,
    "admin": bool,
    "issuer": str,
    "groups": str | tuple[str, ...],
    "scopes": str | tuple[str, ...],
    "claims": dict[str, Any],
}


def read_auth(
    values: FileValues, raw: Any, views: Collection[str], clients: Collection[str]
) -> GatewayAuth:
    """Read the section. `views` and `clients` are names in the same file.

    Raises:
        ConfigError: The section is invalid.
    """
    return _AuthReader(values, views, clients).section(raw)


class _AuthReader(Struct, eq=False):
    values: FileValues
    views: Collection[str]
    clients: Collection[str]  # names of clients with a token in the file

    def section(self, raw: Any) -> GatewayAuth:
        if not isinstance(raw, dict):
            raise self.values.wrong(("auth",), "`auth` must be a map with issuer and rules")
        known = [*_AUTH, "introspection", "rules"]
        self.values.know(("auth",), raw, known, "key", "`auth`: ")
        plain = {key: value for key, value in raw.items() if key in _AUTH}
        fields = self.values.fields(("auth",), plain, _AUTH, "`auth`: ")
        for key, example in (("issuer", "https://id.example.com"), ("public_url", _EXAMPLE)):
            if not fields.get(key):
                raise self.values.wrong(("auth",), f'`auth`: missing `{key}`, such as "{example}"')
        issuers = _several(fields.pop("issuer"))
        for issuer in issuers:
            self._check_url("issuer", issuer)
        self._check_url("public_url", fields["public_url"])
        fields["public_url"] = fields["public_url"].rstrip("/")
        if fields.get("audience") == "":
            raise self.values.wrong(("auth", "audience"), "`audience` must not be empty")
        return GatewayAuth(
            issuers=issuers,
            introspection=self._introspection(raw["introspection"])
            if "introspection" in raw
            else None,
            rules=self._rules(raw.get("rules"), issuers),
            **fields,
        )

    def _check_url(self, key: str, url: str) -> None:
        if (reason := _fault(url)) is not None:
            raise self.values.wrong(("auth", key), f"invalid `{key}` {url!r}: {reason}")

    def _introspection(self, raw: Any) -> IntrospectionEntry:
        where = "auth", "introspection"
        fields = self.values.fields(where, raw, _INTROSPECTION, "`introspection`: ")
        if (variable := fields.pop("client_secret_env", None)) is not None:
            if variable not in self.values.env:
                raise self.values.wrong(
                    (*where, "client_secret_env"), f"the environment variable {variable} is not set"
                )
            fields["client_secret"] = self.values.env[variable]
        for key in ("url", "client_id", "client_secret"):
            if not fields.get(key):
                other = " or `client_secret_env`" if key == "client_secret" else ""
                raise self.values.wrong(where, f"`introspection`: missing `{key}`{other}")
        if (reason := _fault(fields["url"], query=True)) is not None:
            raise self.values.wrong((*where, "url"), f"invalid `url` {fields['url']!r}: {reason}")
        return IntrospectionEntry(**fields)

    # Rules

    def _rules(self, raw: Any, issuers: tuple[str, ...]) -> tuple[AuthRule, ...]:
        if not isinstance(raw, list) or not raw:
            raise self.values.wrong(
                ("auth", "rules"),
                "`auth`: missing `[[auth.rules]]`, so every token would be refused: add a rule "
                "with `client`; a rule without conditions matches every token",
            )
        rules: dict[str, AuthRule] = {}
        found = []
        for number, one in enumerate(raw):
            rule = self._rule(number, one, issuers)
            first = rules.setdefault(rule.client, rule)
            if (first.view, first.admin) != (rule.view, rule.admin):
                raise self.values.wrong(
                    ("auth", "rules", number),
                    f'Rule {number + 1}: client "{rule.client}" has another `view` or `admin` in '
                    "an earlier rule: repeat its values or choose another name",
                )
            found.append(rule)
        return tuple(found)

    def _rule(self, number: int, raw: Any, issuers: tuple[str, ...]) -> AuthRule:
        where, about = ("auth", "rules", number), f"Rule {number + 1}: "
        if not isinstance(raw, dict):
            raise self.values.wrong(where, f"{about}expected a map with {', '.join(_RULE)}")
        fields = self.values.fields(where, raw, _RULE, about)
        name = fields.get("client", "")
        if not name:
            raise self.values.wrong(where, f"{about}missing `client`, a name for its clients")
        if is_reserved(name):
            raise self.values.wrong((*where, "client"), f"invalid client name {name!r}: reserved")
        if name in self.clients:
            raise self.values.wrong(
                (*where, "client"),
                f'{about}the name "{name}" belongs to [clients.{name}]: choose another one',
            )
        if (view := fields.get("view")) is not None and view not in self.views:
            raise self.values.wrong((*where, "view"), unknown_name("view", view, self.views))
        if (issuer := fields.get("issuer")) is not None and issuer not in issuers:
            raise self.values.wrong((*where, "issuer"), unknown_name("issuer", issuer, issuers))
        for key in ("groups", "scopes"):
            if key in fields:
                fields[key] = _several(fields[key])
                # An empty list would make the rule match every token.
                if not fields[key] or "" in fields[key]:
                    raise self.values.wrong((*where, key), f"{about}`{key}` must not be empty")
        try:
            return AuthRule(**fields)
        except InvalidTest as exc:
            reason = str(exc)
            if exc.operator is not None:
                reason = unknown_name("operator", exc.operator, OPERATORS)
            raise self.values.wrong((*where, "claims"), f"{about}`claims`: {reason}") from None


_EXAMPLE: Final = "https://mcp.example.com"


def _several(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def _fault(url: str, *, query: bool = False) -> str | None:
    """Return the reason why a URL cannot be used, or None."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return f"expected a URL such as {_EXAMPLE}"
    if parts.scheme not in ("http", "https") or not host:
        return f"expected a URL such as {_EXAMPLE}"
    if parts.username is not None or "#" in url or ("?" in url and not query):
        return "a user name, a query or a fragment is not allowed"
    # Tokens must not cross a network in plain text (RFC 6750, section 5.3).
    if parts.scheme == "http" and not _is_loopback(host):
        return "http is allowed for loopback addresses only: use https"
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
