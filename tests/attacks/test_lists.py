"""Lists of a hostile server: clients limit their size, gateways keep the last valid list."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig
from fairlead.client.api.list_budget import ListBudget, ListTooLarge
from fairlead.gateway import Gateway
from fairlead.gateway.catalog.merged_catalog import MergedCatalog
from fairlead.gateway.catalog.views import View
from fairlead.gateway.gateway_settings import GatewaySettings
from fairlead.limits import ITEM_BYTES, LIST_BYTES, PAGE_BYTES, TEMPLATES
from fairlead.manager import MCPManager
from fairlead.protocol.revisions import Revision
from fairlead.protocol.targets.list_kind import ListKind
from fairlead.wire import to_json
from tests.support.gateway_servers import LIMIT, joining, make, names, serving, until
from tests.support.scripted_stdio_server import program

ENDLESS = """
number = 0
for request in requests():
    if request["method"].endswith("/list"):
        number += 1
        member = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources",
                  "resources/templates/list": "resourceTemplates"}[request["method"]]
        item = {"name": f"n{number}", "uri": f"x://{number}", "uriTemplate": f"x://{number}/{{a}}",
                "inputSchema": {"type": "object"}, "description": "d" * SIZE}
        complete(request, **{member: [item] * COUNT, "nextCursor": CURSOR})
    elif "id" in request:
        refuse(request)
