"""Lists of what a server has, and the way every such command starts."""

from argparse import SUPPRESS, Namespace
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from ..client import MCPClient
from .connection import connected, run_async
from .output import pretty, visible, write
from .target import Target, split_target
from .usage import Parser, add_connection_options, two_ways

__all__ = ["run_command", "show_list"]

Act = Callable[[MCPClient, Namespace], Awaitable[int]]


def run_command(
    name: str,
    description: str,
    argv: Sequence[str],
    act: Act,
    *,
    usage: str = "",
    examples: str = "",
    positional: Sequence[tuple[str, str, str]] = (),
    shown: Mapping[str, str] | None = None,
    reads: bool = False,
) -> int:
    """Parse, connect and act.

    `positional` has name, how many (as in argparse) and help; `shown` how the help calls a name.
    """
    needs = sum(count == "1" for _, count, _ in positional)
    own, target = split_target(argv, needs, reads=reads)
    parser = Parser(name, description, usage=two_ways(name, usage), examples=examples)
    for argument, count, text in positional:
        extra: dict[str, Any] = {} if count == "1" else {"nargs": count}
        extra["metavar"] = (shown or {}).get(argument, argument)
        parser.add_argument(argument, help=text, **extra)
    if not positional:
        parser.add_argument("stray", nargs="*", help=SUPPRESS)  # a command without its `--`
    add_connection_options(parser)
    options = parser.parse_intermixed_args(own)
    target.require_no_stray(getattr(options, "stray", ()), name)
    target.require(options, f"fairlead {name} {usage}".strip())
    return run_async(_run(options, target, act))


async def _run(options: Namespace, target: Target, act: Act) -> int:
    async with connected(target, options) as client:
        return await act(client, options)


def show_list(
    items: Sequence[Mapping[str, Any]],
    what: str,
    *,
    json: bool,
    key: str,
    facts: Callable[[Mapping[str, Any]], Iterable[object]],
) -> int:
    """One line for each item: its key, and what else there is to know."""
    if json:
        write(pretty(list(items)))
        return 0
    if not items:
        write(f"no {what}s")
        return 0
    width = min(max(len(str(item.get(key))) for item in items), 40)
    for item in items:
        rest = "  ".join(visible(str(fact)) for fact in facts(item) if fact)
        write(f"{visible(str(item.get(key))).ljust(width)}  {rest}".rstrip())
    return 0
