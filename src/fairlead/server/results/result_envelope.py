"""Members that the era of the client requires in results."""

from typing import Any

from msgspec import Raw

from ...protocol.caller import SERVER_INFO_KEY, Caller
from ...protocol.downgrade.results import downgrade_result
from ...wire import to_json

__all__ = ["ResultEnvelope"]


class ResultEnvelope:
    """Builder of complete results. Stateless ones name the server and, if cacheable, a lifetime."""

    def __init__(
        self, info: dict[str, Any], freshness: bytes = b'"ttlMs":0,"cacheScope":"private"'
    ) -> None:
        """`info` is the `serverInfo`; `freshness` holds the default cache members of lists."""
        self.complete = b',"resultType":"complete","_meta":{"%b":%b}}' % (
            SERVER_INFO_KEY.encode(),
            to_json(info),
        )
        self._cacheable = b"," + freshness + self.complete

    def answered(self, members: bytes, caller: Caller) -> bytes:
        """Return a complete result for the era of the caller; `members` is JSON without braces."""
        return b"{%b%b" % (members, self.complete if caller.stateless else b"}")

    def listed(self, members: bytes, caller: Caller, freshness: bytes | None = None) -> bytes:
        """Return a complete result with cache hints for stateless callers; `members` is its JSON
        without braces.
        """
        if not caller.stateless:
            return b"{%b}" % members
        if freshness is not None:
            return b"{%b,%b%b" % (members, freshness, self.complete)
        return b"{%b%b" % (members, self._cacheable)

    def called(self, result: bytes, caller: Caller) -> bytes:
        """Return the complete result of a tool that the gateway itself provides."""
        if caller.stateless:
            return result[:-1] + self.complete
        return bytes(downgrade_result("tools/call", Raw(result), caller.revision))
