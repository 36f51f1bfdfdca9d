"""Remedies for failures of configured servers: hints that tell the user what to do."""

import os
import re
import shutil
from collections.abc import Sequence
from urllib.parse import urlsplit

from ...client.server_entry import MCPServerEntry, MCPStdioServerConfig
from ...config.found_server import FoundServer
from ...config.trust import NotApproved
from ...config.variables.variable_syntax import MissingInput
from ...errors import (
    OUTPUT_HINT,
    ChannelClosed,
    ConfigError,
    ConnectFailed,
    FairleadError,
    HttpError,
    LoginRequired,
    RequestTimeout,
)
from ...transport.address_hint import address_hint
from ...transport.stdio.child_environment import child_environment
from ...transport.stdio.start_error import StartFailed, StartProblem
from .command_errors import FAILED, CommandError
from .connect_target import ConnectTarget
from .describe_failure import (
    describe_failure,
    endpoint_hint,
    http_error,
    missing_file,
    oauth_hint,
    scope_options,
)
from .output import safe
from .suggested_commands import quoted, suggest, suggest_any

__all__ = ["INSTALL", "diagnose", "find_program", "where_to_get"]

# Installation hints for programs that often start servers.
_NODE = "install Node.js (https://nodejs.org), which includes node, npm and npx"
_UV = "install uv (https://docs.astral.sh/uv), which includes uv and uvx"
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
    """Return the command error for a failure of a configured server, with a remedy."""
    failed = describe_failure(exc, _target(found.entry))
    hint = _remedy(exc, found) or failed.hint or _otherwise(failed, found)
    if missing and not isinstance(exc, NotApproved):
        unset = f"the entry uses variables that are not set: {', '.join(missing)}"
        hint = f"{unset}; {hint}" if hint else unset
    code = FAILED if isinstance(exc, ConfigError) else failed.code
    return CommandError(failed.sentence, hint=safe(hint), details=failed.details, code=code)


def _program_of(command: str) -> str:
    """Return a program's name without its folder and extension."""
    return os.path.basename(command).removesuffix(".exe").removesuffix(".cmd")


def find_program(entry: MCPStdioServerConfig) -> str | None:
    """Return the path of the program that an entry starts; None if the program does not exist."""
    if os.path.dirname(entry.command):
        place = os.path.join(entry.cwd or "", entry.command)
        return place if os.path.lexists(place) else None
    path = child_environment(entry.env, entry.inherit_env).get("PATH")
    return shutil.which(entry.command, path=path)


def where_to_get(command: str) -> str:
    """Return the hint for a missing program."""
    if command.startswith("~"):
        return "set `command` to the full path: ~ is not expanded"
    if os.path.dirname(command):
        return f"{command} does not exist: correct `command` of the entry"
    known = INSTALL.get(_program_of(command))
    full = 'or set `command` to its full path, or "PATH" in `env` of the entry'
    return f"{known}; {full}" if known else f"install {command}, {full}"


def _remedy(exc: FairleadError, found: FoundServer) -> str:
    name, entry = found.name, found.entry
    if isinstance(exc, NotApproved):
        return (
            f"{suggest('mcp', 'approve', operands=[name])} shows what the server would run and "
            "asks for approval"
        )
    if isinstance(exc, ConfigError):
        return _for_config(exc, found)
    if isinstance(exc, LoginRequired):
        if exc.endpoint:
            return f"correct its URL to {exc.endpoint}: {found.place}"
        login = suggest("login", *scope_options(exc), operands=[name])
        return f"{login} logs in to the server"
    if (answer := http_error(exc)) is not None:
        return _for_status(answer, found)
    if isinstance(exc, ConnectFailed) and exc.output:
        return OUTPUT_HINT
    if isinstance(exc, RequestTimeout) or isinstance(exc.__cause__, TimeoutError):
        return _for_timeout(entry)
    if not isinstance(exc, ConnectFailed | ChannelClosed):
        return ""
    if isinstance(entry, MCPStdioServerConfig):
        return _for_process(exc, entry)
    if hint := address_hint(exc, entry.url):
        return hint
    host = urlsplit(entry.url).netloc if "${" not in entry.url else "the host"
    return f"check that the server is running and that {host or 'it'} is reachable from here"


