"""Splitting of lines, and conversion of frames to messages and back.

A frame contains the bytes of one JSON text without its line break. Decoding reads the envelope
only; params, results and error objects stay bytes. msgspec raises one of three exceptions (for a
syntax error, for invalid UTF-8, for nesting deeper than the stack); this module converts them to
`RemoteProtocolError`.
"""

import math
import re
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import RemoteProtocolError
from ..limits import BATCH, BATCH_BYTES, BATCH_MISTAKES, MESSAGE_BYTES
from .error_codes import INVALID_REQUEST, PARSE_ERROR
from .json import CR, LF, UNREADABLE, MemberNames, read_json, single_line, to_json
from .messages import Failure, Message, Notification, Request, RequestId, Success

__all__ = [
    "MAX_MESSAGE",
    "Batch",
    "Decoder",
    "LineSplitter",
    "TooLong",
    "answered_by",
    "decode",
    "encode",
    "encode_request",
    "encode_success",
]

MAX_MESSAGE = MESSAGE_BYTES.value

_BOM = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n\x0b\x0c"
_SHOWN = 200  # number of bytes at the start of an oversized line that are kept for a log message


class TooLong(Struct, frozen=True):
    """Placeholder for a line that exceeds the limit, with its length and start."""

    size: int
    start: bytes


class LineSplitter:
    """Splitter that takes chunks and returns complete lines.

    Lines are returned without line breaks and surrounding whitespace; blank lines are omitted. At
    most one unfinished line of `limit` bytes is buffered. Bytes of a line beyond the limit are
    dropped on arrival, and the line is reported once, when it ends.
    """

    __slots__ = ("_at_start", "_limit", "_parts", "_size", "_start")

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._limit = limit
        self._parts: list[bytes | bytearray] = []  # pieces of the unfinished line
        self._size = 0
        self._start = b""  # start of an unfinished, oversized line
        # A byte order mark is removed from the first line only.
        self._at_start = True

    @property
    def held(self) -> int:
        """Return the number of bytes buffered for an unfinished line."""
        return self._size if self._size <= self._limit else len(self._start)

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        end = len(chunk) - 1
        # Fast path: nearly every chunk is exactly one line.
        if (
            not self._size
            and chunk[:1] == b"{"
            and chunk[-2:] == b"}\n"
            and end <= self._limit
            and chunk.find(b"\n") == end
        ):
            self._at_start = False
            return [chunk[:end]]
        lines: list[bytes] = chunk.split(b"\n")
        rest = lines.pop()
        out: list[bytes | TooLong] = []
        if self._size and lines:
            self._hold(lines[0])
            del lines[0]
            self._release(out)
        for line in lines:
            if len(line) > self._limit:
                out.append(TooLong(len(line), line[:_SHOWN]))
            elif line := self._trim(line):
                out.append(line)
        if rest:
            self._hold(rest)
        return out

    def finish(self) -> list[bytes | TooLong]:
        """Return the last line if the stream ended without a line break."""
        out: list[bytes | TooLong] = []
        if self._size:
            self._release(out)
        return out

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            if len(self._start) < _SHOWN:
                # Only the last piece can be empty, so these pieces contain `_SHOWN` bytes.
                parts = (*self._parts[:_SHOWN], self._start, piece)
                self._start = b"".join(part[:_SHOWN] for part in parts)[:_SHOWN]
                self._parts.clear()
            return
        # Small pieces share one buffer, so that single bytes do not cost an object each.
        if len(piece) < 4096 and self._parts and isinstance(last := self._parts[-1], bytearray):
            last += piece
        else:
            self._parts.append(bytearray(piece) if len(piece) < 4096 else piece)

    def _release(self, out: list[bytes | TooLong]) -> None:
        if self._size > self._limit:
            out.append(TooLong(self._size, self._start))
        elif line := self._trim(b"".join(self._parts)):
            out.append(line)
        self._parts.clear()
        self._size = 0
        self._start = b""

    def _trim(self, line: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        return line.strip(_BLANKS)


class Batch(Struct, frozen=True):
    """JSON array of messages.

    If an item is not a message, the batch contains the decoding error in its place.
    """

    items: tuple[Message | RemoteProtocolError, ...]


class _Envelope(Struct, forbid_unknown_fields=True, gc=False):
    jsonrpc: Literal["2.0"]
    # `float` is included because msgspec otherwise decodes 1.0, an invalid id, as an `int`.
    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


_ENVELOPE = MemberNames(*_Envelope.__struct_fields__)


class _ErrorObject(Struct, gc=False):
    code: int
    message: str


SHORT = 8 << 10  # in bytes; up to this size, copying a result twice is faster than joining parts
_SHORT_METHOD = 64  # in characters; the encoded form of a longer method name is not cached

MAX_BATCH = BATCH.value
MAX_BATCH_BYTES = BATCH_BYTES.value
MAX_BATCH_MISTAKES = BATCH_MISTAKES.value

_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_error = msgspec.json.Decoder(_ErrorObject).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_OPENING_BRACE = ord("{")
_decode_items = msgspec.json.Decoder(list[Raw]).decode

# A lone surrogate escape, which JavaScript sends after cutting an emoji in two. Pairs and escaped
# backslashes are matched first, so that the last alternative matches lone surrogates only.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

# The start of a response whose members are in the usual order. If the rest is unreadable, the id is
# enough to fail the pending request.
_ANSWER = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"jsonrpc"\s*:\s*"2.0"\s*,'
    rb'\s*"id"\s*:\s*(0|[1-9]\d{0,17}|"[^"\\\x00-\x1f\x80-\xff]*")\s*,\s*"(?:result|error)"'
)


