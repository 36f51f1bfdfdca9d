"""The official Python SDK's client."""

from drive import drive, url_of
from mcp import Client
from mcp.client.stdio import StdioServerParameters


def connect(server: list[str]) -> Client:
    url = url_of(server)
    return Client(url or StdioServerParameters(command=server[0], args=server[1:]))


if __name__ == "__main__":
    drive(connect, lambda result: result.content[0].text)
