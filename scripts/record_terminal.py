"""Run Fairlead in a terminal and draw the session as `docs/images/terminal.svg`.

The commands run for real, in a temporary folder with two servers of `examples/`. The drawing shows
their output with three replacements: the folder of the executable is left out, the temporary folder
is `~/demo`, and the free port that was used is the default one.
"""

import io
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
DRAWING = ROOT / "docs" / "images" / "terminal.svg"
BIN = Path(sys.executable).parent
COLUMNS = 104
SECONDS = 30  # time limit of one command
PORT = "8765"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        session = TerminalSession(Path(folder))
        for name in ("ten_line_server.py", "long_job.py"):
            shutil.copy(ROOT / "examples" / name, folder)
        session.run("fairlead mcp add numbers --cwd . -- python ten_line_server.py")
        session.run("fairlead mcp add jobs --cwd . -- python long_job.py")
        session.run("fairlead list")
        session.run("fairlead call numbers add a=1 b=2")
        session.run_gateway("fairlead up", "fairlead call numbers_add a=20 b=22 URL/mcp")
        text = session.transcript()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text), soft_wrap=False)
    DRAWING.parent.mkdir(exist_ok=True)
    console.save_svg(str(DRAWING), title="Fairlead", unique_id="fairlead")
    # Trailing spaces of Rich's style sheet would be reported by `git diff --check`.
    DRAWING.write_text("\n".join(line.rstrip() for line in DRAWING.read_text().split("\n")))
    print(f"wrote {DRAWING.relative_to(ROOT)}")
    return 0


class TerminalSession:
    """A record of commands and their output on a terminal of `COLUMNS` columns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = str(probe.getsockname()[1])
        home = folder / "home"
        self._env = {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TERM": "xterm-256color",
            "COLUMNS": str(COLUMNS),
        }

    def run(self, command: str, *, shown: bool = True) -> None:
        """Run a command until it exits, and record its output if `shown`."""
        output = self._output_of(command)
        if shown:
            self._lines += [f"\x1b[1m$ {command}\x1b[0m", *output.split("\n"), ""]

    def run_gateway(self, gateway: str, command: str) -> None:
        """Start a gateway, run a command against it, and stop the gateway."""
        reader, writer = pty.openpty()
        actual = [*gateway.split(), "--port", self._port]
        process = subprocess.Popen(
            actual, cwd=self._folder, env=self._env, stdout=writer, stderr=writer
        )
        os.close(writer)
        output = ""
        while output.count(" connected (") < 2:
            output += os.read(reader, 65536).decode()
        answer = self._output_of(command.replace("URL", f"http://127.0.0.1:{self._port}"))
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS)
        os.close(reader)
        shown = command.replace("URL", f"http://127.0.0.1:{PORT}")
        lines = [line.rstrip() for line in output.strip().split("\n")]
        self._lines += [f"\x1b[1m$ {gateway}\x1b[0m", *lines, ""]
        self._lines += [f"\x1b[1m$ {shown}\x1b[0m   # in another terminal", answer]

    def transcript(self) -> str:
        text = "\n".join(self._lines)
        for found, replacement in (
            (f"{BIN}/", ""),
            (str(self._folder / "home"), "~"),
            (str(self._folder), "~/demo"),
            (f":{self._port}", f":{PORT}"),
        ):
            text = text.replace(found, replacement)
        return text

    def _output_of(self, command: str) -> str:
        reader, writer = pty.openpty()
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=self._folder, env=self._env, stdout=writer, stderr=writer
        )
        os.close(writer)
        output = b""
        while True:
            try:
                chunk = os.read(reader, 65536)
            except OSError:  # Linux reports the end of a terminal as EIO
                break
            if not chunk:
                break
            output += chunk
        os.close(reader)
        process.wait(SECONDS)
        return _final_screen(output.decode())


def _final_screen(output: str) -> str:
    """Return the lines that a terminal shows at the end, without those that were overwritten."""
    lines = [""]
    for part in re.split(r"(\x1b\[1A\x1b\[2K|\r\x1b\[K|\r?\n)", output):
        if part == "\x1b[1A\x1b[2K":  # up, and clear the line
            lines.pop()
            lines[-1] = ""
        elif part == "\r\x1b[K":
            lines[-1] = ""
        elif part in ("\n", "\r\n"):
            lines.append("")
        else:
            lines[-1] += part
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    sys.exit(main())
