"""Step-by-step checks of one configured server, or of many servers within a time limit."""

import asyncio
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...client import MCPClient, MCPClientConfig
from ...client.client_config import version_for_era
from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.configured_servers import headers_renewal
from ...config.found_server import FoundServer
from ...config.stored_logins import authorizer_for
from ...config.trust import NotApproved, Trust
from ...config.variables.resolve import resolve_in_thread
from ...errors import ConfigError, FairleadError
from ...redaction.redact_text import redact
from ...transport import timeouts
from ...transport.stdio.child_process import CLOSE_TIME, kill_child_processes
from ...upstream.memory.tool_cache import MCPToolCache
from ...upstream.starts.start_limiter import StartLimiter
from ..framework.client_connection import keep_known_eras
from ..framework.command_errors import NO_CONNECTION, TIMEOUT, CommandError
from ..framework.describe_failure import with_endpoint
from ..framework.output import pluralize, safe, visible
from ..framework.remedies import diagnose, find_program, where_to_get
from ..framework.server_lookup import values_to_hide
from ..framework.suggested_commands import suggest

__all__ = ["ALL_LIMIT", "CheckStep", "ServerCheck", "check_server", "check_servers"]

LIMIT = 30.0  # seconds, unless the entry or the caller sets a limit
ALL_LIMIT = 10  # seconds for all servers, including the time to stop unresponsive ones
_SPARE = 1.0  # seconds of the limit for the start of this program and the output of the results
_REAP_TIME = 0.3  # seconds for killed processes to end
_LAST_WORDS = 10  # lines of stderr


@dataclass(frozen=True)
class CheckLimits:
    """The limits of a check, as times of the event loop: for the last response of the server, and
    for the end of the connection.
    """

    response: float = math.inf
    end: float = math.inf


@dataclass(frozen=True)
class CheckStep:
    """The result of one step in a check."""

    name: str
    ok: bool
    seconds: float
    text: str = ""
    odd: bool = False  # the step succeeded, but may be the cause of a later failure


class SayOutcome(Protocol):
    """Function that sets the text of a step."""

    def __call__(self, text: str, *, is_odd: bool = False) -> None: ...


@dataclass
class ServerCheck:
    """The result of checking a server; `failed` is the reason why the check stopped early."""

    found: FoundServer
    steps: list[CheckStep] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failed: CommandError | None = None
    approved: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  # variables that the entry uses and that are not set
    secrets: list[str] = field(default_factory=list)
    stderr: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_WORDS))
    # True if the limit for all servers was shorter than this server's limit.
    shortened: bool = False
    tell: Callable[[CheckStep], None] = lambda step: None  # called after each step

    @contextmanager
    def step(self, name: str) -> Iterator["SayOutcome"]:
        """Record the duration and outcome of a step, even if it raises an exception."""
        began = time.monotonic()
        said, odd, ok = "", False, False

        def say(text: str, *, is_odd: bool = False) -> None:
            nonlocal said, odd
            said, odd = safe(text), is_odd

        try:
            yield say
            ok = True
        finally:
            step = CheckStep(name, ok, time.monotonic() - began, said, odd)
            self.steps.append(step)
            self.tell(step)

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        found, failed = self.found, self.failed
        status = "ok" if failed is None else "failed" if self.approved else "not approved"
        about: dict[str, Any] = {
            "name": found.name,
            "status": status,
            "source": found.host_title,
            "level": found.level,
            "path": found.place,
            "transport": found.entry.type,
            **self.facts,
            "steps": [
                {
                    "step": s.name,
                    "ok": s.ok,
                    "odd": s.odd,
                    "ms": round(s.seconds * 1000, 1),
                    "text": s.text,
                }
                for s in self.steps
            ],
            "warnings": self.warnings,
        }
        if failed is not None:
            about |= {"error": failed.sentence, "hint": failed.hint}
            about["stderr"] = list(failed.details)
        return about


