"""Encoding of the return values of tools, resources and prompts.

Strings, the most frequent values, are inserted into prepared JSON; other values are encoded once.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ...errors import MCPToolError, RpcError
from ...wire import to_json
from ...wire.error_codes import INTERNAL_ERROR
from ..schema.foreign_types import as_model, to_plain
from .media import Media, embedded

__all__ = [
    "EncodedResult",
    "as_content",
    "blocks_json",
    "error_content",
    "is_block_type",
    "is_result",
    "is_result_type",
    "json_of",
    "plain_blocks",
    "prompt_messages",
    "resource_contents",
    "structured_text_result",
    "text_result",
]


_encode = msgspec.json.Encoder().encode
_encode_any = msgspec.json.Encoder(enc_hook=to_plain).encode

_ROLES = ("user", "assistant")
_BLOCKS = frozenset(
    ("text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result")
)


class EncodedResult(Struct, frozen=True, gc=False):
    """An encoded tool result. If `plain` is True, the same bytes are valid in every revision."""

    result: bytes
    plain: bool = True


def blocks_json(value: Any) -> bytes | None:
    """Return the JSON of the content blocks for a list that mixes blocks and other values.

    Strings become text blocks, and other items that are not blocks become text blocks that contain
    their JSON. For any other value (see `_is_mixed_content`), return None.

    Raises:
        TypeError: An item has no JSON form.
    """
    if not isinstance(value, list | tuple) or not _is_mixed_content(value):
        return None
    return to_json([_block(item) if _is_block(item) else _text_block(item) for item in value])


def plain_blocks(value: Any) -> bytes | None:
    """Return the JSON of a list with content blocks, in which other items stay data; else None."""
    if not isinstance(value, list | tuple) or not _is_mixed_content(value):
        return None
    return to_json([_block(item) if _is_block(item) else Raw(json_of(item)) for item in value])


def as_content(value: Any, tail: bytes = b"}", body: bytes | None = None) -> EncodedResult:
    """Encode the return value of a tool (SRV-29).

    Strings become text, content blocks are passed through, and other values become JSON text. Bytes
    become an embedded resource. In a list with content blocks, other values are text blocks.

    `tail` closes the object with the members that the era adds. The encoder appends it itself, so
    that a large text is copied only once. `body` is the JSON of the value, if it is encoded
    already.
    """
    # Compared by exact type: a subclass of str may have its own `__str__` and is handled last.
    if type(value) is str or (body is not None and isinstance(value, str)):
        return EncodedResult(text_result(value, tail, body))
    if value is None:
        # The result must have at least one block.
        return EncodedResult(b'{"content":[{"type":"text","text":""}]%b' % tail)
    if is_result(value):
        return _whole_result(value, tail)
    if _is_block(value):
        return EncodedResult(b'{"content":%b%b' % (to_json([_block(value)]), tail), False)
    if (blocks := blocks_json(value)) is not None:
        return EncodedResult(b'{"content":%b%b' % (blocks, tail), False)
    text = str(value) if isinstance(value, str) else (body or json_of(value)).decode()
    return EncodedResult(b'{"content":[{"type":"text","text":%b}]%b' % (to_json(text), tail))


def json_of(value: Any) -> bytes:
    """Encode a return value, including pydantic models and paths.

    Raises:
        TypeError: The value has no JSON form.
    """
    try:
        return _encode_any(value)
    # A lone surrogate, such as half of an emoji, cannot be encoded as UTF-8.
    except UnicodeEncodeError:
        return to_json(msgspec.to_builtins(value, builtin_types=(Raw,), enc_hook=to_plain))


def text_result(text: str, tail: bytes, body: bytes | None = None) -> bytes:
    """Encode a text result. A separate function, because it is the most frequent result.

    `body` is the JSON of the text, if it is encoded already.
    """
    if body is not None and body.startswith(b'"'):
        encoded = body
    else:
        try:
            encoded = _encode(text)
        # A lone surrogate, such as half of an emoji, cannot be encoded as UTF-8.
        except UnicodeEncodeError:
            encoded = to_json(text)
    return b"".join((b'{"content":[{"type":"text","text":', encoded, b"}]", tail))


def structured_text_result(text: str, tail: bytes) -> bytes:
    """Encode a text result with its structured content, for tools that are declared as `str`."""
    try:
        encoded = _encode(text)
    except UnicodeEncodeError:
        encoded = to_json(text)
    start, middle = b'{"content":[{"type":"text","text":', b'}],"structuredContent":{"result":'
    return b"".join((start, encoded, middle, encoded, b"}", tail))


def error_content(error: MCPToolError, tail: bytes = b"}") -> EncodedResult:
    """Encode an error as one text block with its JSON, and `isError` (SRV-20)."""
    text = to_json(to_json(error.to_dict()).decode())
    return EncodedResult(b'{"content":[{"type":"text","text":%b}],"isError":true%b' % (text, tail))


def resource_contents(uri: str, mime_type: str, value: Any) -> list[Any]:
    """Convert the return value of a content provider to the contents of a read result."""
    values = value if isinstance(value, list) else [value]
    return [_resource_content(uri, mime_type, item) for item in values]


def prompt_messages(value: Any, prompt: str) -> list[Any]:
    """Convert the return value of the function of `prompt` to messages.

    Strings and content blocks become messages of the user. A message is a mapping or an object with
    `role` and `content`; its content may be a string.

    Raises:
        RpcError: -32603, the value is not a message.
    """
    values = value if isinstance(value, list | tuple) else [value]
    return [_prompt_message(item, prompt) for item in values]


def _resource_content(uri: str, mime_type: str, value: Any) -> Any:
    if isinstance(value, Struct) or (isinstance(value, Mapping) and "uri" in value):
        return value
    content = {"uri": uri, "mimeType": mime_type}
    if isinstance(value, bytes | bytearray | memoryview):
        content["blob"] = base64.b64encode(value).decode()
    elif isinstance(value, str):
        content["text"] = value
    else:
        content["text"] = json_of(value).decode()
    return content


def _prompt_message(value: Any, prompt: str) -> Any:
    if (block := _message_block(value)) is not None:
        return {"role": "user", "content": block}
    if as_model(type(value)) is not None:
        value = _without_none(value)
    if isinstance(value, Mapping):
        members = dict(value)
    else:  # such as a message that a client received
        members = {
            "role": getattr(value, "role", None),
            "content": getattr(value, "content", None),
        }
    content = _message_block(members.get("content"))
    if members.get("role") in _ROLES and content is not None:
        return {**members, "content": content}
    # Only a plain value is shown: the text of other objects may contain internal details.
    is_plain = value is None or isinstance(value, str | int | float | Mapping)
    shown = f"{value!r:.200}" if is_plain else f"an object of type {type(value).__qualname__}"
    raise RpcError(
        INTERNAL_ERROR,
        f"prompt {prompt!r} returned {shown}: expected a string, a content block, or a message "
        "such as {'role': 'user', 'content': 'text'}, where the role is 'user' or 'assistant' and "
        "the content is a string or a content block; or a list of these",
    )


def _message_block(value: Any) -> Any:
    """Return the content block that a string or a content block stands for, or None."""
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if _is_block(value):
        return _block(value)
    if as_model(type(value)) is not None:
        value = _without_none(value)
    if isinstance(value, Mapping) and value.get("type") in _BLOCKS and "role" not in value:
        return value
    return None


def _without_none(model: Any) -> Any:
    """Return the members of a pydantic model of another library, without nulls."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def is_block_type(kind: Any) -> bool:
    """Return True for a content block of the protocol."""
    if not isinstance(kind, type) or not issubclass(kind, Struct):
        return False
    # The tag is checked too, because other structs may have a field `type`.
    config = kind.__struct_config__
    return config.tag_field == "type" and config.tag in _BLOCKS


