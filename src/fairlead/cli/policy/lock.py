"""`fairlead lock`: records tool definitions and detects changes."""

import asyncio
import os
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from ...errors import ConfigError, FairleadError
from ...policy.tool_lock.lock_file import FILE, ToolLockData, lock_tools, read_lock, write_lock
from ...policy.tool_lock.suspicious_text import find_suspicious_text
from ...policy.tool_lock.tool_diff import ToolDifference, compare_tools
from ...protocol.public_reason import owner_reason
from ..framework.client_connection import connected, run_async, silence_warnings
from ..framework.command_errors import (
    FAILED,
    NO_CONNECTION,
    CommandError,
    UsageError,
    print_message,
    styled,
    unknown_name_error,
)
from ..framework.connect_target import ConnectTarget, split_target
from ..framework.output import as_json, pluralize, safe, visible, write
from ..framework.parser import Parser, add_connection_options, flag, option

if TYPE_CHECKING:
    from ..gateway.choose_servers import ChosenServers

__all__ = ["run"]

AT_ONCE = 4  # maximum number of servers that are queried concurrently

Tools = list[dict[str, Any]]


def run(argv: Sequence[str]) -> int:
    own, target = list(argv), ConnectTarget()
    if "--" in own:
        own, target = split_target(own)
    options = _parser().parse_args(own)
    if options.gateway is not None:
        if target.command or options.name:
            raise UsageError("--gateway cannot be combined with --name or a command")
        if options.output is None and (file := _gateway(options.gateway).file) is not None:
            options.output = file.lock
        names = {name: ConnectTarget(name=name) for name in options.names}
    else:
        names = _named(options, target)
    options.output = options.output or FILE
    if options.check:
        return _check(options, names)
    return _write(options, names)


def _write(options: Namespace, targets: Mapping[str, ConnectTarget]) -> int:
    tools, failed = _collect(targets, options)
    if not tools:
        details = [f"{visible(name)}: {why}" for name, why in failed.items()]
        raise CommandError("No server responded", details=details, code=NO_CONNECTION)
    known: dict[str, Any] = {}
    if options.names or failed or targets.keys() != tools.keys() or _is_alone(targets):
        try:
            # Keeps the recorded tools of other servers.
            known = dict(read_lock(options.output).servers)
        except ConfigError as exc:
            # Only a missing file is created; an invalid file is reported instead of overwritten.
            if not isinstance(exc.__cause__, OSError):
                raise UsageError(safe(str(exc))) from exc
    servers = {**known, **{name: lock_tools(listed) for name, listed in tools.items()}}
    try:
        write_lock(options.output, ToolLockData(servers=servers))
    except OSError as exc:
        raise CommandError(f"Cannot write {options.output}: {exc.strerror or exc}") from exc
    odd = _odd(tools)
    counts = {name: len(listed) for name, listed in tools.items()}
    about = {"file": options.output, "tools": counts, "odd": odd, "failed": failed}
    if not as_json(options, about):
        for name, count in counts.items():
            write(f"{visible(name)}: {pluralize(count, 'tool')}")
        _show_odd(odd)
        print_message("written", options.output, "32")
    _tell_failed(failed)
    return NO_CONNECTION if failed else 0


def _check(options: Namespace, targets: Mapping[str, ConnectTarget]) -> int:
    try:
        lock = read_lock(options.output)
    except ConfigError as exc:
        raise UsageError(safe(str(exc)), hint="run `fairlead lock` without --check first") from exc
    if not options.names and not _is_alone(targets) and options.gateway is None:
        targets = {name: ConnectTarget(name=name) for name in lock.servers}
    tools, failed = _collect(targets, options)
    changed = {
        name: compare_tools(lock.servers.get(name) or lock_tools([]), listed)
        for name, listed in tools.items()
    }
    odd = _odd(tools)
    plain = msgspec.to_builtins(changed)
    if not as_json(options, {"differences": plain, "odd": odd, "failed": failed}):
        _show_changed(changed)
        _show_odd(odd)
    _tell_failed(failed)
    if any(changed.values()):
        return FAILED
    return NO_CONNECTION if failed else 0


# Servers and their tools


def _is_alone(targets: Mapping[str, ConnectTarget]) -> bool:
    """Return True if a single server is given by URL or command."""
    return any(not target.name for target in targets.values())


def _named(options: Namespace, target: ConnectTarget) -> dict[str, ConnectTarget]:
    if target.command:
        if options.names:
            raise UsageError("A command cannot be combined with other servers")
        return {options.name or "server": target}
    urls = [name for name in options.names if re.match(r"(?i)(https?|wss?|unix)://", name)]
    if urls:
        if len(options.names) > 1:
            raise UsageError("A URL cannot be combined with other servers")
        options.names = []
        return {options.name or "server": ConnectTarget(url=urls[0])}
    if options.name:
        raise UsageError("--name only applies to a URL or a command")
    if options.names or options.check:
        return {name: ConnectTarget(name=name) for name in options.names}
    from ..framework.server_lookup import every_server

    found = every_server().found
    if not found:
        raise UsageError(
            "No servers are configured",
            hint="pass a URL, or a command after `--`; `fairlead mcp add` configures a server",
        )
    return {name: ConnectTarget(name=name) for name in found}


