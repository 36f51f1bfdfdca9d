"""`fairlead connect-hints`: how other programs connect to a server at a URL.

Each program has a row in a table. Values are quoted for a shell or encoded for a link, because
names and URLs may come from project files. Tokens are never shown, only placeholders.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ...client.server_entry import MCPHttpServerConfig, MCPServerEntry, MCPStdioServerConfig
from ...config.edit.export_entry import export
from ...config.hosts.simple_hosts import claude_desktop_files
from ...config.paths import local_host_paths
from ...observe.safe_display import json_text
from ..framework.command_errors import UsageError
from ..framework.output import as_json, safe, visible, write
from ..framework.parser import JSON, Parser, flag, option
from ..framework.suggested_commands import quoted, started_command, suggest_any

__all__ = ["connect_hints", "run"]

_DEFAULT_URL = "http://127.0.0.1:8765/mcp"
_VARIABLE = "FAIRLEAD_TOKEN"
_BEARER = f"Bearer ${{{_VARIABLE}}}"


@dataclass(frozen=True)
class Endpoint:
    """A URL that programs connect to, and the server name that they display."""

    url: str
    name: str = "fairlead"
    has_token: bool = False

    @property
    def remote(self) -> MCPServerEntry:
        """Configuration entry for a program that supports HTTP."""
        headers = {"Authorization": _BEARER} if self.has_token else {}
        return MCPHttpServerConfig(url=self.url, headers=headers)

    @property
    def bridge(self) -> MCPStdioServerConfig:
        """Configuration entry for a program that supports only stdio:
        it starts a proxy for the URL.
        """
        program, *args = started_command(absolute=True)
        # A placeholder instead of a variable, because Claude Desktop does not expand variables.
        env = {_VARIABLE: "TOKEN"} if self.has_token else {}
        return MCPStdioServerConfig(command=program, args=[*args, "proxy", self.url], env=env)

    @property
    def fields(self) -> dict[str, Any]:
        """The members of an entry in the format that most programs use."""
        fields: dict[str, Any] = {"url": self.url}
        return {**fields, "headers": {"Authorization": _BEARER}} if self.has_token else fields


def connect_hints(
    url: str, *, has_token: bool, name: str = "fairlead", all_hosts: bool = False
) -> list[tuple[str, str]]:
    """Return pairs: a program, and the command, link or entry that connects it.

    Without `all_hosts`, only the most common programs are included.
    """
    endpoint = Endpoint(url, name, has_token)
    tools = suggest_any(*started_command(), "tools", url)
    fairlead = ("Fairlead", f"{_VARIABLE}=TOKEN {tools}" if has_token else tools)
    if not url.startswith("http"):
        return [fairlead]
    rows = _HOSTS if all_hosts else {title: _HOSTS[title] for title in _COMMON}
    return [*((title, make(endpoint)) for title, make in rows.items()), fairlead]


def run(argv: Sequence[str]) -> int:
    parser = Parser(
        "connect-hints",
        "Show how Claude Code, Cursor, VS Code and other programs connect to a gateway or server "
        "that runs at a URL: a command, a link, or an entry for their configuration file.",
        option("url", metavar="URL", nargs="?", default=_DEFAULT_URL, help="default: %(default)s"),
        option("--name", default="fairlead", help="the name of the server in these programs"),
        flag("--token", help="the server requires a token"),
        JSON,
        examples="  fairlead connect-hints\n"
        "  fairlead connect-hints http://127.0.0.1:8080/mcp --name notes --token",
    )
    options, unknown = parser.parse_known_args(argv)
    is_url = options.url.startswith(("http://", "https://"))
    if options.token and (unknown or not is_url) and not any(x.startswith("-") for x in unknown):
        # In other commands, `--token` takes the token, which an error must not show.
        hint = f"the output has a placeholder for the token: `{parser.prog} --token URL`"
        raise UsageError("--token takes no value here", hint=hint)
    if unknown:
        parser.error(f"unrecognized arguments: {visible(' '.join(unknown))}")
    if not is_url:
        raise UsageError(f"Invalid URL {visible(options.url)!r}: expected http:// or https://")
    hints = connect_hints(options.url, has_token=options.token, name=options.name, all_hosts=True)
    if as_json(options, dict(hints)):
        return 0
    for title, text in hints:
        write(f"{title}:")
        write("".join(f"  {safe(line)}\n" for line in text.splitlines()))
    return 0


# Programs


def _claude_code(to: Endpoint) -> str:
    words = ["claude", "mcp", "add", "--scope", "user", "--transport", "http"]
    header = ["--header", f"Authorization: {_BEARER}"] if to.has_token else []
    # `--header` takes several values, so it must be the last option.
    return suggest_any(*words, *_operands(to.name, to.url), *header)


def _claude_desktop(to: Endpoint) -> str:
    """Return the entry, after the paths of the file on this machine, where the bridge runs."""
    files = " or\n".join(claude_desktop_files(local_host_paths()))
    return f"{files}:\n{_line(to.bridge, 'claude-desktop', to.name)}"


def _gemini(to: Endpoint) -> str:
    words = ["gemini", "mcp", "add", "--transport", "http"]
    header = ["--header", f"Authorization: {_BEARER}"] if to.has_token else []
    return suggest_any(*words, *header, *_operands(to.name, to.url))


def _operands(*words: str) -> list[str]:
    """Return the operands, preceded by `--` if one of them looks like an option."""
    return ["--", *words] if any(word.startswith("-") for word in words) else list(words)


def _vscode(to: Endpoint) -> str:
    [fields] = json.loads(export(to.remote, "vscode"))["servers"].values()
    text = json.dumps({"name": to.name, **fields})
    encoded = quote(text, safe="")
    link = f"vscode:mcp/install?{encoded}"
    page = f"https://vscode.dev/redirect?url={quote(link, safe='')}"
    return "\n".join(
        [
            f"code --add-mcp {quoted(text)}",
            link,
            f"vscode-insiders:mcp/install?{encoded}",
            # Pages such as a README can only link to web addresses.
            f"for a README: [Install in VS Code]({page})",
            f"for one project: .vscode/mcp.json: {_line(to.remote, 'vscode', to.name)}",
        ]
    )


def _cursor(to: Endpoint) -> str:
    query = urlencode({"name": to.name, "config": _base64(to.fields)})
    link = f"cursor://anysphere.cursor-deeplink/mcp/install?{query}"
    return link if not to.has_token else f".cursor/mcp.json: {_line(to.remote, 'cursor', to.name)}"


def _lm_studio(to: Endpoint) -> str:
    if to.has_token:
        return f"mcp.json: {_entry(to)}"
    return f"lmstudio://add_mcp?{urlencode({'name': to.name, 'config': _base64(to.fields)})}"


def _goose(to: Endpoint) -> str:
    if to.has_token:  # a link cannot contain environment variables
        return f"~/.config/goose/config.yaml:\n{export(to.bridge, 'goose', name=to.name)}"
    facts = [("cmd", to.bridge.command), *(("arg", arg) for arg in to.bridge.args)]
    facts += [("id", to.name), ("name", to.name), ("description", f"MCP server at {to.url}")]
    return f"goose://extension?{urlencode(facts, quote_via=quote)}"


def _public(to: Endpoint) -> str:
    """Describe the requirements of services that connect from the internet."""
    need = "needs a public https URL with OAuth; add it as a custom connector in the settings"
    return need if to.url.startswith("https:") and not _is_local(to.url) else f"{need}. {_NOT_HERE}"


_NOT_HERE = "This URL is reachable only from here, or is not https"


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost" or "." not in host


def _in_file(path: str, host: str) -> Callable[[Endpoint], str]:
    """Return the hint for a program whose file format `fairlead mcp export` supports."""
    return lambda to: f"{path}: {_line(to.remote, host, to.name)}"


def _line(entry: MCPServerEntry, host: str, name: str) -> str:
    return json_text(json.loads(export(entry, host, name=name)))


def _entry(to: Endpoint, key: str = "mcpServers", **more: str) -> str:
    return json_text({key: {to.name: {**more, **to.fields}}})


def _base64(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


_HOSTS: dict[str, Callable[[Endpoint], str]] = {
    "Claude Code": _claude_code,
    "Claude Desktop": _claude_desktop,
    "Cursor": _cursor,
    "VS Code": _vscode,
    "Gemini CLI": _gemini,
    "Codex": lambda to: f"~/.codex/config.toml:\n{export(to.remote, 'codex', name=to.name)}",
    "Goose": _goose,
    "LM Studio": _lm_studio,
    "ChatGPT": _public,
    "claude.ai": _public,
    "opencode": _in_file("opencode.json", "opencode"),
    "Windsurf": _in_file("~/.codeium/windsurf/mcp_config.json", "windsurf"),
    "Zed": _in_file("settings.json", "zed"),
    "Kiro": lambda to: f".kiro/settings/mcp.json: {_entry(to)}",
    "Amp": lambda to: f"settings.json: {_entry(to, 'amp.mcpServers')}",
    "Crush": lambda to: f"crush.json: {_entry(to, 'mcp', type='http')}",
    "Continue": lambda to: f".continue/mcpServers/{_FILE}: {_entry(to, type='streamable-http')}",
}
_FILE = "fairlead.json"
_COMMON = ("Claude Code", "VS Code")
