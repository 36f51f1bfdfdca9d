"""The HTTP status of a JSON-RPC error, by era, setting and the wish of the client."""

from collections.abc import Callable

from ....protocol.headers import status_of
from ....wire import Decoder, Failure
from .asgi import HttpCall
from .http_settings import HttpSettings
from .stateless_post import mapped_status

__all__ = ["ErrorStatus"]


class ErrorStatus:
    """Chooses the status of errors of one endpoint."""

    def __init__(self, settings: HttpSettings, decoder: Decoder) -> None:
        self._settings = settings
        self._decoder = decoder

    def stateless(self, call: HttpCall) -> Callable[[int], int]:
        """Return the status by error code for a stateless request."""
        return mapped_status if self.is_mapped(call) else status_of

    def handshake(self, call: HttpCall) -> Callable[[int], int]:
        """Return the status by error code for a request of the handshake era."""
        return mapped_status if self.is_mapped(call) else _always_ok

    def of_frame(self, call: HttpCall, frame: bytes) -> int:
        """Return the status of an encoded answer in a session."""
        if not self.is_mapped(call):
            return 200
        answer = self._decoder.decode(frame)
        return mapped_status(answer.code) if isinstance(answer, Failure) else 200

    def is_mapped(self, call: HttpCall) -> bool:
        """Return True if every error is to have a status of its own."""
        return (
            self._settings.error_status == "mapped"
            or b"status=mapped" in call.headers.get(b"prefer", b"").lower()
        )


def _always_ok(code: int) -> int:
    return 200  # the handshake era: an error is an answer like any other