def _collect(
    targets: Mapping[str, ConnectTarget], options: Namespace
) -> tuple[dict[str, Tools], dict[str, str]]:
    """Return the tools of the servers that responded, and the errors of the other servers."""
    tools: dict[str, Tools] = {}
    failed: dict[str, str] = {}

    async def collect() -> int:
        if options.gateway is not None:
            await _ask_gateway(options, tools, failed)
            return 0
        slots = asyncio.Semaphore(AT_ONCE)

        async def ask(name: str, target: ConnectTarget) -> None:
            async with slots:
                try:
                    async with connected(target, options) as client:
                        tools[name] = [dict(tool) for tool in await client.list_tools()]
                except CommandError as exc:
                    if _is_alone(targets):
                        raise
                    failed[name] = exc.sentence

        await asyncio.gather(*(ask(name, target) for name, target in targets.items()))
        return 0

    run_async(collect())
    return {name: tools[name] for name in sorted(tools)}, failed


def _gateway(path: str) -> "ChosenServers":
    from ..gateway.choose_servers import OwnAddress, servers_of_file

    return servers_of_file(path, os.curdir, OwnAddress(), {})


async def _ask_gateway(options: Namespace, tools: dict[str, Tools], failed: dict[str, str]) -> None:
    """Collect the tools of a gateway's servers, as listed by the servers themselves."""
    from ...manager.manager import MCPManager

    silence_warnings()
    names, servers = options.names, _gateway(options.gateway).servers
    if unknown := [name for name in names if name not in servers]:
        raise unknown_name_error("server", unknown[0], sorted(servers), place=options.gateway)
    # Replicas share a name and have the same tools, so one of them is enough.
    wanted = {
        name: structs.replace(several[0], settings={"era": options.era, **several[0].own_settings})
        for name, several in servers.items()
        if not names or name in names
    }
    async with MCPManager(os.curdir, on_roots=None) as manager:
        await manager.connect_servers(wanted, startup="wait")
        for name in wanted:
            connection = manager.connections.get(name)
            if connection is None:
                supervisor = manager.describe().get(name)
                error = None if supervisor is None else supervisor.error
                failed[name] = safe("no response" if error is None else owner_reason(error))
                continue
            try:
                tools[name] = [dict(tool) for tool in await connection.client.list_tools()]
            except FairleadError as exc:
                failed[name] = safe(str(exc))


def _odd(tools: Mapping[str, Tools]) -> list[dict[str, str]]:
    return [
        {"server": name, "tool": str(tool.get("name")), "what": what}
        for name, listed in tools.items()
        for tool in listed
        for what in find_suspicious_text(tool)
    ]


# Output


def _show_changed(changed: Mapping[str, list[ToolDifference]]) -> None:
    for name, found in changed.items():
        if not found:
            write(f"{visible(name)}: unchanged")
        for one in found:
            write(styled(f"{visible(name)}: {visible(one.name)} {_IS[one.kind]}", "1"))
            for line in one.lines:
                colour = {"-": "31", "+": "32"}.get(line[:1], "2")
                write("  " + styled(visible(line), colour))


_IS = {"changed": "has changed", "new": "is new", "gone": "was removed"}


def _show_odd(odd: Sequence[Mapping[str, str]]) -> None:
    for one in odd:
        where = f"{visible(one['server'])}/{visible(one['tool'])}"
        print_message("suspicious", f"{where}: {visible(one['what'])}", "33")
    if odd:
        print_message(
            "note", "this check is heuristic: it reports false positives and misses some attacks"
        )


def _tell_failed(failed: Mapping[str, str]) -> None:
    for name, why in failed.items():
        print_message("warning", f"{visible(name)} was skipped: {why}")


def _parser() -> Parser:
    parser = Parser(
        "lock",
        "Record the definition of every tool with its digest in a lock file. Later, `--check`\n"
        "shows tools that have changed, and a gateway can reject them. Descriptions with hidden\n"
        "characters or with instructions to the model are reported.",
        option("names", metavar="NAME", nargs="*", help="configured servers (default: all)"),
        option(
            "-o",
            "--output",
            metavar="FILE",
            help=f"the lock file (default: `lock` of the gateway file, or {FILE})",
        ),
        option("--gateway", metavar="FILE", help="use the servers of this gateway file"),
        flag(
            "--check",
            help="compare with the lock file, show differences, and exit with 1 if there are any",
        ),
        option("--name", help="a name for a server that is given by URL or command"),
        usage="[options] [NAME... | URL | -- COMMAND...]",
        examples="  fairlead lock\n"
        "  fairlead lock notes search -o fairlead.lock.json\n"
        "  fairlead lock --check\n"
        "  fairlead lock --gateway gateway.toml\n"
        "  fairlead lock --name time -- uvx mcp-server-time",
    )
    add_connection_options(parser)
    return parser