class Decoder:
    """Decoder for the frames of one connection. It counts the frames that had to be repaired.

    Raises (from `decode`):
        RemoteProtocolError: -32700 if the frame is not JSON, -32600 if it is not a JSON-RPC
            message.
            `request_id` is set if the id of a request could be read, `answers` if the frame starts
            like a response.
    """

    __slots__ = ("repaired",)

    def __init__(self) -> None:
        self.repaired = 0  # number of frames with a lone surrogate, which is read as U+FFFD

    def decode(self, frame: bytes) -> Message | Batch:
        try:
            envelope = _decode_envelope(frame)
            # Checked here, because invalid UTF-8 in a `Raw` would be found only on decoding it.
            if not frame.isascii():
                frame.decode()
        except UNREADABLE as exc:
            return self._second_look(frame, exc)
        # Fast path for common requests and responses. A frame that ends with two braces ends with
        # an object, and of the members of a plain request only params can be an object.
        if (
            type(envelope.id) is int
            and type(envelope.method) is str
            and envelope.result is UNSET
            and envelope.error is UNSET
            and frame.endswith(b"}}")
        ):
            return Request(envelope.id, envelope.method, envelope.params)
        if (
            type(envelope.id) is int
            and envelope.result is not UNSET
            and envelope.method is UNSET
            and envelope.error is UNSET
            and envelope.params is UNSET
        ):
            return Success(envelope.id, envelope.result)
        return _classify(envelope)

    def _second_look(self, frame: bytes, cause: Exception) -> Message | Batch:
        """Repair a frame that the fast path could not decode, or raise an error with the reason."""
        if isinstance(cause, RecursionError):
            raise _no_json("The message is nested too deeply", frame) from cause
        if isinstance(cause, UnicodeDecodeError):
            raise _no_json("The message is not valid UTF-8", frame) from cause
        if isinstance(cause, msgspec.ValidationError):
            return self._not_plain(frame)
        mended = _SURROGATES.sub(_replace_lone, frame)
        if mended != frame:
            message = self.decode(mended)
            self.repaired += 1
            return message
        raise _no_json(f"The message is not valid JSON: {cause}", frame) from cause

    def _not_plain(self, frame: bytes) -> Message | Batch:
        """Decode a frame that is not a plain envelope: a batch,
        or a message with additional members.
        """
        try:
            if not frame.isascii():
                frame.decode()
            if frame.lstrip()[:1] == b"[":
                return self._batch(frame)
            members = _decode_members(frame)
        except msgspec.ValidationError as exc:
            raise RemoteProtocolError("A message must be an object", code=INVALID_REQUEST) from exc
        except UNREADABLE as exc:
            # Validation stopped before the syntax error, so the error is found only now.
            return self._second_look(frame, exc)
        return _from_members(members)

    def _batch(self, frame: bytes) -> Batch:
        if len(frame) > MAX_BATCH_BYTES:
            BATCH_BYTES.hit()
            raise RemoteProtocolError(
                f"A batch of {len(frame)} bytes is over the limit of {MAX_BATCH_BYTES}",
                code=INVALID_REQUEST,
            )
        raws = _decode_items(frame)
        if not raws:
            raise RemoteProtocolError("A batch must not be empty", code=INVALID_REQUEST)
        if len(raws) > MAX_BATCH:
            BATCH.hit()
            raise RemoteProtocolError(
                f"A batch must have at most {MAX_BATCH} messages", code=INVALID_REQUEST
            )
        items, mistakes = [], 0
        for raw in raws:
            item = self._item(raw)
            mistakes += isinstance(item, RemoteProtocolError)
            if mistakes > MAX_BATCH_MISTAKES:
                BATCH_MISTAKES.hit()
                raise RemoteProtocolError(
                    f"More than {MAX_BATCH_MISTAKES} items of the batch are not messages",
                    code=INVALID_REQUEST,
                )
            items.append(item)
        return Batch(tuple(items))

    def _item(self, raw: Raw) -> Message | RemoteProtocolError:
        # A nested array is not decoded: every level of nesting would be read once more.
        if memoryview(raw)[0] != _OPENING_BRACE:
            return RemoteProtocolError("An item of a batch must be an object", code=INVALID_REQUEST)
        try:
            # An object is never a batch.
            return self.decode(bytes(raw))  # type: ignore[return-value]
        except RemoteProtocolError as exc:
            return exc


