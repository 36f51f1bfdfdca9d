"""Tests of the hints that show how other programs connect."""

import base64
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

import pytest

from fairlead.cli.framework.suggested_commands import started_command
from fairlead.cli.gateway.connect_hints import connect_hints
from fairlead.config.paths import HostPaths
from tests.support.cli_process import fairlead

URL = "http://127.0.0.1:8765/mcp"
HOSTS = [
    *("Claude Code", "Claude Desktop", "Cursor", "VS Code", "Gemini CLI", "Codex", "Goose"),
    *("LM Studio", "ChatGPT", "claude.ai", "opencode", "Windsurf", "Zed", "Kiro", "Amp", "Crush"),
    *("Continue", "Fairlead"),
]


def hints(*, has_token: bool = False, name: str = "notes", url: str = URL) -> dict[str, str]:
    return dict(connect_hints(url, has_token=has_token, name=name, all_hosts=True))


def test_connect_hints_exist_for_every_supported_program() -> None:
    found = hints()
    assert list(found) == HOSTS
    assert found["Claude Code"] == f"claude mcp add --scope user --transport http notes {URL}"
    assert found["ChatGPT"] == found["claude.ai"]
    assert "public https URL with OAuth" in found["ChatGPT"]
    assert 'url = "http://127.0.0.1:8765/mcp"' in found["Codex"]
    common = [title for title, _ in connect_hints(URL, has_token=False)]
    assert common == ["Claude Code", "VS Code", "Fairlead"]


def test_install_links_contain_the_encoded_server_entry() -> None:
    found = hints(name="my notes")
    for host in ("Cursor", "LM Studio"):
        query = parse_qs(urlsplit(found[host]).query)
        assert query["name"] == ["my notes"]
        assert json.loads(base64.b64decode(query["config"][0])) == {"url": URL}
    command, link, preview, page, file = found["VS Code"].splitlines()
    entry = {"name": "my notes", "type": "http", "url": URL}
    assert json.loads(shlex.split(command)[2]) == entry
    assert json.loads(unquote(link.removeprefix("vscode:mcp/install?"))) == entry
    assert preview == link.replace("vscode:", "vscode-insiders:")
    shown, _, badge = page.partition("(")
    assert shown == "for a README: [Install in VS Code]"
    assert urlsplit(badge).hostname == "vscode.dev"
    assert parse_qs(urlsplit(badge.removesuffix(")")).query) == {"url": [link]}
    name, place, content = file.split(": ", 2)
    assert (name, place) == ("for one project", ".vscode/mcp.json")
    assert json.loads(content) == {"servers": {"my notes": {"type": "http", "url": URL}}}
    goose = parse_qsl(urlsplit(found["Goose"]).query)
    assert [value for key, value in goose if key == "arg"][-2:] == ["proxy", URL]


def test_the_hint_for_claude_desktop_names_every_place_of_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    windows = HostPaths(
        platform="win32", home=r"C:\Users\me", cwd="C:\\", env={"APPDATA": r"C:\Users\me\Roaming"}
    )
    monkeypatch.setattr("fairlead.cli.gateway.connect_hints.local_host_paths", lambda: windows)
    usual, store, entry = hints()["Claude Desktop"].splitlines()
    assert usual == r"C:\Users\me\Roaming\Claude\claude_desktop_config.json or"
    assert r"\Packages\Claude_pzs8sxrjxfjjc\LocalCache\Roaming\Claude" in store
    assert json.loads(entry)["mcpServers"]["notes"]["args"][-2:] == ["proxy", URL]


def test_connect_hints_quote_names_and_urls_for_a_shell() -> None:
    found = hints(name="-$(id);'x", url=f"{URL}?a=$(id)&b")
    words = shlex.split(found["Claude Code"])
    assert words[-3:] == ["--", "-$(id);'x", f"{URL}?a=$(id)&b"]
    assert shlex.split(found["Gemini CLI"])[-2:] == words[-2:]


def test_connect_hints_contain_a_variable_instead_of_the_token() -> None:
    found = hints(has_token=True)
    assert "--header 'Authorization: Bearer ${FAIRLEAD_TOKEN}'" in found["Claude Code"]
    assert 'bearer_token_env_var = "FAIRLEAD_TOKEN"' in found["Codex"]
    assert "Bearer ${env:FAIRLEAD_TOKEN}" in found["VS Code"]
    assert found["Goose"].startswith(
        "~/.config/goose/config.yaml:"
    )  # links cannot contain variables
    assert all("FAIRLEAD_TOKEN" in found[host] for host in HOSTS if host not in _SERVICES)


_SERVICES = ("ChatGPT", "claude.ai")


def test_the_connect_hints_command_prints_all_hints(tmp_path: Path) -> None:
    done = fairlead("connect-hints", URL, "--name", "notes")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Claude Code:\n  claude mcp add ")
    assert list(json.loads(fairlead("connect-hints", "--json").stdout)) == HOSTS
    assert fairlead("connect-hints", "localhost:1").returncode == 2


def test_connect_hints_use_the_command_that_started_fairlead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "fairlead"
    script.parent.mkdir()
    script.write_text("")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, str(script), "up"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert started_command() == [str(script)]
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin")
    assert started_command() == ["fairlead"]
    assert started_command(absolute=True) == [str(script)]
    found = hints()
    *_, entry = found["Claude Desktop"].splitlines()
    assert json.loads(entry)["mcpServers"]["notes"]["command"] == str(script)
    assert dict(parse_qsl(urlsplit(found["Goose"]).query))["cmd"] == str(script)
    assert found["Fairlead"] == f"fairlead tools {URL}"
    monkeypatch.setenv("UV", str(script.with_name("uv")))
    monkeypatch.setattr(sys, "prefix", "/home/a/.cache/uv/archive-v0/xyz")
    shutil.copy(script, script.with_name("uvx"))
    assert started_command() == ["uvx", "fairlead"]


def test_connect_hints_use_python_m_if_fairlead_was_started_as_a_module() -> None:
    command = [sys.executable, "-m", "fairlead", "connect-hints", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = shlex.split(json.loads(done.stdout)["Fairlead"])
    assert words[1:] == ["-m", "fairlead", "tools", URL]


@pytest.mark.parametrize("words", [("s3cret",), ("s3cret", URL), (URL, "s3cret")])
def test_a_token_that_is_passed_for_the_hints_is_an_error_that_does_not_show_it(
    words: tuple[str, ...],
) -> None:
    before = [words[0]] if words[0] == URL else []
    done = fairlead("connect-hints", *before, "--token", *words[len(before) :])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: --token takes no value here\n"
        "hint: the output has a placeholder for the token: `fairlead connect-hints --token URL`\n"
    )


def test_an_unknown_option_of_the_hints_is_named() -> None:
    done = fairlead("connect-hints", "--token", "--nmae", "notes", URL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: Unrecognized arguments: --nmae ")
