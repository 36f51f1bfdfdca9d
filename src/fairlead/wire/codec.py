"""Frames to messages and back.

A frame is the bytes of one JSON text without its line end. Decoding looks at the envelope only;
what it carries stays bytes. Three exceptions can come out of the decoder below (a syntax error,
bad UTF-8, nesting deeper than the stack); all of them leave here as `RemoteProtocolError`.
"""

import math
import re
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..errors import RemoteProtocolError
from ..limits import BATCH, BATCH_BYTES, BATCH_MISTAKES
from .error_codes import INVALID_REQUEST, PARSE_ERROR
from .json import CR, LF, read_json, single_line, to_json
from .messages import Failure, Message, Notification, Request, RequestId, Success

__all__ = [
    "Batch",
    "Decoder",
    "answered_by",
    "decode",
    "encode",
    "encode_request",
    "encode_success",
]


class Batch(Struct, frozen=True):
    """A JSON array of messages.

    Items that are no messages are the errors they would have raised.
    """

    items: tuple[Message | RemoteProtocolError, ...]


class _Envelope(Struct, forbid_unknown_fields=True, gc=False):
    jsonrpc: Literal["2.0"]
    id: int | float | str | UnsetType | None = UNSET  # float, so that 1.0 is seen and refused
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _ErrorObject(Struct, gc=False):
    code: int
    message: str


SHORT = 8 << 10  # bytes that are sooner copied twice than taken care of
_SHORT_METHOD = 64  # characters; the text of a longer one is not kept

MAX_BATCH = BATCH.value
MAX_BATCH_BYTES = BATCH_BYTES.value
MAX_BATCH_MISTAKES = BATCH_MISTAKES.value

_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_error = msgspec.json.Decoder(_ErrorObject).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_OPENING_BRACE = ord("{")
_decode_items = msgspec.json.Decoder(list[Raw]).decode

# An escaped surrogate that has no other half: what JavaScript sends after cutting an emoji in two.
# Pairs and escaped backslashes are matched first, so that the last alternative can only be a lone
# one.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)

# How an answer begins, when it is written in the usual order: so that whoever waits for one that
# cannot be read can be told.
_ANSWER = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\{\s*"jsonrpc"\s*:\s*"2.0"\s*,'
    rb'\s*"id"\s*:\s*(0|[1-9]\d{0,17}|"[^"\\\x00-\x1f\x80-\xff]*")\s*,\s*"(?:result|error)"'
)


class Decoder:
    """Decodes frames of one connection and counts what had to be mended.

    Raises (from `decode`):
        RemoteProtocolError: -32700 if the frame is not JSON, -32600 if it is no JSON-RPC message;
        with the
            id of the request where it could be read, and the id that an answer which is not JSON
            seems to be for.
    """

    __slots__ = ("repaired",)

    def __init__(self) -> None:
        self.repaired = 0  # frames with half a surrogate pair, read as U+FFFD

    def decode(self, frame: bytes) -> Message | Batch:
        try:
            envelope = _decode_envelope(frame)
            # Bad UTF-8 inside a `Raw` would only be noticed by whoever decodes it: look once, here.
            if not frame.isascii():
                frame.decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            return self._second_look(frame, exc)
        # The common request and answer, recognized at once. A frame that ends with two braces ends
        # with an object, and of what a plain request has, only params can be one.
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
        """Why did the quick way fail? Mend what can be mended, name what cannot."""
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
        """JSON, but not a plain envelope: a batch, one with more members, or no message."""
        try:
            if not frame.isascii():
                frame.decode()
            if frame.lstrip()[:1] == b"[":
                return self._batch(frame)
            members = _decode_members(frame)
        except UnicodeDecodeError as exc:
            raise _no_json("The message is not valid UTF-8", frame) from exc
        except RecursionError as exc:
            raise _no_json("The message is nested too deeply", frame) from exc
        except msgspec.ValidationError as exc:
            raise RemoteProtocolError("A message is a JSON object", code=INVALID_REQUEST) from exc
        except msgspec.DecodeError as exc:  # the syntax error comes after the member we stumbled on
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
            raise RemoteProtocolError("An empty array is no message", code=INVALID_REQUEST)
        if len(raws) > MAX_BATCH:
            BATCH.hit()
            raise RemoteProtocolError(
                f"A batch holds at most {MAX_BATCH} messages", code=INVALID_REQUEST
            )
        items, mistakes = [], 0
        for raw in raws:
            item = self._item(raw)
            mistakes += isinstance(item, RemoteProtocolError)
            if mistakes > MAX_BATCH_MISTAKES:
                BATCH_MISTAKES.hit()
                raise RemoteProtocolError("A batch holds messages only", code=INVALID_REQUEST)
            items.append(item)
        return Batch(tuple(items))

    def _item(self, raw: Raw) -> Message | RemoteProtocolError:
        # An array in an array is not looked into: each level would be read once more.
        if memoryview(raw)[0] != _OPENING_BRACE:
            return RemoteProtocolError("A batch holds messages only", code=INVALID_REQUEST)
        try:
            return self.decode(bytes(raw))  # type: ignore[return-value]  # of an object, no batch
        except RemoteProtocolError as exc:
            return exc


