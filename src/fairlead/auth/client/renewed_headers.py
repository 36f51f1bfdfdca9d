"""Headers printed by a user's command, which runs again when the server refuses them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from ...observe.log_filter import register_secrets
from ...transport.http.client.request_authorizer import AuthorizerBase

__all__ = ["RenewHeaders", "RenewedHeaders"]

# Seconds after a renewal in which a refusal is final: the command would print the same headers.
RENEWAL_PAUSE = 10.0

RenewHeaders: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]


class RenewedHeaders(AuthorizerBase):
    """`RequestAuthorizer` that obtains new headers after a 401, and never starts a login."""

    def __init__(self, headers: Mapping[str, str], renew: RenewHeaders) -> None:
        """`headers` are the current request headers; `renew` returns new values for all of them."""
        super().__init__()
        self._names = {name.lower(): name for name in headers}
        self._headers: Mapping[str, str] = dict(headers)
        self._renew = renew
        self._renewed_at = 0.0
        self._lock = asyncio.Lock()

    def current(self, method: str, url: str) -> Mapping[str, str]:
        return self._headers

    async def prepare(self, method: str, url: str) -> Mapping[str, str]:
        return self._headers

    async def challenged(
        self, status: int, headers: Mapping[str, str], sent: Mapping[str, str]
    ) -> bool:
        if status != 401:
            return False
        async with self._lock:
            if sent != self._headers:
                return True  # another request has renewed them meanwhile
            if self._renewed_at and time.monotonic() - self._renewed_at < RENEWAL_PAUSE:
                return False
            found = await self._renew()
            self._renewed_at = time.monotonic()
            # Header names keep their spelling, so that they replace the headers of the request.
            fresh = {self._names.get(name.lower(), name): value for name, value in found.items()}
            changed = fresh != self._headers
            self._headers = fresh
            register_secrets(self, lambda: fresh)
            return changed
