"""What a gateway answers itself, with what the caller's era expects around it."""

from typing import Any

from msgspec import Raw

from ..protocol.caller import SERVER_INFO_KEY, Caller
from ..protocol.downgrade import downgrade_result
from ..wire import to_json

__all__ = ["Framing"]


class Framing:
    """Ends results of the stateless era, which say who answers and for how long it holds."""

    def __init__(self, info: dict[str, Any]) -> None:
        tail = b'"resultType":"complete","_meta":{"%b":%b}}' % (
            SERVER_INFO_KEY.encode(),
            to_json(info),
        )
        self._complete = b"," + tail
        self._cacheable = b',"ttlMs":0,"cacheScope":"private",' + tail

    def listed(self, members: bytes, caller: Caller) -> bytes:
        """The members of a list result, without the braces, as the result."""
        if not caller.stateless:
            return b"{%b}" % members
        return b"{%b%b" % (members, self._cacheable)

    def discovered(self, result: dict[str, Any]) -> bytes:
        return to_json(result)[:-1] + self._cacheable

    def called(self, result: bytes, caller: Caller) -> bytes:
        """The result of a tool of the gateway's own."""
        if caller.stateless:
            return result[:-1] + self._complete
        return bytes(downgrade_result("tools/call", Raw(result), caller.revision))
