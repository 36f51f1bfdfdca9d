"""Configured servers and their owners.

`upstream.py` owns one server: its default connection, its lists, and the pool of connections for
clients that may not share one (`connection`). `upstream_registry.py` has all servers of a program.
"""
