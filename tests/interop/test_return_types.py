"""Output schemas and structured content must equal those of the official SDK in every revision."""

from typing import Any

import pytest

from fairlead.protocol.revisions import Revision
from tests.support.interop.json_schemas import without_titles
from tests.support.interop.server_processes import our_client


async def outputs(kind: str, version: str) -> dict[str, tuple[Any, Any, bool]]:
    """Return the schema, the structured content and the error flag of each tool."""
    found = {}
    async with our_client("return_types", version, kind) as client:
        for tool in await client.list_tools():
            result = await client.call_tool(tool["name"])
            found[tool["name"]] = (
                without_titles(tool.get("outputSchema")),
                result.get("structuredContent"),
                result.get("isError", False),
            )
    return found


@pytest.mark.covers("SRV-02", "SRV-29")
@pytest.mark.parametrize("revision", [*Revision])
async def test_results_of_every_return_type_equal_the_results_of_the_official_sdk(
    revision: Revision,
) -> None:
    official = await outputs("official", revision.value)
    ours = await outputs("ours", revision.value)
    assert len(ours) > 100
    assert {name: ours[name] for name in ours if ours[name] != official.get(name)} == {}
    assert ours.keys() == official.keys()
