"""Commands that send a single request to a server."""

import base64
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...client import MCPClient
from ..framework.client_connection import connected, run_async
from ..framework.command_errors import FAILED, styled
from ..framework.connect_target import ConnectTarget, split_target
from ..framework.output import (
    as_json,
    blocks,
    columns,
    format_size,
    pluralize,
    pretty,
    safe,
    visible,
    write,
    write_styled,
)
from ..framework.parser import Option, Parser, add_connection_options, option, server_command_usage
from .call_arguments import parse
from .schema_values import name_type

__all__ = [
    "arguments_of",
    "run_command",
    "run_complete",
    "run_ping",
    "run_prompt",
    "run_prompts",
    "run_read",
    "run_resources",
    "run_tools",
    "show_list",
]

CommandAction = Callable[[MCPClient, Namespace], Awaitable[int]]

# Words of a server command that lacks `--`; they are parsed only to report the mistake.
_STRAY = option("stray", nargs="*", help=SUPPRESS)


def run_command(
    name: str,
    description: str,
    act: CommandAction,
    argv: Sequence[str],
    *,
    words: Sequence[Option] = (_STRAY,),
    usage: str = "",
    sample: str = "",
    needs: int = 0,
    more: Sequence[str] = (),
) -> int:
    """Parse the arguments, connect, and run a command's action.

    `words` are the positional arguments besides the server; at least `needs` of them are required.
    The examples in the help text use `sample` for these arguments; `more` are further examples.
    """
    own, target = split_target(argv, needs, reads=name == "read")
    lines = [f"notes {sample}", f"{sample} -- python server.py", f"{sample} http://127.0.0.1:8080"]
    examples = "".join(f"  fairlead {name} {line.strip()}\n" for line in [*lines, *more])
    parser = Parser(
        name, description, *words, usage=server_command_usage(name, usage), examples=examples
    )
    add_connection_options(parser)
    options = parser.parse_intermixed_args(own)
    target.require_no_extra_arguments(getattr(options, "stray", ()), name)
    target.require(options, f"fairlead {name} {usage}".strip())
    return run_async(_run(options, target, act))


async def _run(options: Namespace, target: ConnectTarget, act: CommandAction) -> int:
    async with connected(target, options) as client:
        return await act(client, options)


async def _ping(client: MCPClient, options: Namespace) -> int:
    health = await client.health_check()
    version = client.protocol_version
    if as_json(options, {**health, "protocolVersion": version}):
        pass
    elif health["ok"]:
        name = visible(str(health.get("server") or "the server"))
        write(f"{name} responded in {health['latency_ms']:g} ms (protocol {version})")
    else:
        write(f"no response: {safe(str(health.get('error')))}")
    return 0 if health["ok"] else FAILED


async def _read(client: MCPClient, options: Namespace) -> int:
    result = await client.read_resource(options.uri)
    if as_json(options, result):
        return 0
    for content in result.get("contents") or ():
        if isinstance(text := content.get("text"), str):
            write(text)
            continue
        data = base64.b64decode(str(content.get("blob") or ""))
        if sys.stdout.isatty():
            write(f"[{content.get('mimeType') or 'binary'}, {format_size(len(data))}]")
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
    return 0


async def _resources(client: MCPClient, options: Namespace) -> int:
    def facts(item: Mapping[str, Any]) -> list[object]:
        amount = item.get("size")
        shown = format_size(amount) if isinstance(amount, int) else None
        about = item.get("title") or item.get("description") or item.get("name")
        return [item.get("mimeType"), shown, str(about or "").partition("\n")[0]]

    resources = await client.list_resources()
    templates = [
        {"uri": template.get("uriTemplate"), **template}
        for template in await client.list_resource_templates()
    ]
    return show_list(options, [*resources, *templates], "resource", "uri", facts)


async def _tools(client: MCPClient, options: Namespace) -> int:
    tools = await client.list_tools()
    if not as_json(options, tools):
        _show_tools(client.server, tools)
    return 0


def arguments_of(tool: Mapping[str, Any]) -> Iterator[tuple[str, bool, str, str]]:
    """Yield the name, required flag, type with default, and description of each argument."""
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


