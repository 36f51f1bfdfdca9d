"""Commands for a running gateway that accepts access tokens: they use the stored login."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.auth.client_registration import ClientRegistration
from fairlead.auth.dpop import DpopKey
from fairlead.auth.storage.credential_store import StoredLogin
from fairlead.auth.storage.file_store import FileCredentialStore
from fairlead.auth.token_response import TokenSet
from fairlead.gateway import Gateway
from fairlead.gateway.clients.admission import ClientAccess
from fairlead.gateway.gateway_file import read_gateway_file
from tests.support.gateway_servers import free_port, serving
from tests.support.login_command import Fairlead
from tests.support.token_issuer import RunningIssuer, running_issuer

LIMIT = 30.0
FILE = """
[clients.ci]
token = "static"
[auth]
issuer = "{issuer}"
public_url = "{url}"
dpop = "allowed"
[[auth.rules]]
claims = {{ sub = "alice" }}
client = "operators"
admin = true
[[auth.rules]]
scopes = "mcp:read"
client = "staff"
"""


class Place:
    """A gateway, its issuer, and the command line of a user."""

    def __init__(self, issuer: RunningIssuer, url: str, home: Path) -> None:
        self.issuer, self.url = issuer, url
        self._home = home

    def stores(self, token: str, url: str | None = None, key: DpopKey | None = None) -> None:
        """Store a login with a token."""
        url = url or f"{self.url}/mcp"
        login = StoredLogin(
            owner="",
            server=url,
            url=url,
            issuer=self.issuer.issuer,
            resource=url,
            token_endpoint=f"{self.issuer.issuer}/token",
            client=ClientRegistration("app"),
            auth_method="none",
            tokens=TokenSet(token, "Bearer" if key is None else "DPoP", (), None, None),
            dpop_key=None if key is None else key.private,
        )
        FileCredentialStore(self._home / "data" / "auth").save(login)

    async def runs(self, *arguments: str, **env: str) -> tuple[int, str, str]:
        return await Fairlead(self._home, **env)(*arguments, "--url", self.url)


@contextlib.asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Place]:
    url = f"http://127.0.0.1:{free_port()}"
    async with asyncio.timeout(LIMIT), running_issuer() as issuer:
        path = tmp_path / "gateway.toml"
        path.write_text(FILE.format(issuer=issuer.issuer, url=url))
        file = read_gateway_file(path)
        access = ClientAccess(file)
        options: Any = {"verify_token": access.verify, "auth": access.access()}
        async with (
            Gateway(settings=file.settings, is_admin=access.is_admin) as gateway,
            serving(gateway, port=int(url.rpartition(":")[2]), **options),
        ):
            await gateway.connect({})
            yield Place(issuer, url, tmp_path / "home")


@pytest.mark.covers("AUT-06")
@pytest.mark.parametrize("bound", [False, True])
async def test_admin_commands_use_the_stored_login_for_the_gateway(
    bound: bool, tmp_path: Path
) -> None:
    key = DpopKey() if bound else None
    async with scene(tmp_path) as place:
        audience = f"{place.url}/mcp"
        token = place.issuer.token(audience)
        place.stores(token if key is None else place.issuer.bound_token(audience, key), key=key)
        code, out, err = await place.runs("session", "list", "--json")
        assert code == 0, err
        assert json.loads(out) == []
        code, out, err = await place.runs("status", "--json")
        assert (code, json.loads(out)["servers"]) == (0, []), err


async def test_an_admin_command_without_a_login_suggests_the_login_command(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        place.stores("token-of-another-server", "https://other.example/mcp")
        code, _, err = await place.runs("session", "list")
        assert code == 1
        assert "The gateway requires the token of a client" in err
        assert f"fairlead login {place.url}/mcp" in err


async def test_an_admin_command_reports_missing_admin_rights_and_missing_scopes_of_the_login(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as place:
        token = place.issuer.token(f"{place.url}/mcp", sub="bob", scope="mcp:read")
        place.stores(token)
        code, _, err = await place.runs("session", "list")
        assert (code, "whose rule sets `admin`" in err) == (1, True)
        place.stores(place.issuer.token(f"{place.url}/mcp", sub="bob"))
        code, _, err = await place.runs("status")
        assert (code, "requires more scopes (mcp:read)" in err) == (1, True)


async def test_an_admin_command_uses_a_configured_token_instead_of_the_stored_login(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path) as place:
        place.stores(place.issuer.token(f"{place.url}/mcp"))
        assert (await place.runs("status", FAIRLEAD_TOKEN="static"))[0] == 0
        code, _, err = await place.runs("status", FAIRLEAD_TOKEN="wrong")
        assert (code, "set FAIRLEAD_TOKEN" in err) == (1, True)


async def test_an_admin_command_sends_no_token_of_another_host_that_a_challenge_names(
    tmp_path: Path,
) -> None:
    """Any program on this machine could name the gateway of a company."""
    seen: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        place = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
        writer.write(
            f'HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer resource_metadata="{place}"\r\n'
            "Content-Length: 0\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()

    async with asyncio.timeout(LIMIT), running_issuer() as issuer:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        place = Place(issuer, url, tmp_path / "home")
        place.stores("planted-token", "https://mcp.example.com/mcp")
        assert (await place.runs("status"))[0] == 1
        server.close()
    assert len(seen) == 1
    assert "planted-token" not in seen[0]