def answered_by(start: bytes) -> RequestId | None:
    """The request that a frame which begins so answers, as far as that can be seen."""
    answer = _ANSWER.match(start)
    if answer is None:
        return None
    found: RequestId = msgspec.json.decode(answer[1])
    return found


def decode(frame: bytes) -> Message | Batch:
    """Decode one frame. Raises `RemoteProtocolError`, see `Decoder`."""
    return Decoder().decode(frame)


def encode(message: Message) -> bytes:
    """The frame of a message: JSON on one line, without the line end."""
    # The common request, recognized without the patterns below, which take twice as long.
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
    """The frame of a request with params that somebody else has encoded; `end` is the line end."""
    body = single_line(bytes(params))
    text = _short_method(method) if len(method) <= _SHORT_METHOD else to_json(method)
    return b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}%b' % (number, text, body, end)


def encode_success(request_id: RequestId, result: bytes | Raw, end: bytes = b"") -> bytes:
    """The frame of a successful answer around a result that somebody else has encoded.

    `end` is the line end, for those who would copy the frame only to add it.
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
    """RPC-07: method and id is a request, method alone a notification, an outcome a response."""
    method, request_id = envelope.method, envelope.id
    if method is not UNSET:
        if envelope.result is not UNSET or envelope.error is not UNSET:
            raise _invalid("a request has no result and no error", request_id)
        params = envelope.params
        if params is not UNSET and memoryview(params)[0] != _OPENING_BRACE:
            if bytes(params) != b"null":  # some peers spell "absent" so
                raise _invalid("params is an object", request_id)
            params = UNSET
        if type(request_id) is int or type(request_id) is str:
            return Request(request_id, method, params, extra)
        if request_id is UNSET:
            return Notification(method, params, extra)
        raise _invalid("an id is a string or an integer")
    if envelope.params is not UNSET:  # in an answer it means nothing, but a relay loses nothing
        extra = {**(extra or {}), "params": envelope.params}
    if envelope.result is not UNSET:
        if envelope.error is not UNSET:
            raise _invalid("an answer has a result or an error, not both", request_id)
        if type(request_id) is int or type(request_id) is str:
            return Success(request_id, envelope.result, extra)
        raise _invalid("an answer carries the id of its request")
    if envelope.error is not UNSET:
        if isinstance(request_id, float):
            raise _invalid("an id is a string or an integer")
        try:
            error = _decode_error(envelope.error)
        except (msgspec.DecodeError, RecursionError) as exc:
            raise _invalid(f"the error object is malformed: {exc}", request_id) from exc
        absent = request_id is UNSET
        known_id = None if isinstance(request_id, UnsetType) else request_id
        return Failure(known_id, error.code, error.message, envelope.error, extra, absent)
    raise _invalid("it has neither method nor result nor error", request_id)


def _from_members(members: dict[str, Raw]) -> Message:
    """The careful way, member by member: also saves the id of a request that is otherwise wrong."""
    request_id = _read_id(members.get("id"))
    if not _names_the_version(members.pop("jsonrpc", None)):
        raise _invalid('jsonrpc is "2.0"', request_id)
    envelope = _Envelope("2.0", request_id)
    members.pop("id", None)
    if (method := members.pop("method", None)) is not None:
        try:
            envelope.method = msgspec.json.decode(method, type=str)
        except msgspec.DecodeError as exc:
            raise _invalid("method is a string", request_id) from exc
    envelope.params = members.pop("params", UNSET)
    envelope.result = members.pop("result", UNSET)
    envelope.error = members.pop("error", UNSET)
    return _classify(envelope, members or None)


def _names_the_version(raw: Raw | None) -> bool:
    return read_json(raw, str, "") == "2.0"


def _read_id(raw: Raw | None) -> int | float | str | UnsetType | None:
    if raw is None:
        return UNSET
    try:
        return msgspec.json.decode(raw, type=int | float | str | None)
    except msgspec.DecodeError:
        return math.nan  # present, but nothing an id can be


def _no_json(why: str, frame: bytes) -> RemoteProtocolError:
    error = RemoteProtocolError(why, code=PARSE_ERROR)
    error.answers = answered_by(frame)
    return error


def _invalid(why: str, request_id: object = None) -> RemoteProtocolError:
    usable = request_id if type(request_id) is int or type(request_id) is str else None
    return RemoteProtocolError(
        f"Not a JSON-RPC message: {why}", code=INVALID_REQUEST, request_id=usable
    )


def _replace_lone(match: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if match[1] else match[0]
