"""Tests of the import order of packages, and of the modules that are loaded at start-up."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "fairlead"

# Lowest first. A layer imports only from lower layers, never from a higher one or from a sibling.
LAYERS = [
    {"errors", "lazy_names", "limits", "suggestions"},
    {"keyword_arguments"},
    {"wire"},
    {"redaction"},
    {"observe"},
    {"protocol"},
    {"interceptor"},
    {"store"},
    {"transport"},
    {"peer"},
    {"auth"},
    {"server", "client"},
    {"config"},
    {"upstream"},
    {"manager"},
    {"agents", "relay"},
    {"recording"},
    {"policy"},
    {"gateway"},
    {"dashboard"},  # planned; the gateway must not depend on it
    {"demo", "testing"},
    {"cli"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
PURE = {name for layer in LAYERS[:7] for name in layer}
IMPURE = {"asyncio", "socket", "subprocess", "threading", "ssl", "selectors", "uvloop"}

FILES = sorted(SOURCE.rglob("*.py"))


def layer_of(file: Path) -> str | None:
    """Return the layer of a file; None for `__init__` and `__main__` of the top level."""
    first = file.relative_to(SOURCE).parts[0].removesuffix(".py")
    return None if first in ("__init__", "__main__") else first


def imports_of(file: Path) -> list[tuple[int, str, int]]:
    """Return line, dotted name and level of every import in a file, including nested imports."""
    found = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.module is None:
                found += [(node.lineno, alias.name, node.level) for alias in node.names]
            else:
                found.append((node.lineno, node.module, node.level))
    return found


def target_layer(file: Path, name: str, level: int) -> str | None:
    """Return the layer that an import refers to, or None."""
    if level == 0:
        parts = name.split(".")
        return parts[1] if parts[0] == "fairlead" and len(parts) > 1 else None
    here = file.relative_to(SOURCE).parts[:-1]
    base = here[: len(here) - (level - 1)]
    return (*base, *name.split("."))[0]


def test_every_package_has_a_layer() -> None:
    found = {layer for file in FILES if (layer := layer_of(file)) is not None}
    assert found <= set(HEIGHT), found - set(HEIGHT)


@pytest.mark.covers("ARC-01")
@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_refer_to_lower_layers(file: Path) -> None:
    ours = layer_of(file)
    if ours is None:
        return
    for line, name, level in imports_of(file):
        theirs = target_layer(file, name, level)
        if theirs is None or theirs == ours or theirs not in HEIGHT:
            continue
        assert HEIGHT[theirs] < HEIGHT[ours], f"{file.name}:{line}: {ours} imports {theirs}"


def module_of(file: Path) -> str:
    """Return the dotted name of a file; `__init__` has the name of its package."""
    parts = ("fairlead", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def imported_modules(file: Path, modules: set[str]) -> set[str]:
    """Return the modules of Fairlead that a file imports, including for type checkers."""
    here = ("fairlead", *file.relative_to(SOURCE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            path = node.module.split(".") if node.module else []
            base = [*here[: len(here) - node.level + 1], *path] if node.level else path
            for alias in node.names:
                whole = ".".join((*base, alias.name))
                found.add(whole if whole in modules else ".".join(base))
    return found & modules


def reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Return all modules that a module imports, directly or indirectly."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = imports[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def test_imports_have_no_cycles() -> None:
    modules = {module_of(file) for file in FILES}
    imports = {module_of(file): imported_modules(file, modules) for file in FILES}
    below = {module: reachable(module, imports) for module in modules}
    circles = {
        tuple(sorted(other for other in below[module] if module in below[other]))
        for module in modules
        if module in below[module]
    }
    assert sorted(circles) == []


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_the_core_packages_do_no_input_or_output(file: Path) -> None:
    if layer_of(file) not in PURE:
        return
    for line, name, level in imports_of(file):
        if level == 0:
            assert name.split(".")[0] not in IMPURE, f"{file.name}:{line} imports {name}"


@pytest.mark.covers("ARC-02")
def test_the_wire_package_does_not_contain_method_names() -> None:
    for file in (SOURCE / "wire").glob("*.py"):
        text = file.read_text()
        for word in ("tools/", "resources/", "prompts/", "initialize", "notifications/"):
            assert word not in text, f"{file.name} speaks of {word}"


@pytest.mark.covers("ARC-03")
def test_only_the_protocol_cli_and_demo_packages_compare_version_strings() -> None:
    for file in FILES:
        if layer_of(file) in ("protocol", "cli", "demo", None):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Compare):
                for part in (node.left, *node.comparators):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        assert not part.value.startswith("202"), f"{file.name}:{node.lineno}"


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.covers("DEC-19")
def test_the_core_needs_only_msgspec_and_the_standard_library() -> None:
    loaded = loaded_by("import fairlead; from fairlead import MCPServer, MCPClient")
    # msgspec imports typing_extensions
    allowed = {"fairlead", "msgspec", "typing_extensions", "__main__"}
    third_party = loaded - set(sys.stdlib_module_names) - allowed
    # Start-up hooks of the environment (editable installs, coverage) are not part of Fairlead.
    ours = {name for name in third_party if not name.startswith(("_", "a1_", "cov", "sitecust"))}
    assert ours == set()


CALLS_WITHOUT_HTTP = """
import asyncio
import sys

