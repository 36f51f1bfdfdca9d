"""HTTP pages besides the MCP endpoints: status, health, metrics and the admin API."""

import hmac
import json
from collections.abc import Callable, Iterable
from html import escape as escape_html
from inspect import isawaitable
from typing import Any, Final

from msgspec import Struct

from ...errors import ConfigError, FairleadError
from ...observe.safe_display import safe
from ...protocol.caller import Principal
from ...protocol.identity.token_principal import TokenPrincipal
from ...transport.http.server.asgi import CLOSE, JSON, AsgiCall, Headers, has_body, has_json
from ...wire import to_json
from ..catalog.views import ClientViews, View
from ..operations.observability import Observability
from .route import BadRequest, PageRequest, Route
from .status import GatewayStatus

__all__ = ["GatewayPages"]

_METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_HTML: Final = b"text/html; charset=utf-8"
# The page shows names from servers and files, so the browser must not run or load any content.
_LOCKED: Final = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
# `fairlead intercept` and `fairlead session` read this header, not the text of the response.
_ADMIN_OFF: Final = ((b"x-admin-api", b"off"),)
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; --good: #0a7d4f; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --dim: #999; --good: #5fd39b; --bad: #ff8a80; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 3rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } code, pre { font: .9em ui-monospace, monospace; }
pre { border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 1.5rem 0; }
th, td { text-align: left; padding: .4rem 1rem .4rem 0; border-top: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--dim); font-weight: 500; border-top: 0; } td.n { text-align: right; }
.dim { color: var(--dim); } .good { color: var(--good); } .bad { color: var(--bad); }
"""


class _Page(Struct, frozen=True):
    """Response whose content type, status or headers differ from the defaults."""

    body: bytes
    kind: bytes = JSON
    status: int = 200
    headers: Headers = ()


class _Forbidden(ConfigError):
    """Error for a caller that may not access a page. It becomes status 403."""


# The first match is used, so the subclasses of `ConfigError` precede it.
_STATUS: Final = ((BadRequest, 400), (_Forbidden, 403), (ConfigError, 404), (FairleadError, 502))


class GatewayPages:
    """Handler of all paths except the MCP endpoints. The HTTP app has authenticated the caller."""

    def __init__(
        self,
        path: str,
        *,
        admin_token: str | None,
        is_admin: Callable[[Principal], bool] | None = None,
        admin_routes: Iterable[Route],
        status: GatewayStatus,
        views: ClientViews,
        observing: Observability,
    ) -> None:
        """`path` is the path of the merged endpoint. The admin API is for requests with the
        `admin_token` and for principals that `is_admin` accepts; without both it is disabled.
        """
        self._path = path
        self._accepts = is_admin
        self._admin_token = admin_token
        self._admin_routes = tuple(admin_routes)
        self._status = status
        self._views = views
        self._observing = observing
        self._routes: tuple[Route, ...] = (
            Route("GET", "/", self._home),
            Route("GET", "/health", lambda request: status.health(request.principal)),
            Route("GET", "/ready", self._ready),
            Route("GET", "/metrics", self._metrics),
            Route("GET", "/status", lambda request: status.public(request.principal)),
        )

    async def serve(self, call: AsgiCall, path: str, principal: Principal) -> None:
        """Answer one HTTP request."""
        path = path.rstrip("/") or "/"
        routes = self._routes
        if path == "/admin" or path.startswith("/admin/"):
            if (refusal := self._not_admitted(call, principal)) is not None:
                await call.send_text(*refusal)
                return
            routes = self._admin_routes
        found = {
            one.method: (one.handler, values)
            for one in routes
            if one.handler is not None and (values := one.values(path)) is not None
        }
        # HEAD has the same response as GET, without the body.
        route = found.get("GET" if call.method == "HEAD" else call.method)
        if route is not None:
            handler, values = route
            await self._answer(handler, PageRequest(call, principal, values))
        elif routes is self._admin_routes:
            listed = ", ".join(map(str, routes))
            await call.send_text(404, f"unknown path; paths of the admin API, if enabled: {listed}")
        elif found:
            allowed = ", ".join(found)
            await call.send_text(
                405, f"method not allowed: expected {allowed}", [(b"allow", allowed.encode())]
            )
        else:
            await call.send_text(
                404, f"unknown path: MCP is served at {self._path}, the status page at /"
            )

    async def _answer(self, handler: Callable[[PageRequest], object], request: PageRequest) -> None:
        call = request.call
        try:
            answer = handler(request)
            if isawaitable(answer):
                answer = await answer
        except FairleadError as exc:
            status = next(status for kind, status in _STATUS if isinstance(exc, kind))
            await call.send_text(status, str(exc))
        else:
            page = answer if isinstance(answer, _Page) else _Page(to_json(answer))
            await call.answer(page.status, page.body, page.kind, page.headers)

    def _not_admitted(
        self, call: AsgiCall, principal: Principal
    ) -> tuple[int, str, Headers] | None:
        if not self._admin_token and self._accepts is None:
            return 404, "the admin API is disabled: the gateway has no admin_token", _ADMIN_OFF
        if not self._is_admin(call, principal):
            if not self._admin_token:
                return 403, "the admin API needs an access token whose rule sets `admin`", CLOSE
            return 401, "the header X-Admin-Token must be the admin_token of the gateway", CLOSE
        if has_body(call.headers) and not has_json(call.headers):
            return 415, "Content-Type must be application/json", ()
        return None

    def _is_admin(self, call: AsgiCall, principal: Principal) -> bool:
        if self._accepts is not None and self._accepts(principal):
            return True
        token = self._admin_token or ""
        given = call.headers.get(b"x-admin-token", b"")
        return bool(token) and hmac.compare_digest(given, token.encode())

    def _home(self, request: PageRequest) -> _Page:
        call = request.call
        # The example contains a token header only if this caller was authenticated with a
        # configured token; clients with OAuth log in themselves.
        has_login = isinstance(request.principal, TokenPrincipal)
        needs_token = b"authorization" in call.headers and not has_login
        now = self._status.public(request.principal)
        page = render(now, call.url_of(self._path), needs_token=needs_token)
        return _Page(page.encode(), _HTML, headers=_LOCKED)

    @property
    def is_ready(self) -> bool:
        """True if requests can be served."""
        return self._status.is_ready

    def _ready(self, request: PageRequest) -> _Page:
        readiness = self._status.readiness(request.principal)
        return _Page(to_json(readiness), status=200 if readiness["ready"] else 503)

    def _metrics(self, request: PageRequest) -> _Page:
        metrics = self._observing.collect()
        if metrics is None:
            raise ConfigError("metrics are disabled: set `metrics = true` in the gateway's file")
        sees_all = self._views.view_for(request.principal) == View.everything()
        if not sees_all and not self._is_admin(request.call, request.principal):
            raise _Forbidden(
                "metrics cover all servers: clients with a restricted view need X-Admin-Token"
            )
        return _Page(metrics.prometheus().encode(), _METRICS)


def _escape(text: str) -> str:
    """Escape text of servers and files, and remove characters that hide or reorder text."""
    return escape_html(safe(text))


def render(now: dict[str, Any], url: str, *, needs_token: bool = False) -> str:
    """Return the status page. All text from servers and files is escaped."""
    title = _escape(now["name"])
    rows = "".join(_row(server) for server in now["servers"])
    entry: dict[str, Any] = {"type": "http", "url": url}
    if needs_token:
        entry["headers"] = {"Authorization": "Bearer TOKEN"}
    shown = json.dumps({"mcpServers": {now["name"]: entry}}, indent=2)
    clients = f"{now['clients']} client{'' if now['clients'] == 1 else 's'}"
    counts = ", ".join(
        f"{count} {kind.removesuffix('s') if count == 1 else kind}"
        for kind, count in now["counts"].items()
        if count
    )
    heads = ("Server", "Status", "Era", "Transport", "Tools", "Calls", "Errors", "Latency", "From")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="refresh" content="5">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{title}</h1><p class="dim">{_escape(now["version"])} · {clients} · '
        f"{_escape(counts) or 'no items yet'}</p>"
        f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>"
        f"<h2>Connect</h2><p>All servers are at <code>{_escape(url)}</code>, each server at "
        f"<code>{_escape(url)}/NAME</code>.</p><pre>{_escape(shown)}</pre>"
        '<p class="dim">As JSON: <a href="/status">status</a> · <a href="/health">health</a> · '
        '<a href="/ready">ready</a></p></body></html>\n'
    )


def _row(server: dict[str, Any]) -> str:
    state = server["status"]
    look = "good" if state == "connected" else "bad" if server["error"] else "dim"
    why = server["error"] or ("suspended for some clients" if server["suspended"] else "")
    if server["remedy"]:
        why = f"since {server['since']}: {why}; to connect it: {server['remedy']}"
    error = f'<br><span class="dim">{_escape(why)}</span>' if why else ""
    era = f"{server['era']} {server['revision']}" if server["era"] else ""
    latency = "" if server["latency_ms"] is None else f"{server['latency_ms']:g} ms"
    counts = (server[key] for key in ("tools", "calls", "errors"))
    cells = [
        f"<td><code>{_escape(server['name'])}</code></td>",
        f'<td><span class="{look}">{_escape(state)}</span>{error}</td>',
        f"<td>{_escape(era)}</td>",
        f"<td>{_escape(server['transport'] or '')}</td>",
        *(f'<td class="n">{"" if count is None else count}</td>' for count in counts),
        f'<td class="n">{latency}</td>',
        f'<td class="dim">{_escape(server["source"] or "")}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"
