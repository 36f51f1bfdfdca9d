"""Metadata, challenges and audiences do not reveal which servers a gateway has."""

from pathlib import Path
from typing import Any

import pytest

from fairlead.gateway.catalog.views import View
from tests.gateway.clients.test_role_access import Place, scene

HIDDEN, UNKNOWN = "/mcp/blue", "/mcp/nothing"


async def responses(place: Place, path: str, token: str | None) -> list[Any]:
    """Return the responses that a client gets for a path, with the path replaced."""
    seen: list[Any] = []
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    for method in ("POST", "GET", "DELETE", "PUT", "OPTIONS"):
        for url in (path, f"{path}/", f"/.well-known/oauth-protected-resource{path}"):
            async with place.web.request(method, place.url + url, headers=headers) as reply:
                known = {name: text for name, text in reply.headers.items() if name != "Date"}
                seen.append((method, reply.status, known, await reply.text()))
    return [str(one).replace(path, "PATH").replace(path[5:], "NAME") for one in seen]


@pytest.mark.attack(
    "metadata and challenges of `/mcp/NAME`, read without a token to find servers",
    "every name has metadata, a challenge and an audience, as if a server existed",
    "the same responses as for a server that does not exist",
)
async def test_metadata_and_challenges_do_not_reveal_servers(tmp_path: Path) -> None:
    async with scene(tmp_path) as place:
        hidden, unknown = [await responses(place, path, None) for path in (HIDDEN, UNKNOWN)]
        # The lengths of the two paths differ.
        assert [_without_length(one) for one in hidden] == [_without_length(o) for o in unknown]
        for path in (HIDDEN, UNKNOWN):
            metadata = f"{place.url}/.well-known/oauth-protected-resource{path}"
            challenge = (await place.post("tools/list", {}, None, path))[2]
            assert challenge == f'Bearer scope="mcp", resource_metadata="{metadata}"'
            async with place.web.get(metadata) as reply:
                assert (await reply.json())["resource"] == place.url + path


def _without_length(text: str) -> str:
    head, found, rest = text.partition("'Content-Length': '")
    return head + rest.partition("'")[2] if found else text


async def test_tokens_do_not_reveal_servers_outside_of_the_view(tmp_path: Path) -> None:
    """A token for the path gets 404, any other token 401, and one of a user without a role 403."""
    async with scene(tmp_path) as place:
        place.gateway.show({}, View(), {"staff": View(servers=("red",))})
        assert await place.status(place.ann(to="/mcp/red"), "/mcp/red") == 200
        for path in (HIDDEN, UNKNOWN):
            assert await place.status(place.ann(), path) == 401
            assert await place.status(place.ann(to="/mcp/red"), path) == 401
            assert await place.status(place.ann(to=path), path) == 404
            stranger = place.a.token(place.url + path, sub="eve")
            assert await place.status(stranger, path) == 403


@pytest.mark.parametrize("name", ["a/b", "a%22b", "a%0d%0ab", "%C3%A4", "x" * 101])
async def test_invalid_server_names_are_not_quoted_in_responses(tmp_path: Path, name: str) -> None:
    async with scene(tmp_path) as place:
        metadata = f"{place.url}/.well-known/oauth-protected-resource/mcp"
        status, _, challenge = await place.post("tools/list", {}, None, f"/mcp/{name}")
        assert (status, challenge) == (401, f'Bearer scope="mcp", resource_metadata="{metadata}"')
        async with place.web.get(f"{metadata}/{name}") as reply:
            assert reply.status == 404


async def test_a_configured_audience_is_the_only_one_accepted_at_every_endpoint(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, audience="urn:gateway") as place:
        token = place.a.token("urn:gateway", sub="ann", scope="mcp")
        for path in ("/mcp", "/mcp/red", "/mcp/blue"):
            assert await place.status(token, path) == 200
            assert await place.status(place.ann(to=path), path) == 401
        assert await place.status(token, UNKNOWN) == 404
