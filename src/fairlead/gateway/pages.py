"""A gateway for people and for machines that watch it: a page, its health, and an admin API."""

import hmac
import json
from html import escape as escape_html
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError, FairleadError
from ..observe.display import safe
from ..protocol.principal import Principal
from ..transport.http.asgi import CLOSE, AsgiCall, has_body, has_json
from ..transport.http.settings import HttpSettings
from ..wire import to_json
from .admin_asking import Mistake, number_of
from .admin_observing import PATHS, act
from .admin_servers import SERVER_PATHS, act_on_servers
from .admin_sessions import ClientSessions
from .status import health, public_status
from .views import View

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["GatewayPages"]

_PATHS: Final = ("/", "/health", "/ready", "/status", "/metrics")
_METRICS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_HTML: Final = b"text/html; charset=utf-8"
_LOCKED: Final = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
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


class GatewayPages:
    """Serves the paths beside the MCP endpoints; who may come in was checked before."""

    def __init__(self, gateway: "Gateway", settings: HttpSettings) -> None:
        self._gateway = gateway
        self._settings = settings
        self._sessions = ClientSessions(gateway)

    async def serve(self, call: AsgiCall, path: str, principal: Principal) -> None:
        """Answer one request."""
        path = path.rstrip("/") or "/"
        if path == "/admin" or path.startswith("/admin/"):
            await self._admin(call, path)
        elif path not in _PATHS:
            await call.say(404, f"MCP is at {self._settings.path}; / shows the servers")
        elif call.method not in ("GET", "HEAD"):
            await call.say(405, "there is GET", [(b"allow", b"GET")])
        elif path == "/":
            needs_token = b"authorization" in call.headers  # who came in with one had to have it
            page = render(self._status(principal), self._url(call), needs_token=needs_token)
            await call.answer(200, page.encode(), _HTML, _LOCKED)
        elif path == "/health":
            await call.answer(
                200, to_json(health(self._gateway, self._gateway.view_for(principal)))
            )
        elif path == "/ready":
            ready = self._gateway.is_ready
            await call.answer(200 if ready else 503, to_json({"ready": ready}))
        elif path == "/metrics":
            await self._metrics(call, principal)
        else:
            await call.answer(200, to_json(self._status(principal)))

    async def _metrics(self, call: AsgiCall, principal: Principal) -> None:
        observing = self._gateway.observing
        metrics = None if observing is None else observing.collect(self._gateway)
        if metrics is None:
            await call.say(404, "there are no metrics: the gateway's file has no `metrics = true`")
        elif self._gateway.view_for(principal) != View.everything() and not self._is_admin(call):
            await call.say(403, "who sees only a part needs X-Admin-Token: they are about all")
        else:
            await call.answer(200, metrics.prometheus().encode(), _METRICS)

    def _status(self, principal: Principal) -> dict[str, Any]:
        return public_status(self._gateway, principal)

    def _url(self, call: AsgiCall) -> str:
        host = call.headers.get(b"host", b"").decode("latin-1")
        scheme = str(call.scope.get("scheme", "http"))
        return f"{scheme}://{host}{self._settings.path}"

    # The admin API

    async def _admin(self, call: AsgiCall, path: str) -> None:
        token = self._gateway.settings.admin_token
        if not token:
            await call.say(404, "there is no admin API: the gateway has no admin_token")
            return
        if not self._is_admin(call):
            await call.say(401, "X-Admin-Token: the gateway's admin_token", CLOSE)
            return
        if has_body(call.headers) and not has_json(call.headers):
            await call.say(415, "the body is application/json")
            return
        steps = path.split("/")[2:]
        try:
            answer = await self._act(call.method, steps)
            if answer is None and self._gateway.observing is not None:
                answer = await act(self._gateway.observing, call, steps)
        except Mistake as exc:
            await call.say(400, str(exc))
        except ConfigError as exc:
            await call.say(404, str(exc))
        except FairleadError as exc:
            await call.say(502, str(exc))
        else:
            if answer is None:
                await call.say(
                    404,
                    f"{SERVER_PATHS}, GET /admin/sessions, DELETE /admin/sessions/ID; where they "
                    f"are on: {PATHS}",
                )
            else:
                await call.answer(200, to_json(answer))

    def _is_admin(self, call: AsgiCall) -> bool:
        token = self._gateway.settings.admin_token or ""
        given = call.headers.get(b"x-admin-token", b"")
        return bool(token) and hmac.compare_digest(given, token.encode())

    async def _act(self, method: str, steps: list[str]) -> Any:
        match method, steps:
            case "GET", ["sessions"]:
                return self._sessions.list()
            case "DELETE", ["sessions", number]:
                await self._sessions.end(number_of(number))
                return {"ended": number_of(number)}
        return await act_on_servers(self._gateway, method, steps)


def _escape(text: str) -> str:
    """Return text of servers and files for the page; nothing in it turns its direction or hides."""
    return escape_html(safe(text))


def render(now: dict[str, Any], url: str, *, needs_token: bool = False) -> str:
    """The status page. Everything that came from elsewhere is escaped."""
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
        f"{_escape(counts) or 'nothing offered yet'}</p>"
        f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>"
        f"<h2>Connect</h2><p>All of them are at <code>{_escape(url)}</code>, each one at "
        f"<code>{_escape(url)}/NAME</code>.</p><pre>{_escape(shown)}</pre>"
        '<p class="dim">As JSON: <a href="/status">status</a> · <a href="/health">health</a> · '
        '<a href="/ready">ready</a></p></body></html>\n'
    )


def _count(number: int | None) -> str:
    return "" if number is None else str(number)


def _row(server: dict[str, Any]) -> str:
    state = server["status"]
    look = "good" if state == "connected" else "bad" if server["error"] else "dim"
    error = f'<br><span class="dim">{_escape(server["error"])}</span>' if server["error"] else ""
    era = f"{server['era']} {server['revision']}" if server["era"] else ""
    latency = "" if server["latency_ms"] is None else f"{server['latency_ms']:g} ms"
    cells = [
        f"<td><code>{_escape(server['name'])}</code></td>",
        f'<td><span class="{look}">{_escape(state)}</span>{error}</td>',
        f"<td>{_escape(era)}</td>",
        f"<td>{_escape(server['transport'] or '')}</td>",
        *(f'<td class="n">{_count(server[key])}</td>' for key in ("tools", "calls", "errors")),
        f'<td class="n">{latency}</td>',
        f'<td class="dim">{_escape(server["source"] or "")}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"
