"""Parts of a result, sent while the rest is still being made."""

from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Raw

from ...interceptor import Exchange
from .encode_result import as_content

__all__ = ["FragmentSender", "encode_fragment"]


@runtime_checkable
class FragmentSender(Protocol):
    """What an edge also is whose dialect has parts; elsewhere a part is told as progress."""

    async def fragment(self, exchange: Exchange, content: Raw) -> None:
        """Send some content blocks (a JSON array) of the answer to come.

        Raises:
            ChannelClosed: if nobody is there any more.
        """


class _Text(msgspec.Struct):
    text: str = ""


class _Part(msgspec.Struct):
    content: Raw


def encode_fragment(content: Any) -> tuple[Raw, str]:
    """A part as content blocks, by the rules for results; and the text that is in them."""
    blocks = msgspec.json.decode(as_content(content).result, type=_Part).content
    return blocks, "".join(block.text for block in msgspec.json.decode(blocks, type=list[_Text]))
