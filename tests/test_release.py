"""Tests that install and use the wheel and the source distribution as a user would."""

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import fairlead
from tests.support.gateway_servers import free_port

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 240  # seconds for installing the dependencies
LARGEST = 80 * 1024 * 1024  # maximum size in bytes of an installation without extras and pip

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LIMIT)]

# Importing `__main__` runs the command; the other modules need pytest or an extra.
UNIMPORTABLE = (
    "fairlead.__main__",
    "fairlead.agents.langchain",
    "fairlead.agents.openai",
    "fairlead.agents.pydantic_ai",
    "fairlead.testing.plugin",
    "fairlead.testing.taped_server",
)

SERVER = """
from fairlead import MCPServer

server = MCPServer("installed")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    server.run()
"""

CLIENT = """
import asyncio, sys
from fairlead import MCPClient

async def main():
    async with MCPClient.connect_stdio([sys.executable, "server.py"]) as client:
        print((await client.call_tool("add", {"a": 1, "b": 2}))["content"][0]["text"])

asyncio.run(main())
"""

IMPORT_ALL = """
import importlib, pkgutil, sys
import fairlead
skipped = set(sys.argv[1:])
for module in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
    if module.name not in skipped:
        importlib.import_module(module.name)
        print(module.name)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=LIMIT)
    return folder


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the programs of an environment that has only the wheel."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    (wheel,) = dist.glob("*.whl")
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, timeout=LIMIT)
    return home / "bin"


@pytest.fixture
def empty_home(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which no server is configured."""
    return {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path / "c")}


def run(program: Path, *arguments: str, cwd: Path, env: dict[str, str]) -> str:
    command = [str(program), *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wheel_and_source_distribution_have_the_version_of_the_package(dist: Path) -> None:
    version = fairlead.__version__
    assert sorted(path.name for path in dist.iterdir()) == [
        f"fairlead-{version}-py3-none-any.whl",
        f"fairlead-{version}.tar.gz",
    ]


def test_the_wheel_has_only_the_package_and_its_type_information(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"fairlead", f"fairlead-{fairlead.__version__}.dist-info"}
    assert "fairlead/py.typed" in names


def test_the_source_distribution_has_the_files_that_its_tests_need(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"pyproject.toml", "LICENSE", "src/fairlead/__init__.py", "tests/conftest.py"} <= names


def test_the_installed_command_prints_its_version(
    installed: Path, tmp_path: Path, empty_home: dict[str, str]
) -> None:
    printed = run(installed / "fairlead", "--version", cwd=tmp_path, env=empty_home)
    assert fairlead.__version__ in printed


def test_every_installed_module_can_be_imported(
    installed: Path, tmp_path: Path, empty_home: dict[str, str]
) -> None:
    python = installed / "python"
    printed = run(python, "-c", IMPORT_ALL, *UNIMPORTABLE, cwd=tmp_path, env=empty_home)
    packages = {name.split(".")[1] for name in printed.split()}
    assert {"server", "client", "gateway", "cli", "testing"} <= packages


def test_client_and_server_work_in_an_installation(
    installed: Path, tmp_path: Path, empty_home: dict[str, str]
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "client.py").write_text(CLIENT)
    assert run(installed / "python", "client.py", cwd=tmp_path, env=empty_home) == "3\n"
    call = ["call", "add", "a=1", "b=2", "--json", "--", str(installed / "python"), "server.py"]
    printed = run(installed / "fairlead", *call, cwd=tmp_path, env=empty_home)
    assert json.loads(printed)["content"][0]["text"] == "3"


def test_the_up_command_of_an_installation_serves_the_demo_servers(
    installed: Path, tmp_path: Path, empty_home: dict[str, str]
) -> None:
    port = free_port()
    gateway = subprocess.Popen(
        [str(installed / "fairlead"), "up", "--port", str(port)],
        cwd=tmp_path,
        env=empty_home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert gateway.stdout is not None
    try:
        for line in gateway.stdout:
            if "http://" in line:
                break
        url = f"http://127.0.0.1:{port}/mcp"
        tools = run(installed / "fairlead", "tools", "--json", url, cwd=tmp_path, env=empty_home)
        assert json.loads(tools)
    finally:
        gateway.terminate()
        gateway.communicate(timeout=30)
    assert gateway.returncode == 0


def test_the_size_of_an_installation_without_extras_is_limited(installed: Path) -> None:
    (packages,) = (installed.parent / "lib").glob("python3.*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel")
    size = sum(
        path.stat().st_size
        for path in packages.rglob("*")
        if path.is_file() and not path.relative_to(packages).parts[0].startswith(tools)
    )
    assert size <= LARGEST
