"""Fragments of a result that are sent before the complete result is available."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Raw

from ...interceptor import Exchange
from .encode_result import as_content

__all__ = ["FragmentSender", "encode_fragment"]


@runtime_checkable
class FragmentSender(Protocol):
    """Reply path whose transport supports fragments. Other reply paths send progress instead."""

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        """Send content blocks (a JSON array) of the result in advance.

        Raises:
            ChannelClosed: The client has disconnected.
        """


class _Text(msgspec.Struct):
    text: str = ""


class _Part(msgspec.Struct):
    content: Raw


def encode_fragment(content: Any) -> tuple[Raw, str]:
    """Return a fragment as content blocks, encoded like a result, and its text."""
    blocks = msgspec.json.decode(as_content(content).result, type=_Part).content
    return blocks, "".join(block.text for block in msgspec.json.decode(blocks, type=list[_Text]))
