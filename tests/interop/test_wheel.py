"""The published wheel in a separate environment provides the pytest fixture for tapes.

Its dependencies come from this environment, so that only the build tool is downloaded.
"""

import os
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.interop.node_packages import run, unavailable

REPOSITORY = Path(__file__).parents[2]
TEST = """
import asyncio
import sys
from pathlib import Path

import fairlead
from fairlead import MCPClient


def test_it(fairlead_tape):
    assert Path(fairlead.__file__).is_relative_to(sys.prefix), "imported from elsewhere"
    server = fairlead_tape("short", {"command": sys.executable, "args": ["server.py"]})

    async def visit():
        async with asyncio.timeout(20), MCPClient.connect_inprocess(server) as client:
            return (await client.call("double", {"n": 21})).text

    assert asyncio.run(visit()) == "42"
"""
SERVER = """
from fairlead import MCPServer

server = MCPServer("numbers")


@server.tool()
def double(n: int) -> int:
    return 2 * n


server.run()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Create an environment with the wheel."""
    if find_spec("pip") is None:
        unavailable("pip is not installed")
    place, wheels = tmp_path / "home", tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(REPOSITORY)], tmp_path)
    [wheel] = wheels.iterdir()
    run([sys.executable, "-m", "venv", "--without-pip", str(place)], tmp_path)
    [packages] = place.glob("lib/python*/site-packages")
    ZipFile(wheel).extractall(packages)  # the packages are enough; scripts are not installed
    others = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # Packages in the wheel take precedence over these.
    (packages / "others.pth").write_text("\n".join(others))
    return place


@pytest.mark.covers("GTW-11")
def test_the_pytest_fixture_of_an_installed_wheel_records_a_tape_and_then_replays_it(
    tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    server = folder / "server.py"
    server.write_text(SERVER)
    (folder / "test_it.py").write_text(TEST)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON", "COV"))}
    for mode in ("once", "never"):
        done = subprocess.run(
            [home / "bin" / "python", "-m", "pytest", "-q", f"--fairlead-tapes={mode}", "."],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        server.unlink(missing_ok=True)  # the next run can only use the tape
    assert (folder / "tapes" / "short.tape.jsonl").is_file()
