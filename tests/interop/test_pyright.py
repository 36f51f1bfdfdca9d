"""Strict pyright checks of user code. `make check` runs the same checks with mypy."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.interop.node_packages import packages

ROOT = Path(__file__).parents[2]
USER_CODE = ROOT / "tests" / "typing"
WRONG = """
from fairlead import MCPClient, MCPServr
from fairlead.client import Calld

client: str = MCPClient.connect("server.py")
"""


@pytest.fixture(scope="module")
def pyright() -> Path:
    """Return the path of pyright's program in its npm package."""
    return packages("node-pyright", {"pyright": "1.1.411"}) / "pyright" / "index.js"


def problems(pyright: Path, folder: Path, code: Path) -> list[Any]:
    """Return the errors and warnings that pyright reports."""
    settings = {
        "include": [str(code.relative_to(folder))],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    project = folder / "pyrightconfig.json"
    project.write_text(json.dumps(settings))
    command = ["node", str(pyright), "--project", str(project), "--outputjson"]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True, timeout=120
    )
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1
    return list(report["generalDiagnostics"])


@pytest.mark.slow
def test_pyright_infers_every_type_in_user_code(pyright: Path, tmp_path: Path) -> None:
    copy = tmp_path / "test_user_code.py"
    copy.write_text((USER_CODE / copy.name).read_text())
    assert problems(pyright, tmp_path, copy) == []


@pytest.mark.slow
def test_pyright_reports_misspelt_names_and_wrong_types(pyright: Path, tmp_path: Path) -> None:
    code = tmp_path / "wrong.py"
    code.write_text(WRONG)
    text = "\n".join(found["message"] for found in problems(pyright, tmp_path, code))
    assert '"MCPServr" is unknown import symbol' in text
    assert '"Calld" is unknown import symbol' in text
    assert 'not assignable to declared type "str"' in text
