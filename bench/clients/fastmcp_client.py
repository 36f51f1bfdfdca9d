"""FastMCP's client."""

from drive import drive
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


def connect(command: list[str]) -> Client:
    return Client(StdioTransport(command=command[0], args=command[1:]))


if __name__ == "__main__":
    drive(connect, lambda result: result.content[0].text)
