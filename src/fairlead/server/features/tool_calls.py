"""Handler of `tools/call`: tool lookup, rate limit, and inline or background execution."""

import logging
from collections.abc import Awaitable

from msgspec import UnsetType

from ...errors import MCPErrorCode, MCPToolError, RpcError
from ...interceptor import Answer, Exchange
from ...interceptor.rate_limiter import RateLimiter
from ...wire.error_codes import INVALID_PARAMS
from ..context.correlation_id import correlation_id
from ..execution.handler_errors import error_for_caller
from ..execution.tool_runner import ToolRunner
from ..results.encode_result import error_content
from ..server_config import MCPServerConfig
from .paged_list import PagedList
from .tool_entry import ToolEntry

__all__ = ["ToolCalls"]

log = logging.getLogger("fairlead.server")

# Types of transports whose caller is the user or the program that runs the server.
_LOCAL = frozenset(("stdio", "memory", "direct"))


class ToolCalls:
    """Caller of tools within the rate limits of the configuration."""

    def __init__(
        self,
        config: MCPServerConfig,
        listing: PagedList[ToolEntry],
        runner: ToolRunner,
        complete: bytes,
    ) -> None:
        """`complete` is the JSON that closes each result for a stateless client."""
        self.listing = listing  # tool list of the registry currently in use
        self.limiter = _make_limiter(config, config.rate_limit_rate)
        # The default limit applies to network callers only.
        is_default = config.local_rate_limit_rate != config.rate_limit_rate
        self._local_limiter = _make_limiter(config, 0.0) if is_default else self.limiter
        self._config = config
        self._runner = runner
        self._complete = complete
        self._logged_limit = False

    def call(self, exchange: Exchange) -> Awaitable[Answer]:
        """Call the tool of a request.

        Raises:
            RpcError: The tool is unknown; the error is logged.
        """
        name = exchange.head.name
        entry = None if isinstance(name, UnsetType) else self.listing.get(name)
        if entry is None or isinstance(name, UnsetType):
            raise error_for_caller(self._unknown_tool(name), exchange)
        tail = self._complete if exchange.caller.stateless else b"}"
        # Checked before the arguments are decoded, so that a rejected call costs little.
        local = exchange.transport.transport_type in _LOCAL
        limiter = self._local_limiter if local else self.limiter
        if limiter is not None and not limiter.allow(name):
            return _completed(self._limited(limiter, name, exchange, tail))
        if entry.home is not None:
            return entry.home(exchange)
        return self._runner.run(entry, exchange, tail)

    def call_inline(self, exchange: Exchange) -> bytes | None:
        """Call an inline tool; return None if the tool is not inline."""
        name = exchange.head.name
        entry = None if isinstance(name, UnsetType) else self.listing.get(name)
        if entry is None or not entry.inline:
            return None
        tail = self._complete if exchange.caller.stateless else b"}"
        local = exchange.transport.transport_type in _LOCAL
        limiter = self._local_limiter if local else self.limiter
        if limiter is not None and not limiter.allow(entry.name):
            return self._limited(limiter, entry.name, exchange, tail)
        return self._runner.run_inline(entry, exchange, tail)

    def _unknown_tool(self, name: str | UnsetType) -> RpcError:
        if isinstance(name, UnsetType):
            return RpcError(INVALID_PARAMS, "params.name is required: the name of a tool")
        return RpcError(INVALID_PARAMS, f"Unknown tool: {name}{self.listing.hint(name)}")

    def _limited(self, limiter: RateLimiter, name: str, exchange: Exchange, tail: bytes) -> bytes:
        """Return the error result of a rate-limited call; the tool is not called (SRV-23)."""
        error = MCPToolError(
            f"Too many calls: '{name}' was not run",
            code=MCPErrorCode.RATE_LIMITED,
            tool_name=name,
            correlation_id=correlation_id(exchange),
            suggestion=f"Try again in {max(limiter.wait(name), 0.001):.3g} s",
        )
        extra = {"correlation_id": error.correlation_id}
        # Only the first rejection is a warning: a client over the limit would fill the log.
        if self._logged_limit:
            log.debug("%s [%s]: refused, rate limited", name, error.correlation_id, extra=extra)
        else:
            self._logged_limit = True
            log.warning(
                "%s [%s]: refused by the rate limit. Change it with rate_limit_rate (%g per "
                "second) and rate_limit_burst (%d), or per_tool_rate and per_tool_burst; 0 "
                "disables it. This warning is logged once.",
                name,
                error.correlation_id,
                self._config.rate_limit_rate,
                self._config.rate_limit_burst,
                extra=extra,
            )
        return error_content(error, tail).result


def _make_limiter(config: MCPServerConfig, rate: float) -> RateLimiter | None:
    limiter = RateLimiter(
        rate,
        config.rate_limit_burst,
        config.per_tool_rate,
        config.per_tool_burst,
    )
    return limiter if limiter.active else None


async def _completed(answer: bytes) -> bytes:
    return answer
