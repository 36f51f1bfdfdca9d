"""`fairlead call`: calls a tool of a server."""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...client import MCPClient
from ...errors import RpcError
from ...suggestions import close_matches, did_you_mean
from ...wire.quote_text import shortened
from ..framework.client_connection import connected, run_async
from ..framework.command_errors import FAILED, CommandError, UsageError, print_message
from ..framework.connect_target import ConnectTarget, interpreter_of, split_target
from ..framework.describe_failure import describe_failure
from ..framework.output import StatusLine, as_json, blocks, pretty, safe, visible, write
from ..framework.parser import (
    Parser,
    add_connection_options,
    flag,
    option,
    repeated,
    server_command_usage,
)
from ..framework.suggested_commands import suggest
from .call_arguments import ARGUMENT_FORMS, CallArguments, parse
from .elicitation_prompt import Questions
from .media_folder import MediaFolder

__all__ = ["run"]

Tools = Sequence[Mapping[str, Any]]

# SGR codes by log level; levels not listed here are red
_COLOURS = {"debug": "2", "info": "36", "notice": "36", "warning": "33"}


def run(argv: Sequence[str]) -> int:
    own, target = split_target(argv, 1)
    options, unknown = _parser().parse_known_intermixed_args(own)
    if unknown:
        raise UsageError(
            f"Unrecognized arguments: {visible(' '.join(unknown))}",
            hint=f"{ARGUMENT_FORMS}; `fairlead call --help` shows the options",
        )
    given = parse(options.arguments, options.args)
    if options.decline and options.answer:
        raise UsageError("--answer and --decline cannot be combined")
    questions = Questions(options.answer, decline=options.decline)
    _require_tool(options, target)
    target.require(options, f"fairlead call {options.tool}")
    files = None if options.save is None else MediaFolder(options.save, options.tool)
    return run_async(_call(options, given, target, questions, files))


def _require_tool(options: Namespace, target: ConnectTarget) -> None:
    """Raise `UsageError` if the only argument is a server's name or a script, so that the tool is
    missing.
    """
    if target != ConnectTarget() or options.arguments or options.args:
        return
    from ..framework.server_lookup import every_server, file_error

    name = options.tool
    if interpreter_of(name) is not None or name in every_server().places:
        hint = f"{suggest('tools', name)} lists the tools; then {suggest('call', name, 'TOOL')}"
        raise UsageError(f"Missing tool name for server {visible(name)}", hint=hint)
    if (error := file_error(name)) is not None:
        raise error


def _parser() -> Parser:
    parser = Parser(
        "call",
        "Call a tool of a server and show the result.",
        option("tool", metavar="TOOL", help="the name of the tool"),
        option(
            "arguments",
            metavar="key=value",
            nargs="*",
            help="an argument, converted to the type in the tool's schema; key:=JSON passes JSON, "
            "key=@FILE the text of a file",
        ),
        option(
            "--args",
            metavar="JSON|@FILE|-",
            help="all arguments at once: a JSON object, a file with one, or stdin",
        ),
        repeated(
            "--answer",
            "key=value",
            "the value of a form field, if the server asks a question; converted to the field's "
            "type; repeat it if several questions have the same field",
        ),
        flag("--decline", help="decline all questions from the server"),
        option(
            "--save",
            metavar="DIR",
            help="write images, audio and other binary content to new files in this folder",
        ),
        usage=server_command_usage("call", "TOOL [key=value ...] [--args JSON|@FILE|-]"),
        examples="  fairlead call notes add a=1 b=2\n"
        "  fairlead call server.py add a=1 b=2\n"
        "  fairlead call add a=1 b=2 -- python server.py\n"
        "  fairlead call add a=1 b=2 http://127.0.0.1:8080\n"
        '  fairlead call note text=@today.md tags:=\'["a", "b"]\' -- python server.py\n'
        "  echo '{\"a\": 1}' | fairlead call add --args - b=2 --json -- python server.py\n\n"
        "exit codes:\n"
        "  0    success\n"
        "  1    the tool failed, or the server returned an error\n"
        "  2    invalid command line\n"
        "  3    no connection, or the connection was lost\n"
        "  4    no response in time\n"
        "  5    the server asks a question, and there is neither an answer nor a terminal\n"
        "  130  Ctrl-C",
    )
    add_connection_options(parser)
    return parser