def is_result_type(kind: Any) -> bool:
    """Return True for a complete CallToolResult."""
    return (
        isinstance(kind, type)
        and issubclass(kind, Struct)
        # Identified by its field, so that importing the types is not necessary.
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


def _text_block(item: Any) -> dict[str, str]:
    return {"type": "text", "text": item if isinstance(item, str) else json_of(item).decode()}


def _is_mixed_content(values: Sequence[Any]) -> bool:
    """Return True for a list that is sent as one content block for each item.

    A list of strings alone is encoded as JSON, like any other value, and so is a list of bytes and
    other data.
    """
    if any(isinstance(v, Raw | Media) or is_block_type(type(v)) for v in values):
        return True
    return any(map(_is_block, values)) and all(_is_block(v) or isinstance(v, str) for v in values)


def _whole_result(value: Any, tail: bytes) -> EncodedResult:
    body = to_json(value)
    if b'"content":[]' in body:  # DEC-14: at least one block
        body = to_json(msgspec.structs.replace(value, content=[Raw(b'{"type":"text","text":""}')]))
    return EncodedResult(_merged(body, tail), False)


def _merged(body: bytes, tail: bytes) -> bytes:
    """Add the members of the tail to a complete result; members of the result take precedence."""
    if tail == b"}":
        return body
    added = msgspec.json.decode(b"{" + tail.lstrip(b","), type=dict[str, Raw])
    own = msgspec.json.decode(body, type=dict[str, Raw])
    if "_meta" in own and "_meta" in added:
        ours = msgspec.json.decode(added["_meta"], type=dict[str, Raw])
        theirs = msgspec.json.decode(own["_meta"], type=dict[str, Raw])
        own["_meta"] = Raw(msgspec.json.encode({**ours, **theirs}))
    return msgspec.json.encode({**added, **own})