async def check_servers(
    servers: Iterable[FoundServer],
    *,
    seconds: float | None = None,
    inputs: Mapping[str, str] | None = None,
    era: str = "auto",
    done: Callable[[ServerCheck], None] = lambda checkup: None,
) -> list[ServerCheck]:
    """Check servers concurrently within `seconds`, and return the results in the given order.

    `done` is called after each check. A server that does not respond delays other checks only
    briefly. At the end of the limit, server processes that have not exited are killed.
    """
    keep_known_eras()
    seconds, loop = seconds or ALL_LIMIT, asyncio.get_running_loop()
    end = loop.time() + seconds - min(_SPARE, seconds / 4)
    closing = min(CLOSE_TIME + _REAP_TIME, seconds / 3)
    limits = CheckLimits(end - closing, end)
    killing = loop.call_at(end - min(_REAP_TIME, closing / 2), kill_child_processes)
    starts, trust = StartLimiter(), Trust()

    async def one(found: FoundServer) -> ServerCheck:
        checkup = await check_server(
            found, inputs=inputs, trust=trust, era=era, limits=limits, starts=starts
        )
        done(checkup)
        return checkup

    tasks = [asyncio.create_task(one(found)) for found in servers]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        # each cancelled check stops its server
        await asyncio.gather(*tasks, return_exceptions=True)
        killing.cancel()


async def check_server(
    found: FoundServer,
    *,
    inputs: Mapping[str, str] | None = None,
    timeout: float | None = None,
    era: str = "auto",
    trust: Trust | None = None,
    limits: CheckLimits = CheckLimits(),
    starts: StartLimiter | None = None,
    tell: Callable[[CheckStep], None] = lambda step: None,
) -> ServerCheck:
    """Check approval, variables and program, connect, and list the tools; stop at the first
    failure.

    The server is stopped at the end. `timeout` replaces the entry's limit. `tell` is called after
    each step.
    """
    checkup = ServerCheck(found, tell=tell)
    entry: MCPServerEntry | None = None
    try:
        entry = await _prepare(checkup, inputs, trust, limits.response)
        said = found.startup_timeout or entry.timeout
        limit = timeout or (said / 1000 if said else LIMIT)
        async with AsyncExitStack() as stack:
            if starts is not None and isinstance(entry, MCPStdioServerConfig):
                await _wait_for_start(stack, starts, limits.response)
            left = limits.response - asyncio.get_running_loop().time()
            checkup.shortened = left < limit
            config = MCPClientConfig(
                timeout_seconds=max(round(left, 1), 0.1) if left < limit else limit,
                max_retries=0,
                protocol_version=version_for_era(era),
            )
            await _connect(entry, config, checkup, limits.end)
    except NotApproved as exc:
        checkup.approved = False
        checkup.failed = diagnose(exc, found)
    except FairleadError as exc:
        checkup.failed = diagnose(exc, found, checkup.missing)
        if entry is not None and not isinstance(entry, MCPStdioServerConfig):
            with suppress(TimeoutError):
                async with _until(limits.end):
                    checkup.failed = await with_endpoint(
                        checkup.failed, exc, entry.url, found.place
                    )
        if not isinstance(exc, ConfigError):
            _remember_failure(found)
    except CommandError as exc:
        checkup.failed = exc
    if checkup.failed is not None:
        checkup.failed = _showable(checkup, checkup.failed)
    return checkup


async def _prepare(
    checkup: ServerCheck,
    inputs: Mapping[str, str] | None,
    trust: Trust | None,
    deadline: float,
) -> MCPServerEntry:
    """Check the approval, resolve the variables, find the program, and return the entry."""
    found = checkup.found
    with checkup.step("approve") as say:
        (trust or Trust()).require(found)
        say("not needed" if found.level != "project" else "approved")
    with checkup.step("resolve") as say:
        try:
            async with _until(deadline):
                resolved = await resolve_in_thread(found, inputs=inputs, trust=trust)
        except TimeoutError:
            raise CommandError("The variables were not resolved in time", code=TIMEOUT) from None
        missing = checkup.missing = resolved.missing
        checkup.secrets = values_to_hide(resolved.entry)
        checkup.warnings += map(safe, resolved.warnings)
        checkup.warnings += [f"{name} is not set in the environment" for name in missing]
        text = f"not set: {', '.join(missing)}" if missing else "all values are set"
        for place, variable in resolved.replaced.items():
            text += f"; {place} is the value of the variable {variable}"
        say(text, is_odd=bool(missing))
    if isinstance(resolved.entry, MCPStdioServerConfig):
        with checkup.step("program") as say:
            say(_program(resolved.entry))
    return resolved.entry


