"""HTTP headers of MCP: names, encoding of values, and checks.

In the stateless era, a few members of a request are repeated in headers, so that a proxy can route
requests without reading bodies. This is safe only if the server compares headers and body, which
`check_mirrored` does.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ..errors import RpcError
from ..wire import Notification, Request
from ..wire.error_codes import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
)
from ..wire.json import read_json
from .caller import ParamsHead
from .methods import METHODS
from .revisions import NEWEST
from .types.base import HEADER_ANNOTATION

__all__ = [
    "NAME",
    "SESSION_ID",
    "VERSION",
    "ParamHeader",
    "check_mirrored",
    "check_params",
    "encode_value",
    "is_header_name",
    "mirrored_name",
    "param_headers",
    "param_values",
    "status_of",
]

VERSION: Final = "mcp-protocol-version"
SESSION_ID: Final = "mcp-session-id"
NAME: Final = "mcp-name"
PARAM_PREFIX: Final = "mcp-param-"

# The largest integer that JavaScript represents exactly; larger integers are not sent in headers.
MAX_SAFE_INTEGER = 2**53 - 1

_PREFIX, _SUFFIX = "=?base64?", "?="
_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
# The number of digits is limited, because `int` raises for thousands of them.
_INTEGER = re.compile(r"-?[0-9]{1,32}(?:\.0{1,32})?")

# Params member that `Mcp-Name` repeats, by method.
_NAMED_BY = {
    row.name: row.target
    for row in METHODS
    if row.kind == "request" and row.target is not None and row.within(NEWEST)
}

_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def is_header_name(text: str) -> bool:
    """Return True if a string is a valid header name: a token of RFC 9110, section 5.6.2."""
    return _TOKEN.fullmatch(text) is not None


def status_of(code: int) -> int:
    """Return the HTTP status for a JSON-RPC error code in the stateless era;
    200 if none is defined.
    """
    return _STATUS.get(code, 200)


# Values


def encode_value(value: str | int | bool) -> str:
    """Encode a header value: unchanged if possible, else as Base64 with a marker."""
    if value is True or value is False:
        return "true" if value else "false"
    text = str(value)
    # A value that looks encoded is encoded again, so that decoding returns the original.
    if _PLAIN.fullmatch(text) and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    encoded = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
    return f"{_PREFIX}{encoded}{_SUFFIX}"


def decode_value(text: str) -> str:
    """Decode a header value.

    Raises:
        ValueError: The value is marked as Base64 but is not Base64, or contains characters that a
            header must not contain.
    """
    text = text.strip(" \t")
    if text.startswith(_PREFIX) and text.endswith(_SUFFIX) and len(text) >= _MARKS:
        try:
            return base64.b64decode(text[len(_PREFIX) : -len(_SUFFIX)], validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as exc:
            raise ValueError(f"the value is not Base64 of UTF-8: {exc}") from exc
    if not _PLAIN.fullmatch(text):
        raise ValueError("the value has characters that a header must not contain")
    return text


_MARKS = len(_PREFIX) + len(_SUFFIX)


# Request members that are repeated in headers


def mirrored_name(method: str, head: ParamsHead, params: Raw | UnsetType) -> str | None:
    """Return the required value of `Mcp-Name`; None if the request does not need the header."""
    member = _NAMED_BY.get(method)
    if member is None:
        return None
    if member == "taskId":
        return read_json(params, _TaskParams, _TaskParams()).task_id
    value = head.name if member == "name" else head.uri
    return None if isinstance(value, UnsetType) else value


class _TaskParams(Struct):
    task_id: str | None = msgspec.field(default=None, name="taskId")


def check_mirrored(
    message: Request | Notification, head: ParamsHead, headers: Mapping[bytes, bytes]
) -> None:
    """Compare the headers of a stateless POST with its body. Names are in lower case.

    The specification has no rules for notifications, so they are refused only if a header
    contradicts the body.

    Raises:
        RpcError: -32020, naming the header and the reason.
    """
    meta = head.meta
    version = None if isinstance(meta, UnsetType) else meta.protocol_version
    said = headers.get(b"mcp-protocol-version")
    if isinstance(message, Request) or (said is not None and isinstance(version, str)):
        _compare("MCP-Protocol-Version", said, version)
    method = headers.get(b"mcp-method")
    if method is not None or isinstance(message, Request):
        _compare("Mcp-Method", method, message.method)
    if message.method in _NAMED_BY:
        name = mirrored_name(message.method, head, message.params)
        if name is not None:
            _compare("Mcp-Name", headers.get(b"mcp-name"), name)


def _compare(header: str, given: bytes | None, wanted: object) -> None:
    if given is None:
        raise RpcError(HEADER_MISMATCH, f"The header {header} is missing: expected {wanted!r}")
    try:
        said = given.decode("ascii")
        # A value marked as Base64 is always decoded, even if the body has the same text, because a
        # proxy that routes by the header decodes it.
        if said != wanted or said.startswith(_PREFIX):
            said = decode_value(said)
    except ValueError as exc:
        raise RpcError(HEADER_MISMATCH, f"The header {header} is invalid: {exc}") from exc
    if said != wanted:
        raise RpcError(
            HEADER_MISMATCH, f"The header {header} is {said!r}, but the body has {wanted!r}"
        )


# Arguments that are also sent in headers


class ParamHeader(Struct, frozen=True):
    """Tool argument that is also sent in a header."""

    header: str  # header name without its prefix, as spelled in the schema
    path: tuple[str, ...]
    kind: str  # "string", "integer" or "boolean"


def param_headers(schema: Any) -> tuple[ParamHeader, ...]:
    """Return the arguments that a tool's input schema marks with `x-mcp-header`.

    Raises:
        ValueError: A mark is invalid, so the tool cannot be used over HTTP.
    """
    try:
        found = tuple(_marks(schema, ()))
    except RecursionError as exc:
        raise ValueError("the schema is nested too deeply") from exc
    seen: set[str] = set()
    for mark in found:
        # Header names are compared without regard to case.
        if mark.header.lower() in seen:
            raise ValueError(f"two parameters use the header {mark.header!r}")
        seen.add(mark.header.lower())
    return found


def _marks(schema: Any, path: tuple[str, ...]) -> Iterator[ParamHeader]:
    if not isinstance(schema, dict):
        return
    where = ".".join(path) or "the schema itself"
    if HEADER_ANNOTATION in schema:
        yield _mark(schema, path, where)
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            for name, inner in value.items():
                yield from _marks(inner, (*path, name))
        elif keyword not in _DATA and _hides_a_mark({keyword: value}):
            raise ValueError(f"{where}: {HEADER_ANNOTATION} is not allowed under {keyword!r}")


def _mark(schema: dict[str, Any], path: tuple[str, ...], where: str) -> ParamHeader:
    header, kind = schema[HEADER_ANNOTATION], schema.get("type")
    if not path:
        raise ValueError(f"{HEADER_ANNOTATION} must mark a property, not the whole schema")
    if not isinstance(header, str) or not is_header_name(header):
        raise ValueError(f"{where}: {header!r} is not a valid header name")
    if kind not in ("string", "integer", "boolean"):
        raise ValueError(f"{where}: the type must be string, integer or boolean")
    return ParamHeader(header, path, kind)


# `_NAMED` are keywords whose members are named by the schema's author: a property called
# `default` is not a keyword. The values of keywords in `_DATA` are data, not schemas.
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA = frozenset({"const", "default", "enum", "example", "examples", HEADER_ANNOTATION})


def _hides_a_mark(value: Any) -> bool:
    """Return True if a schema or one of its subschemas contains `x-mcp-header`."""
    if isinstance(value, list):
        return any(map(_hides_a_mark, value))
    if not isinstance(value, dict):
        return False
    if HEADER_ANNOTATION in value:
        return True
    for keyword, inner in value.items():
        if keyword in _NAMED and isinstance(inner, dict):
            if any(map(_hides_a_mark, inner.values())):  # the keys are property names, not keywords
                return True
        elif keyword not in _DATA and _hides_a_mark(inner):
            return True
    return False


def param_values(
    marks: tuple[ParamHeader, ...], arguments: Mapping[str, Any] | None
) -> Iterator[tuple[ParamHeader, str | int | bool | None]]:
    """Yield each marked argument with its value;
    None if the value is missing or not allowed in a header.
    """
    for mark in marks:
        value: Any = arguments
        for step in mark.path:
            value = value.get(step) if isinstance(value, Mapping) else None
        # JSON does not distinguish 1.0 from 1, so both give the same header value.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, str | int) or (
            type(value) is int and abs(value) > MAX_SAFE_INTEGER
        ):
            value = None
        yield mark, value


def check_params(
    marks: tuple[ParamHeader, ...],
    arguments: Raw | UnsetType,
    headers: Mapping[bytes, bytes],
) -> None:
    """Compare the `Mcp-Param-*` headers of a call with its arguments.

    Raises:
        RpcError: -32020, naming the header and the reason.
    """
    # Unreadable arguments count as absent here; the tool's decoder reports the error.
    for mark, value in param_values(marks, read_json(arguments, dict[str, Any], None)):
        header = f"Mcp-Param-{mark.header}"
        said = headers.get(f"{PARAM_PREFIX}{mark.header}".lower().encode())
        if value is None:
            if said is not None:
                raise RpcError(
                    HEADER_MISMATCH, f"The header {header} is present, but the argument is not"
                )
        elif said is None:
            raise RpcError(HEADER_MISMATCH, f"The header {header} is missing: expected {value!r}")
        elif not _says(said, value):
            raise RpcError(HEADER_MISMATCH, f"The header {header} must be equal to its argument")


def _says(header: bytes, value: str | int | bool) -> bool:
    try:
        text = decode_value(header.decode("ascii"))
    except ValueError:
        return False
    if isinstance(value, str):
        return text == value
    if isinstance(value, bool):
        return text == encode_value(value)
    return _INTEGER.fullmatch(text) is not None and int(text.partition(".")[0]) == value