async def _call(
    options: Namespace,
    given: CallArguments,
    target: ConnectTarget,
    questions: Questions,
    files: MediaFolder | None,
) -> int:
    watching = _Watch()
    listen, answer = watching.log, questions.answer
    try:
        async with connected(target, options, on_log=listen, on_elicit=answer) as client:
            tools = await _tools_of(client)
            arguments = given.fit(_schema(options.tool, tools))
            result = await _ask(client, options, arguments, tools, watching)
    except CommandError as exc:
        # The tool may have failed because its question was not answered.
        raise questions.failed or exc from None
    finally:
        watching.line.clear()
    if questions.failed is not None:
        raise questions.failed
    questions.warn_unused()
    return _show(result, options, tools, files)


class _Watch:
    """Log messages and progress of a running call, written to stderr."""

    def __init__(self) -> None:
        self.line = StatusLine()

    def progress(self, progress: float, total: float | None, message: str | None) -> None:
        amount = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
        text = f"{amount} {safe(message)}" if message else amount
        if sys.stderr.isatty():
            self.line.show(f"progress: {text}")
        else:
            print_message("progress", text)

    def log(self, level: str, data: Any, logger: str | None) -> None:
        self.line.clear()
        text = data if isinstance(data, str) else pretty(data)
        label = f"{level} [{logger}]" if logger else level
        print_message(visible(label), safe(text), _COLOURS.get(level, "31"))


async def _tools_of(client: MCPClient) -> Tools:
    """Return the server's tools. Errors are ignored, because a server need not have tools."""
    with suppress(RpcError):
        return await client.list_tools()
    return ()


async def _ask(
    client: MCPClient, options: Namespace, arguments: dict[str, Any], tools: Tools, watching: _Watch
) -> dict[str, Any]:
    try:
        return await client.call_tool(
            options.tool, arguments, options.timeout, on_progress=watching.progress
        )
    except RpcError as exc:
        failed = _with_suggestion(describe_failure(exc), options.tool, tools)
        # A gateway adds why a server of it has no tools.
        _, _, reason = exc.message.partition(f"{options.tool}; ")
        if failed.sentence.startswith("Unknown tool") and _is_proxy(exc) and reason:
            failed = CommandError(f"{failed.sentence}: {safe(reason)}", hint=failed.hint)
        raise failed from exc


def _show(
    result: Mapping[str, Any], options: Namespace, tools: Tools, files: MediaFolder | None
) -> int:
    saved = {} if files is None else files.save(result)
    if as_json(options, result):
        for path in saved.values():
            print_message("saved", visible(path))
        return FAILED if result.get("isError") else 0
    if result.get("isError"):
        raise _with_suggestion(_tool_failure(result), options.tool, tools)
    for text in blocks(result, saved):
        write(text)
    return 0


def _tool_failure(result: Mapping[str, Any]) -> CommandError:
    """Return the error message in a failed tool result, from its structured content or its text."""
    error = MCPClient.tool_error(result)
    if error is not None:
        return CommandError(safe(error.message), hint=safe(error.suggestion or ""))
    sentence, *rest = safe("\n".join(blocks(result))).strip().splitlines() or [
        "The tool failed without an error message"
    ]
    return CommandError(sentence, details=rest)


def _with_suggestion(failed: CommandError, name: str, tools: Tools) -> CommandError:
    """Return an "unknown tool" error if the server does not list the tool, else `failed`."""
    names = [str(tool.get("name")) for tool in tools]
    if not names or name in names:
        return failed
    # Limited, because a server may list any number of tools and each comparison takes time.
    near = close_matches(name, names[:2000], most=3)
    hint = did_you_mean(visible(shortened(one, 100)) for one in near)
    if not near:
        shown = ", ".join(visible(shortened(one, 100)) for one in names[:10])
        hint = f"the tools of the server are {shown}{', ...' if len(names) > 10 else ''}"
    return CommandError(f"Unknown tool {name!r}", hint=hint)


def _is_proxy(exc: RpcError) -> bool:
    return isinstance(exc.data, Mapping) and exc.data.get("source") == "proxy"


def _schema(name: str, tools: Tools) -> Mapping[str, Any]:
    for tool in tools:
        schema = tool.get("inputSchema")
        if tool.get("name") == name and isinstance(schema, Mapping):
            return schema
    return {}
