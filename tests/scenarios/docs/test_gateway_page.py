"""Files and commands on the gateway page, and keys in the gateway reference."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.gateway import gateway_file as config
from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person
from tests.support.running_gateway import running

__all__ = ["person"]

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
SECRETS = {"ADMIN_TOKEN": "adm1n", "ALICE_TOKEN": "a1ice", "BOB_TOKEN": "b0b"}


def blocks(kind: str) -> list[str]:
    """Return the code blocks on the page whose opening fence has exactly this info string."""
    found = re.findall(rf"```{re.escape(kind)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, kind
    return found


def files_into(person: Person, **replaced: str) -> None:
    for kind, name in (("python", "notes.py"), ("python", "embedded.py"), ("toml", "gateway.toml")):
        [text] = blocks(f'{kind} title="{name}"')
        for old, new in replaced.items():
            text = text.replace(old, new)
        (person.project / name).write_text(text)


def environment(person: Person) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **person.env, **SECRETS, "PATH": path}


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_every_command_on_the_gateway_page_runs_as_shown(person: Person) -> None:
    files_into(person)
    up, gateway = (block.split() for block in blocks('sh title="in one terminal"'))
    assert up == ["fairlead", "up"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    shown = ""
    env = environment(person)
    with running(person, *gateway[1:], "--port", port, env=env) as served:
        for words in ("notes: connected", "pool: connected", "pool#2: connected"):
            served.wait_for(words)
        for block in blocks("sh"):
            done = subprocess.run(
                ["sh", "-e", "-c", block.replace("8765", port)],
                cwd=person.project,
                env=env,
                capture_output=True,
                text=True,
                timeout=4 * LIMIT,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
            shown += done.stdout
    for words in (
        "pool_erase",
        "old is gone",
        "today: buy bread",
        '"status":"ok"',
        '{"ready":true,"degraded":[]',
        "<!doctype html>",
        '"name":"pool#2"',
        '{"reconnected":"notes"}',
    ):
        assert words in shown, words


def test_the_json_command_on_the_gateway_page_prints_json(person: Person) -> None:
    [command] = blocks('sh title="for programs"')
    with running(person, *command.split()[1:]) as up:
        assert [one["name"] for one in up.report()["servers"]] == ["harbour", "notebook"]


def test_the_embedded_gateway_example_on_the_page_runs(person: Person) -> None:
    files_into(person)
    done = subprocess.run(
        [sys.executable, "embedded.py"],
        cwd=person.project,
        env=environment(person),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.stdout, done.stderr) == ("['notes_erase', 'notes_read']\n", "")


def test_the_gateway_reference_names_every_key_of_a_gateway_file() -> None:
    text = PAGE.with_name("gateway-file.md").read_text()
    for key in (*config._FLAT, *config._PLACE, *config._VIEW, *config._CLIENT, *config._OLD):
        assert f"`{key}" in text, key
    for key in config._ENTRY_TOO:
        assert f"`{key}`" in text, key


def test_the_gateway_file_in_the_reference_is_valid(tmp_path: Path) -> None:
    reference = PAGE.with_name("gateway-file.md").read_text()
    [text] = re.findall(r'```toml title="gateway.toml"\n(.*?)```', reference, re.DOTALL)
    (tmp_path / "gateway.toml").write_text(text)
    read = config.read_gateway_file(tmp_path / "gateway.toml", {"BOB_TOKEN": "b0b"})
    assert [client.name for client in read.clients] == ["bob"]
