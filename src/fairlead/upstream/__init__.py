"""Configured servers and their connections.

`upstream.py` owns one server: its default connection, its lists, and a pool of connections for
clients that may not share the default one (`connection`). `upstream_registry.py` holds all servers
of a program.
"""
