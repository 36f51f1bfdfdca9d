"""Channels: streams of messages over stdio, HTTP, WebSocket, sockets and in memory."""
