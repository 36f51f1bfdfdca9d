"""Arguments that a relay must send or check as HTTP headers (stateless era).

A stateless server over HTTP requires these headers from the relay, but clients of the relay may not
know them. A server on another transport receives no headers, so the relay compares them with the
arguments. The relay learns the marked arguments from the tool lists that it forwards.
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
    """The arguments of one server's tools that are marked for headers."""

    async def ask(self, peer: "Peer", timeout: float) -> None:
        """List the tools, after the server rejected a call because headers were missing.

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
    """Return True if the client itself sends headers for arguments."""
    return exchange.caller.stateless and exchange.transport.transport_type == "http"
