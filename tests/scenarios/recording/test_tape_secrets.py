"""Redaction of secrets in a server's environment and options, on tapes and in output."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.tap.test_tap import read_until
from tests.support.cli_process import LIMIT, fairlead, server_file, talk
from tests.support.cli_user import Person, person

__all__ = ["person"]

TELLS = """
    @server.tool()
    def tell() -> str:
        password = os.environ["DATABASE_URL"].split(":")[2].split("@")[0]
        return " ".join([os.environ["SHOP_API_KEY"], password, *sys.argv[1:]])

    @server.tool()
    def given(name: str) -> str:
        return os.environ.get(name, "nothing")
"""
INHERITED, IN_URL = "zebra-quartz-77", "gecko-amber-66"
SPACED, JOINED = "koala-prism-88", "otter-lilac-99"
ALL = (INHERITED, IN_URL, SPACED, JOINED)
GIVEN = {"SHOP_API_KEY": INHERITED, "DATABASE_URL": f"postgres://shop:{IN_URL}@db/shop"}
TAP = (sys.executable, "-m", "fairlead", "tap")
NO_RULES = "rules = []\n"


@pytest.fixture
def command(person: Person) -> list[str]:
    """Return the command of a server with secrets in its environment and options."""
    file = server_file(person.folder, TELLS)
    return [sys.executable, str(file), "--api-key", SPACED, f"--token={JOINED}"]


def visited(person: Person, *between: str, command: list[str]) -> str:
    """Return the output of a client that calls the server through a `fairlead` command."""
    ours = [sys.executable, "-m", "fairlead", *between]
    environment = {**person.env, **GIVEN}
    done = fairlead("call", "tell", "--", *ours, "--", *command, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("between", [("record",), ("tap", "--tape"), ("tap", "--rules")])
def test_a_command_is_recorded_without_its_secrets(
    person: Person, command: list[str], between: tuple[str, ...]
) -> None:
    tape = person.folder / "tapes" / "one"
    if between[-1] == "--rules":
        rules = person.folder / "rules.toml"
        rules.write_text(NO_RULES)
        between = (*between, str(rules), "--tape")
    said = visited(person, *between, str(tape), command=command)
    assert [secret for secret in ALL if secret in said] == list(ALL)
    files = sorted(tape.parent.iterdir())
    assert len(files) == 2
    for file in files:
        text = file.read_text()
        assert [secret for secret in ALL if secret in text] == []
    assert b"[REDACTED]" in files[1].read_bytes()


def test_a_test_exported_from_a_tape_reports_a_missing_secret(
    person: Person, command: list[str]
) -> None:
    tape = person.folder / "one"
    visited(person, "record", str(tape), command=command)
    done = person.runs("tape", "export", str(tape), "--pytest")
    assert "replace [REDACTED] in SERVER" in done.err
    assert SPACED not in done.out


def test_a_proxy_does_not_reveal_secrets_of_its_server(person: Person, command: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fairlead", "proxy", "--journal", "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=person.project,
        env={**os.environ, **person.env, **GIVEN},
        bufsize=0,
    )
    try:
        assert process.stdin is not None
        call: dict[str, Any] = {"id": 1, "method": "tools/call", "params": {"name": "tell"}}
        process.stdin.write(talk(call).encode())
        said = b""
        while b'"id":1' not in said:
            said += read_until(process, b"\n")
        assert INHERITED in said.decode()
        shown = person.runs("watch", "--once", "--details").out
        assert "tools/call tell" in shown
        assert [secret for secret in ALL if secret in shown] == []
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def test_a_nested_fairlead_command_uses_the_data_folder_of_the_user(
    person: Person, command: list[str]
) -> None:
    visited(person, "record", "monday", command=command)
    (tape,) = json.loads(person.runs("tape", "list", "--json").out)
    assert Path(tape["path"]) == person.ours / "data" / "tapes" / "monday.tape.jsonl"


def test_a_tap_with_rules_passes_its_environment_to_the_server(
    person: Person, command: list[str]
) -> None:
    rules = person.folder / "rules.toml"
    rules.write_text(NO_RULES)
    call = {"name": "given", "arguments": {"name": "OTEL_SERVICE_NAME"}}
    process = subprocess.Popen(
        [*TAP, "--rules", str(rules), "--no-tape", "--", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **person.env, **GIVEN, "OTEL_SERVICE_NAME": "shop"},
        bufsize=0,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(talk({"id": 1, "method": "tools/call", "params": call}).encode())
        said = b""
        while b'"id":1' not in said:
            said += read_until(process, b"\n")
        (answer,) = (line for line in said.splitlines() if b'"id":1' in line)
        assert json.loads(answer)["result"]["content"][0]["text"] == "shop"
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.mark.covers("OBS-05")
@pytest.mark.parametrize("between", ["proxy", "tap"])
def test_rules_redact_secrets_of_the_server(
    person: Person, command: list[str], between: str
) -> None:
    rules, tape, audit = (person.folder / name for name in ("rules.json", "kept", "audit.log"))
    actions = [
        {"audit": {"path": str(audit), "payloads": "always"}},
        {"record": {"tape": str(tape)}},
        {"redact": {"to": "client"}},
    ]
    rules.write_text(json.dumps({"rules": [{"name": "all", "do": actions}]}))
    ours = [sys.executable, "-m", "fairlead", between, "--rules", str(rules), "--", *command]
    environment = {**person.env, **GIVEN}
    told = fairlead("call", "tell", "--", *ours, env=environment)
    given = fairlead("call", "given", f"name=SHOP_{SPACED}", "--", *ours, env=environment)
    assert "[REDACTED]" in told.stdout, told.stderr
    assert given.returncode == 0, given.stderr
    lines = audit.read_text()
    assert '"target":"given"' in lines
    written = (person.folder / "kept.tape.jsonl").read_text()
    assert "tools/call" in written
    for secret in ALL:
        assert secret not in told.stdout
        assert secret not in lines
        assert secret not in written
