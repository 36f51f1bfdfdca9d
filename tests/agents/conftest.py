"""Fixtures for the agent tests."""

from pathlib import Path

import pytest

from tests.support.agent_servers import AgentServers


@pytest.fixture
def servers(tmp_path: Path) -> AgentServers:
    return AgentServers(tmp_path)