import fairlead.config
import fairlead.protocol
import fairlead.wire
from fairlead import MCPClient, MCPServer
from fairlead.manager import MCPManager
from fairlead.recording.journal import Journal
from fairlead.recording.replay import TapeServer
from fairlead.recording.tape import TapeReader, TapeWriter

server = MCPServer("adder")


@server.tool()
def add(a: int, b: int) -> int:
    return a + b


async def call_all():
    async with await MCPClient.connect(server) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    async with await MCPClient.connect(sys.argv[1]) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    async with MCPManager() as manager:
        entry = {"command": sys.executable, "args": [sys.argv[1]]}
        await manager.connect_servers({"adder": entry})
        assert await manager.wait_for_connection("adder")


asyncio.run(call_all())
print(*sys.modules)
"""


@pytest.mark.covers("DEC-19")
def test_in_process_and_stdio_calls_import_no_library_for_http_or_authorization(
    tmp_path: Path,
) -> None:
    """Calls in process and over stdio, and connecting configured servers, load none of them."""
    program = tmp_path / "adder.py"
    program.write_text(
        "from fairlead import MCPServer\n"
        "server = MCPServer('adder')\n"
        "@server.tool()\n"
        "def add(a: int, b: int) -> int:\n"
        "    return a + b\n"
        "server.run()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", CALLS_WITHOUT_HTTP, str(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "fairlead" in loaded
    other = {"cryptography", "httptools", "joserfc", "jsonschema_rs", "uvicorn", "uvloop"}
    assert loaded & (other | {"websockets"}) == set()


def test_importing_a_server_loads_only_the_required_modules() -> None:
    """Each imported module adds about 0.2 ms to a server's start-up time."""
    program = """
import sys
before = set(sys.modules)
from fairlead import MCPServer
print(*set(sys.modules) - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = set(done.stdout.split())
    assert len([name for name in loaded if name.startswith("fairlead")]) <= 120, done.stderr
    needless = {
        *("random", "secrets", "hashlib", "ipaddress"),
        "fairlead.client",
        "fairlead.redaction.redact_text",
        "fairlead.server.context.elicitation_forms",
        "fairlead.transport.http.server.http_settings",
        "fairlead.auth",
    }
    assert loaded & needless == set()


def test_token_libraries_are_imported_on_first_use() -> None:
    """A server over HTTP, with or without authorization, loads neither JOSE nor a keyring."""
    plain = "from fairlead import MCPServer; MCPServer('s').create_http_app()"
    assert loaded_by(plain) & {"joserfc", "keyring", "cryptography"} == set()
    guarded = (
        "from fairlead import MCPServer; from fairlead.server import ServerAuth; "
        "auth = ServerAuth(issuer='https://a.example', public_url='https://b.example'); "
        "MCPServer('s', auth=auth).create_http_app()"
    )
    assert loaded_by(guarded) & {"joserfc", "keyring", "cryptography"} == set()