def _show_tools(server: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> None:
    info = server.get("serverInfo") or {}
    name = f"{info.get('name') or 'Unnamed server'} {info.get('version') or ''}".strip()
    facts = f" · {pluralize(len(tools), 'tool')} · protocol {server.get('protocolVersion')}"
    write_styled(styled(visible(name), "1") + styled(facts, "2"))
    for tool in tools:
        annotations = tool.get("annotations")
        hints: Mapping[str, Any] = annotations if isinstance(annotations, Mapping) else {}
        title = tool.get("title") or hints.get("title")
        shown = f"  {visible(str(title))}" if title else ""
        write_styled(f"\n{styled(visible(str(tool.get('name'))), '1;36')}{shown}")
        description = safe(str(tool.get("description") or "")).strip().splitlines()
        rows = [
            [(name + "*" * required, "32"), (kind, "33"), (" ".join(about.split()), "2")]
            for name, required, kind, about in arguments_of(tool)
        ]
        for line in (*description, *columns(rows)):
            write_styled(f"  {line}".rstrip())
    if any(required for tool in tools for _, required, _, _ in arguments_of(tool)):
        write_styled(styled("\n* required", "2"))


async def _prompts(client: MCPClient, options: Namespace) -> int:
    def facts(prompt: Mapping[str, Any]) -> list[object]:
        arguments = prompt.get("arguments")
        named = [
            f"{argument.get('name')}{'*' if argument.get('required') else ''}"
            for argument in (arguments if isinstance(arguments, list) else ())
            if isinstance(argument, Mapping)
        ]
        about = str(prompt.get("title") or prompt.get("description") or "").partition("\n")[0]
        return [f"({', '.join(named)})" if named else "", about]

    return show_list(options, await client.list_prompts(), "prompt", "name", facts)


async def _prompt(client: MCPClient, options: Namespace) -> int:
    result = await client.get_prompt(options.name, _texts(options.arguments))
    if as_json(options, result):
        return 0
    for message in result.get("messages") or ():
        shown = "\n".join(blocks({"content": [message.get("content")]}))
        write(f"{visible(str(message.get('role')))}: {shown}")
    return 0


async def _complete(client: MCPClient, options: Namespace) -> int:
    words = list(options.rest)
    beginning = words.pop(0) if words and "=" not in words[0] else ""
    found = await client.complete(
        "resource" if "://" in options.of else "prompt",
        options.of,
        options.argument,
        beginning,
        filled=_texts(words) or None,
    )
    if not as_json(options, list(found.values)):
        for value in found.values:
            write(safe(value))
    return 0


def _texts(words: Sequence[str]) -> dict[str, str]:
    """Return the arguments for a prompt, all of which are strings."""
    return {key: str(value) for key, value in parse(words, what="prompt argument").fit({}).items()}


def show_list(
    options: Namespace,
    items: Sequence[Mapping[str, Any]],
    what: str,
    key: str,
    facts: Callable[[Mapping[str, Any]], Iterable[object]],
) -> int:
    """Print one line per item: the value of `key`, followed by the item's `facts`."""
    if as_json(options, list(items)):
        return 0
    rows = [
        [str(item.get(key)), "  ".join(str(fact) for fact in facts(item) if fact)] for item in items
    ]
    for line in columns(rows) or [f"no {what}s"]:
        write(line)
    return 0


run_ping = partial(
    run_command,
    "ping",
    "Check that a server responds, and show its protocol revision and latency.",
    _ping,
)
run_read = partial(
    run_command,
    "read",
    "Read a resource of a server. Binary content is written unchanged to a file or pipe, and "
    "only summarised on a terminal.",
    _read,
    words=[option("uri", help="the URI of the resource")],
    usage="URI",
    sample="notes://all",
    needs=1,
    more=["demo://sunrise.png -- python server.py > sunrise.png"],
)
run_resources = partial(
    run_command,
    "resources",
    "List the resources and resource templates of a server.",
    _resources,
)
run_prompts = partial(
    run_command,
    "prompts",
    "List the prompts of a server with their arguments (* required).",
    _prompts,
)
run_prompt = partial(
    run_command,
    "prompt",
    "Get a prompt of a server and show its messages.",
    _prompt,
    words=[
        option("name", help="the name of the prompt"),
        option("arguments", nargs="*", help="key=value, or key=@FILE for the text of a file"),
    ],
    usage="NAME [key=value ...]",
    sample="review code=@app.py",
    needs=1,
)
run_complete = partial(
    run_command,
    "complete",
    "Get completions from a server for an argument of a prompt or a variable of a resource "
    "template.",
    _complete,
    words=[
        option("of", metavar="PROMPT_OR_TEMPLATE", help="the name of a prompt, or a URI template"),
        option("argument", metavar="ARGUMENT", help="the argument or variable to complete"),
        option(
            "rest",
            metavar="BEGINNING, key=value",
            nargs="*",
            help="the beginning of the value, and key=value for arguments that are already known",
        ),
    ],
    usage="PROMPT_OR_TEMPLATE ARGUMENT [BEGINNING] [key=value ...]",
    sample="review language py",
    needs=2,
    more=["'users://{id}/profile' id -- python server.py"],
)
run_tools = partial(
    run_command,
    "tools",
    "List the tools of a server with their arguments.",
    _tools,
    more=["--json -- uvx some-server | jq '.[].name'"],
)
