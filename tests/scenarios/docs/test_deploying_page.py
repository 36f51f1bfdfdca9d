"""The files and commands on the page about deploying a gateway."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairlead.cli.gateway.gateway_command import _parser
from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person
from tests.support.running_gateway import get, running

__all__ = ["person"]

PAGE = Path(__file__).parents[3] / "docs" / "deploying.md"
SECRETS = {"ADMIN_TOKEN": "adm1n", "ALICE_TOKEN": "a1ice", "MONITOR_TOKEN": "m0nitor"}
STOPPING = 5.0  # seconds that the page allows for stopping the servers


def block(opening: str) -> str:
    """Return the only code block on the page whose opening fence is followed by this text."""
    [found] = re.findall(rf"```{re.escape(opening)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(found)


def gateway_text() -> str:
    return block('toml title="/etc/fairlead/gateway.toml"')


def environment(person: Person) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **person.env, **SECRETS, "PATH": path}


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page uses curl")
def test_the_gateway_on_the_deployment_page_starts_and_its_commands_run(person: Person) -> None:
    program = person.project / "notes.py"
    program.write_text(block('python title="/srv/fairlead/notes.py"'))
    text = gateway_text().replace("/opt/fairlead/bin/python", sys.executable)
    (person.project / "gateway.toml").write_text(text.replace("/srv/fairlead/notes.py", str(program)))
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    env = environment(person)
    shown = ""
    with running(person, "gateway", "gateway.toml", "--port", port, env=env) as gateway:
        gateway.wait_for("notes: connected")
        gateway.wait_for("drafts: connected")
        blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
        assert len(blocks) == 2
        for commands in blocks:
            # The page uses the default port, which commands need not name.
            commands = commands.replace("8765", port)
            commands = re.sub(
                r"fairlead (status|mcp reconnect \w+)", rf"\g<0> --url 127.0.0.1:{port}", commands
            )
            done = subprocess.run(
                ["sh", "-e", "-c", commands],
                cwd=person.project,
                env=env,
                capture_output=True,
                text=True,
                timeout=4 * LIMIT,
            )
            assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
            shown += done.stdout
        for words in ('{"status":"ok"}', '{"ready":true}', '"degraded":[]', "today: buy bread"):
            assert words in shown, words
        url, monitor = gateway.url, "Bearer m0nitor"
        assert get(url, "/metrics")[0] == 401
        assert get(url, "/metrics", authorization="Bearer a1ice")[0] == 403
        metrics = get(url, "/metrics", authorization=monitor)[1]
        names = set(re.findall(r"\bfairlead_\w+", PAGE.read_text())) - {"fairlead_connection"}
        assert [name for name in names if f"# TYPE {name} " not in metrics] == []
        assert 'fairlead_server_up{server="drafts"} 1\n' in metrics
        assert get(url, "/health", host="mcp.example.com")[0] == 200
        assert get(url, "/status", host="other.example.com", authorization=monitor)[0] == 403
        assert get(url, "/status", host="mcp.example.com", authorization=monitor)[0] == 200


def test_the_secrets_on_the_deployment_page_are_complete(tmp_path: Path) -> None:
    script = block('sh title="create the secrets"')
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, check=True, timeout=LIMIT)
    file = tmp_path / "gateway.env"
    assert file.stat().st_mode & 0o077 == 0
    created = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert created.keys() == SECRETS.keys()
    assert all(len(value) > 40 for value in created.values())


def test_the_commands_in_the_service_files_are_valid_and_outlast_the_drain() -> None:
    drain = tomllib.loads(gateway_text())["drain"]
    unit = dict(
        line.split("=", 1)
        for line in block('ini title="/etc/systemd/system/fairlead.service"').splitlines()
        if "=" in line
    )
    program, command, *words = shlex.split(unit["ExecStart"])
    assert (program, command) == ("/opt/fairlead/bin/fairlead", "gateway")
    assert _parser().parse_args(words).file == "/etc/fairlead/gateway.toml"
    assert float(unit["TimeoutStopSec"]) >= drain + STOPPING
    image = block('dockerfile title="Dockerfile"')
    [entry] = re.findall(r"^ENTRYPOINT \[(.*)\]$", image, re.MULTILINE)
    program, command, *words = shlex.split(entry.replace(",", " "))
    assert (program, command) == ("/opt/fairlead/bin/fairlead", "gateway")
    assert _parser().parse_args(words).listen == "0.0.0.0:8765"
    [timeout] = re.findall(r"--stop-timeout (\d+)", PAGE.read_text())
    assert float(timeout) >= drain + STOPPING


def test_the_pods_on_the_deployment_page_are_probed_and_outlast_the_drain() -> None:
    yaml = pytest.importorskip("yaml")
    deployment, service = yaml.safe_load_all(block('yaml title="deployment.yaml"'))
    pod = deployment["spec"]["template"]["spec"]
    drain = tomllib.loads(gateway_text())["drain"]
    assert pod["terminationGracePeriodSeconds"] >= drain + STOPPING
    [container] = pod["containers"]
    paths = {
        name: probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")
    }
    assert paths == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready",
    }
    ready = container["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] < drain
    assert service["spec"]["ports"] == [{"port": 8765}]
