"""Approvals cover everything in a project that affects the commands it runs."""

import copy
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.client.server_entry import MCPServerEntry, MCPStdioServerConfig
from fairlead.config.configured_servers import configured_servers
from fairlead.config.discovery import DiscoveredServers, load_all_mcp_configs
from fairlead.config.found_server import FoundServer
from fairlead.config.hosts import HOSTS, Host
from fairlead.config.trust import NotApproved, Trust
from fairlead.config.variables.resolve import resolve
from fairlead.errors import ConfigError
from fairlead.manager.config_watch import snapshot_reader
from tests.support.cli_user import Person, person
from tests.support.examples import examples
from tests.support.project_files import project_files, put, servers_in, written

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

FILES = list(project_files())
NAMED = [f"{host.id}:{path}" for host, path in FILES]
ENV = {"HOME": "/home/ada", "TOKEN": "t", "SET": "set", "PATH": os.environ["PATH"]}

STDIO = {
    "command": "./bin/run",
    "args": [
        "${input:where}",
        "${SET}",
        "${UNSET:-usual}",
        "{file:token.txt}",
        "${file:token.txt}",
    ],
    "env": {"A": "${env:SET}", "B": "$TOKEN", "C": "{env:SET}", "b": "plain"},
    "cwd": "sub",
    "envFile": ".env",
}
REMOTE = {
    "url": "https://x.example/${input:where}/${SET}",
    "headers": {"A": "Bearer {file:token.txt}", "a": "${env:TOKEN}", "K": "${UNSET:-k}"},
}
INPUTS = [
    {"id": "where", "type": "promptString", "default": "here"},
    {"id": "other", "type": "promptString", "default": "there"},
]


def document_of(host: Host) -> dict[str, Any]:
    stdio, remote = copy.deepcopy(STDIO), copy.deepcopy(REMOTE)
    if host.id in ("opencode", "kilo"):
        stdio |= {"type": "local", "command": [stdio["command"], *stdio.pop("args")]}
        remote["type"] = "remote"
    return {**servers_in(host, {"one": stdio, "two": remote}), "inputs": copy.deepcopy(INPUTS)}


def lay_out(root: Path, host: Host, path: str) -> dict[str, Any]:
    """Write a project with a host's file and every file that its entries refer to."""
    document = document_of(host)
    put(root, path, written(path, document))
    for folder in {Path(), Path(path).parent}:
        put(root, f"{folder}/token.txt", "secret-token")
        put(root, f"{folder}/.env", "FROM_FILE=1\nB=from file\n")
    return document


def servers_of(root: Path, host: Host) -> dict[str, FoundServer]:
    loaded = load_all_mcp_configs(root, hosts=[host], home="/home/ada", env=ENV, platform="linux")
    return loaded.found


def resolved(found: FoundServer, trust: Trust) -> MCPServerEntry | str:
    try:
        return resolve(found, ENV, trust=trust).entry
    except NotApproved:
        return "not approved"
    except ConfigError:
        return "refused"


def approve_all(root: Path, host: Host) -> tuple[Trust, dict[str, MCPServerEntry | str]]:
    trust = Trust(root / "data" / "approvals.json")
    found = servers_of(root, host)
    for one in found.values():
        assert resolved(one, trust) == "not approved"
        trust.approve(one)
    return trust, {name: resolved(one, trust) for name, one in found.items()}


# Arbitrary changes

TEXTS = st.sampled_from(
    [
        "sh",
        "-c",
        "./evil",
        "${input:other}",
        "${input:where}",
        "${SET}",
        "${UNSET:-evil}",
        "{file:other.txt}",
        ".env2",
        "https://evil.example",
        "http",
        "stdio",
        "local",
        "remote",
        "!id",
        "$TOKEN",
        "${workspaceFolder}",
        "~",
        "..",
        "where",
        "other",
        "here",
    ]
)
VALUES = TEXTS | st.none() | st.booleans() | st.integers(-1, 9) | st.text(max_size=3)
KEYS = st.sampled_from(
    [
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "type",
        "headers",
        "envFile",
        "headersHelper",
        "default",
        "id",
        "timeout",
        "enabled",
        "cmd",
        "httpUrl",
        "serverUrl",
        "transport",
        "environment",
        "envs",
        "http_headers",
        "apiKey",
        "requestOptions",
        "env_vars",
        "inheritEnv",
        "A",
        "a",
        "B",
        "where",
    ]
)
MORE = VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(KEYS, VALUES, max_size=2)


