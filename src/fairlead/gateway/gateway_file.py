"""The file that describes a gateway: its servers, clients and views."""

import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from msgspec import Struct, field, structs

from ..client.server_entry import MCPServerEntry
from ..config.configured_servers import configured_servers
from ..config.discovery import DiscoveredServers
from ..config.files.config_reader import ConfigReader, read_file
from ..config.files.formats import Document, parse
from ..config.found_server import FoundServer
from ..config.hosts import ConfigLocation, Host, find_servers
from ..config.paths import local_host_paths
from ..config.server_spec import ServerSpec
from ..config.stored_logins import GATEWAY_FILE
from ..config.upstream_settings import OLD_SHARE, SERVER_SETTINGS
from ..config.validate import is_server_name
from ..errors import ConfigError
from ..protocol.caller import UNNAMED
from ..protocol.identity.token_principal import TOKEN_PRINCIPAL
from ..relay.relay_settings import RelaySettings
from ..suggestions import unknown_name
from .auth_section import GatewayAuth, read_auth
from .catalog.views import View
from .file_values import FileValues
from .gateway_settings import GatewaySettings

__all__ = ["ClientEntry", "GatewayFile", "read_gateway_file"]

DEFAULT: Final = "default"  # name of the view of clients without a view of their own
_TOKEN: Final = re.compile(r"[!-~]+")  # characters that are allowed in an HTTP header


class ClientEntry(Struct, frozen=True):
    """A client that is admitted with its token."""

    name: str
    token: str
    view: str | None = None

    def __repr__(self) -> str:
        return f"<Client {self.name!r}>"


class GatewayFile(Struct, frozen=True, kw_only=True):
    """The contents of a gateway file, with variables replaced except in servers."""

    path: str
    settings: GatewaySettings
    servers: Mapping[str, list[ServerSpec]] = field(default_factory=dict)
    named_views: Mapping[str, View] = field(default_factory=dict)
    clients: tuple[ClientEntry, ...] = ()
    auth: GatewayAuth | None = None  # OAuth access tokens
    token: str | None = None  # bearer token of clients that are not in `clients`
    listen: str | None = None  # PORT, HOST:PORT or the path of a unix socket
    endpoint: str | None = None  # path of the merged endpoint in the URL
    discovered: bool = False  # also serve the servers that discovery finds
    allowed_hosts: tuple[str, ...] = ()  # host names under which clients reach the gateway
    allowed_origins: tuple[str, ...] = ()  # origins of web pages that may connect
    tls_cert: str | None = None  # path of the certificate chain (PEM)
    tls_key: str | None = None  # path of the private key (PEM)
    drain: float | None = None  # seconds for running calls after SIGTERM; None: at most 1
    journal: bool = False  # keep the latest messages in memory, for `fairlead watch`
    metrics: bool = False  # count requests, and serve the counters at `/metrics`
    record: str | bool = False  # record each run on a new tape; a string is the start of its name
    rules: str | None = None  # path of the rules file
    lock: str | None = None  # path of the lock file of tools
    lock_policy: Literal["refuse", "warn", "ask"] = "refuse"  # effect of a changed tool
    warnings: tuple[str, ...] = ()  # warnings about deprecated keys in the file

    @property
    def secrets(self) -> list[str]:
        """The credentials of clients and of the gateway itself."""
        found = [self.settings.admin_token, self.token, *(client.token for client in self.clients)]
        if self.auth is not None and self.auth.introspection is not None:
            found.append(self.auth.introspection.client_secret)
        return [secret for secret in found if secret is not None]

    @property
    def views(self) -> dict[str, View]:
        """The views of clients that have a view of their own, by client."""
        return {one.name: self.named_views[one.view] for one in self.clients if one.view}

    @property
    def role_views(self) -> dict[str, View]:
        """The views of the bearers of access tokens, by role."""
        rules = () if self.auth is None else self.auth.rules
        return {
            one.client: self.named_views[one.view] if one.view else self.settings.view
            for one in rules
        }

    def __repr__(self) -> str:
        return f"<GatewayFile {self.path}: {len(self.servers)} servers>"


