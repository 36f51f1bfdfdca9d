"""Connections to one server: how they are shared and opened, and the messages on them."""
