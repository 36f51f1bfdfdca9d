"""A step-by-step check of one configured server."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...client import MCPClient, MCPClientConfig
from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.found_server import FoundServer
from ...config.trust import NotApproved, Trust
from ...config.variables.resolve import resolve_in_thread
from ...errors import FairleadError
from ...redaction.redact_text import redact
from ..framework.command_errors import NO_CONNECTION, CommandError
from ..framework.output import pluralize, safe, visible
from ..framework.remedies import diagnose, find_program, where_to_get
from ..framework.server_lookup import values_to_hide

__all__ = ["CheckStep", "ServerCheck", "check_server"]

LIMIT = 30.0  # seconds, unless the entry or the caller sets a limit
_LAST_WORDS = 10  # lines of stderr


@dataclass(frozen=True)
class CheckStep:
    """The result of one step of a check."""

    name: str
    ok: bool
    seconds: float
    text: str = ""


@dataclass
class ServerCheck:
    """The result of a check; `failed` is the reason why it stopped early."""

    found: FoundServer
    steps: list[CheckStep] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failed: CommandError | None = None
    approved: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    tell: Callable[[CheckStep], None] = lambda step: None  # called after each step

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Record the duration and outcome of a step, including one that raises an exception."""
        began = time.monotonic()
        said: list[str] = []
        ok = False
        try:
            yield said.append
            ok = True
        finally:
            step = CheckStep(name, ok, time.monotonic() - began, safe("".join(said)))
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
                {"step": s.name, "ok": s.ok, "ms": round(s.seconds * 1000, 1), "text": s.text}
                for s in self.steps
            ],
            "warnings": self.warnings,
        }
        if failed is not None:
            about |= {"error": failed.sentence, "hint": failed.hint}
            about["stderr"] = list(failed.details)
        return about


async def check_server(
    found: FoundServer,
    *,
    inputs: Mapping[str, str] | None = None,
    timeout: float | None = None,
    trust: Trust | None = None,
    tell: Callable[[CheckStep], None] = lambda step: None,
) -> ServerCheck:
    """Check approval, variables and program, connect, and list the tools, up to the first failure.

    The server is stopped at the end. `tell` is called after each step.
    """
    checkup = ServerCheck(found, tell=tell)
    words: deque[str] = deque(maxlen=_LAST_WORDS)
    secrets: list[str] = []
    missing: tuple[str, ...] = ()
    try:
        with checkup.step("approve") as say:
            (trust or Trust()).require(found)
            say("not needed" if found.level != "project" else "approved")
        with checkup.step("resolve") as say:
            resolved = await resolve_in_thread(found, inputs=inputs, trust=trust)
            missing, entry = resolved.missing, resolved.entry
            secrets = values_to_hide(entry)
            checkup.warnings += map(safe, resolved.warnings)
            checkup.warnings += [f"{name} is not set in the environment" for name in missing]
            say("all values are set" if not missing else f"not set: {', '.join(missing)}")
        if isinstance(entry, MCPStdioServerConfig):
            with checkup.step("program") as say:
                say(_program(entry))
        await _connect(entry, found, timeout, words, checkup)
    except NotApproved as exc:
        checkup.approved = False
        checkup.failed = diagnose(exc, found)
    except FairleadError as exc:
        checkup.failed = diagnose(exc, found, missing)
    except CommandError as exc:
        checkup.failed = exc
    if checkup.failed is not None:
        checkup.failed = _showable(checkup.failed, words, secrets)
    return checkup


async def _connect(
    entry: MCPServerEntry,
    found: FoundServer,
    timeout: float | None,
    words: deque[str],
    checkup: ServerCheck,
) -> None:
    said = found.startup_timeout or entry.timeout
    limit = timeout or (said / 1000 if said else LIMIT)
    config = MCPClientConfig(timeout_seconds=limit)
    facts = checkup.facts
    with checkup.step("connect") as say:
        client = await MCPClient.connect_entry(entry, config, on_stderr=words.append)
        info = client.server.get("serverInfo") or {}
        name = f"{info.get('name') or 'unnamed server'} {info.get('version') or ''}"
        facts["protocolVersion"] = client.protocol_version
        facts["server"] = visible(name.strip())
        say(f"{facts['server']}, protocol {client.protocol_version}")
    try:
        if "tools" not in (client.server.get("capabilities") or {}):
            return
        with checkup.step("tools") as say:
            tools = await client.list_tools()
            facts["tools"] = len(tools)
            say(pluralize(len(tools), "tool"))
    finally:
        await client.close()


def _showable(failed: CommandError, words: deque[str], secrets: list[str]) -> CommandError:
    """Add the last lines of stderr, and remove secrets."""
    details = failed.details or tuple(map(safe, words))
    return CommandError(
        redact(failed.sentence),
        hint=failed.hint,
        details=details[-_LAST_WORDS:],
        code=failed.code,
    ).without(secrets)


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
