"""FastMCP's client."""

from drive import drive, url_of
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def connect(server: list[str]) -> Client:
    url = url_of(server)
    return Client(url or StdioTransport(command=server[0], args=server[1:]))


if __name__ == "__main__":
    drive(connect, lambda result: result.content[0].text)
