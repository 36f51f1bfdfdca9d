"""Gateway servers that require a login, and logins while the gateway runs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.login_command import Fairlead, log_in
from tests.support.oidc_provider import running_provider
from tests.support.protected_server import protected_server

LIMIT = 90.0


async def get(url: str, **headers: str) -> Any:
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as reply:
        return await reply.json()


async def connected(base: str) -> dict[str, Any]:
    """Wait until the only server is connected; the gateway checks for logins periodically."""
    while True:
        [server] = await get(f"{base}/admin/servers", **{"X-Admin-Token": "root"})
        if server["status"] == "connected":
            return server  # type: ignore[no-any-return]
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_running_gateway_connects_to_a_server_after_a_login(tmp_path: Path) -> None:
    fairlead, file = Fairlead(tmp_path / "home"), tmp_path / "gateway.toml"
    async with (
        asyncio.timeout(LIMIT),
        running_provider() as provider,
        protected_server(provider.issuer) as server,
    ):
        file.write_text(f'admin_token = "root"\n[servers.sums]\nurl = "{server.url}"\n')
        gateway = await fairlead.start("gateway", str(file), "--port", "0", "--json")
        try:
            assert gateway.stdout is not None
            text = await gateway.stdout.readuntil(b"\n}\n")
            report = json.loads(text)
            base = report["url"].removesuffix("/mcp")
            remedy = f"run `fairlead login sums --gateway {file}`"
            [before] = await get(f"{base}/admin/servers", **{"X-Admin-Token": "root"})
            assert (before["status"], before["error"]) == (
                "failed",
                f"the server requires a login: {remedy}",
            )
            [public] = (await get(f"{base}/status"))["servers"]
            assert public["error"] == "requires a login"
            assert (await get(f"{base}/ready"))["degraded"] == ["sums"]
            assert remedy in text.decode()

            code, out = await log_in(fairlead, "sums", "--gateway", str(file), "--no-browser")
            assert (code, "Logged in to sums" in out) == (0, True)
            assert (await connected(base))["error"] is None
            code, out, err = await fairlead("call", "sums_add", "a=1", "b=2", report["url"])
            assert (code, out.strip()) == (0, "3"), err
        finally:
            gateway.terminate()
            await gateway.communicate()
