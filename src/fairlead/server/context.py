"""What a handler knows about the call it serves, and how it talks back while serving it."""

import asyncio
import logging
import secrets
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from ..interceptor import Exchange
from ..protocol.downgrade import downgrade_params
from ..wire import Notification, to_json

__all__ = ["LOG_LEVELS", "Context"]

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_SEVERITY = {level: index for index, level in enumerate(LOG_LEVELS)}

log = logging.getLogger("fairlead.server")


class Context:
    """The call under way, for handlers with a parameter annotated `Context`, whatever its name.

    Its methods may be awaited by any task of the loop; from a synchronous handler, which runs in a
    thread, use `ctx.wait(ctx.progress(...))`.
    """

    def __init__(self, exchange: Exchange, default_level: str = "info") -> None:
        self.exchange = exchange
        self._default_level = default_level
        self._progress = float("-inf")
        self._correlation_id: str | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def request_id(self) -> int | str:
        return self.exchange.request_id

    @property
    def protocol_version(self) -> str:
        return self.exchange.caller.revision.value

    @property
    def client(self) -> str:
        """How the client calls itself."""
        return self.exchange.caller.name

    @property
    def principal(self) -> str | None:
        """On whose behalf the call is made, where the transport has authenticated somebody."""
        return self.exchange.caller.principal

    @property
    def meta(self) -> dict[str, Any]:
        """The request's `_meta`, as it was sent."""
        params = self.exchange.message.params
        if isinstance(params, UnsetType):
            return {}
        return msgspec.json.decode(params, type=_WithMeta).meta

    @property
    def correlation_id(self) -> str:
        """Names this call in logs and error results."""
        if self._correlation_id is None:
            self._correlation_id = secrets.token_hex(8)
        return self._correlation_id

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell the caller how far we are, if it wants to know.

        Values that do not grow are dropped.
        """
        token = self.exchange.progress_token
        if token is None or progress <= self._progress:
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._tell("notifications/progress", params)

    async def log(self, level: str, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the caller, if it wants messages of this level.

        Raises:
            ValueError: if there is no such level.
        """
        if level not in _SEVERITY:
            raise ValueError(f"no log level {level!r}; there are {', '.join(LOG_LEVELS)}")
        wanted = _SEVERITY.get(self._wanted_level() or "")
        if wanted is None or _SEVERITY[level] < wanted:
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._tell("notifications/message", params)

    async def debug(self, data: Any) -> None:
        await self.log("debug", data)

    async def info(self, data: Any) -> None:
        await self.log("info", data)

    async def warning(self, data: Any) -> None:
        await self.log("warning", data)

    async def error(self, data: Any) -> None:
        await self.log("error", data)

    def wait(self, awaitable: Any) -> Any:
        """From the thread of a synchronous handler: run something on the loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def _wanted_level(self) -> str | None:
        """Stateless callers say it with each request; sessions once, and before that we choose."""
        caller = self.exchange.caller
        if caller.stateless:
            return caller.log_level
        return self.exchange.edge.log_level or self._default_level

    async def _tell(self, method: str, params: dict[str, Any]) -> None:
        body = downgrade_params(method, Raw(to_json(params)), self.exchange.caller.revision)
        await self.exchange.edge.tell(self.exchange, Notification(method, body))


class _WithMeta(msgspec.Struct):
    meta: dict[str, Any] = msgspec.field(default_factory=dict, name="_meta")
