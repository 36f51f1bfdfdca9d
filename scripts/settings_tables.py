"""Tables for docs/settings.md: names, types and defaults of settings, with their comments."""

import ast
import dataclasses
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fairlead.client.mcp_transport.network import HttpOptions
from fairlead.gateway import gateway_file
from fairlead.policy.actions import ACTIONS
from fairlead.policy.rules import build_actions
from fairlead.policy.rules.gateway_actions import gateway_actions
from fairlead.transport.http.client.http1.http_client import HttpClient
from fairlead.transport.http.client.http_channel import HttpChannel

__all__ = ["SETTINGS_TABLES", "SETTINGS_TYPES", "amount"]

# Classes whose fields can be set, by the name of their table.
SETTINGS_TYPES: Mapping[str, str] = {
    "server-settings": "fairlead.server.server_config:MCPServerConfig",
    "http-settings": "fairlead.transport.http.server.http_settings:HttpSettings",
    "client-settings": "fairlead.client.client_config:MCPClientConfig",
    "oauth-settings": "fairlead.auth.client.oauth_settings:OAuthSettings",
    "server-auth": "fairlead.auth.server.server_auth:ServerAuth",
    "token-issuer": "fairlead.auth.server.server_auth:TokenIssuer",
    "introspection": "fairlead.auth.server.server_auth:Introspection",
    "static-client": "fairlead.auth.server.server_auth:StaticClient",
    "request-options": "fairlead.client.mcp_transport.mcp_transport:RequestOptions",
    "stdio-entry": "fairlead.client.server_entry:MCPStdioServerConfig",
    "http-entry": "fairlead.client.server_entry:MCPHttpServerConfig",
    "sse-entry": "fairlead.client.server_entry:MCPSseServerConfig",
    "websocket-entry": "fairlead.client.server_entry:MCPWebSocketServerConfig",
    "manager-rules": "fairlead.config.upstream_settings:Rules",
    "gateway-settings": "fairlead.gateway.gateway_settings:GatewaySettings",
    "upstream-settings": "fairlead.config.upstream_settings:UpstreamSettings",
    "relay-settings": "fairlead.relay.relay_settings:RelaySettings",
    "view-settings": "fairlead.gateway.catalog.views:View",
}
# Classes whose constructor arguments are settings.
CONSTRUCTORS: Mapping[str, str] = {
    "manager-arguments": "fairlead.manager.manager:MCPManager",
    "event-store-arguments": "fairlead.transport.http.server.sessions.event_store:MemoryEventStore",
    "session-store-arguments": (
        "fairlead.transport.http.server.sessions.sqlite_session_store:SqliteSessionStore"
    ),
    "journal-arguments": "fairlead.recording.journal.journal:Journal",
    "tape-arguments": "fairlead.recording.tape.writer:TapeWriter",
    "desk-arguments": "fairlead.policy.hold_desk:HoldDesk",
}
# Units of numbers that are neither seconds nor counts. `ACTION:OPTION` is an option of an action.
_UNITS = {
    "rate_limit_rate": "per second",
    "per_tool_rate": "per second",
    "rate": "per second",
    "burst": "",
    "chance": "",
    "max_body": "bytes",
    "max_payload": "bytes",
    "max_total": "bytes",
    "longest": "bytes",
    "size:params": "bytes",
    "size:result": "bytes",
}
_IDENTIFIERS = ("port", "code")  # numbers that are written without separators
# attribute of `GatewayFile` -> name in the file
_IN_FILE = {"endpoint": "path", "discovered": "include"}
_REQUIRED = "required"
# module prefixes such as `collections.abc.`
_QUALIFIED = re.compile(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])")


class Setting(NamedTuple):
    """A row of a table."""

    name: str
    type: str
    default: str
    about: str


def amount(value: float, unit: str) -> str:
    """Format a number with its unit."""
    if unit == "bytes":
        for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if value % size == 0 and value:
                return f"{value // size} {name}"
    if unit == "seconds":
        return f"{value:,} s" if isinstance(value, int) else f"{value:g} s"
    number = f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return f"{number} {unit}".rstrip()


def fields_of(cls: type[Any]) -> Iterator[Setting]:
    """Yield the fields of a struct or dataclass, those of its bases first."""
    defaults = dict(_defaults(cls))
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("fairlead"):
            for node, about in _annotated(base):
                name = node.target.id  # type: ignore[union-attr]
                kind = ast.unparse(node.annotation)
                shown, value = defaults[name]
                yield Setting(shown, _type(kind), _default(name, kind, value), about)


def arguments_of(function: Callable[..., Any], action: str = "") -> Iterator[Setting]:
    """Yield the arguments of a function or constructor, which may be that of an action."""
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
            kind = one.annotation
            kind = kind if isinstance(kind, str) else inspect.formatannotation(kind)
            value = msgspec.NODEFAULT if one.default is one.empty else one.default
            unit_of = f"{action}:{name}" if f"{action}:{name}" in _UNITS else name
            yield Setting(name, _type(kind), _default(unit_of, kind, value), "")


def http_options() -> Iterator[Setting]:
    """Yield the options of `HttpTransport`, with the defaults of the classes that take them."""
    taken = [*arguments_of(HttpClient), *arguments_of(HttpChannel)]
    defaults = {one.name: one.default for one in taken}
    for node, about in _annotated(HttpOptions):
        name = node.target.id  # type: ignore[union-attr]
        yield Setting(
            name, _type(ast.unparse(node.annotation)), defaults.get(name, "`None`"), about
        )