def places_in(value: Any) -> list[Any]:
    """Return every map and list in a value, itself included."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    own = [value] if isinstance(value, dict | list) else []
    return own + [place for item in inside for place in places_in(item)]


def change(draw: Callable[[Any], Any], document: dict[str, Any]) -> None:
    """Make one change to a document: a value, a key, the order, or an added item."""
    place = draw(st.sampled_from(places_in(document)))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    how = draw(st.sampled_from(["set", "remove", "add", "turn", "repeat", "nest"]))
    if how == "add" or not keys:
        if isinstance(place, dict):
            place[draw(KEYS)] = draw(MORE)
        else:
            place.insert(draw(st.integers(0, len(place))), draw(MORE))
        return
    key = draw(st.sampled_from(keys))
    if how == "set":
        place[key] = draw(MORE)
    elif how == "remove":
        del place[key]
    elif how == "nest":
        place[key] = {"value": place[key]} if draw(st.booleans()) else [place[key]]
    elif how == "turn" and isinstance(place, dict):
        items = list(place.items())[::-1]
        place.clear()
        place.update(items)
    elif how == "turn":
        place.reverse()
    elif isinstance(place, dict):
        place[str(key).swapcase()] = copy.deepcopy(place[key])
    else:
        place.append(copy.deepcopy(place[key]))


CONTENTS = st.sampled_from(
    ["", "FROM_FILE=2\n", "LD_PRELOAD=/evil.so\n", "B=from file\nFROM_FILE=1\n", "token", None]
)


@settings(max_examples=examples(30))
@pytest.mark.parametrize(("host", "path"), FILES, ids=NAMED)
@given(data=st.data())
def test_a_changed_entry_stays_approved_only_if_its_resolved_values_are_unchanged(
    host: Host, path: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        document = lay_out(root, host, path)
        trust, before = approve_all(root, host)
        assert before
        assert "not approved" not in before.values()
        for _ in range(data.draw(st.integers(0, 2))):
            change(data.draw, document)
        put(root, path, written(path, document))
        for name in data.draw(st.lists(st.sampled_from([".env", "token.txt", "other.txt"]))):
            content = data.draw(CONTENTS)
            for place in {root, (root / path).parent}:
                if content is None:
                    (place / name).unlink(missing_ok=True)
                else:
                    put(place, name, content)
        for name, one in servers_of(root, host).items():
            now = resolved(one, trust)
            assert now in ("not approved", "refused") or now == before[name]


@settings(max_examples=examples(30))
@pytest.mark.parametrize(("host", "path"), FILES, ids=NAMED)
@given(data=st.data())
def test_a_changed_file_stays_approved_only_if_its_resolved_values_are_unchanged(
    host: Host, path: str, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(root, host, path)
        trust, before = approve_all(root, host)
        text = (root / path).read_text()
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.integers(0, 3))
        new = data.draw(
            st.sampled_from(
                ["", " ", "x", "\n", '"', ",", "}", "#", "// c\n", '"command": "evil", ', "1", "\t"]
            )
        )
        put(root, path, text[:at] + new + text[until:])
        for name, one in servers_of(root, host).items():
            now = resolved(one, trust)
            assert now in ("not approved", "refused") or now == before[name]


# Inputs and files


def vscode(root: Path, entry: dict[str, Any], **more: Any) -> FoundServer:
    put(root, ".vscode/mcp.json", json.dumps({"servers": {"s": entry}, **more}))
    return servers_of(root, next(host for host in HOSTS if host.id == "vscode"))["s"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([{"id": "a", "default": "x"}], [{"id": "a", "default": "evil"}]),
        ([{"id": "a", "default": "x"}], [{"id": "a", "default": "x"}, {"id": "a", "default": "y"}]),
        ([{"id": "a"}], [{"id": "a", "default": "evil"}]),
        (
            [{"id": "a", "default": "${input:b}"}],
            [{"id": "a", "default": "${input:b}"}, {"id": "b"}],
        ),
        ([{"id": "a", "default": "x"}], [{"id": "a", "default": "x", "password": True}]),
        ([{"id": "a", "default": "x"}], [{"id": "a", "default": "x", "type": "command"}]),
        ([{"id": "a", "default": "x"}], []),
    ],
)
def test_a_changed_input_requires_a_new_approval(
    tmp_path: Path, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    trust = Trust(tmp_path / "approvals.json")
    entry = {"command": "sh", "args": ["-c", "${input:a}"]}
    trust.approve(vscode(tmp_path, entry, inputs=before))
    assert trust.approval(vscode(tmp_path, entry, inputs=before)) == "approved"
    assert trust.approval(vscode(tmp_path, entry, inputs=after)) == "changed"


def test_changed_inputs_that_an_entry_does_not_use_require_no_new_approval(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "approvals.json")
    entry = {"command": "sh", "args": ["-c", "${input:a}"]}
    trust.approve(vscode(tmp_path, entry, inputs=[{"id": "a", "default": "x"}]))
    inputs = [{"id": "b", "default": "y"}, {"id": "a", "default": "x"}]
    assert trust.trusts(vscode(tmp_path, entry, inputs=inputs))


def test_changed_user_variables_and_inputs_require_no_new_approval(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "approvals.json")
    entry = {"command": "${env:SET}", "args": ["${input:a}"]}
    found = vscode(tmp_path, entry, inputs=[{"id": "a", "default": "x"}])
    trust.approve(found)
    made = resolve(found, {"SET": "another"}, trust=trust, inputs={"a": "answer"}).entry
    assert isinstance(made, MCPStdioServerConfig)
    assert (made.command, made.args) == ("another", ["answer"])


def test_an_approval_covers_an_env_file_as_it_was_read_and_not_its_later_content(
    tmp_path: Path,
) -> None:
    trust = Trust(tmp_path / "approvals.json")
    put(tmp_path, ".env", "A=approved")
    found = vscode(tmp_path, {"command": "x", "envFile": "${workspaceFolder}/.env"})
    trust.approve(found)
    put(tmp_path, ".env", "A=evil")
    made = resolve(found, ENV, trust=trust).entry
    assert isinstance(made, MCPStdioServerConfig)
    assert made.env == {"A": "approved"}
    with pytest.raises(NotApproved, match="has changed since it was approved"):
        resolve(vscode(tmp_path, {"command": "x", "envFile": ".env"}), ENV, trust=trust)


def test_a_file_whose_path_depends_on_an_input_is_not_read_without_approval(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "approvals.json")
    put(tmp_path, "good.env", "A=1")
    put(tmp_path, "evil.env", "A=evil")
    entry = {"command": "x", "envFile": "${input:which}.env"}
    found = vscode(tmp_path, entry, inputs=[{"id": "which", "default": "good"}])
    trust.approve(found)
    assert resolve(found, ENV, trust=trust).entry.env == {"A": "1"}  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="the approval does not cover the file"):
        resolve(found, ENV, trust=trust, inputs={"which": "evil"})


def test_the_input_default_of_one_file_does_not_apply_to_another(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from fairlead.cli.gateway.choose_servers import OwnAddress, discovered_servers

    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "ours"))
    mine = {"servers": {"mine": {"url": "https://${input:host}/mcp"}}}
    inputs = [{"id": "host", "default": "mine.example"}]
    put(home, ".config/Code/User/mcp.json", json.dumps({**mine, "inputs": inputs}))
    theirs = {"servers": {"z": {"command": "x", "args": ["${input:host}"]}}}
    inputs = [{"id": "host", "default": "evil.example"}]
    project = tmp_path / "project"
    put(project, ".vscode/mcp.json", json.dumps({**theirs, "inputs": inputs}))
    Trust().approve(load_all_mcp_configs(project).found["z"])
    wanted = discovered_servers(str(project), OwnAddress(), {})
    import asyncio

    [one] = wanted.servers["mine"]
    assert one.resolve is not None
    assert asyncio.run(one.resolve()).url == "https://mine.example/mcp"  # type: ignore


def test_references_to_too_many_files_are_rejected(tmp_path: Path) -> None:
    args = [f"{{file:{number}.txt}}" for number in range(100)]
    put(tmp_path, "opencode.json", json.dumps({"mcp": {"s": {"type": "local", "command": args}}}))
    host = next(host for host in HOSTS if host.id == "opencode")
    loaded = load_all_mcp_configs(tmp_path, hosts=[host], home="/nowhere", env={})
    assert "more than 16 files" in loaded.warnings[0].reason


def test_a_changed_env_file_changes_the_digest_of_its_entry(tmp_path: Path) -> None:
    put(tmp_path, ".env", "A=1")
    vscode(tmp_path, {"command": "x", "envFile": ".env"})
    read = snapshot_reader(tmp_path, loading={"home": "/nowhere", "env": ENV})
    before = read()
    assert str(tmp_path / ".env") in before.files
    put(tmp_path, ".env", "A=2")
    assert read().wanted["s"].digest != before.wanted["s"].digest


# Displayed values


def test_approve_shows_resolved_values_and_their_origins(person: Person) -> None:
    put(person.project, ".env", "MODE=fast\nDB_PASSWORD=hunter22\n")
    entry = {
        "command": "./run.sh",
        "args": ["${input:where}", "${env:HOME}"],
        "env": {"API_TOKEN": "abc123", "LD_PRELOAD": "/evil.so"},
        "envFile": ".env",
    }
    inputs = [{"id": "where", "default": "there", "description": "Where to?"}]
    person.has("project/.vscode/mcp.json", {"p": entry}, inputs=inputs)
    shown = person.does("mcp", "approve", "p", "--yes").out
    assert f"  runs      {person.project}/run.sh there {person.home}\n" in shown
    assert "      from: the default of the input where, unless you enter another value\n" in shown
    assert "      from: your variable HOME\n" in shown
    assert f"  in        {person.project}\n      from: the project folder\n" in shown
    assert f"  env       MODE=fast\n      from: the file {person.project}/.env\n" in shown
    assert "  env       LD_PRELOAD=/evil.so\n" in shown
    assert "  env       API_TOKEN=[REDACTED]\n" in shown
    assert "  input     where (Where to?)\n" in shown
    assert "hunter22" not in shown
    assert "abc123" not in shown
    assert "abc123" not in (person.ours / "data" / "approvals.json").read_text()


def test_approve_shows_the_changed_values(person: Person) -> None:
    put(person.project, ".env", "A=1")
    entry = {"command": "x", "args": ["1"], "env": {"B": "1", "C": "1"}, "envFile": ".env"}
    person.has("project/.cursor/mcp.json", {"p": entry})
    person.does("mcp", "approve", "p", "--yes")
    put(person.project, ".env", "A=2")
    changed = {**entry, "args": ["2"], "env": {"B": "2", "D": "1"}}
    person.has("project/.cursor/mcp.json", {"p": changed})
    shown = person.does("mcp", "approve", "p", "--yes").out
    parts = [line.split(None, 1)[1] for line in shown.splitlines() if line.startswith("  changed ")]
    content = f"content of {person.project}/.env"
    assert parts == ["args", "env.B", "env.D", content, "env.C"]
    assert "  before    runs x 1\n" in shown


def test_approve_reports_values_changes_and_the_state_of_the_approval_as_json(
    person: Person,
) -> None:
    person.has(
        "project/.mcp.json", {"p": {"url": "https://${TOKEN}.example", "headers": {"A": "b"}}}
    )
    done = person.does("mcp", "approve", "p", "--json")
    about = json.loads(done.out)
    assert (done.code, about["approved"], about["approval"]) == (1, False, "missing")
    assert about["values"][0] == {
        "field": "url",
        "value": "https://${TOKEN}.example",
        "from": ["your variable TOKEN (not set)"],
    }
    assert {"field": "headers.A", "value": "b", "from": ["entry"]} in about["values"]
    done = person.does("mcp", "approve", "p", "--json", "--yes")
    assert (done.code, json.loads(done.out)["approved"]) == (0, True)
    person.has("project/.mcp.json", {"p": {"url": "https://evil.example"}})
    about = json.loads(person.does("mcp", "approve", "p", "--json").out)
    assert about["approval"] == "changed"
    assert "url" in about["changed"]
    assert about["before"] == {"reaches": "https://${TOKEN}.example"}


# Working directory

SERVER = """#!/bin/sh
exec {python} {server}
"""


@pytest.mark.parametrize("from_folder", ["project", "project/deep/er", "."])
def test_a_relative_command_runs_in_the_folder_of_its_project(
    person: Person, monkeypatch: pytest.MonkeyPatch, from_folder: str
) -> None:
    import sys

    part = "@server.tool()\ndef where() -> str:\n    return os.getcwd()"
    entry = person.server(part)
    script = person.project / "server.sh"
    script.write_text(SERVER.format(python=sys.executable, server=entry["args"][0]))
    script.chmod(0o755)
    (person.project / ".git").mkdir()
    (person.project / "deep" / "er").mkdir(parents=True)
    evil = person.folder / "server.sh"
    evil.write_text(f"#!/bin/sh\ntouch {person.folder}/evil\n")
    evil.chmod(0o755)
    person.has("project/.fairlead/mcp.json", {"p": {"command": "./server.sh"}})
    assert person.does("mcp", "approve", "p", "--yes").code == 0
    monkeypatch.chdir(person.folder / from_folder)
    if from_folder == ".":
        done = person.does("list", "--connect", "--project", "project", "--json")
        assert [row["status"] for row in json.loads(done.out)["servers"]] == ["connected"]
    else:
        assert person.does("mcp", "test", "p").code == 0
        assert person.does("doctor", "p").code == 0
        assert person.does("call", "p", "where").out == f"{person.project}\n"
    assert not (person.folder / "evil").exists()


async def test_configured_servers_and_resolve_use_the_same_working_directory(
    tmp_path: Path,
) -> None:
    trust = Trust(tmp_path / "approvals.json")
    project = tmp_path / "project"
    entry = {"command": "bin/run", "args": ["./a"], "cwd": "sub"}
    put(
        project, ".cursor/mcp.json", json.dumps({"mcpServers": {"s": entry, "t": {"command": "x"}}})
    )
    found = load_all_mcp_configs(project, home="/nowhere", env=ENV).found
    for one in found.values():
        trust.approve(one)
    ready = configured_servers(DiscoveredServers(found=found), trust=trust)
    assert ready["s"].resolve is not None
    assert ready["t"].resolve is not None
    made = await ready["s"].resolve()
    assert made == resolve(found["s"], ENV, trust=trust).entry
    assert isinstance(made, MCPStdioServerConfig)
    assert (made.command, made.cwd) == (f"{project}/sub/bin/run", f"{project}/sub")
    other = await ready["t"].resolve()
    assert isinstance(other, MCPStdioServerConfig)
    assert (other.command, other.cwd) == ("x", str(project))


def test_an_imported_entry_keeps_the_folder_of_its_project(person: Person) -> None:
    put(person.project, ".env", "A=1")
    entry = {"command": "./run", "cwd": "sub", "envFile": ".env"}
    person.has("project/.cursor/mcp.json", {"p": entry})
    person.does("mcp", "approve", "p", "--yes")
    done = person.does("mcp", "import", "cursor", "p")
    assert done.code == 0
    assert "which the project can change" in done.err
    copied = person.read("ours/mcp.json")["mcpServers"]["p"]
    project = str(person.project)
    assert copied["command"] == f"{project}/sub/run"
    assert (copied["cwd"], copied["envFile"]) == (f"{project}/sub", f"{project}/.env")


def test_a_project_cannot_choose_the_variable_used_as_an_api_key(tmp_path: Path) -> None:
    url = "https://mcp.exa.ai/mcp?exaApiKey=${%s}"
    servers = {"exa": {"url": url % "TOKEN"}, "other": {"url": url % "EXA_API_KEY"}}
    put(tmp_path, ".mcp.json", json.dumps({"mcpServers": servers}))
    env = {**ENV, "EXA_API_KEY": "exa-key"}
    loaded = load_all_mcp_configs(tmp_path, home="/nowhere", env=env)
    assert loaded.exa_api_keys == ["exa-key"]


def test_files_on_other_machines_are_not_read_before_approval_on_windows(tmp_path: Path) -> None:
    from msgspec import structs

    from fairlead.config.variables.entry_references import files_of

    found = vscode(tmp_path, {"command": "x", "envFile": "//evil.example/share/.env"})
    assert files_of(found, ENV) == ["//evil.example/share/.env"]
    assert files_of(structs.replace(found, platform="win32"), ENV) == []
