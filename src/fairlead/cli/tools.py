"""`fairlead tools`: what a server offers to do."""

from argparse import SUPPRESS, Namespace
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .connection import connected, run_async
from .output import pretty, safe, visible, write
from .schema import name_type
from .target import Target, split_target
from .usage import Parser, add_connection_options, two_ways

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

__all__ = ["arguments_of", "run"]

Tool = Mapping[str, Any]


def run(argv: Sequence[str]) -> int:
    own, target = split_target(argv)
    parser = Parser(
        "tools",
        "List the tools of a server, with the arguments that each takes.",
        usage=two_ways("tools", ""),
        examples="  fairlead tools notes\n"
        "  fairlead tools -- python server.py\n"
        "  fairlead tools http://127.0.0.1:8080\n"
        "  fairlead tools --json -- uvx some-server | jq '.[].name'",
    )
    parser.add_argument("stray", nargs="*", help=SUPPRESS)  # a command without its `--`
    add_connection_options(parser)
    options = parser.parse_intermixed_args(own)
    target.require_no_stray(options.stray, "tools")
    target.require(options, "fairlead tools")
    return run_async(_tools(options, target))


async def _tools(options: Namespace, target: Target) -> int:
    async with connected(target, options) as client:
        tools = await client.list_tools()
        server = client.server
    if options.json:
        write(pretty(tools))
    else:
        _show(server, tools)
    return 0


def arguments_of(tool: Tool) -> Iterator[tuple[str, bool, str, str]]:
    """Name, whether it is required, type with default, and description of each argument."""
    schema = tool.get("inputSchema")
    root: Mapping[str, Any] = schema if isinstance(schema, Mapping) else {}
    properties = root.get("properties")
    required = root.get("required")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        facts: Mapping[str, Any] = part if isinstance(part, Mapping) else {}
        kind = name_type(part, root)
        if facts.get("default") is not None:
            kind += f" = {pretty(facts['default'])}"
        is_required = isinstance(required, list) and name in required
        yield visible(name), is_required, visible(kind), safe(str(facts.get("description") or ""))


def _show(server: Mapping[str, Any], tools: Sequence[Tool]) -> None:
    from rich.text import Text

    from .rendering import Page

    page = Page()
    info = server.get("serverInfo") or {}
    name = f"{info.get('name') or 'A server without a name'} {info.get('version') or ''}".strip()
    count = f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
    head = Text(visible(name), "bold")
    head.append(f" · {count} · speaks {server.get('protocolVersion')}", "dim")
    page.print(head)
    for tool in tools:
        page.print()
        for part in _described(tool):
            page.print(part)
    if any(required for tool in tools for _, required, _, _ in arguments_of(tool)):
        page.print(Text("\n* required", "dim"))


def _described(tool: Tool) -> Iterator["RenderableType"]:
    from rich.padding import Padding
    from rich.text import Text

    annotations = tool.get("annotations")
    hints: Mapping[str, Any] = annotations if isinstance(annotations, Mapping) else {}
    title = tool.get("title") or hints.get("title")
    name = Text(visible(str(tool.get("name"))), "bold cyan")
    if title:
        name.append(f"  {visible(str(title))}", "not bold default")
    yield name
    if description := safe(str(tool.get("description") or "")).strip():
        yield Padding(Text(description), (0, 0, 0, 2))
    arguments = list(arguments_of(tool))
    if arguments:
        yield Padding(_table(arguments), (0, 0, 0, 2))


def _table(arguments: Sequence[tuple[str, bool, str, str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for name, required, kind, description in arguments:
        shown = Text(name, "green")
        shown.append("*" if required else " ", "bold red")
        table.add_row(shown, Text(kind, "yellow"), Text(description, "dim"))
    return table
