"""Server for the files of one folder: listing, reading, searching and writing.

    python examples/files.py ~/notes

Every path is resolved and must stay inside of the folder, because a model may send any path.
"""

import sys
from pathlib import Path

from fairlead import MCPServer, MCPToolError

root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
server = MCPServer("files", instructions=f"Works on the files below {root}.")


def inside(path: str) -> Path:
    """Return the resolved path of a file, which must be inside of the folder."""
    file = (root / path).resolve()
    if not file.is_relative_to(root):
        raise MCPToolError(f"{path} is outside of the folder", code="ACCESS_DENIED")
    return file


@server.tool()
def list_files(pattern: str = "**/*", limit: int = 100) -> list[str]:
    """List files that match a glob pattern, relative to the folder."""
    files = (file for file in root.glob(pattern) if file.is_file())
    return sorted(str(file.relative_to(root)) for _, file in zip(range(limit), files, strict=False))


@server.tool()
def read_file(path: str) -> str:
    """Read a text file."""
    file = inside(path)
    if not file.is_file():
        raise MCPToolError(
            f"The file {path} does not exist", code="NOT_FOUND", suggestion="list_files"
        )
    return file.read_text(errors="replace")


@server.tool()
def search(text: str, pattern: str = "**/*", limit: int = 50) -> list[str]:
    """Find lines that contain a text. Each result has the form `file:line: content`."""
    found: list[str] = []
    for file in sorted(root.glob(pattern)):
        if not file.is_file():
            continue
        for number, line in enumerate(file.read_text(errors="ignore").splitlines(), 1):
            if text.lower() in line.lower():
                found.append(f"{file.relative_to(root)}:{number}: {line.strip()}")
                if len(found) >= limit:
                    return found
    return found


@server.tool()
def write_file(path: str, content: str) -> str:
    """Write a text file. An existing file is replaced."""
    file = inside(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return f"wrote {len(content)} characters to {path}"


if __name__ == "__main__":
    server.run()
