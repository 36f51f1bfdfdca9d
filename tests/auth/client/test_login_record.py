"""Access to the login of one server in a store."""

import asyncio
import threading

import pytest

from fairlead.auth.client.api_key import ApiKeyAuthorizer
from fairlead.auth.client.login_record import try_lock
from fairlead.auth.client.oauth_authorizer import OAuthAuthorizer
from fairlead.auth.storage.credential_store import MemoryCredentialStore
from fairlead.errors import LoginRequired
from tests.support.scripted_provider import scripted_provider

LIMIT = 10.0
ELSEWHERE = ["/tenant-b/mcp", "/mcp2", "/mcp/../tenant-b/mcp", "/mcp/..%2ftenant-b", "/"]


@pytest.mark.parametrize("path", ELSEWHERE)
async def test_a_login_is_not_used_outside_its_resource_despite_an_equal_credential_id(
    path: str,
) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        mine = {"store": store, "credential_id": "mine"}
        await OAuthAuthorizer(provider.url, authorize=provider.user(), **mine).log_in()
        url = f"{provider.origin}{path}"
        other = OAuthAuthorizer(url, **mine)
        assert await other.prepare("POST", url) == {}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/more?x=1"])
async def test_a_login_is_used_below_the_path_of_its_resource(path: str) -> None:
    async with scripted_provider() as provider:
        store = MemoryCredentialStore()
        mine = {"store": store, "credential_id": "mine"}
        await OAuthAuthorizer(provider.url, authorize=provider.user(), **mine).log_in()
        other = OAuthAuthorizer(f"{provider.origin}{path}", **mine)
        assert await other.prepare("POST", "") == {"Authorization": "Bearer access-1"}


async def test_a_login_for_a_whole_origin_is_used_for_all_of_its_paths() -> None:
    async with scripted_provider() as provider:
        provider.protected = {"resource": provider.origin}
        store = MemoryCredentialStore()
        mine = {"store": store, "credential_id": "mine"}
        await OAuthAuthorizer(provider.url, authorize=provider.user(), **mine).log_in()
        other = OAuthAuthorizer(f"{provider.origin}/tenant-b/mcp", **mine)
        assert await other.prepare("POST", "") == {"Authorization": "Bearer access-1"}


@pytest.mark.parametrize("path", ELSEWHERE)
async def test_an_api_key_is_not_used_outside_its_resource_despite_an_equal_credential_id(
    path: str,
) -> None:
    store = MemoryCredentialStore()
    await ApiKeyAuthorizer("https://h/mcp", store=store, credential_id="mine").log_in("key-1")
    other = ApiKeyAuthorizer(f"https://h{path}", store=store, credential_id="mine")
    with pytest.raises(LoginRequired, match="requires an API key"):
        await other.prepare("POST", "")


async def test_a_lock_is_released_if_its_acquisition_is_cancelled() -> None:
    asked, proceed = threading.Event(), threading.Event()
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    class SlowLock:
        def try_acquire(self) -> bool:
            asked.set()
            return proceed.wait(LIMIT)

        def release(self) -> None:
            loop.call_soon(released.set)

    async with asyncio.timeout(LIMIT):
        locking = asyncio.create_task(try_lock(SlowLock()))
        await asyncio.to_thread(asked.wait, LIMIT)
        locking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await locking
        proceed.set()
        await released.wait()
