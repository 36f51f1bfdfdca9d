"""Read-only server for one SQLite database: the schema as a resource, queries as a tool.

python examples/sqlite_server.py app.db
"""

import sqlite3
import sys
from typing import Any

from fairlead import MCPServer, MCPToolError

path = sys.argv[1] if len(sys.argv) > 1 else ":memory:"
server = MCPServer("sqlite", instructions="Read schema://tables before you write a query.")


def connect() -> sqlite3.Connection:
    """Open a connection. Tools run in threads, and a SQLite connection belongs to one thread."""
    if path == ":memory:":
        return sqlite3.connect(path)
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


@server.resource("schema://tables", mime_type="text/plain")
def tables() -> str:
    """Return the CREATE statements of all tables."""
    with connect() as db:
        rows = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        return ";\n".join(sql for (sql,) in rows) or "no tables"


@server.tool(timeout=10)
def query(sql: str, limit: int = 100) -> list[dict[str, Any]]:
    """Run one SELECT statement and return its rows."""
    try:
        with connect() as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql).fetchmany(limit)]
    except sqlite3.Error as exc:
        raise MCPToolError(str(exc), suggestion="Check the table and column names") from exc


if __name__ == "__main__":
    server.run()
