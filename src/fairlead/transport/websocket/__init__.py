"""MCP over WebSocket for clients and servers, in all protocol revisions: one message per text
frame.
"""
