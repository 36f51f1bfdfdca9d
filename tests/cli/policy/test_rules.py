"""Tests of `fairlead rules`, and of rules in a proxy and a gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import RpcError
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from tests.support.cli_process import LIMIT, fairlead, run_by, server_file, talk
from tests.support.cli_user import Person, person
from tests.support.running_gateway import connected, running, text_of

__all__ = ["person"]

TOOLS = """
    @server.tool()
    def read(path: str) -> str:
        return f"content of {path}"

    @server.tool()
    def erase(path: str) -> str:
        return f"{path} is gone"
"""
RULES = """\
[[rules]]
name = "no-erasing"
when = { tool = "*erase" }
do = { block = "erasing is disabled" }

[[rules]]
name = "no-etc"
when = { method = "tools/call", params = { "arguments.path" = { like = "/etc/*" } } }
do = [{ delay = 60 }, { audit = "audit.jsonl" }, { mock = "nothing to see" }]

[[rules]]
name = "often"
when = { tool = "*read" }
do = { rate = { rate = 0.01, burst = 2, per = "all" } }
"""


def call(number: int, tool: str, path: str) -> dict[str, Any]:
    params = {"name": tool, "arguments": {"path": path}}
    return {"id": number, "method": "tools/call", "params": params}


def answers(text: str) -> dict[Any, Any]:
    """Return results and errors by id."""
    found = [json.loads(line) for line in text.splitlines()]
    return {m["id"]: m.get("result", m.get("error")) for m in found if "id" in m}


def test_rules_check_lists_the_rules_of_a_valid_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    done = fairlead("rules", "check", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "no-erasing  block (reason: erasing is disabled)",
        "no-etc  delay (seconds: 60.0), audit (path: audit.jsonl), mock (result: nothing to see)",
        "often  rate (rate: 0.01, burst: 2.0, per: all)",
        "3 rules, no errors",
    ]
    assert [one.name for one in tmp_path.iterdir()] == ["rules.toml"], "nothing is written"
    told = json.loads(fairlead("rules", "check", str(file), "--json").stdout)
    assert [(rule["name"], rule["line"]) for rule in told["rules"]] == [
        ("no-erasing", 1),
        ("no-etc", 6),
        ("often", 11),
    ]


def test_rules_check_mentions_rules_that_only_a_gateway_accepts(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules:\n  - name: hold\n    do: {pause: {}}\n")
    refused = fairlead("proxy", "--rules", str(file), "--", "true")
    assert refused.returncode == 2
    done = fairlead("rules", "check", str(file))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 rule, no errors")
    assert "note: `fairlead proxy` and `fairlead tap` reject this file: " in done.stderr
    assert "messages can be held only in a gateway" in done.stderr
    told = json.loads(fairlead("rules", "check", str(file), "--json").stdout)
    assert ["only in a gateway" in one for one in told["onlyGateways"]] == [True]


@pytest.mark.covers("GTW-09")
def test_rules_check_reports_errors_with_their_position(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("rules:\n  - name: a\n    wen: {}\n    do: {dealy: 1}\n")
    done = fairlead("rules", "check", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{file}:3:5: unknown key 'wen': did you mean 'when'?" in done.stderr
    assert f"{file}:4:10: unknown action 'dealy': did you mean 'delay'?" in done.stderr
    told = json.loads(fairlead("rules", "check", "--json", str(file)).stdout)
    assert [(m["line"], m["column"]) for m in told["mistakes"]] == [(3, 5), (4, 10)]
    for args in (["rules", "chek", "x"], ["rules", "test", str(file)]):
        assert fairlead(*args).returncode == 2
    refused = fairlead("proxy", "--rules", str(file), "--", "true")
    assert refused.returncode == 2
    assert "did you mean" in refused.stderr
    assert "check" in fairlead("rules").stdout


@pytest.mark.covers("GTW-06", "GTW-09")
def test_a_proxy_applies_rules_and_rules_test_shows_their_effect_on_a_tape(
    tmp_path: Path,
) -> None:
    server = server_file(tmp_path, TOOLS)
    file = tmp_path / "rules.toml"
    file.write_text(RULES.replace("{ delay = 60 }, ", ""))
    said = talk(
        call(1, "read", "/home/a"),
        call(2, "erase", "/home/a"),
        call(3, "read", "/etc/passwd"),
        call(4, "read", "/home/b"),
    )
    ruled = fairlead("proxy", "--rules", str(file), *run_by(server), input=said)
    told = answers(ruled.stdout)
    assert told[1]["content"][0]["text"] == "content of /home/a", ruled.stderr
    assert told[2]["message"] == "erasing is disabled"
    assert told[2]["data"]["source"] == "proxy"
    assert told[3]["content"][0]["text"] == "nothing to see"
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["target"] for line in lines] == ["read"]
    (tmp_path / "audit.jsonl").unlink()

    tape = str(tmp_path / "monday.tape.jsonl")
    recorded = fairlead("proxy", "--record", tape, *run_by(server), input=said)
    assert "error" not in answers(recorded.stdout), recorded.stderr
    file.write_text(RULES)
    shown = fairlead("rules", "test", str(file), tape)
    assert shown.returncode == 0, shown.stderr
    assert [line.strip().partition(" ")[2] for line in shown.stdout.splitlines()][:4] == [
        "→ tools/call read: passed by often",
        "→ tools/call erase: blocked by no-erasing (blocked: erasing is disabled)",
        "→ tools/call read: answered by no-etc (would delay (seconds: 60.0); "
        "would audit (path: audit.jsonl); mocked)",
        "→ tools/call read: passed by often",
    ]
    assert shown.stdout.splitlines()[-1].endswith(
        "4 matched by rules: 1 answered, 1 blocked, 4 passed"
    )
    assert not (tmp_path / "audit.jsonl").exists()
    told = fairlead("rules", "test", str(file), tape, "--json", "--all")
    objects = [json.loads(line) for line in told.stdout.splitlines()]
    assert [one["method"] for one in objects] == [
        "initialize",
        "notifications/initialized",
        *["tools/call"] * 4,
    ]
    assert objects[3] == {
        "seq": objects[3]["seq"],
        "dir": "client_to_server",
        "method": "tools/call",
        "target": "erase",
        "rules": ["no-erasing"],
        "did": ["blocked: erasing is disabled"],
        "outcome": "blocked",
        "reason": "erasing is disabled",
    }
    assert fairlead("rules", "test", str(file), str(tmp_path / "no-tape")).returncode != 0


@pytest.mark.covers("GTW-09")
@pytest.mark.parametrize("version", [NEWEST.value, NEWEST_HANDSHAKE.value])
async def test_a_gateway_applies_changes_of_its_rules_file(person: Person, version: str) -> None:
    entry = person.server(TOOLS)
    (person.project / "gateway.json").write_text(
        json.dumps({"listen": "127.0.0.1:0", "rules": "rules.yaml", "servers": {"files": entry}})
    )
    rules = person.project / "rules.yaml"
    block = "rules:\n  - {name: a, when: {server: files, tool: '*_erase'}, do: block}\n"
    rules.write_text(block)
    with running(person, "gateway", "gateway.json") as gateway:
        gateway.wait_for("connected")
        async with asyncio.timeout(LIMIT), connected(gateway.url, version) as client:
            with pytest.raises(RpcError, match="Not allowed here"):
                await client.call_tool("files_erase", {"path": "x"})
            assert text_of(await client.call_tool("files_read", {"path": "x"})) == "content of x"
            rules.write_text(block.replace("_erase", "_read") + "\n")
            while True:  # a message causes a check of the file after half a second
                try:
                    assert text_of(await client.call_tool("files_erase", {"path": "x"}))
                    break
                except RpcError:
                    await asyncio.sleep(0.05)
            with pytest.raises(RpcError, match="Not allowed here"):
                await client.call_tool("files_read", {"path": "x"})


def test_a_gateway_with_invalid_rules_does_not_start(person: Person) -> None:
    (person.project / "gateway.toml").write_text('listen = "127.0.0.1:0"\nrules = "rules.toml"\n')
    (person.project / "rules.toml").write_text("[[rules]]\ndo = 'blok'\n")
    done = fairlead("gateway", "gateway.toml", cwd=person.project, env=person.env)
    assert done.returncode == 2
    assert "rules.toml:2:1: unknown action 'blok': did you mean 'block'?" in done.stderr
