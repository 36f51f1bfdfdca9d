"""The conformance server of the official Python SDK, from the source distribution of that package.

Run as a program, it serves on a free port and prints the URL.
"""

import asyncio
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).parents[2] / ".venv" / "conformance" / "official"
PACKAGE = "mcp_everything_server"
INSIDE = f"examples/servers/everything-server/{PACKAGE}/"


class Unavailable(Exception):
    """The server cannot be downloaded; the message contains the reason."""


def fetched() -> Path:
    """Return a folder from which the server of the installed SDK can be imported.

    Raises:
        Unavailable: The server cannot be downloaded.
    """
    release = version("mcp")
    folder = HOME / release
    if not folder.exists():
        with tempfile.TemporaryDirectory() as place:
            _download(release, Path(place))
    return folder


def _download(release: str, place: Path) -> None:
    if find_spec("pip") is None:
        raise Unavailable("pip is not installed")
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"]
    wanted = ["--no-deps", "--no-binary", "mcp", f"mcp=={release}"]
    try:
        subprocess.run([*pip, *wanted], cwd=place, capture_output=True, timeout=120, check=True)
    except (OSError, subprocess.SubprocessError) as exc:
        said = getattr(exc, "stderr", b"") or b""
        raise Unavailable(f"{exc} {said.decode(errors='replace')[-300:]}") from exc
    for archive in place.glob("*.tar.gz"):
        with tarfile.open(archive) as sources:
            files = [file for file in sources.getmembers() if INSIDE in file.name and file.isfile()]
            for file in files:
                file.name = f"{PACKAGE}/{Path(file.name).name}"
                sources.extract(file, place / "found", filter="data")
    if not (place / "found" / PACKAGE).exists():
        raise Unavailable(f"the sources of mcp {release} have no conformance server")
    HOME.mkdir(parents=True, exist_ok=True)
    shutil.move(place / "found", HOME / release)


async def _serve(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    import uvicorn
    from mcp_everything_server.server import event_store, mcp

    app = mcp.streamable_http_app(event_store=event_store, retry_interval=100)
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listening])


if __name__ == "__main__":
    asyncio.run(_serve(fetched()))