def _until(deadline: float) -> asyncio.Timeout:
    return timeouts.timeout_at(None if deadline == math.inf else deadline)


async def _wait_for_start(stack: AsyncExitStack, starts: StartLimiter, deadline: float) -> None:
    try:
        async with _until(deadline):
            await stack.enter_async_context(starts.starting())
    except TimeoutError:
        raise CommandError(
            "The server was not started in time, because other servers were starting", code=TIMEOUT
        ) from None


async def _connect(
    entry: MCPServerEntry, config: MCPClientConfig, checkup: ServerCheck, end: float
) -> None:
    found, facts = checkup.found, checkup.facts
    began = time.monotonic()
    with checkup.step("connect") as say:
        login = authorizer_for(entry, name=found.name, renew_headers=headers_renewal(found))
        connecting = MCPClient.connect_entry(
            entry, config, http={"authorizer": login}, on_stderr=checkup.stderr.append
        )
        try:
            async with _until(end):
                client = await connecting
        except TimeoutError:
            limit = f"{config.timeout_seconds * 1000:.0f}ms"
            text = f"No connection within {limit}, and closing it took too long"
            raise CommandError(text, code=TIMEOUT) from None
        info = client.server.get("serverInfo") or {}
        name = f"{info.get('name') or 'unnamed server'} {info.get('version') or ''}"
        version = facts["protocolVersion"] = client.protocol_version
        facts["server"] = visible(name.strip())
        say(f"{facts['server']}, protocol {version}")
    # One limit applies to connecting and listing together.
    client.transport.timeout = max(config.timeout_seconds - (time.monotonic() - began), 0.1)
    tools: list[dict[str, Any]] = []
    try:
        if "tools" in (client.server.get("capabilities") or {}):
            with checkup.step("tools") as say:
                tools = await client.list_tools()
                facts["tools"] = len(tools)
                say(pluralize(len(tools), "tool"))
        MCPToolCache().set(found.name, found.entry, tools, version or "")
    finally:
        with suppress(TimeoutError):
            async with _until(end):
                await client.close()


def _remember_failure(found: FoundServer) -> None:
    """Store that a server did not start, unless its tools are known from an earlier run."""
    cache = MCPToolCache()
    if cache.get(found.name, found.entry) is None:
        cache.set(found.name, found.entry, None)


def _showable(checkup: ServerCheck, failed: CommandError) -> CommandError:
    """Return the failure with the last lines of stderr and with secrets masked."""
    details = failed.details or tuple(map(safe, checkup.stderr))
    hint = failed.hint
    if failed.code == TIMEOUT and checkup.shortened:
        alone = suggest("mcp", "test", operands=[checkup.found.name])
        hint = f"`--timeout SECONDS` gives all servers more time, {alone} this one"
    return CommandError(
        redact(failed.sentence), hint=hint, details=details[-_LAST_WORDS:], code=failed.code
    ).without(checkup.secrets)


def _program(entry: MCPStdioServerConfig) -> str:
    """Return the path of the program that the entry starts."""
    place = find_program(entry)
    if place is not None:
        return visible(place)
    path = entry.env.get("PATH") or os.environ.get("PATH") or ""
    by_name = not os.path.dirname(entry.command)
    raise CommandError(
        f"Program not found{' in the PATH' if by_name else ''}: {visible(entry.command)!r}",
        hint=safe(where_to_get(entry.command)),
        details=[f"PATH={visible(path)}"] if by_name else [],
        code=NO_CONNECTION,
    )