def _otherwise(failed: CommandError, found: FoundServer) -> str:
    """Return a general hint for a failure that has no specific remedy."""
    if failed.details:
        return f"see the output of the server above; its entry is {found.place}"
    return "the server failed: see its own log"


def _for_config(exc: ConfigError, found: FoundServer) -> str:
    if isinstance(exc, MissingInput):
        described = {one.id: one.description for one in found.needs_input}
        about = f" ({text})" if (text := described.get(exc.input_id)) else ""
        return f"pass it with `--input {quoted(f'{exc.input_id}=VALUE')}`{about}"
    return f"correct the entry: {found.place}"


def _for_status(answer: HttpError, found: FoundServer) -> str:
    entry, status = found.entry, answer.status
    headers = {} if isinstance(entry, MCPStdioServerConfig) else entry.headers
    named = [lookup.variable for lookup in found.lookups if lookup.field == "headers"]
    used = re.findall(r"\$\{(?:env:)?(\w+)", " ".join(headers.values())) + named
    if status in (401, 403):
        if used:
            return f"the server rejected the token: check {', '.join(dict.fromkeys(used))}"
        if any(key.lower() == "authorization" for key in headers):
            return f"the server rejected the token in `headers`: {found.place}"
        if not isinstance(entry, MCPStdioServerConfig) and (
            endpoint := endpoint_hint(answer, entry.url)
        ):
            return f"correct its URL to {endpoint}: {found.place}"
        if status == 401 and (why := oauth_hint(answer)):
            return f"{why}: run {suggest('login', operands=[found.name])}"
        return (
            'the server requires a token: add "headers": {"Authorization": "Bearer ${YOUR_TOKEN}"} '
            f"to {found.place}"
        )
    if status in (404, 405):
        return f"check the path of the MCP endpoint, usually /mcp: {found.place}"
    if status >= 500:
        return "the server has an internal problem; try again later"
    return ""


def _for_timeout(entry: MCPServerEntry) -> str:
    slow = ""
    if isinstance(entry, MCPStdioServerConfig) and _program_of(entry.command) in INSTALL:
        slow = " (the first start may download packages)"
    return f'increase the timeout{slow}: --timeout, or "timeout" (milliseconds) in the entry'


def _for_process(exc: ConnectFailed | ChannelClosed, entry: MCPStdioServerConfig) -> str:
    match exc.problem if isinstance(exc, StartFailed) else None:
        case StartProblem.MISSING_PROGRAM:
            return where_to_get(entry.command)
        case StartProblem.MISSING_INTERPRETER:
            return "install it, or set `command` to the program that runs the file"
        case StartProblem.MISSING_FOLDER:
            return "correct `cwd` of the entry"
        case StartProblem.NOT_EXECUTABLE:
            return (
                f"run `{suggest_any('chmod', '+x', operands=[entry.command])}`, or set `command` "
                "to the program that runs the file"
            )
    # Servers report these problems only as text on stderr.
    said = "\n".join(exc.stderr)
    if path := missing_file(exc.stderr, entry.cwd):
        return _for_missing_file(path, entry)
    # `env` in the first line of a script
    if program := re.search(r"\benv: ['‘]?([\w.+-]+)['’]?: No such file", said):
        return where_to_get(program[1])
    module = re.search(r"No module named '?([\w.]+)", said) or re.search(
        r"Cannot find (?:module|package) '([^']+)'", said
    )
    if module:
        return f"missing module {module[1]}: install it for {entry.command}"
    if "docker daemon" in said.lower():
        return "start Docker: its daemon does not respond"
    if "EACCES" in said or "permission denied" in said.lower():
        return "the server lacks a permission: see its output above"
    return ""


def _for_missing_file(path: str, entry: MCPStdioServerConfig) -> str:
    """Return the hint for a file that the server or its interpreter could not open."""
    if os.path.basename(path) not in map(os.path.basename, entry.args):
        return f"{path} does not exist: create it, or correct the path"
    hint = f"{path} does not exist: correct `args` of the entry"
    if entry.cwd is None and path not in entry.args:
        hint += "; use an absolute path, or set `cwd`: the server was started in this folder"
    return hint


def _target(entry: MCPServerEntry) -> ConnectTarget:
    if isinstance(entry, MCPStdioServerConfig):
        return ConnectTarget(command=(entry.command, *entry.args))
    return ConnectTarget(url=entry.url)
