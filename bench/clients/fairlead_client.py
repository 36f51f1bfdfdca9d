"""Fairlead's client."""

from drive import drive

from fairlead import MCPClient

if __name__ == "__main__":
    drive(MCPClient.connect_stdio, lambda result: result["content"][0]["text"])
