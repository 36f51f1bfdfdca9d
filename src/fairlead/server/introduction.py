"""Self-description of a server: `initialize`, `server/discover` and capabilities."""

from typing import Any

from msgspec import Raw

from ..interceptor import Exchange
from ..protocol.downgrade.results import downgrade_result
from ..protocol.revisions import Revision
from ..wire import to_json
from .registration import Registration
from .results.result_envelope import ResultEnvelope
from .server_config import MCPServerConfig

__all__ = ["Introduction", "server_info"]


def server_info(config: MCPServerConfig) -> dict[str, Any]:
    """Return the `serverInfo` of a configuration."""
    return _without_none(name=config.name, version=config.version, title=config.title)


class Introduction:
    """Builder of the `initialize` and `server/discover` results of a server."""

    def __init__(
        self, offers: Registration, info: dict[str, Any], envelope: ResultEnvelope
    ) -> None:
        """`offers` holds the registered entries; its broadcaster records the capabilities that were
        declared to each session.
        """
        self._offers = offers
        self._info = info
        self._envelope = envelope

    def initialize(self, exchange: Exchange) -> bytes:
        """Return the result of `initialize`."""
        caller, capabilities = exchange.caller, self.capabilities()
        # A session is notified only of changes of the capabilities that were declared to it.
        self._offers.changes.introduced(exchange, capabilities)
        result = {
            "protocolVersion": caller.revision.value,
            "capabilities": capabilities,
            "serverInfo": self._info,
            **_without_none(instructions=self._offers.config.instructions),
        }
        return bytes(downgrade_result("initialize", Raw(to_json(result)), caller.revision))

    def discover(self, exchange: Exchange) -> bytes:
        """Return the result of `server/discover`."""
        result = {
            "supportedVersions": [revision.value for revision in reversed(Revision)],
            "capabilities": self.capabilities(),
            **_without_none(instructions=self._offers.config.instructions),
        }
        # The envelope adds its own members, so the braces of the object are removed.
        return self._envelope.listed(to_json(result)[1:-1], exchange.caller)

    def capabilities(self) -> dict[str, Any]:
        """Return the capabilities of the entries that are registered now."""
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if len(self._offers.resources):
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if len(self._offers.prompts):
            capabilities["prompts"] = {"listChanged": True}
        if self._offers.completions:
            capabilities["completions"] = {}
        return capabilities


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