def read_gateway_file(
    path: str | os.PathLike[str], env: Mapping[str, str] | None = None
) -> GatewayFile:
    """Read a gateway file in TOML, JSON or YAML, by the extension of its name.

    `env` replaces `os.environ` for variables in the file.

    Raises:
        ConfigError: The file is missing or invalid. The error has its path and line.
    """
    name = os.path.abspath(path)
    content = read_file(name)
    if content is None:
        raise ConfigError("file not found", path=os.fspath(path))
    return _GatewayFileParser(parse(name, content), os.environ if env is None else env).file()


# Keys of the file and the types of their values

_FLAT: Final = {
    one.name: one.type
    for kind in (GatewaySettings, RelaySettings)
    for one in structs.fields(kind)
    if one.name not in ("view", "relay")
}
_PLACE: Final[dict[str, Any]] = {
    "listen": str | int,
    "path": str,
    "token": str,
    "allowed_hosts": list[str],
    "allowed_origins": list[str],
    "tls_cert": str,
    "tls_key": str,
    "drain": float,
    "include": Literal["discovered"],
    "journal": bool,
    "metrics": bool,
    "record": str | bool,
    "rules": str,
    "lock": str,
    "lock_policy": Literal["refuse", "warn", "ask"],
}
# Keys that need a conversion, because `GatewayFile` has another name or value for them.
_CONVERTED: Final = ("listen", "path", "include", "rules", "lock")
_TABLES: Final = ("servers", "views", "clients", "auth")
# Deprecated keys: the new key, and the new values if those were renamed too.
_OLD: Final[dict[str, tuple[str, Mapping[str, str] | None]]] = {
    "upstream": ("share", OLD_SHARE),
    "linger": ("idle_close", None),
    "max_channels": ("max_connections", None),
}
_VIEW: Final[dict[str, Any]] = {
    **dict.fromkeys(("servers", "allow", "deny", "hide"), tuple[str, ...]),
    "rename": dict[str, str],
}
_CLIENT: Final[dict[str, Any]] = {"token": str, "token_env": str, "view": str}
# Further keys of an entry, some of them from other programs, that the entry types do not have.
_ENTRY_TOO: Final = (
    *("replicas", "disabled", "envFile", "includeTools", "excludeTools", "disabledTools"),
    *("headersHelper", "transport", "endpoint", "requestTimeoutMs", "connectionTimeout"),
)


