"""What to do about a server that does not work: one sentence that somebody can act on."""

import os
import re
import shutil
from collections.abc import Sequence
from urllib.parse import urlsplit

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.found_server import FoundServer
from ...config.trust import NotApproved
from ...errors import ChannelClosed, ConfigError, ConnectFailed, FairleadError
from ...transport.stdio.child_process import child_environment
from .command_errors import FAILED, CommandError
from .connect_target import ConnectTarget
from .describe_failure import describe_failure, http_error
from .output import safe
from .suggested_commands import quoted, suggest, suggest_any

__all__ = ["INSTALL", "diagnose", "find_program", "where_to_get"]

# How programs are installed that servers are often started with.
_NODE = "install Node.js (https://nodejs.org), which brings node, npm and npx"
_UV = "install uv (https://docs.astral.sh/uv), which brings uv and uvx"
INSTALL = {
    **dict.fromkeys(("node", "npm", "npx"), _NODE),
    **dict.fromkeys(("uv", "uvx"), _UV),
    "docker": "install Docker (https://docs.docker.com/get-docker) and start it",
    "podman": "install Podman (https://podman.io)",
    "bun": "install Bun (https://bun.sh)",
    "bunx": "install Bun (https://bun.sh)",
    "deno": "install Deno (https://deno.com)",
    "pipx": "install pipx (https://pipx.pypa.io)",
}


def diagnose(exc: FairleadError, found: FoundServer, missing: Sequence[str] = ()) -> CommandError:
    """An expected failure of a configured server: what it is, and what to do."""
    failed = describe_failure(exc, _target(found.entry))
    hint = _remedy(exc, found) or failed.hint or _otherwise(failed, found)
    if missing and not isinstance(exc, NotApproved):
        unset = f"the entry uses what is not set in the environment: {', '.join(missing)}"
        hint = f"{unset}; {hint}" if hint else unset
    code = FAILED if isinstance(exc, ConfigError) else failed.code
    return CommandError(failed.sentence, hint=safe(hint), details=failed.details, code=code)


def _program_of(command: str) -> str:
    """The bare name of a program."""
    return os.path.basename(command).removesuffix(".exe").removesuffix(".cmd")


def find_program(entry: MCPStdioServerConfig) -> str | None:
    """Where the program is that an entry starts; None if it is not there."""
    if os.path.dirname(entry.command):
        place = os.path.join(entry.cwd or "", entry.command)
        return place if os.path.lexists(place) else None
    path = child_environment(entry.env, entry.inherit_env).get("PATH")
    return shutil.which(entry.command, path=path)


def where_to_get(command: str) -> str:
    """What to do about a program that is not there."""
    if command.startswith("~"):
        return "write the whole path as `command`: nobody replaces the ~"
    if os.path.dirname(command):
        return f"nothing is at {command}; correct `command` of the entry"
    known = INSTALL.get(_program_of(command))
    full = 'or write its full path as `command`, or set "PATH" in `env` of the entry'
    return f"{known}; {full}" if known else f"install {command}, {full}"


def _remedy(exc: FairleadError, found: FoundServer) -> str:
    name, entry = found.name, found.entry
    if isinstance(exc, NotApproved):
        return f"{suggest('mcp', 'approve', operands=[name])} shows what it would run, and asks you"
    if isinstance(exc, ConfigError):
        return _for_config(exc, found)
    if (answer := http_error(exc)) is not None:
        return _for_status(answer.status, found)
    if isinstance(exc, FairleadError) and isinstance(exc.__cause__, TimeoutError):
        return _for_timeout(entry)
    if not isinstance(exc, ConnectFailed | ChannelClosed):
        return ""
    if isinstance(entry, MCPStdioServerConfig):
        return _for_process(exc, entry)
    host = urlsplit(entry.url).netloc if "${" not in entry.url else "the host"
    return f"does the server run, and can {host or 'it'} be reached from here?"


def _otherwise(failed: CommandError, found: FoundServer) -> str:
    """Nothing is known but where to look."""
    if failed.details:
        return f"what it says is all there is to go by; its entry is {found.place}"
    return "the trouble is in the server: its own log may say more"


def _for_config(exc: ConfigError, found: FoundServer) -> str:
    if "has to be given first" in str(exc.args[0]):
        one = next(iter(found.needs_input), None)
        id = one.id if one is not None else "ID"
        about = f" ({one.description})" if one is not None and one.description else ""
        return f"give it with `--input {quoted(f'{id}=VALUE')}`{about}"
    return f"correct the entry: {found.place}"


def _for_status(status: int, found: FoundServer) -> str:
    entry = found.entry
    headers = {} if isinstance(entry, MCPStdioServerConfig) else entry.headers
    named = [lookup.variable for lookup in found.lookups if lookup.field == "headers"]
    used = re.findall(r"\$\{(?:env:)?(\w+)", " ".join(headers.values())) + named
    if status in (401, 403):
        if used:
            return f"it does not accept the token: look at {', '.join(dict.fromkeys(used))}"
        if any(key.lower() == "authorization" for key in headers):
            return f"it does not accept the token in `headers`: {found.place}"
        return (
            'it wants a token: add "headers": {"Authorization": "Bearer ${YOUR_TOKEN}"} to '
            f"{found.place}"
        )
    if status in (404, 405):
        return f"is that the path of its MCP endpoint? Mostly it is /mcp: {found.place}"
    if status >= 500:
        return "the trouble is at the server; try again later"
    return ""


def _for_timeout(entry: MCPServerEntry) -> str:
    slow = ""
    if isinstance(entry, MCPStdioServerConfig) and _program_of(entry.command) in INSTALL:
        slow = ", which it may need the first time, to download what it runs"
    return f'give it more time{slow}: --timeout, or "timeout" (milliseconds) in its entry'


def _for_process(exc: ConnectFailed | ChannelClosed, entry: MCPStdioServerConfig) -> str:
    text = str(exc)
    if "there is no program" in text:
        return where_to_get(entry.command)
    if "working directory" in text:
        return "correct `cwd` of the entry"
    if "may not be executed" in text:
        return (
            f"`{suggest_any('chmod', '+x', operands=[entry.command])}`, or name the program that "
            "runs it"
        )
    said = "\n".join(exc.stderr)
    module = re.search(r"No module named '?([\w.]+)", said) or re.search(
        r"Cannot find (?:module|package) '([^']+)'", said
    )
    if module:
        return f"it lacks {module[1]}: install it where {entry.command} looks for it"
    if "can't open file" in said and entry.cwd is None:
        return "it was started in this folder: write the whole path, or set `cwd` of the entry"
    if "docker daemon" in said.lower():
        return "start Docker: its daemon does not answer"
    if "EACCES" in said or "permission denied" in said.lower():
        return "it may not read or write something; its last words say what"
    return ""


def _target(entry: MCPServerEntry) -> ConnectTarget:
    if isinstance(entry, MCPStdioServerConfig):
        return ConnectTarget(command=(entry.command, *entry.args))
    return ConnectTarget(url=entry.url)
