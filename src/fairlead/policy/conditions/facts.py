"""Facts about a message that conditions use. Expensive facts are computed on first use."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...errors import RpcError
from ...interceptor import Answer, Exchange
from ...protocol.envelope import Direction
from ...protocol.json_edit import members_of
from ...protocol.own_errors import own_error
from ...protocol.targets.targets import Target
from ...redaction.redact_messages import repeats_a_name
from ...wire import Request, to_json
from ...wire.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from .operators import find

__all__ = ["ANY", "Facts", "MessageKey", "ServerOf", "key_of"]

ServerOf: TypeAlias = Callable[[Exchange], str | None]


# Placeholder for the targets in a key that is valid for every target. Compared by identity,
# so a real target never equals it.
ANY: Final = (Target("other", "*", "*"),)


class MessageKey(Struct, frozen=True):
    """Message properties that are compared first, because they exclude most rules."""

    method: str
    direction: Direction
    asked: bool  # True for a request, False for a notification
    targets: tuple[Target, ...]


def key_of(exchange: Exchange, targets: tuple[Target, ...] | None = None) -> MessageKey:
    """Return a message's key; pass `targets` if they are already known."""
    message = exchange.message
    found = exchange.targets if targets is None else targets
    return MessageKey(message.method, exchange.direction, isinstance(message, Request), found)


_NOT_YET: Any = object()


class Facts(Struct):
    """A message and its response, if available, with decoded values for conditions."""

    exchange: Exchange
    server_of: ServerOf
    answer: Answer = None
    error: RpcError | None = None
    _key: MessageKey | None = None
    _servers: tuple[str, ...] | None = None
    _params: Any = _NOT_YET
    _result: Any = _NOT_YET
    # Values by path, cached because several rules use the same path.
    _at: dict[object, Sequence[Any]] | None = None

    @property
    def key(self) -> MessageKey:
        if self._key is None:
            self._key = key_of(self.exchange)
        return self._key

    def at(self, tree: str, path: tuple[str, ...]) -> Sequence[Any]:
        """Return the values at a path in the params, the result, the error or the headers."""
        if self._at is None:
            self._at = {}
        found = self._at.get((tree, path))
        if found is None:
            found = self._at[(tree, path)] = find(getattr(self, tree), path)
        return found

    def answered(self, answer: Answer, error: RpcError | None) -> "Facts":
        """Set the request's outcome, and return the same object."""
        self.answer, self.error, self._result, self._at = answer, error, _NOT_YET, None
        return self

    @property
    def params(self) -> Any:
        if self._params is _NOT_YET:
            raw = self.exchange.message.params
            self._params = {} if raw is UNSET else _decoded(raw, INVALID_PARAMS)
        return self._params

    @property
    def result(self) -> Any:
        if self._result is _NOT_YET:
            answer = self.answer
            self._result = None if answer is None else _decoded(answer, INTERNAL_ERROR)
            # Encoded again, so that the receiver gets the checked value without duplicate members.
            if answer is not None and repeats_a_name(answer, self._result):
                self.answer = _once(answer)
        return self._result

    @property
    def failure(self) -> dict[str, Any] | None:
        """The error object of the response."""
        error = self.error
        if error is None:
            return None
        data = None if error.data is None else _decoded(to_json(error.data), INTERNAL_ERROR)
        return {"code": error.code, "message": error.message, "data": data}

    @property
    def servers(self) -> tuple[str, ...]:
        """The message's servers; more than one if the message names several resources."""
        if self._servers is None:
            named = dict.fromkeys(one.server for one in self.key.targets)
            several = tuple(name for name in named if name is not None)
            if not several and (one := self.server_of(self.exchange)) is not None:
                several = (one,)
            self._servers = several
        return self._servers

    @property
    def headers(self) -> dict[str, str]:
        given = self.exchange.transport.headers or {}
        return {name.lower(): value for name, value in given.items()}

    @property
    def size(self) -> int:
        params = self.exchange.message.params
        return 0 if isinstance(params, UnsetType) else len(memoryview(params))


_decode = msgspec.json.Decoder().decode


def _decoded(raw: Any, code: int) -> Any:
    """Decode a value in a message. If this fails, rules cannot be evaluated, so the message is
    refused.

    Raises:
        RpcError: The value cannot be decoded, or has a duplicate member name.
    """
    try:
        value = _decode(raw)
    except RecursionError:
        raise own_error(code, "The message is nested too deeply") from None
    # for example a number that is out of range, but that the receiver may accept
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise own_error(code, "The message has a value that cannot be decoded") from None
    # A relay forwards each member of the params only once. Nested objects are forwarded unchanged,
    # and the receiver may use the other of two members with the same name.
    if repeats_a_name(raw, value) and repeats_a_name(_once(raw), value):
        raise own_error(code, "The message has a duplicate member name")
    return value


def _once(raw: bytes | Raw) -> bytes:
    """Return the object, keeping the last of duplicate members. Nested objects stay unchanged."""
    members = members_of(raw)
    return bytes(raw) if members is None else to_json(members)