class _GatewayFileParser(FileValues, eq=False):
    """Parser of one gateway file."""

    _warnings: list[str] = field(default_factory=list)

    def file(self) -> GatewayFile:
        data = {key: value for key, value in self.document.data.items() if key != "$schema"}
        self.know((), data, [*_FLAT, *_PLACE, *_TABLES, *_OLD], "setting")
        data = self._renewed((), data)
        values = {key: self.value((key,), data[key], _FLAT[key]) for key in _FLAT if key in data}
        place = {key: self.value((key,), data[key], _PLACE[key]) for key in _PLACE if key in data}
        servers = self._servers(self.table(("servers",), data))
        names = None if "include" in place else list(servers)
        views = {
            name: self._view(name, raw, names) for name, raw in self.table(("views",), data).items()
        }
        relay = {one.name for one in structs.fields(RelaySettings)}
        settings = GatewaySettings(
            **{key: value for key, value in values.items() if key not in relay},
            relay=RelaySettings(**{k: v for k, v in values.items() if k in relay}),
            view=views.get(DEFAULT, View.everything()),
        )
        for key, token in (("token", place.get("token")), ("admin_token", settings.admin_token)):
            self._check_token((key,), token)
        if place.get("drain", 1.0) <= 0:
            raise self.wrong(("drain",), "invalid `drain`: expected seconds greater than 0")
        endpoint = place.get("path")
        if endpoint is not None and not re.fullmatch(r"/[^\s?#]*[^\s?#/]", endpoint):
            raise self.wrong(
                ("path",), f"invalid `path` {endpoint!r}: expected a URL path such as /mcp"
            )
        unchanged: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in place.items()
            if key not in _CONVERTED
        }
        clients = self._clients(self.table(("clients",), data), views, place.get("token"))
        return GatewayFile(
            path=self.document.path,
            settings=settings,
            servers=servers,
            named_views=views,
            clients=clients,
            auth=read_auth(self, data["auth"], views, [one.name for one in clients])
            if "auth" in data
            else None,
            listen=str(place["listen"]) if "listen" in place else None,
            endpoint=endpoint,
            discovered="include" in place,
            rules=self._beside(place.get("rules")),
            lock=self._beside(place.get("lock")),
            **unchanged,
            warnings=tuple(self._warnings),
        )

    def _renewed(self, where: tuple[str, ...], data: dict[str, Any]) -> dict[str, Any]:
        """Return settings with deprecated keys replaced. Each of them adds a warning."""
        data = dict(data)
        for old, (new, values) in _OLD.items():
            if old not in data:
                continue
            value = data.pop(old)
            if values is not None:
                kind = Literal[tuple(values)]  # type: ignore[valid-type]
                value = values[self.value((*where, old), value, kind)]
            shown = f'{new} = "{value}"' if isinstance(value, str) else new
            line = self.line((*where, old))
            self._warnings.append(
                f"{self.document.path}:{line}: `{old}` is deprecated: use `{shown}`"
            )
            # The value of `max_channels` is dropped, because it limited another quantity.
            if old != "max_channels":
                data.setdefault(new, value)
        return data

    def _beside(self, name: str | None) -> str | None:
        """Return an absolute path; `name` is relative to the folder of the gateway file."""
        if name is None:
            return None
        return os.path.join(os.path.dirname(self.document.path), os.path.expanduser(name))

    # Servers

    def _servers(self, table: dict[str, Any]) -> dict[str, list[ServerSpec]]:
        entries: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for name, raw in table.items():
            where = "servers", name
            if not is_server_name(name):
                raise self.wrong(
                    where,
                    f"invalid server name {name!r}: expected 1 to 100 letters, digits, `_`, `-`, "
                    "`.` or `:`",
                )
            replicas = self._replicas(where, raw)
            entries[name] = [
                (name if number == 0 else f"{name}#{number + 1}", one)
                for number, one in enumerate(replicas)
            ]
        found = self._found([one for several in entries.values() for one in several])
        ready = configured_servers(
            DiscoveredServers(found={own: one for own, one in found.items() if one.enabled})
        )
        chosen = {
            name: [ready[own] for own, _ in several if own in ready]
            for name, several in entries.items()
        }
        return {name: several for name, several in chosen.items() if several}

    def _replicas(self, where: tuple[str, ...], raw: Any) -> list[dict[str, Any]]:
        """Return the entries of one server name. Keys next to `replicas` apply to each of them."""
        self._know_entry(where, raw)
        raw = self._with_settings(where, raw)
        if "replicas" not in raw:
            return [raw]
        shared = {key: value for key, value in raw.items() if key != "replicas"}
        replicas = raw["replicas"]
        if not isinstance(replicas, list) or not replicas:
            raise self.wrong(
                (*where, "replicas"), "`replicas` must be a list of at least one entry"
            )
        for one in replicas:
            self._know_entry((*where, "replicas"), one)
        own = [self._with_settings((*where, "replicas"), one) for one in replicas]
        return [{**shared, **one} for one in own]

    def _with_settings(self, where: tuple[str, ...], raw: dict[str, Any]) -> dict[str, Any]:
        """Return an entry with deprecated keys replaced and its connection settings checked."""
        raw = self._renewed(where, raw)
        for key in SERVER_SETTINGS.keys() & raw.keys():
            raw[key] = self.value((*where, key), raw[key], SERVER_SETTINGS[key])
        return raw

    def _know_entry(self, where: tuple[str, ...], raw: Any) -> None:
        about = f'Server "{where[1]}"'
        if not isinstance(raw, dict):
            raise self.wrong(where, f"{about}: expected an entry with `command` or `url`")
        kinds = get_args(MCPServerEntry)
        fields = {one.encode_name for kind in kinds for one in structs.fields(kind)}
        known = {*fields, *_ENTRY_TOO, *SERVER_SETTINGS, *_OLD}
        self.know(where, raw, known, "key", f"{about}: ")

    def _found(self, entries: list[tuple[str, dict[str, Any]]]) -> dict[str, FoundServer]:
        """Read entries like those of Fairlead's own files. They are trusted, because the user named
        the file.
        """
        path, files = self.document.path, _OneFile(self.document)
        host = Host(
            id=GATEWAY_FILE,
            title="the gateway's file",
            places=lambda machine, files: [ConfigLocation(path, "user")],
            servers=lambda document, place, machine: entries,
            dialect="fairlead",
        )
        machine = local_host_paths(os.path.dirname(path), env=self.env)
        found = {one.name: one for one in find_servers(host, machine, files)}
        lines = {own: self.line(("servers", own.partition("#")[0])) for own, _ in entries}
        for problem in files.problems:
            # Problems do not name their entry. The first belongs to the first missing entry.
            failed = next((own for own, _ in entries if own not in found), "")
            raise ConfigError(problem.reason, path=path, line=lines.get(failed) or problem.line)
        return {own: structs.replace(one, line=lines[own] or 1) for own, one in found.items()}

    # Views and clients

    def _view(self, name: str, raw: Any, servers: list[str] | None) -> View:
        where = "views", name
        fields = self.fields(where, raw, _VIEW, f'View "{name}": ')
        for server in fields.get("servers", ()):
            if servers is not None and server not in servers:
                raise self.wrong((*where, "servers"), unknown_name("server", server, servers))
        try:
            return View(**fields)
        except ConfigError as exc:
            raise self.wrong(where, f'View "{name}": {exc.args[0]}') from exc

    def _clients(
        self, table: dict[str, Any], views: Mapping[str, View], unnamed: str | None
    ) -> tuple[ClientEntry, ...]:
        """Read the clients. `unnamed` is the `token` of the gateway, which no client may have."""
        clients: dict[str, ClientEntry] = {}
        for name, raw in table.items():
            where = "clients", name
            if name == UNNAMED:
                raise self.wrong(
                    where,
                    f"invalid client name {name!r}: reserved for clients that use the `token` of "
                    "the gateway",
                )
            if name.startswith(TOKEN_PRINCIPAL):
                raise self.wrong(
                    where,
                    f"invalid client name {name!r}: names that begin with {TOKEN_PRINCIPAL!r} are "
                    "reserved for access tokens",
                )
            fields = self.fields(where, raw, _CLIENT, f'Client "{name}": ')
            token = fields.get("token")
            if (variable := fields.get("token_env")) is not None:
                token = self.env.get(variable)
                if token is None:
                    raise self.wrong(
                        (*where, "token_env"), f"the environment variable {variable} is not set"
                    )
            if not token:
                raise self.wrong(where, f'Client "{name}": missing `token` or `token_env`')
            self._check_token((*where, "token"), token)
            view = fields.get("view")
            if view is not None and view not in views:
                raise self.wrong((*where, "view"), unknown_name("view", view, views))
            if token == unnamed:
                raise self.wrong(
                    where, f'Client "{name}": the token must differ from the `token` of the gateway'
                )
            if token in clients:
                raise self.wrong(
                    where,
                    f'Client "{name}": the token must differ from that of client '
                    f'"{clients[token].name}"',
                )
            clients[token] = ClientEntry(name, token, view)
        return tuple(clients.values())

    def _check_token(self, where: tuple[str, ...], token: str | None) -> None:
        if token is not None and not _TOKEN.fullmatch(token):
            raise self.wrong(
                where, f"`{where[-1]}` must consist of ASCII characters without spaces"
            )


class _OneFile(ConfigReader):
    """Configuration reader for a single document that is already parsed."""

    def __init__(self, document: Document) -> None:
        super().__init__()
        self._documents[document.path] = document
