"""Results with what the caller's era expects around them."""

from typing import Any

from msgspec import Raw

from ...protocol.caller import SERVER_INFO_KEY, Caller
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json

__all__ = ["ResultEnvelope"]


class ResultEnvelope:
    """Ends results of the stateless era, which say who answers and for how long it holds."""

    def __init__(
        self, info: dict[str, Any], freshness: bytes = b'"ttlMs":0,"cacheScope":"private"'
    ) -> None:
        """`info` is how the server calls itself, `freshness` what its lists say by default."""
        self.complete = b',"resultType":"complete","_meta":{"%b":%b}}' % (
            SERVER_INFO_KEY.encode(),
            to_json(info),
        )
        self._cacheable = b"," + freshness + self.complete

    def tail(self, caller: Caller) -> bytes:
        """What closes a result behind its members."""
        return self.complete if caller.stateless else b"}"

    def answered(self, members: bytes, caller: Caller) -> bytes:
        """A result from its members, without the braces."""
        return b"{%b%b" % (members, self.tail(caller))

    def listed(self, members: bytes, caller: Caller, freshness: bytes | None = None) -> bytes:
        """The same for a result that may be kept."""
        if not caller.stateless:
            return b"{%b}" % members
        if freshness is not None:
            return b"{%b,%b%b" % (members, freshness, self.complete)
        return b"{%b%b" % (members, self._cacheable)

    def called(self, result: bytes, caller: Caller) -> bytes:
        """The result of a tool of our own."""
        if caller.stateless:
            return result[:-1] + self.complete
        return bytes(downgrade_result("tools/call", Raw(result), caller.revision))
