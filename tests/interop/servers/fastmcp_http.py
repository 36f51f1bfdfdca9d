"""`fastmcp_full.py` over every HTTP transport that FastMCP has."""

from fastmcp.utilities.logging import temporary_log_level
from fastmcp_full import server
from listening import serve

if __name__ == "__main__":
    app = server.http_app
    apps = {
        "events": app("/events"),
        "json": app("/json", json_response=True),
        "stateless": app("/stateless", stateless_http=True),
        "sse": app("/sse", transport="sse"),
    }
    with temporary_log_level("CRITICAL"):
        serve(apps)