def answered_by(start: bytes) -> RequestId | None:
    """Return the id at the start of a response; None if the bytes do not start like a response."""
    answer = _ANSWER.match(start)
    if answer is None:
        return None
    found: RequestId = msgspec.json.decode(answer[1])
    return found


def decode(frame: bytes) -> Message | Batch:
    """Decode one frame.

    Raises:
        RemoteProtocolError: As described for `Decoder`.
    """
    return Decoder().decode(frame)


def encode(message: Message) -> bytes:
    """Encode a message as a frame: JSON on one line, without a line break."""
    # Fast path for the common request: matching the patterns below takes twice as long.
    if type(message) is Request and message.extra is None:
        params = message.params
        if type(message.id) is int and type(params) is Raw:
            return encode_request(message.id, message.method, params)
    match message:
        case Success(id=request_id, result=result, extra=None):
            return encode_success(request_id, result)
        case Request():
            head: dict[str, object] = {"id": message.id, "method": message.method}
            if message.params is not UNSET:
                head["params"] = message.params
        case Notification():
            head = {"method": message.method}
            if message.params is not UNSET:
                head["params"] = message.params
        case Success():
            head = {"id": message.id, "result": message.result}
        case Failure():
            head = {} if message.absent_id else {"id": message.id}
            head["error"] = message.error
    return single_line(to_json({"jsonrpc": "2.0", **head, **(message.extra or {})}))


def encode_request(number: int, method: str, params: Raw, end: bytes = b"") -> bytes:
    """Encode a request with encoded params as a frame; `end` is the line break."""
    body = single_line(bytes(params))
    text = _short_method(method) if len(method) <= _SHORT_METHOD else to_json(method)
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}%b' % (number, text, body, end)


def encode_success(request_id: RequestId, result: bytes | Raw, end: bytes = b"") -> bytes:
    """Encode a successful response with an encoded result as a frame.

    `end` is the line break; adding it here saves callers another copy of the frame.
    """
    if type(result) is not bytes:
        result = bytes(result)
    if LF in result or CR in result:
        result = single_line(result)
    if type(request_id) is int:
        if len(result) < SHORT:
            return b'{"jsonrpc":"2.0","id":%d,"result":%b}%b' % (request_id, result, end)
        return b"".join((b'{"jsonrpc":"2.0","id":%d,"result":' % request_id, result, b"}", end))
    return b"".join(
        (b'{"jsonrpc":"2.0","id":', to_json(request_id), b',"result":', result, b"}", end)
    )