"""
# Item size and items per page. A "new" cursor on each page makes the list endless.
SHAPES = {
    "bytes": "SIZE, COUNT, CURSOR_OF = 1_000_000, 1, 'new'",
    "items": "SIZE, COUNT, CURSOR_OF = 1, 5_000, 'new'",
    "pages": "SIZE, COUNT, CURSOR_OF = 1, 1, 'new'",
}


def endless(folder: Path, shape: str, *, stateless: bool) -> list[str]:
    source = ENDLESS.replace("CURSOR}", "str(number)}")
    return program(folder, f"{SHAPES[shape]}\n{source}", stateless=stateless)


@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_client_stops_reading_an_endless_list(
    tmp_path: Path, shape: str, stateless: bool
) -> None:
    command = endless(tmp_path, shape, stateless=stateless)
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command) as client:
        for listing in (
            client.list_tools,
            client.list_prompts,
            client.list_resources,
            client.list_resource_templates,
            client.tools,
            client.resources,
        ):
            with pytest.raises(ListTooLarge, match=rf"/list has more than \d+ {shape}"):
                await listing()


async def test_the_list_limit_of_a_client_can_be_configured(tmp_path: Path) -> None:
    command = endless(tmp_path, "items", stateless=False)
    config = MCPClientConfig(max_list_items=10_000)
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command, config=config) as client:
        with pytest.raises(ListTooLarge, match="more than 10000 items"):
            await client.list_tools()


async def test_reading_a_list_stops_at_a_repeated_cursor(tmp_path: Path) -> None:
    source = "SIZE, COUNT = 1, 1\n" + ENDLESS.replace("CURSOR}", "str(number % 3)}")
    command = program(tmp_path, source, stateless=False)
    async with asyncio.timeout(LIMIT), MCPClient.connect_stdio(command) as client:
        assert len(await client.list_tools()) == 4


def test_a_page_of_tiny_items_is_rejected_before_it_is_decoded() -> None:
    page = b'{"tools":[' + b"1," * 1_000_000 + b"1]}"
    with pytest.raises(ListTooLarge, match="tools/list has more than 20000 items"):
        ListBudget("tools/list").page(page)


@pytest.mark.parametrize("shape", ["bytes", "items"])
async def test_a_gateway_reports_an_endless_list_and_lists_the_other_servers(
    tmp_path: Path, shape: str
) -> None:
    command, *arguments = endless(tmp_path, shape, stateless=False)
    hits = LIST_BYTES.hits
    async with asyncio.timeout(3 * LIMIT), serving(make("red")) as red, Gateway() as gateway:
        hostile = {"command": command, "args": arguments}
        await gateway.connect({"red": {"url": red}, "hostile": hostile})
        member = gateway.members["hostile"]
        await until(lambda: member.error is not None)
        assert "list has more than" in str(member.error)
        assert gateway.catalog.own_names(ListKind.TOOLS, "hostile") == []
        assert "red_who" in gateway.catalog.names(ListKind.TOOLS, View.everything())
    if shape == "bytes":
        assert LIST_BYTES.hits > hits


async def test_a_gateway_keeps_the_last_valid_list_of_a_server(tmp_path: Path) -> None:
    source = """
    CAPABILITIES = {"tools": {}}
    size = 1
    for request in requests():
        if request["method"] == "tools/list":
            tool = {"name": "one", "inputSchema": {"type": "object"}, "description": "d" * size}
            complete(request, tools=[tool])
        elif request["method"] == "tools/call":
            size = 9_000_000
            complete(request, content=text("big now"))
            tell("notifications/tools/list_changed", {})
        elif "id" in request:
            refuse(request)
    """
    command, *arguments = program(tmp_path, source, stateless=False)
    async with asyncio.timeout(LIMIT), Gateway() as gateway:
        await gateway.connect({"s": {"command": command, "args": arguments}})
        async with joining(gateway) as client:
            assert await names(client) == ["s_one"]
            await client.call_tool("s_one", {})
            await until(lambda: gateway.members["s"].error is not None)
            assert await names(client) == ["s_one"]
            assert await client.call_tool("s_one", {})
            assert "tools/list" in str(gateway.members["s"].error)


def tool(name: str, size: int = 0) -> Raw:
    return Raw(to_json({"name": name, "description": "d" * size, "inputSchema": {}}))


def test_the_lists_of_each_server_and_of_all_servers_are_limited_in_bytes() -> None:
    catalog = MergedCatalog(GatewaySettings(max_server_bytes=3000, max_catalog_bytes=5000))
    assert catalog.put("a", ListKind.TOOLS, [tool("x", 2000)])
    with pytest.raises(ListTooLarge, match="its lists have more than 3000 bytes"):
        catalog.put("a", ListKind.PROMPTS, [tool("p", 2000)])
    assert catalog.put("b", ListKind.TOOLS, [tool("x", 2000)])
    with pytest.raises(ListTooLarge, match="all servers have more than 5000 bytes"):
        catalog.put("c", ListKind.TOOLS, [tool("x", 2000)])
    catalog.drop("b")
    assert catalog.put("c", ListKind.TOOLS, [tool("x", 2000)])
    assert catalog.put("a", ListKind.TOOLS, [tool("y", 2000)])
    assert catalog.names(ListKind.TOOLS, View.everything()) == ["a_y", "c_x"]


def test_a_list_item_over_the_size_limit_is_omitted(caplog: pytest.LogCaptureFixture) -> None:
    catalog = MergedCatalog()
    catalog.put("a", ListKind.TOOLS, [tool("x"), tool("y", ITEM_BYTES.value)])
    assert catalog.names(ListKind.TOOLS, View.everything()) == ["a_x"]
    assert caplog.messages == ["a: 1 invalid or duplicate tools left out"]


def test_a_merged_list_is_split_into_pages_of_limited_size() -> None:
    catalog = MergedCatalog()
    size = ITEM_BYTES.value - 1000
    count = 2 * PAGE_BYTES.value // size
    for n in range(count):
        catalog.put(f"s{n:02}", ListKind.TOOLS, [tool("x", size)])
    found, cursor = [], None
    while True:
        page = catalog.page(ListKind.TOOLS, View.everything(), Revision.V2025_11_25, cursor)
        assert len(page) <= PAGE_BYTES.value + 1000
        read = msgspec.json.decode(b"{" + page + b"}")
        found += [one["name"] for one in read["tools"]]
        cursor = read.get("nextCursor")
        if cursor is None:
            break
    assert found == [f"s{n:02}_x" for n in range(count)]


def test_the_number_of_matched_templates_of_a_server_is_limited() -> None:
    catalog = MergedCatalog()
    more = TEMPLATES.value + 10
    items = [Raw(to_json({"name": "t", "uriTemplate": f"x://{n}/{{a}}"})) for n in range(more)]
    catalog.put("a", ListKind.TEMPLATES, items)
    assert catalog.owner("x://1/b", View.everything()) == "a"
    assert catalog.owner(f"x://{more - 1}/b", View.everything()) is None


async def test_a_manager_reports_why_tools_are_not_listed(tmp_path: Path) -> None:
    command, *arguments = endless(tmp_path, "bytes", stateless=False)
    async with asyncio.timeout(LIMIT), MCPManager() as manager:
        await manager.connect_servers({"hostile": {"command": command, "args": arguments}})
        supervisor = manager.describe()["hostile"]
        await until(lambda: supervisor.tools_error is not None)
        assert "tools/list has more than" in str(supervisor.tools_error)
