"""HTTP status of JSON-RPC errors, which depends on the era, a setting and the `Prefer` header."""

from collections.abc import Callable

from ....protocol.headers import status_of
from ....wire import Decoder, Failure
from ....wire.error_codes import INTERNAL_ERROR, METHOD_NOT_FOUND
from .asgi import HttpCall
from .http_settings import HttpSettings

__all__ = ["ErrorStatus", "mapped_status"]

_MAPPED = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}


def mapped_status(code: int) -> int:
    """Return the HTTP status of an error code if all errors are mapped to 4xx or 5xx."""
    if code in _MAPPED:
        return _MAPPED[code]
    status = status_of(code)
    return 500 if status == 200 else status


class ErrorStatus:
    """Mapping of the errors of one endpoint to HTTP statuses."""

    def __init__(self, settings: HttpSettings, decoder: Decoder) -> None:
        self._settings = settings
        self._decoder = decoder

    def stateless(self, call: HttpCall) -> Callable[[int], int]:
        """Return the mapping from error code to status for stateless requests."""
        return mapped_status if self.is_mapped(call) else status_of

    def handshake(self, call: HttpCall) -> Callable[[int], int]:
        """Return the mapping from error code to status for requests of the handshake era."""
        return mapped_status if self.is_mapped(call) else _always_ok

    def of_frame(self, call: HttpCall, frame: bytes) -> int:
        """Return the HTTP status for an encoded response in a session."""
        if not self.is_mapped(call):
            return 200
        answer = self._decoder.decode(frame)
        return mapped_status(answer.code) if isinstance(answer, Failure) else 200

    def is_mapped(self, call: HttpCall) -> bool:
        """Return True if the settings or the `Prefer` header require 4xx or 5xx for all errors."""
        return (
            self._settings.error_status == "mapped"
            or b"status=mapped" in call.headers.get(b"prefer", b"").lower()
        )


def _always_ok(code: int) -> int:
    return 200  # In the handshake era an error is sent like any other JSON-RPC response.
