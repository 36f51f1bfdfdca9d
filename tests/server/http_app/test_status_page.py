"""Tests of the status page and the OpenAPI document."""

import html
from typing import Any

from fairlead.server.http_app.openapi import describe_api
from fairlead.server.http_app.status_page import render_page
from fairlead.server.server_config import MCPServerConfig

CONFIG = MCPServerConfig(name="notes", version="1.2.3", instructions="Keeps <notes>.")
URL = "http://localhost:8080/mcp"


def page(**offered: Any) -> str:
    kinds = ("tools", "resources", "resourceTemplates", "prompts")
    whole = render_page(CONFIG, URL, {kind: offered.get(kind, []) for kind in kinds})
    return whole.partition("<body>")[2]


def test_the_status_page_names_the_server_and_its_endpoint() -> None:
    text = page()
    assert "<h1>notes</h1>" in text
    assert "notes 1.2.3, a Model Context Protocol server" in text
    assert "<p>Keeps &lt;notes&gt;.</p>" in text
    assert f"<code>{URL}</code>" in text
    assert '<a href="http://localhost:8080/openapi.json">openapi.json</a>' in text
    assert text.count("<h2>") == 1  # The server has no entries, so the page has no other sections.


def test_the_status_page_shows_arguments_with_their_types() -> None:
    properties = {
        "a": {"type": "integer", "description": "first"},
        "b": {"type": ["string", "null"]},
        "c": True,
    }
    schema = {"properties": properties, "required": ["a"]}
    tool = {"name": "add", "title": "Add", "description": "adds", "inputSchema": schema}
    text = page(tools=[tool, {"name": "plain", "inputSchema": {}}])
    assert '<h2>Tools <span class="dim">2</span></h2>' in text
    assert '<code>add</code> <span class="dim">Add</span></dt><dd>adds<table>' in text
    rows = [("a", "integer", "first"), ("b", "string or null, optional", "")]
    for name, kind, about in (*rows, ("c", "any, optional", "")):
        row = f'<td><code>{name}</code></td><td class="dim">{kind}</td><td>{about}</td>'
        assert row in text
    assert text.count("<tr>") == 3
    assert '<code>plain</code> <span class="dim"></span></dt><dd></dd>' in text


def test_the_status_page_shows_resources_and_prompts() -> None:
    text = page(
        resources=[{"name": "one", "uri": "note://one", "description": "first"}],
        resourceTemplates=[{"name": "any", "uriTemplate": "note://{n}", "title": "Any"}],
        prompts=[
            {"name": "bare"},
            {"name": "ask", "arguments": [{"name": "x", "required": True}, {"name": "y"}]},
        ],
    )
    assert '<code>note://one</code> <span class="dim">one</span></dt><dd>first</dd>' in text
    assert '<code>note://{n}</code> <span class="dim">Any</span>' in text
    assert '<td><code>x</code></td><td class="dim"></td>' in text
    assert '<td><code>y</code></td><td class="dim">optional</td>' in text
    assert text.count("<table>") == 1


def test_an_openapi_operation_describes_one_tool() -> None:
    output = {"type": "object"}
    tools = [
        {"name": "a.b", "inputSchema": {"required": ["x"]}, "description": "does it"},
        {"name": "a b", "inputSchema": {}, "annotations": {"title": "T"}, "outputSchema": output},
    ]
    api = describe_api(CONFIG, tools, "/root")
    info = {"title": "notes", "version": "1.2.3", "description": "Keeps <notes>."}
    assert (api["info"], api["servers"]) == (info, [{"url": "/root"}])
    first, second = (path["post"] for path in api["paths"].values())
    assert list(api["paths"]) == ["/tools/a.b/call", "/tools/a%20b/call"]
    assert (first["operationId"], second["operationId"]) == ("a_b", "a_b_2")
    assert (first["summary"], second["summary"]) == ("a.b", "T")
    assert (first["description"], "description" in second) == ("does it", False)
    assert (first["requestBody"]["required"], second["requestBody"]["required"]) == (True, False)

    def result(operation: dict[str, Any]) -> Any:
        return operation["responses"]["200"]["content"]["application/json"]["schema"]

    assert result(first) == {"$ref": "#/components/schemas/Result"}
    assert result(second)["properties"]["structuredContent"] == output
    assert "servers" not in describe_api(CONFIG, [])


def test_the_status_page_shows_the_configuration_entry_for_clients() -> None:
    entry = """{
  "mcpServers": {
    "notes": {
      "type": "http",
      "url": "http://localhost:8080/mcp"
    }
  }
}"""
    assert f"<pre>{html.escape(entry)}</pre>" in page()


def test_the_status_page_has_the_server_title_and_may_have_no_instructions() -> None:
    offered: dict[str, list[Any]] = {
        kind: [] for kind in ("tools", "resources", "resourceTemplates", "prompts")
    }
    text = render_page(MCPServerConfig(name="n", title="The <N>"), URL, offered)
    assert "<title>The &lt;N&gt;</title>" in text
    assert "<h1>The &lt;N&gt;</h1>" in text
    assert "n 1.0.0, a Model Context Protocol server</p><h2>Connect</h2>" in text


def test_the_status_page_shows_a_name_equal_to_the_uri_once() -> None:
    text = page(
        resources=[
            {"name": "note://one", "uri": "note://one"},
            {"name": "two", "uri": "note://two", "title": "Two", "description": None},
        ],
        prompts=[{"name": "p\u202e", "arguments": [{"name": "x", "description": "words"}]}],
    )
    assert '<code>note://one</code> <span class="dim"></span></dt><dd></dd>' in text
    assert '<code>note://two</code> <span class="dim">Two</span></dt><dd></dd>' in text
    assert "\u202e" not in text
    assert '<td class="dim">optional</td><td>words</td>' in text
