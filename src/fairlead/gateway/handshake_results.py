"""Results of `initialize` and `server/discover` at the merged endpoint."""

from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..interceptor import Answer, Exchange
from ..limits import INSTRUCTIONS_TEXT, MERGED_INSTRUCTIONS_TEXT
from ..protocol.downgrade.results import downgrade_result
from ..protocol.revisions import Revision
from ..server.features.change_broadcaster import ChangeBroadcaster
from ..server.results.result_envelope import ResultEnvelope
from ..wire import to_json
from .backends.registry import BackendRegistry
from .catalog.list_requests import MergedLists
from .catalog.views import ClientViews
from .clients.client_sessions import ConnectedClient

__all__ = ["CAPABILITIES", "HandshakeResults"]

CAPABILITIES: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


class HandshakeResults(Struct, eq=False):
    """Builder of the results of `initialize` and `server/discover`.

    If `instructions` is None, the instructions of the servers are merged.
    """

    info: dict[str, Any]
    instructions: str | None
    envelope: ResultEnvelope
    registry: BackendRegistry
    lists: MergedLists
    views: ClientViews
    changes: ChangeBroadcaster

    async def initialize(self, exchange: Exchange, client: ConnectedClient | None) -> Answer:
        """Answer `initialize`, and keep its params for the handshakes with servers."""
        params = exchange.message.params
        if client is not None and isinstance(params, Raw):
            # The client uses the gateway's revision, whichever revision it proposed.
            members = msgspec.json.decode(params, type=dict[str, Raw])
            agreed = {"protocolVersion": exchange.caller.revision.value}
            client.introduction = Raw(to_json({**members, **agreed}))
        self.changes.introduced(exchange, CAPABILITIES)
        result: dict[str, Any] = {
            "protocolVersion": exchange.caller.revision.value,
            "capabilities": CAPABILITIES,
            "serverInfo": self.info,
            **await self._instructions(exchange),
        }
        return downgrade_result("initialize", Raw(to_json(result)), exchange.caller.revision)

    async def discover(self, exchange: Exchange) -> Answer:
        """Answer `server/discover`."""
        result = {
            "supportedVersions": [revision.value for revision in reversed(Revision)],
            "capabilities": CAPABILITIES,
            **await self._instructions(exchange),
        }
        return self.envelope.listed(to_json(result)[1:-1], exchange.caller)

    async def _instructions(self, exchange: Exchange) -> dict[str, str]:
        """Return the member `instructions` of a result.

        Without instructions of the gateway, it contains those of the servers in the client's view,
        each under the name of its server.
        """
        if self.instructions is not None:
            return {"instructions": self.instructions}
        if not exchange.caller.stateless:
            # A client of the handshake era gets instructions only once, so they must be complete.
            # A stateless client can request them again.
            await self.lists.ready()
        view = self.views.view_of(exchange.caller)
        found: dict[str, str] = {}
        for member in self.registry.within(view):
            for upstream in member.upstreams:
                if upstream.instructions:
                    found.setdefault(member.name, upstream.instructions)
        texts, room = [], MERGED_INSTRUCTIONS_TEXT.value
        for name, text in sorted(found.items()):
            if len(text) > INSTRUCTIONS_TEXT.value:
                INSTRUCTIONS_TEXT.hit()
                text = f"{text[: INSTRUCTIONS_TEXT.value]}…"
            room -= len(text)
            if room < 0:
                MERGED_INSTRUCTIONS_TEXT.hit()
                break
            texts.append(f"{name}: {text}")
        return {"instructions": "\n\n".join(texts)} if texts else {}
