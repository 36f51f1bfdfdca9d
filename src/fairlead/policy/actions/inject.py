"""Action that adds arguments to tool calls and prompt requests."""

from typing import Any, ClassVar

import msgspec
from msgspec import Raw

from ...interceptor import Answer, Exchange, InterceptorBase, Proceed
from ...wire import to_json
from ..edit_message import members_of_params, with_params

__all__ = ["Inject"]


class Inject(InterceptorBase):
    """Action that replaces arguments in calls, or only adds missing arguments."""

    pure: ClassVar = True
    waits: ClassVar = False

    def __init__(self, arguments: dict[str, Any], *, overwrite: bool = True) -> None:
        self._arguments = {name: Raw(to_json(value)) for name, value in arguments.items()}
        self._overwrite = overwrite

    async def __call__(self, exchange: Exchange, proceed: Proceed) -> Answer:
        if exchange.method not in ("tools/call", "prompts/get"):
            return await proceed(exchange)
        old = members_of_params(exchange.head.arguments)
        if old is None:
            # The arguments are not an object; the server reports the error.
            return await proceed(exchange)
        new = {**old, **self._arguments} if self._overwrite else {**self._arguments, **old}
        exchange.note(f"injected: {', '.join(sorted(self._arguments))}")
        return await proceed(_without_copies(with_params(exchange, arguments=new)))


def _without_copies(exchange: Exchange) -> Exchange:
    """Remove the `Mcp-Param-*` headers, which repeat the old arguments."""
    headers = exchange.transport.headers
    if headers is None or not any(name.startswith("mcp-param-") for name in headers):
        return exchange
    rest = {name: value for name, value in headers.items() if not name.startswith("mcp-param-")}
    transport = msgspec.structs.replace(exchange.transport, headers=rest)
    return msgspec.structs.replace(exchange, transport=transport)
