"""The published example programs."""

import subprocess
import sys
from pathlib import Path

from tests.support.cli_process import LIMIT, fairlead

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_ten_line_client_calls_the_ten_line_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "ten_line_client.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    assert done.stdout == "tools: ['add']\n1 + 2 = 3\n"
    assert done.stderr == ""


def test_the_call_command_calls_a_tool_of_the_ten_line_server() -> None:
    serve = (sys.executable, "-m", "fairlead", "serve", str(EXAMPLES / "ten_line_server.py"))
    done = fairlead("call", "add", "a=1", "b=2", "--", *serve)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
