"""Connections to one server: sharing, opening, and routing of messages."""
