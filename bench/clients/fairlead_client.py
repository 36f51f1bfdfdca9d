"""Fairlead's client."""

from typing import Any

from drive import drive, url_of

from fairlead import MCPClient


def connect(server: list[str]) -> Any:
    url = url_of(server)
    return MCPClient.connect_http(url) if url else MCPClient.connect_stdio(server)


if __name__ == "__main__":
    drive(connect, lambda result: result["content"][0]["text"])
