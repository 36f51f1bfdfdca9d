"""The official Python SDK's client."""

from drive import drive
from mcp import Client
from mcp.client.stdio import StdioServerParameters


def connect(command: list[str]) -> Client:
    return Client(StdioServerParameters(command=command[0], args=command[1:]))


if __name__ == "__main__":
    drive(connect, lambda result: result.content[0].text)
