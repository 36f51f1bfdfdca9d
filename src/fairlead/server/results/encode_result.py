"""What a tool, resource or prompt returned, as the bytes of a result.

The common case, a string, is spliced together; whatever else a function returns goes through the
encoder once.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ...errors import MCPToolError
from ...wire import to_json
from ..schema.foreign_types import to_plain
from .media import Media, embedded

__all__ = [
    "EncodedResult",
    "as_content",
    "error_content",
    "is_block_type",
    "is_result",
    "is_result_type",
    "json_of",
    "prompt_messages",
    "resource_contents",
    "text_result",
]


_encode = msgspec.json.Encoder().encode
_encode_any = msgspec.json.Encoder(enc_hook=to_plain).encode

_BLOCKS = frozenset(
    ("text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result")
)


class EncodedResult(Struct, frozen=True, gc=False):
    """A tool's result. `plain`: every revision can read it, nobody has to look inside again."""

    result: bytes
    plain: bool = True


def as_content(value: Any, tail: bytes = b"}") -> EncodedResult:
    """SRV-29: strings become text, content blocks pass, other values become JSON text.

    Bytes become an embedded resource; a list may mix strings and blocks.

    `tail` closes the object, with the members that the era adds; so that a big text is copied once.
    """
    if type(value) is str:
        return EncodedResult(text_result(value, tail))
    if value is None:
        return EncodedResult(b'{"content":[{"type":"text","text":""}]%b' % tail)
    if is_result(value):
        return _whole_result(value, tail)
    if _is_block(value):
        return EncodedResult(b'{"content":%b%b' % (to_json([_block(value)]), tail), False)
    if isinstance(value, list | tuple) and _is_mixed_content(value):
        blocks = [{"type": "text", "text": v} if isinstance(v, str) else _block(v) for v in value]
        return EncodedResult(b'{"content":%b%b' % (to_json(blocks), tail), False)
    text = str(value) if isinstance(value, str) else json_of(value).decode()
    return EncodedResult(b'{"content":[{"type":"text","text":%b}]%b' % (to_json(text), tail))


def json_of(value: Any) -> bytes:
    """Encode what a function returned: also pydantic models and paths.

    Raises:
        TypeError: if it has no JSON form.
    """
    try:
        return _encode_any(value)
    except UnicodeEncodeError:  # half an emoji
        return to_json(msgspec.to_builtins(value, builtin_types=(Raw,), enc_hook=to_plain))


def text_result(text: str, tail: bytes) -> bytes:
    """The most frequent result of all, without a detour."""
    try:
        encoded = _encode(text)
    except UnicodeEncodeError:  # half an emoji
        encoded = to_json(text)
    return b"".join((b'{"content":[{"type":"text","text":', encoded, b"}]", tail))


def error_content(error: MCPToolError, tail: bytes = b"}") -> EncodedResult:
    """SRV-20: one text block with the JSON of the error, and the flag."""
    text = to_json(to_json(error.to_dict()).decode())
    return EncodedResult(b'{"content":[{"type":"text","text":%b}],"isError":true%b' % (text, tail))


def resource_contents(uri: str, mime_type: str | None, value: Any) -> list[Any]:
    """What a content provider returned, as the list of a read's contents."""
    values = value if isinstance(value, list) else [value]
    return [_resource_content(uri, mime_type, item) for item in values]


def prompt_messages(value: Any) -> list[Any]:
    """What a prompt function returned: strings are the user's words, the rest is taken as it is."""
    values = value if isinstance(value, list | tuple) else [value]
    return [_prompt_message(item) for item in values]


def _resource_content(uri: str, mime_type: str | None, value: Any) -> Any:
    if isinstance(value, Struct) or (isinstance(value, Mapping) and "uri" in value):
        return value
    content: dict[str, Any] = {"uri": uri}
    if mime_type is not None:
        content["mimeType"] = mime_type
    if isinstance(value, bytes | bytearray | memoryview):
        content["blob"] = base64.b64encode(value).decode()
    elif isinstance(value, str):
        content["text"] = value
    else:
        content["text"] = json_of(value).decode()
    return content


def _prompt_message(value: Any) -> Any:
    if isinstance(value, str):
        return {"role": "user", "content": {"type": "text", "text": value}}
    if _is_block(value):
        return {"role": "user", "content": _block(value)}
    return value


def is_block_type(kind: Any) -> bool:
    """A content block of the protocol, and not somebody's struct that also has a `type`."""
    if not isinstance(kind, type) or not issubclass(kind, Struct):
        return False
    config = kind.__struct_config__
    return config.tag_field == "type" and config.tag in _BLOCKS


def is_result_type(kind: Any) -> bool:
    """A whole CallToolResult, as the typed struct."""
    return (
        isinstance(kind, type)
        and issubclass(kind, Struct)
        and "structured_content" in kind.__struct_fields__
    )


def is_result(value: Any) -> bool:
    return is_result_type(type(value))


def _is_block(value: Any) -> bool:
    return isinstance(value, Raw | Media | bytes | bytearray) or is_block_type(type(value))


def _block(value: Any) -> Any:
    if isinstance(value, Media):
        return value.block()
    if isinstance(value, bytes | bytearray):
        return embedded(None, bytes(value))
    return value


def _is_mixed_content(values: Sequence[Any]) -> bool:
    """Blocks, perhaps with strings between them; strings alone are a value like any other."""
    return any(map(_is_block, values)) and all(_is_block(v) or isinstance(v, str) for v in values)


def _whole_result(value: Any, tail: bytes) -> EncodedResult:
    body = to_json(value)
    if b'"content":[]' in body:  # DEC-14: at least one block
        body = to_json(msgspec.structs.replace(value, content=[Raw(b'{"type":"text","text":""}')]))
    return EncodedResult(_merged(body, tail), False)


def _merged(body: bytes, tail: bytes) -> bytes:
    """A result that its author wrote whole, with the members of the tail that it does not have."""
    if tail == b"}":
        return body
    added = msgspec.json.decode(b"{" + tail.lstrip(b","), type=dict[str, Raw])
    own = msgspec.json.decode(body, type=dict[str, Raw])
    if "_meta" in own and "_meta" in added:
        ours = msgspec.json.decode(added["_meta"], type=dict[str, Raw])
        theirs = msgspec.json.decode(own["_meta"], type=dict[str, Raw])
        own["_meta"] = Raw(msgspec.json.encode({**ours, **theirs}))
    return msgspec.json.encode({**added, **own})
