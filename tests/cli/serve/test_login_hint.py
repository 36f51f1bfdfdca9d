"""Start-up messages of `fairlead serve` for servers whose clients log in."""

from pathlib import Path

import pytest

from tests.cli.framework.test_listen_address import serving

SERVER = """
from fairlead import MCPServer
from fairlead.server import ServerAuth

server = MCPServer("notes", auth=ServerAuth(issuer="https://login.example", {more}))
"""


@pytest.mark.parametrize("options", [(), ("--workers", "2")], ids=["one", "workers"])
def test_serve_prints_the_commands_to_log_in_and_to_connect(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER.format(more="public_url='https://mcp.example'"))
    with serving(file, "--http", "0", *options) as served:
        served.wait_for("stop: ")
        assert served.end() == 0
    url = "https://mcp.example/mcp"
    said = served.said
    assert f"login '{url}'" in said.partition("log in: ")[2].partition("\n")[0]
    assert said.partition("connect: ")[2].partition("\n")[0].endswith(f"tools '{url}'")
    # A server that requires a login is not open to other users of the machine.
    assert "other users of this machine" not in said
