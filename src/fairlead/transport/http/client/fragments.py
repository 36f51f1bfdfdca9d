"""Client side of the fragment dialect, in which an event stream carries a tool result in parts.

`result` events carry parts of the content, `complete` carries the final response and `error` an
error. A `result` event that is a complete tool response also ends the call.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from ....errors import RemoteProtocolError
from ....protocol.contracts import Checked, validate_tool_error, validate_tool_response
from ....wire import MAX_MESSAGE, Failure, RequestId, Success, to_json
from ....wire.error_codes import INVALID_REQUEST, PARSE_ERROR
from ....wire.sse import Event

__all__ = ["EVENTS", "FragmentAssembler", "OnFragment"]

T = TypeVar("T")

EVENTS = frozenset(("result", "complete", "error"))

# Called with the id of the request and the content blocks of the fragment.
OnFragment = Callable[[RequestId, list[Any]], None]


class _Error(Struct):
    code: int
    message: str


class FragmentAssembler:
    """Assembler of the fragments of one tool result."""

    def __init__(self, request_id: RequestId, limit: int = MAX_MESSAGE) -> None:
        self._request_id = request_id
        self._blocks: list[Raw] = []
        self._limit = limit
        self._size = 0  # bytes of all fragments

    @property
    def parts(self) -> list[Any]:
        """The content blocks received so far."""
        # Decoded on demand: only the error for a lost response needs this property.
        return [msgspec.json.decode(block) for block in self._blocks]

    def take(self, event: Event, on_fragment: OnFragment | None = None) -> Success | Failure | None:
        """Process one event and return the response once it is complete.

        Raises:
            RemoteProtocolError: The event is not valid JSON, not a valid response, or the fragments
                exceed the limit.
        """
        try:
            # Decoded twice: the schema check needs plain values,
            # and `Raw` members keep unknown fields and the exact spelling of numbers.
            payload = msgspec.json.decode(event.data)
            members = msgspec.json.decode(event.data, type=dict[str, Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            raise RemoteProtocolError(
                f"The event {event.event!r} is not valid JSON: {exc}", code=PARSE_ERROR
            ) from exc
        if event.event == "error":
            return self._refused(payload, members)
        whole = "result" in members or "jsonrpc" in members
        if event.event == "complete" or (whole and validate_tool_response(payload).ok):
            return self._completed(members, whole)
        self._append(members, on_fragment)
        return None

    def _append(self, members: dict[str, Raw], on_fragment: OnFragment | None) -> None:
        inner = members.get("result")
        # A fragment may be wrapped in an envelope, like a complete response.
        if inner is not None:
            members = _object(inner)
        blocks = _blocks(members)
        self._size += sum(len(memoryview(block)) for block in blocks)
        if self._size > self._limit:
            raise RemoteProtocolError(
                f"The fragments are over the limit of {self._limit} bytes", code=INVALID_REQUEST
            )
        self._blocks += blocks
        if on_fragment is not None:
            on_fragment(self._request_id, [msgspec.json.decode(block) for block in blocks])

    def _completed(self, members: dict[str, Raw], whole: bool) -> Success:
        """Build the response from all fragments and the final event, which may repeat them."""
        result = _object(members.get("result", Raw(b"null"))) if whole else members
        last = _blocks(result)
        # Compared without whitespace: a server may format the repeated blocks differently.
        received = list(map(_compact, self._blocks))
        if received and list(map(_compact, last[: len(received)])) != received:
            last = [*self._blocks, *last]
        result["content"] = Raw(to_json(last))
        body = Raw(to_json(result))
        answer = {"jsonrpc": "2.0", "id": self._request_id, "result": msgspec.json.decode(body)}
        _require(validate_tool_response(answer), "The complete event is not a valid tool response")
        return Success(self._request_id, body)

    def _refused(self, payload: Any, members: dict[str, Raw]) -> Failure:
        error = members.get("error", Raw(to_json(payload)))
        shown = {"jsonrpc": "2.0", "id": self._request_id, "error": msgspec.json.decode(error)}
        _require(validate_tool_error(shown), "The error event is not a valid tool error")
        facts = msgspec.json.decode(error, type=_Error)
        return Failure(self._request_id, facts.code, facts.message, error.copy())


def _require(checked: Checked, otherwise: str) -> None:
    if not checked.ok:
        why = f"{otherwise}: {'; '.join(checked.problems)}"
        raise RemoteProtocolError(why, code=INVALID_REQUEST)


def _object(raw: Raw) -> dict[str, Raw]:
    return _decoded(raw, dict[str, Raw], "Invalid result: expected an object")


def _blocks(members: dict[str, Raw]) -> list[Raw]:
    content = members.get("content", Raw(b"[]"))
    blocks = _decoded(content, list[Raw], "Invalid content: expected an array")
    # Copies, because a `Raw` refers to the event's buffer and the blocks outlive the event.
    return [block.copy() for block in blocks]


def _decoded(raw: Raw, kind: type[T], otherwise: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as exc:
        raise RemoteProtocolError(otherwise, code=INVALID_REQUEST) from exc


def _compact(raw: Raw) -> bytes:
    return msgspec.json.format(bytes(raw), indent=-1)
