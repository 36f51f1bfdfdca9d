"""Debian's nginx as a reverse proxy, unpacked into the tests' cache."""

import asyncio
import contextlib
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from tests.support.interop.node_packages import CACHE, alone, run, unavailable

CONFIG = """
daemon off;
worker_processes 1;
pid {home}/pid;
error_log {home}/error.log;
events {{ worker_connections 128; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{
        listen 127.0.0.1:{port}{tls};
        location / {{
            proxy_pass {upstream};
            {settings}
        }}
    }}
}}
"""


def program() -> str:
    """Return the path of nginx: installed, or unpacked from Debian's package."""
    if found := shutil.which("nginx"):
        return found
    home = CACHE / "nginx"
    unpacked = home / "usr" / "sbin" / "nginx"
    with alone("nginx"):
        if not unpacked.exists():
            if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
                unavailable("nginx is not installed, and apt-get is not available")
            home.mkdir(parents=True, exist_ok=True)
            run(["apt-get", "download", "nginx"], home)
            (package,) = home.glob("nginx_*.deb")
            run(["dpkg-deb", "-x", str(package), str(home)], home)
    try:
        subprocess.run([str(unpacked), "-v"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as exc:
        unavailable(f"Debian's nginx does not run here: {exc}")
    return str(unpacked)


@contextlib.asynccontextmanager
async def proxied(
    upstream: str, home: Path, *settings: str, tls: tuple[Path, Path] | None = None
) -> AsyncIterator[str]:
    """Run nginx as a proxy for a server, with these lines in its `location`, and yield its URL.

    `tls` is a certificate with its key.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    lines = "\n".join(f"{line};" for line in settings)
    place = home / "nginx.conf"
    secure = "" if tls is None else f" ssl; ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]}"
    place.write_text(
        CONFIG.format(home=home, port=port, tls=secure, upstream=upstream, settings=lines)
    )
    process = await asyncio.create_subprocess_exec(
        program(), "-p", str(home), "-c", str(place), "-e", str(home / "error.log")
    )
    try:
        async with asyncio.timeout(10):
            while not await _answers(port):
                assert process.returncode is None, (home / "error.log").read_text()
                await asyncio.sleep(0.02)
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{port}/mcp"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
