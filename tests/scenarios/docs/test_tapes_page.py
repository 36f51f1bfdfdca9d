"""Commands on the tapes page, which must run in order as shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.recording.tape import TapeEntry

pytestmark = pytest.mark.slow  # runs in `make test-all`

PAGE = Path(__file__).parents[3] / "docs" / "tapes.md"
LIMIT = 60.0


def test_every_command_on_the_tapes_page_runs_as_shown(tmp_path: Path) -> None:
    text = PAGE.read_text()
    [notes] = re.findall(r'```python title="notes.py"\n(.*?)```', text, re.DOTALL)
    (tmp_path / "notes.py").write_text(notes)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Servers started by a client inherit HOME and a few other variables.
    moved = ("FAIRLEAD_HOME", "XDG_DATA_HOME")
    env = {name: value for name, value in os.environ.items() if name not in moved}
    env |= {"PATH": path, "HOME": str(tmp_path / "home"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    blocks = re.findall(r"```sh(?: title=.*?)?\n(.*?)```", text, re.DOTALL)
    said = []
    for block in blocks:
        done = subprocess.run(
            ["sh", "-e", "-c", block],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        # The first messages of a client may differ between two runs.
        fine = (0, 1) if block.startswith("fairlead tape diff") else (0,)
        assert done.returncode in fine, f"{block}: {done.stdout} {done.stderr}"
        said.append(done.stdout)
    recorded, shown, changed, _, deleted, played, checked = said
    assert recorded.strip() == played.strip() == "3"
    assert "tools/call add" in shown
    assert "messages on" in changed
    assert deleted.count("deleted") == 4
    assert "compared, 0 differ" in checked
    assert "1 passed" in checked


def test_the_tapes_page_names_every_member_of_a_tape_entry() -> None:
    assert [
        name for name in TapeEntry.__struct_fields__ if f"| `{name}` |" not in PAGE.read_text()
    ] == []
