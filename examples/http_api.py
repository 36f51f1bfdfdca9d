"""Server for an HTTP API, written with the standard library only.

    API_URL=http://localhost:8000 python examples/http_api.py

The base address comes from the environment, so a model can choose paths but never the host.
"""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from fairlead import MCPServer, MCPToolError

BASE = os.environ.get("API_URL", "http://127.0.0.1:8000").rstrip("/")
server = MCPServer("http-api")


@server.tool(timeout=20)
def get(path: str, query: dict[str, str] | None = None) -> Any:
    """GET a path of the API and return its JSON."""
    if not path.startswith("/"):
        raise MCPToolError("the path must start with /", code="VALIDATION_ERROR")
    url = BASE + urllib.parse.quote(path)
    if query:
        url += "?" + urllib.parse.urlencode(query)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return json.loads(answer.read(1 << 20))
    except urllib.error.HTTPError as exc:
        raise MCPToolError(f"{exc.code} {exc.reason} for {path}") from exc
    except (urllib.error.URLError, TimeoutError) as exc:
        raise MCPToolError(f"cannot reach the API: {exc}", code="DEPENDENCY_MISSING") from exc


if __name__ == "__main__":
    server.run()
