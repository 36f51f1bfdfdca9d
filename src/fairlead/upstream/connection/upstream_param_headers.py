"""Arguments that are mirrored in headers (stateless HTTP), with a relay in between.

A stateless server over HTTP requires these headers from its client, which is the relay, and clients
of the relay may not know them. A server on another transport cannot compare them with the
arguments, so the relay does. The marked arguments are read from the tool lists that pass through.
"""

from typing import TYPE_CHECKING

from msgspec import Raw

from ...client.api.list_budget import ListBudget
from ...client.api.list_pages import read_pages
from ...protocol.param_headers import ParamHeaderIndex

if TYPE_CHECKING:
    from ...interceptor import Exchange
    from ...peer import Peer

__all__ = ["ServerParamHeaders", "sends_param_headers"]


class ServerParamHeaders(ParamHeaderIndex):
    """The marked arguments of the tools of one server, which can be requested from it."""

    async def ask(self, peer: "Peer", timeout: float) -> None:
        """Request the tools, after the server rejected a call without headers that were unknown.

        Raises:
            FairleadError: The tools could not be listed.
        """

        async def ask(params: dict[str, str] | None) -> Raw:
            page = await peer.request("tools/list", params, timeout=timeout)
            self.learn(page)
            return page

        # Only stateless servers require headers.
        async for _ in read_pages(ask, ListBudget("tools/list"), stateless=True):
            pass


def sends_param_headers(exchange: "Exchange") -> bool:
    """Return True if the client sends such headers itself."""
    return exchange.caller.stateless and exchange.transport.transport_type == "http"
