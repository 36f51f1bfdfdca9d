"""What a gateway says about itself: what it can do, and how its servers want to be used."""

from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from ..interceptor import Answer, Exchange
from ..limits import INSTRUCTIONS_TEXT, MERGED_INSTRUCTIONS_TEXT
from ..protocol.downgrade.results import downgrade_result
from ..protocol.revisions import Revision
from ..wire import to_json
from .clients.client_sessions import Visitor

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["CAPABILITIES", "discover_result", "initialize_result"]

CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


async def initialize_result(
    gateway: "Gateway", exchange: Exchange, visitor: Visitor | None
) -> Answer:
    """The answer to `initialize`; what the client says about itself is for servers to hear."""
    params = exchange.message.params
    if visitor is not None and isinstance(params, Raw):
        visitor.introduction = params.copy()
    gateway.changes.introduced(exchange, CAPABILITIES)
    result: dict[str, Any] = {
        "protocolVersion": exchange.caller.revision.value,
        "capabilities": CAPABILITIES,
        "serverInfo": gateway.info,
        **await _instructions(gateway, exchange),
    }
    return downgrade_result("initialize", Raw(to_json(result)), exchange.caller.revision)


async def discover_result(gateway: "Gateway", exchange: Exchange) -> dict[str, Any]:
    """The answer to `server/discover`."""
    return {
        "supportedVersions": [revision.value for revision in reversed(Revision)],
        "capabilities": CAPABILITIES,
        **await _instructions(gateway, exchange),
    }


async def _instructions(gateway: "Gateway", exchange: Exchange) -> dict[str, str]:
    """What the servers want a model to know, each under its name."""
    if gateway.settings.instructions is not None:
        return {"instructions": gateway.settings.instructions}
    if not exchange.caller.stateless:
        await gateway.listed()  # it is told only once; others may ask again
    view = gateway.view_of(exchange.caller)
    said: dict[str, str] = {}
    for server, connection in gateway.manager.connections.items():
        member = gateway.roster.owner(server)
        text = connection.client.instructions
        if member is not None and text and view.includes(member.name):
            said.setdefault(member.name, text)
    texts, room = [], MERGED_INSTRUCTIONS_TEXT.value
    for name, text in sorted(said.items()):
        if len(text) > INSTRUCTIONS_TEXT.value:
            INSTRUCTIONS_TEXT.hit()
            text = f"{text[: INSTRUCTIONS_TEXT.value]}…"
        room -= len(text)
        if room < 0:
            MERGED_INSTRUCTIONS_TEXT.hit()
            break
        texts.append(f"{name}: {text}")
    return {"instructions": "\n\n".join(texts)} if texts else {}
