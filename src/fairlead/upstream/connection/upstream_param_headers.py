"""Arguments that travel in headers as well (stateless HTTP), with a relay in between.

A stateless server over HTTP wants them from whoever asks it, and we are asked by clients that know
of no headers. A server that is reached in another way cannot hold them against the arguments, so we
do. What is known comes from the lists of tools that pass through.
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
    """The marked arguments of the tools of one server, which can be asked for them."""

    async def ask(self, peer: "Peer", timeout: float) -> None:
        """Ask the server for its tools: it misses headers that nobody knew of.

        Raises:
            FairleadError: it does not say.
        """

        async def ask(params: dict[str, str] | None) -> Raw:
            page = await peer.request("tools/list", params, timeout=timeout)
            self.learn(page)
            return page

        # Only stateless servers want headers.
        async for _ in read_pages(ask, ListBudget("tools/list"), stateless=True):
            pass


def sends_param_headers(exchange: "Exchange") -> bool:
    """Whether a client sends such headers itself."""
    return exchange.caller.stateless and exchange.transport.transport_type == "http"