@lru_cache(maxsize=256)
def _short_method(method: str) -> bytes:
    return to_json(method)


def _classify(envelope: _Envelope, extra: dict[str, Raw] | None = None) -> Message:
    """Return the message that an envelope contains (RPC-07).

    A method with an id is a request, a method without an id is a notification, a result or an error
    is a response.
    """
    method, request_id = envelope.method, envelope.id
    if method is not UNSET:
        if envelope.result is not UNSET or envelope.error is not UNSET:
            raise _invalid("a request must not have a result or an error", request_id)
        params = envelope.params
        if params is not UNSET and memoryview(params)[0] != _OPENING_BRACE:
            # Some peers send null instead of omitting params.
            if bytes(params) != b"null":
                raise _invalid("params must be an object", request_id)
            params = UNSET
        if type(request_id) is int or type(request_id) is str:
            return Request(request_id, method, params, extra)
        if request_id is UNSET:
            return Notification(method, params, extra)
        raise _invalid("id must be a string or an integer")
    # JSON-RPC defines no params in a response; they are kept so that a relay forwards them.
    if envelope.params is not UNSET:
        extra = {**(extra or {}), "params": envelope.params}
    if envelope.result is not UNSET:
        if envelope.error is not UNSET:
            raise _invalid("a response must not have both a result and an error", request_id)
        if type(request_id) is int or type(request_id) is str:
            return Success(request_id, envelope.result, extra)
        raise _invalid("a response must have the id of its request")
    if envelope.error is not UNSET:
        if isinstance(request_id, float):
            raise _invalid("id must be a string or an integer")
        try:
            error = _decode_error(envelope.error)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise _invalid(f"invalid error object: {exc}", request_id) from exc
        absent = request_id is UNSET
        known_id = None if isinstance(request_id, UnsetType) else request_id
        return Failure(known_id, error.code, error.message, envelope.error, extra, absent)
    raise _invalid("method, result or error is missing", request_id)


def _from_members(members: dict[str, Raw]) -> Message:
    """Decode a message member by member.

    This is slower than decoding the whole envelope, but the id is read even if another member is
    invalid, so that the error response can contain the id.
    """
    request_id = _read_id(members.get("id"))
    if read_json(members.pop("jsonrpc", None), str, "") != "2.0":
        raise _invalid('jsonrpc must be "2.0"', request_id)
    envelope = _Envelope("2.0", request_id)
    members.pop("id", None)
    if (method := members.pop("method", None)) is not None:
        try:
            envelope.method = msgspec.json.decode(method, type=str)
        except msgspec.DecodeError as exc:
            raise _invalid("method must be a string", request_id) from exc
    envelope.params = members.pop("params", UNSET)
    envelope.result = members.pop("result", UNSET)
    envelope.error = members.pop("error", UNSET)
    # A relay forwards additional members, but no second method or params in another case.
    return _classify(envelope, dict(_ENVELOPE.exact(members)) or None)


def _read_id(raw: Raw | None) -> int | float | str | UnsetType | None:
    if raw is None:
        return UNSET
    try:
        return msgspec.json.decode(raw, type=int | float | str | None)
    except msgspec.DecodeError:
        return math.nan  # the member is present but cannot be an id


def _no_json(why: str, frame: bytes) -> RemoteProtocolError:
    error = RemoteProtocolError(why, code=PARSE_ERROR)
    error.answers = answered_by(frame)
    return error


def _invalid(why: str, request_id: object = None) -> RemoteProtocolError:
    usable = request_id if type(request_id) is int or type(request_id) is str else None
    return RemoteProtocolError(
        f"Invalid JSON-RPC message: {why}", code=INVALID_REQUEST, request_id=usable
    )


def _replace_lone(match: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if match[1] else match[0]
