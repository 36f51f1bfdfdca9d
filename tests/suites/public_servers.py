"""Compare published servers, raw and behind `fairlead proxy`, in both eras (`make public-servers`).

Each server is started with a dummy key if it requires one. The lists, one call, one resource and
one prompt are requested over stdio. The results through the proxy must be the same JSON text. In
the stateless era, a server that only supports the handshake is compared with its handshake
results, without the members that one of the eras does not have.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw
from suite_cache import CACHE as SUITES
from suite_cache import Unavailable

CACHE = SUITES.parent / "public-servers"
FAIRLEAD = Path(sys.executable).with_name("fairlead")
LIMIT = 60.0  # seconds for one response
PROBE = 10.0  # seconds for the response to `server/discover`, which some servers never send
ERAS = ("handshake", "stateless")
ADDED = {"resultType", "ttlMs", "cacheScope"}  # result members added by 2026-07-28
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


@dataclass(frozen=True)
class Server:
    """A published server and its command."""

    name: str
    package: str
    version: str
    program: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()  # additional packages, or other versions of dependencies
    call: tuple[str, dict[str, Any]] | None = None  # None: call the first tool without arguments


def _npm(package: str, version: str, program: str, *args: str, **options: Any) -> Server:
    return Server(f"npm:{package}", package, version, program, args, **options)


def _pypi(package: str, version: str, *args: str, program: str = "", **options: Any) -> Server:
    return Server(f"pypi:{package}", package, version, program or package, args, **options)


KEY = "0123456789abcdef0123456789abcdef"
URL = "https://example.invalid"
REFERENCE = "@modelcontextprotocol/server"
# `FOLDER` in arguments and variables is replaced by a new folder with a git repository.
SERVERS = (
    _npm(
        f"{REFERENCE}-everything", "2026.8.31", "mcp-server-everything",
        call=("get-sum", {"a": 2, "b": 40}),
    ),
    _npm(
        f"{REFERENCE}-filesystem", "2026.8.31", "mcp-server-filesystem", "FOLDER",
        call=("list_allowed_directories", {}),
    ),
    _npm(
        f"{REFERENCE}-memory", "2026.8.31", "mcp-server-memory",
        env={"MEMORY_FILE_PATH": "FOLDER/memory.jsonl"}, call=("read_graph", {}),
    ),
    _npm(
        f"{REFERENCE}-sequential-thinking", "2026.8.31", "mcp-server-sequential-thinking",
        call=(
            "sequentialthinking",
            {"thought": "Hm.", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False},
        ),
    ),
    _npm("@playwright/mcp", "0.0.83", "playwright-mcp", "--headless", call=("browser_tabs", {})),
    _npm("@upstash/context7-mcp", "4.1.1", "context7-mcp"),
    _npm(
        "@notionhq/notion-mcp-server", "2.5.2", "notion-mcp-server",
        env={"NOTION_TOKEN": f"ntn_{KEY}"},
    ),
    _npm("firecrawl-mcp", "3.26.0", "firecrawl-mcp", env={"FIRECRAWL_API_KEY": f"fc-{KEY}"}),
    _npm("chrome-devtools-mcp", "1.11.0", "chrome-devtools-mcp", "--headless", "--isolated"),
    _npm(
        "@brave/brave-search-mcp-server", "2.1.4", "brave-search-mcp-server",
        env={"BRAVE_API_KEY": KEY, "BRAVE_MCP_TRANSPORT": "stdio"},
    ),
    _npm("tavily-mcp", "0.2.22", "tavily-mcp", env={"TAVILY_API_KEY": f"tvly-{KEY}"}),
    _npm(
        f"{REFERENCE}-github", "2025.4.8", "mcp-server-github",
        env={"GITHUB_PERSONAL_ACCESS_TOKEN": KEY},
    ),
    _npm(
        f"{REFERENCE}-postgres", "0.6.2", "mcp-server-postgres", "postgresql://127.0.0.1:1/none",
    ),
    _npm("exa-mcp-server", "3.4.1", "exa-mcp-server", env={"EXA_API_KEY": KEY}),
    _npm(
        "@supabase/mcp-server-supabase", "0.13.0", "mcp-server-supabase",
        f"--access-token=sbp_{KEY}",
    ),
    _npm("@sentry/mcp-server", "0.39.0", "sentry-mcp", f"--access-token={KEY}"),
    _npm("@eslint/mcp", "0.3.13", "mcp"),
    _npm(
        "figma-developer-mcp", "0.13.2", "figma-developer-mcp",
        f"--figma-api-key={KEY}", "--stdio",
    ),
    _pypi(
        "mcp-server-time", "2026.10.19",
        call=(
            "convert_time",
            {"source_timezone": "Asia/Tokyo", "time": "09:30", "target_timezone": "Nowhere"},
        ),
    ),
    _pypi(
        "mcp-server-git", "2026.10.19", "--repository", "FOLDER",
        call=("git_status", {"repo_path": "FOLDER"}),
    ),
    _pypi("mcp-server-fetch", "2026.10.24"),
    _pypi("mcp-server-sqlite", "2025.4.25", "--db-path", "FOLDER/a.db", beside=("mcp==1.30.0",)),
    _pypi("markitdown-mcp", ""),
    _pypi("awslabs.aws-documentation-mcp-server", "1.2.3"),
    _pypi("duckduckgo-mcp-server", "0.7.0"),
    _pypi("excel-mcp-server", "2.2.2", "stdio"),
    _pypi(
        "mcp-server-calculator", "0.2.1", call=("calculate", {"expression": "6 * 7"}),
    ),
    _pypi("arxiv-mcp-server", "0.8.2", "--storage-path", "FOLDER"),
    _pypi(
        "mcp-atlassian", "0.23.1",
        env={
            "JIRA_URL": URL, "JIRA_USERNAME": "ada", "JIRA_API_TOKEN": KEY,
            "CONFLUENCE_URL": URL, "CONFLUENCE_USERNAME": "ada", "CONFLUENCE_API_TOKEN": KEY,
        },
    ),
)  # fmt: skip

# Accepted differences, by server and request; `*` matches any server.
EXPECTED: dict[tuple[str, str], str] = {}


# Installing


def program(server: Server) -> Path:
    """Install a server if necessary, and return its program.

    Raises:
        Unavailable: The server cannot be installed.
    """
    kind, _, name = server.name.partition(":")
    home = CACHE / kind / name.replace("/", "+")
    wanted = [f"{server.package}@{server.version}", *server.beside]
    done = home / "installed.json"  # written last, so that it marks a complete installation
    if not done.exists() or json.loads(done.read_text(encoding="utf-8")) != wanted:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        if kind == "npm":
            _install_npm(server, home)
        else:
            _install_pypi(server, home)
        done.write_text(json.dumps(wanted), encoding="utf-8")
    folder = home / ("node_modules/.bin" if kind == "npm" else "bin")
    if not (folder / server.program).exists():
        raise Unavailable(f"{server.package} has no program {server.program}")
    return folder / server.program


def _install_npm(server: Server, home: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("node and npm are not installed")
    (home / "package.json").write_text('{"private": true}', encoding="utf-8")
    # The scripts only build native programs, which servers do not need.
    options = ["--no-audit", "--no-fund", "--ignore-scripts"]
    _run([npm, "install", *options, f"{server.package}@{server.version}"], home)


def _install_pypi(server: Server, home: Path) -> None:
    _run([sys.executable, "-m", "venv", "--without-pip", str(home)], home)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home)]
    version = f"=={server.version}" if server.version else ""
    _run([*pip, "install", "--quiet", f"{server.package}{version}", *server.beside], home)


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=True)
    except subprocess.CalledProcessError as exc:
        raise Unavailable(exc.stderr.strip()[-300:]) from exc
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise Unavailable(str(exc)) from exc


# Requests


class _Message(msgspec.Struct):
    id: int | str | None = None
    result: Raw = Raw(b"")
    error: Raw = Raw(b"")


class Session:
    """A server on stdio, with plain JSON requests."""

    def __init__(self, process: asyncio.subprocess.Process, era: str) -> None:
        self._process = process
        self._era = era
        self._number = 0

    async def ask(self, method: str, limit: float = LIMIT, **params: Any) -> str:
        """Return the text of a result, or of an error object."""
        self._number += 1
        if self._era == "stateless":
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "comparison", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self._process.stdout is not None
        async with asyncio.timeout(limit):
            while line := await self._process.stdout.readline():
                try:
                    message = msgspec.json.decode(line, type=_Message)
                except msgspec.MsgspecError:
                    continue  # some servers print other text to stdout
                if message.id == self._number and (message.result or message.error):
                    return bytes(message.result or message.error).decode()
        raise EOFError(f"the server ended without answering {method}")

    async def initialize(self) -> str:
        answer = await self.ask(
            "initialize",
            protocolVersion="2025-11-25",
            capabilities={},
            clientInfo={"name": "comparison", "version": "1"},
        )
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")


@contextlib.asynccontextmanager
async def started(command: list[str], env: dict[str, str], era: str) -> AsyncIterator[Session]:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, **env},
        limit=1 << 26,
        start_new_session=True,
    )
    try:
        yield Session(process, era)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()


LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")


async def interview(command: list[str], env: dict[str, str], era: str, call: Any) -> dict[str, str]:
    """Send all requests to a server, and return each response as text."""
    answers: dict[str, str] = {}
    async with started(command, env, era) as session:
        if era == "handshake":
            answers["initialize"] = await session.initialize()
        for method in LISTS:
            answers[method] = await session.ask(method)
        tools = _items(answers["tools/list"], "tools")
        if call is None and tools:
            call = tools[0]["name"], {}
        if call is not None:
            name, arguments = call
            answers["tools/call"] = await session.ask("tools/call", name=name, arguments=arguments)
        for resource in _items(answers["resources/list"], "resources")[:1]:
            answers["resources/read"] = await session.ask("resources/read", uri=resource["uri"])
        for prompt in _items(answers["prompts/list"], "prompts")[:1]:
            given = {one["name"]: "x" for one in prompt.get("arguments") or ()}
            answers["prompts/get"] = await session.ask(
                "prompts/get", name=prompt["name"], arguments=given
            )
    return answers


async def is_stateless(command: list[str], env: dict[str, str]) -> bool:
    """Return True if a server supports 2026-07-28 itself."""
    async with started(command, env, "stateless") as session:
        try:
            answer = json.loads(await session.ask("server/discover", PROBE))
        except (TimeoutError, EOFError):
            return False
        return "supportedVersions" in answer


def _items(answer: str, member: str) -> list[dict[str, Any]]:
    items = json.loads(answer).get(member, [])
    return items if isinstance(items, list) else []


# Comparison


def differences(raw: dict[str, str], relayed: dict[str, str], *, across: bool) -> list[str]:
    """Return requests with differing responses; `across` is True if `raw` is of the other era."""
    if not across:
        return [what for what in raw if raw[what] != relayed.get(what)]
    raw = {what: text for what, text in raw.items() if what != "initialize"}
    return [what for what in raw if _common(raw[what]) != _common(relayed.get(what, "{}"))]


def _common(answer: str) -> Any:
    """Return a response without the members that only one of the eras has."""
    members = msgspec.json.decode(answer, type=dict[str, Raw])
    meta = members.pop("_meta", None)
    if meta is not None:
        inside = msgspec.json.decode(meta, type=dict[str, Raw])
        inside.pop(SERVER_INFO, None)
        if inside:
            members["_meta"] = Raw(msgspec.json.encode(inside))
    tools = members.pop("tools", None)
    common: dict[str, Any] = {k: bytes(v) for k, v in members.items() if k not in ADDED}
    if tools is not None:
        listed = msgspec.json.decode(tools, type=list[dict[str, Raw]])
        common["tools"] = [
            [(k, bytes(v)) for k, v in tool.items() if k != "execution"] for tool in listed
        ]
    return common


def expected(server: Server, era: str, what: str) -> str | None:
    """Return the reason why a response is expected to differ, or None."""
    for name in (server.name, "*"):
        for when in (f"{era} {what}", what):
            if (name, when) in EXPECTED:
                return EXPECTED[name, when]
    return None


async def compare(server: Server, command: list[str], env: dict[str, str]) -> list[dict[str, Any]]:
    """Compare a server in both eras, and return one row of results for each era."""
    call = server.call
    through = [str(FAIRLEAD), "proxy", "--", *command]
    handshake = await interview(command, env, "handshake", call)
    native = await is_stateless(command, env)
    rows = []
    for era in ERAS:
        across = era == "stateless" and not native
        raw = handshake
        if era == "stateless" and native:
            raw = await interview(command, env, era, call)
        relayed = await interview(through, env, era, call)
        different = differences(raw, relayed, across=across)
        unsteady: list[str] = []
        if different:  # check whether the responses of the server itself vary
            again = await interview(command, env, "handshake" if across else era, call)
            unsteady = [what for what in different if raw.get(what) != again.get(what)]
            different = [what for what in different if what not in unsteady]
        rows.append(
            {
                "server": server.name,
                "era": era,
                "native": native or era == "handshake",
                "same": len(raw) - len(different) - len(unsteady),
                "explained": {w: r for w in different if (r := expected(server, era, w))},
                "different": [what for what in different if expected(server, era, what) is None],
                "unsteady": unsteady,
                "texts": {what: [raw.get(what), relayed.get(what)] for what in different},
            }
        )
    return rows


@contextlib.contextmanager
def folder() -> Iterator[str]:
    """Create a folder with a git repository."""
    with tempfile.TemporaryDirectory(prefix="public-server-") as path:
        git = shutil.which("git")
        if git is not None:
            subprocess.run([git, "init", "--quiet", path], check=True)
        yield path


def examine(server: Server) -> list[dict[str, Any]]:
    try:
        path = program(server)
    except Unavailable as exc:
        return [{"server": server.name, "era": "", "skipped": str(exc)}]
    with folder() as home:
        command = [str(path), *(one.replace("FOLDER", home) for one in server.args)]
        env = {key: value.replace("FOLDER", home) for key, value in server.env.items()}
        call = json.loads(json.dumps(server.call).replace("FOLDER", home))
        try:
            return asyncio.run(compare(replace(server, call=call), command, env))
        except (TimeoutError, EOFError, OSError) as exc:
            why = str(exc) or f"no response within {LIMIT:.0f} s"
            return [{"server": server.name, "era": "", "failed": why}]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="test only servers whose name contains TEXT",
    )
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the counts to FILE")
    options = parser.parse_args(argv)
    began = time.monotonic()
    chosen = [s for s in SERVERS if not options.only or any(t in s.name for t in options.only)]
    rows: list[dict[str, Any]] = []
    print(f"{'server':<45} {'era':<10} {'native':<6} same explained different unsteady")
    for server in chosen:
        for row in examine(server):
            rows.append(row)
            print(_line(row), flush=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "latest.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.record:
        options.record.write_text(json.dumps([*map(_counts, rows)], indent=1) + "\n")
    failed = [row for row in rows if row.get("different") or "failed" in row]
    skipped = [row for row in rows if "skipped" in row]
    compared = len(chosen) - len(skipped)
    print(
        f"{'FAILED' if failed else 'ok'}: {compared} servers compared, {len(skipped)} skipped, "
        f"in {time.monotonic() - began:.0f} s; details: {CACHE / 'latest.json'}"
    )
    if skipped and os.environ.get("CI") == "true":
        return 1
    return 1 if failed else 0


def _counts(row: dict[str, Any]) -> dict[str, Any]:
    """Return the counts of a row for the evidence page."""
    facts = {"server": row["server"], "era": row["era"]}
    if "skipped" in row or "failed" in row:
        return {**facts, "skipped" if "skipped" in row else "failed": True}
    return {
        **facts,
        "same": row["same"],
        "explained": len(row["explained"]),
        "different": len(row["different"]),
    }


def _line(row: dict[str, Any]) -> str:
    if "skipped" in row or "failed" in row:
        what = "skipped" if "skipped" in row else "failed"
        return f"{row['server']:<45} {what}: {' '.join(row[what].split())[-200:]}"
    return (
        f"{row['server']:<45} {row['era']:<10} {'yes' if row['native'] else 'no':<6} "
        f"{row['same']:>4} {len(row['explained']):>9} {', '.join(row['different']) or '-':>9} "
        f"{', '.join(row['unsteady']) or '-':>8}"
    )


if __name__ == "__main__":
    sys.exit(main())