def gateway_file_settings() -> Iterator[Setting]:
    """Yield the top-level settings of a gateway file that belong to neither gateway nor relay."""
    for one in fields_of(gateway_file.GatewayFile):
        name = _IN_FILE.get(one.name, one.name)
        if name in gateway_file._PLACE and one.default != _REQUIRED:
            kind = inspect.formatannotation(gateway_file._PLACE[name])
            default = "`None`" if name == "include" else one.default
            yield one._replace(name=name, type=_type(kind), default=default)


def actions_table() -> str:
    """Return the options of every action of rules."""
    lines = ["| Action | Option | Type | Default |", "|---|---|---|---|"]
    for action, factory in sorted({**ACTIONS, **gateway_actions()}.items()):
        for one in arguments_of(factory, action):
            if one.name not in build_actions._OURS:  # set by Fairlead, not by a rules file
                lines.append(f"| `{action}` | `{one.name}` | {one.type} | {one.default} |")
    return "\n".join(lines) + "\n"


def _table(rows: Iterator[Setting]) -> str:
    found = list(rows)
    explained = any(one.about for one in found)
    lines = ["| Name | Type | Default |", "|---|---|---|"]
    if explained:
        lines = [lines[0] + " Meaning |", lines[1] + "---|"]
    for one in found:
        about = f" {one.about} |" if explained else ""
        lines.append(f"| `{one.name}` | {one.type} | {one.default} |{about}")
    return "\n".join(lines) + "\n"


def _load(place: str) -> type[Any]:
    module, _, name = place.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def _defaults(cls: type[Any]) -> Iterator[tuple[str, tuple[str, object]]]:
    """Yield each field with its name in files and its default."""
    if dataclasses.is_dataclass(cls):
        for one in dataclasses.fields(cls):
            missing = one.default is dataclasses.MISSING
            yield one.name, (one.name, msgspec.NODEFAULT if missing else one.default)
    else:
        for each in msgspec.structs.fields(cls):
            made = each.default_factory is not msgspec.NODEFAULT
            value = each.default_factory() if made else each.default
            yield each.name, (each.encode_name, value)


def _annotated(cls: type[Any]) -> Iterator[tuple[ast.AnnAssign, str]]:
    """Yield the fields that a class itself defines, with the comment or docstring of each."""
    text = Path(inspect.getfile(cls)).read_text()
    source = text.splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            for one, following in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(one, ast.AnnAssign):
                    lines = range(one.lineno, (one.end_lineno or one.lineno) + 1)
                    about = " ".join(comments[line] for line in lines if line in comments)
                    yield one, about or _docstring(following) or _above(one, source, comments)


def _above(field: ast.AnnAssign, source: list[str], comments: Mapping[int, str]) -> str:
    """Return the comment in the lines directly above a field."""
    first = field.lineno
    while source[first - 2].lstrip().startswith("#"):
        first -= 1
    return " ".join(comments[line] for line in range(first, field.lineno))


def _docstring(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(ast.Constant(str(text))):
            return " ".join(text.split())
    return ""


def _type(annotation: str) -> str:
    """Return a type without `|`, which ends the cell of a table."""
    plain = _QUALIFIED.sub("", annotation.strip("\"'"))
    tree = ast.parse(plain, mode="eval").body
    return " or ".join(f"`{one}`" for one in _alternatives(tree))


def _alternatives(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.BinOp(left, ast.BitOr(), right):
            yield from _alternatives(left)
            yield from _alternatives(right)
        case ast.Subscript(ast.Name("Optional"), inner):
            yield from _alternatives(inner)
            yield "None"
        case ast.Subscript(ast.Name("Union"), ast.Tuple(members)):
            for one in members:
                yield from _alternatives(one)
        case ast.Subscript(ast.Name("Literal"), ast.Tuple(values)):
            for one in values:
                yield ast.unparse(one).replace("'", '"')
        case ast.Subscript(ast.Name("Literal"), inner):
            yield ast.unparse(inner).replace("'", '"')
        case _:
            text = ast.unparse(node).replace("'", '"')
            # Containers and callables in unions are shown without their type arguments.
            yield text.partition("[")[0] if "|" in text or "Literal" in text else text


def _default(name: str, annotation: str, value: object) -> str:
    if value is msgspec.NODEFAULT:
        return _REQUIRED
    if isinstance(value, bool) or value is None:
        return f"`{value}`"
    if name in _IDENTIFIERS:
        return f"`{value}`"
    if isinstance(value, int | float):
        return amount(value, _UNITS.get(name, _unit(name, annotation)))
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple | list | dict):
        return f"`{value!r}`".replace("'", '"')
    if isinstance(value, msgspec.Struct):
        return f"`{type(value).__name__}`, as below"
    return ""


def _unit(name: str, annotation: str) -> str:
    if "bytes" in name:
        return "bytes"
    return "seconds" if annotation.startswith("float") else ""


def _fields_table(place: str) -> str:
    return _table(fields_of(_load(place)))


def _arguments_table(place: str) -> str:
    """Return the arguments of a constructor, followed by the text of its docstring."""
    cls = _load(place)
    table = _table(one for one in arguments_of(cls) if one.name not in build_actions._OURS)
    about = inspect.cleandoc(cls.__init__.__doc__ or "").partition("Raises:")[0].strip()
    return f"{table}\n{about}\n" if about else table


SETTINGS_TABLES: Mapping[str, Callable[[], str]] = {
    **{name: (lambda at=place: _fields_table(at)) for name, place in SETTINGS_TYPES.items()},
    **{name: (lambda at=place: _arguments_table(at)) for name, place in CONSTRUCTORS.items()},
    "http-options": lambda: _table(http_options()),
    "gateway-file": lambda: _table(gateway_file_settings()),
    "action-options": actions_table,
}
